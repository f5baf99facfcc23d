"""The probe of the nodes: their reports, the verdicts, and that a dead node blocks nothing."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from backends.errors import UserError
from backends.nodes import node_program
from backends.nodes.asking import Asked, Question, ask, ask_all, explain
from backends.nodes.node_shell import SCRIPT
from backends.nodes.report import Gpu, ImageSample, Interface, NodeReport, read_report
from backends.nodes.survey import Nodes, nodes_of, read_allocation, survey
from backends.nodes.verdicts import Expected, NodeVerdict, judge
from backends.programs import Answer
from backends.runs.plan import RunPlan
from backends.runs.processes import marked_processes
from backends.settings import Settings
from backends.setup.step import Finding, Site
from backends.setup.versions import read_mpi_version
from backends.workspace import Workspace
from tui.commands import probe as probe_command
from tui.commands.probe import check_nodes

MPI = read_mpi_version("mpirun (Open MPI) 5.0.5")
H100 = Gpu("NVIDIA H100 80GB HBM3", 81559, 4, "550.54")
GOOD = NodeReport(
    host="n1",
    image=ImageSample(19_200_000_000, "abc"),
    paths=frozenset({"/w"}),
    writable=frozenset({"/w"}),
    tokens=frozenset({"/w/token"}),
    free={"/w": 10**12, "/tmp": 10**11, "/dev/shm": 10**11},
    mpi=MPI,
    singularity="/usr/bin/singularity",
    gpus=(H100,) * 8,
    interfaces=(Interface("eth0", "10.0.0.1"),),
    infiniband=(("mlx5_0", True),),
)
EXPECTED = Expected("/i.sif", "singularity", ("/w",), "/w/token", {"n1": 8, "n2": 8, "n3": 8}, GOOD)


def asked(name: str, ahead: float | None = 0.1, **changes: Any) -> Asked:
    return Asked(name, dataclasses.replace(GOOD, host=name, **changes), "", "", ahead, 1.0)


def bad(node: Asked, **expected: Any) -> list[tuple[str, str, str]]:
    """(check, verdict, evidence) of what is not well with `node` beside two good ones."""
    nodes = [asked("n1"), node, asked("n3")]
    verdicts = judge(nodes, dataclasses.replace(EXPECTED, **expected))
    assert [v.finding.verdict for v in verdicts if v.name != node.name] == ["ok", "ok"]
    judged = verdicts[1]
    assert all(check.remedy for check in judged.checks if check.verdict != "ok"), "each has a remedy"
    return [(c.name, c.verdict, c.evidence) for c in judged.checks if c.verdict != "ok"]


def test_nodes_that_are_alike_are_well() -> None:
    (verdict, *_) = judge([asked("n1"), asked("n2")], EXPECTED)
    assert verdict.finding.verdict == "ok"
    assert verdict.finding.evidence == (
        "8 × NVIDIA H100 80GB HBM3, 80 GiB · driver 550.54 · same image (size and 16 samples) · Open MPI 5.0.5 · "
        "same folders · 1 × InfiniBand, eth0 10.0.0.1 · 931 GiB free"
    )
    assert verdict.as_json()["remedy"] is None and len(verdict.as_json()["checks"]) == 9


OTHER_MPI = read_mpi_version("mpirun (Open MPI) 4.1.4")
PATCH_MPI = read_mpi_version("mpirun (Open MPI) 5.0.7")
OTHER_GPU = dataclasses.replace(H100, name="NVIDIA A100-SXM4-80GB")


@pytest.mark.parametrize(
    ("changes", "check", "verdict", "words"),
    [
        ({"image": ImageSample(18_000_000_000, "abc")}, "image", "failed", "16.8 GiB instead of 17.9 GiB"),
        ({"image": ImageSample(19_200_000_000, "xyz")}, "image", "failed", "another image of the same size"),
        ({"image": None}, "image", "failed", "no image /i.sif"),
        ({"paths": frozenset()}, "paths", "failed", "does not see /w"),
        ({"tokens": frozenset()}, "paths", "failed", "another folder at the workspace's path"),
        ({"writable": frozenset()}, "paths", "failed", "cannot write to /w"),
        ({"mpi": OTHER_MPI}, "mpi", "failed", "Open MPI 4.1.4, here 5.0.5"),
        ({"mpi": PATCH_MPI}, "mpi", "warning", "Open MPI 5.0.7, here 5.0.5"),
        ({"mpi": None}, "mpi", "warning", "no mpirun"),
        ({"singularity": None}, "singularity", "failed", "no singularity"),
        ({"singularity": "/opt/s"}, "singularity", "warning", "is /opt/s, here /usr/bin/singularity"),
        ({"gpus": None}, "gpus", "failed", "nvidia-smi does not answer"),
        ({"gpus": (H100,) * 4}, "gpus", "failed", "4 × NVIDIA H100 80GB HBM3, but slots=8"),
        ({"gpus": (*(H100,) * 7, OTHER_GPU)}, "gpus", "warning", "other GPUs"),
        ({"gpus": (dataclasses.replace(H100, used=40000), *(H100,) * 7)}, "gpus", "warning", "GPU 0: 40000 MiB"),
        ({"gpus": (dataclasses.replace(H100, driver="535.1"),) * 8}, "driver", "warning", "535.1, the others 550.54"),
        ({"infiniband": (("mlx5_0", False),)}, "network", "warning", "without link: mlx5_0"),
        ({"infiniband": ()}, "network", "warning", "no InfiniBand"),
        ({"free": {"/w": 10**9}}, "disk", "warning", "only 954 MiB in /w"),
        ({"free": {"/dev/shm": 64 << 20}}, "disk", "warning", "64 MiB in /dev/shm"),
        ({"ahead": -3.2}, "clock", "warning", "3.2 s slow"),
    ],
)  # fmt: skip
def test_a_difference_is_reported_for_the_node_that_differs(
    changes: dict[str, Any], check: str, verdict: str, words: str
) -> None:
    ((found, how, evidence),) = bad(asked("n2", **changes))
    assert (found, how) == (check, verdict) and words in evidence


def test_interfaces_without_a_common_name_are_reported_for_every_node() -> None:
    other = asked("n2", interfaces=(Interface("ens3", "10.0.0.2"),))
    verdicts = judge([asked("n1"), other], EXPECTED)
    assert ["no interface is named alike" in v.finding.evidence for v in verdicts] == [True, True]


def test_a_node_that_did_not_answer_has_a_reason_and_a_remedy() -> None:
    dead = Asked("n2", None, "No answer within 20 s.", "Is it on?", None, 20.0)
    verdict = judge([asked("n1"), dead], EXPECTED)[1]
    finding = verdict.finding
    assert (finding.verdict, finding.evidence, finding.remedy) == (
        "failed",
        "No answer within 20 s.",
        "Is it on?",
    )


def test_without_gpus_on_any_node_there_is_no_problem() -> None:
    nodes = [asked(name, gpus=None, infiniband=()) for name in ("n1", "n2")]
    assert [v.finding.verdict for v in judge(nodes, EXPECTED)] == ["ok", "ok"]


# The programs on the node, really run here.


def words(image: Path, *paths: Path) -> list[str]:
    question = {"image": str(image), "singularity": "sh", "paths": [str(p) for p in paths], "tokens": []}
    program = Path(node_program.__file__).read_text()
    return [
        "sh",
        "-c",
        SCRIPT,
        "mdk-probe",
        program,
        json.dumps(question),
        str(image),
        "sh",
        *map(str, paths),
    ]


def without_python(folder: Path) -> dict[str, str]:
    """A PATH with the usual small programs, but no python3."""
    folder.mkdir()
    for name in ("sh", "uname", "date", "stat", "dd", "sha256sum", "cut", "df", "awk", "head"):
        (folder / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    return {"PATH": str(folder)}


@pytest.mark.parametrize("size", [0, 1000, 65536, 3 * 65536 + 17, 40 * 65536])
def test_sh_and_python_see_the_same(tmp_path: Path, size: int) -> None:
    image = tmp_path / "image.sif"
    image.write_bytes(os.urandom(size))
    reports: list[NodeReport] = []
    for environment in ({"PATH": os.environ["PATH"]}, without_python(tmp_path / "bin")):
        done = subprocess.run(
            words(image, tmp_path, tmp_path / "nothing"),
            env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert ("mdk-say end" in done.stdout) == (environment["PATH"] == str(tmp_path / "bin"))
        report = read_report(done.stdout.splitlines())
        assert report is not None, done.stdout + done.stderr
        reports.append(report)
    by_python, by_sh = reports
    assert by_python.image == by_sh.image and by_sh.image is not None and by_sh.image.size == size
    assert by_python.paths == by_sh.paths == {str(tmp_path)} == by_python.writable == by_sh.writable
    assert by_python.host == by_sh.host and by_sh.singularity is not None
    assert abs(by_python.free[str(tmp_path)] - by_sh.free[str(tmp_path)]) < 1 << 30


def test_the_sample_sees_both_ends_of_an_image(tmp_path: Path) -> None:
    image = tmp_path / "image.sif"
    content = bytearray(os.urandom(100 * 65536))
    image.write_bytes(content)
    first = node_program.image_of(str(image))
    for at in (0, len(content) - 1):
        changed = bytearray(content)
        changed[at] ^= 1
        image.write_bytes(changed)
        assert node_program.image_of(str(image)) != first
    assert first is not None and first["sample"] != hashlib.sha256(b"").hexdigest()


def test_the_answer_of_a_node_is_cleaned_and_wrong_values_are_dropped() -> None:
    line = 'mdk-node {"host": "n\\u001b[2J1", "gpus": 3, "image": {"size": "x"}, "paths": ["/w"], "interfaces": [{}, 7]}'
    report = read_report([f"[1,0]<stdout>: {line}"])
    assert report == NodeReport(host="n1", gpus=())
    assert read_report(["mdk-node {broken"]) is None and read_report(["mdk-say host n1"]) is None


# Asking.


def question(name: str, program: str) -> Question:
    return Question(name, (sys.executable, "-c", program), Path("/"), dict(os.environ))


ANSWERS = "print('mdk-clock', __import__('time').time() + 1000, flush=True); print('mdk-node {\"host\": \"n\"}', flush=True)"
HANGS = "__import__('time').sleep(1000)"


def test_a_dead_node_delays_nothing_and_leaves_no_process() -> None:
    began = time.monotonic()
    names = ["dead", "a", "b"]
    programs = [HANGS, ANSWERS, ANSWERS]
    answers = list(ask_all([question(n, p) for n, p in zip(names, programs, strict=True)], 10.0, together=2))
    assert [answer.name for answer in answers][-1] == "dead"
    assert answers[-1].failure == "No answer within 10 s." and "ssh dead true" in answers[-1].remedy
    assert time.monotonic() - began < 200
    ahead = answers[0].ahead
    assert ahead is not None and 900 < ahead < 1000.1


def test_an_mpirun_that_hangs_after_the_answer_is_not_waited_for() -> None:
    answer = ask(question("n", f"{ANSWERS}; {HANGS}"), 200.0)
    assert answer.report is not None and answer.seconds < 150


def test_processes_that_the_command_left_behind_are_ended(tmp_path: Path) -> None:
    note = tmp_path / "mark"
    program = (
        f"import os, subprocess, sys; open({str(note)!r}, 'w').write(os.environ['MDK_RUN']); "
        f"subprocess.Popen([sys.executable, '-c', {HANGS!r}], stdout=subprocess.DEVNULL, start_new_session=True); {ANSWERS}"
    )
    assert ask(question("n", program), 200.0).report is not None
    until(lambda: not marked_processes(note.read_text()), "its end")


def test_a_missing_mpirun_is_reported() -> None:
    answer = ask(Question("n", ("/nowhere/mpirun",), Path("/"), {}), 5.0)
    assert "cannot be run: No such file" in answer.failure and "module" in answer.remedy


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("ssh: Could not resolve hostname nodex: Name or service not known\nA daemon failed to report back", "not known here"),
        ("root@n2: Permission denied (publickey,password).", "asks for a password"),
        ("root@n2: Permission denied (publickey).", "ssh does not let us in"),
        ("[n1:7] plm:ssh: Warning: setpgid(9,9) failed in parent with errno=Permission denied(13)\nHost key verification failed.", "host key"),
        ("Host key verification failed.", "host key"),
        ("ssh: connect to host n2 port 22: Connection timed out", "cannot be reached"),
        ("bash: line 1: prted: command not found", "not in the PATH"),
        ("There are not enough slots available in the system", "no slot"),
        ("A daemon failed to report back after being spawned.", "daemon did not come up"),
        ("-----\nsomething else\n", "status 1: something else"),
        ("", "nothing was printed"),
    ],
)  # fmt: skip
def test_failures_are_explained(output: str, words: str) -> None:
    failure, remedy = explain("n2", output, 1, None)
    assert words in failure and remedy and "{" not in remedy


# Which nodes.

ALLOCATION_5 = """
======================   ALLOCATED NODES FOR JOB prterun-vm-1@1  ======================
    node1: slots=2 max_slots=0 slots_inuse=0 state=UP
\tFlags: DAEMON_LAUNCHED:LOCATION_VERIFIED:SLOTS_GIVEN
    node2: slots=4 max_slots=0 slots_inuse=0 state=UP
=================================================================
mdk-host node2.site
mdk-host node1.site
"""
ALLOCATION_4 = "\tnode1: flags=0x11 slots=8 max_slots=0 slots_inuse=0 state=UP\nmdk-host node1\n"


class FakePrograms:
    def __init__(self, output: str, missing: bool = False) -> None:
        self.output, self.missing, self.asked = output, missing, [()]

    def find(self, name: str) -> str | None:
        return None if self.missing else f"/usr/bin/{name}"

    def ask(self, argv: Any, *, timeout: float = 20, cwd: Any = None, env: Any = None) -> Answer:
        self.asked.append(tuple(argv))
        version = "--version" in argv
        return Answer(
            0 if version or self.output else 1, "mpirun (Open MPI) 4.1.4\n" if version else self.output, ""
        )


def site(root: Path, programs: FakePrograms) -> Site:
    return Site(Workspace(root), Settings(), {}, programs)


def test_without_a_hostfile_mpirun_says_which_nodes_it_takes(tmp_path: Path) -> None:
    assert [(h.name, h.slots) for h in read_allocation(ALLOCATION_5)] == [("node1", 2), ("node2", 4)]
    programs = FakePrograms(ALLOCATION_4)
    nodes = nodes_of(site(tmp_path, programs), Path("none"))
    assert (nodes.names, nodes.hosts[0].slots, nodes.source) == (["node1"], 8, "mpirun's own allocation")
    assert programs.asked[-1][:6] == (
        "mpirun",
        "--bind-to",
        "none",
        "--display-allocation",
        "--map-by",
        "ppr:1:node",
    )
    with pytest.raises(UserError, match="does not say which nodes"):
        nodes_of(site(tmp_path, FakePrograms("")), Path("none"))
    with pytest.raises(UserError, match="no mpirun in PATH"):
        nodes_of(site(tmp_path, FakePrograms("", missing=True)), Path("none"))


def test_the_token_is_there_only_while_it_is_asked_for(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("n1 slots=8\n")
    where = site(tmp_path, FakePrograms(""))
    with survey(where, nodes_of(where, hosts)) as asking:
        assert asking.token is not None and Path(asking.token).exists()
        command = asking.command("n1")
        assert command[:7] == ("mpirun", "--np", "1", "--host", "n1:1", "--bind-to", "none")
        assert asking.token in command
        assert asking.expected().slots == {"n1": 8}
    assert not Path(asking.token).exists()


def test_a_port_in_use_on_the_node_of_rank_0_is_reported_with_the_next_free_one() -> None:
    first, second = (
        Asked(name, dataclasses.replace(GOOD, port=14537), "", "", 0.0, 1.0) for name in ("n1", "n2")
    )
    wanted = dataclasses.replace(EXPECTED, first="n1", port=14535)
    found = judge([first, second], wanted)
    [port] = [check for check in found[0].checks if check.name == "port"]
    assert port.verdict == "warning" and "14535 is in use there" in port.evidence and "14537" in port.remedy
    assert (found[0].port, found[1].port) == (14537, None)
    assert all(check.name != "port" for check in found[1].checks), "rank 0 is on the first"
    free = judge([first], dataclasses.replace(wanted, port=14537))[0]
    assert [check.verdict for check in free.checks if check.name == "port"] == ["ok"]


def test_a_node_says_which_port_is_free_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert (node_program.free_port(port) or 0) > port
    assert node_program.free_port(65536) is None


# Before a launch.


def answers_of(monkeypatch: pytest.MonkeyPatch, *verdicts: NodeVerdict) -> list[list[str]]:
    """A probe that finds `verdicts`; whom it was asked about."""
    asked: list[list[str]] = []

    def probed(site: Site, nodes: Nodes, port: int | None) -> Iterator[list[NodeVerdict]]:
        asked.append([host.word for host in nodes.hosts])
        yield list(verdicts)

    monkeypatch.setattr(probe_command, "probe", probed)
    return asked


def test_an_mpirun_that_did_not_begin_is_asked_again(tmp_path: Path) -> None:
    began = tmp_path / "began"
    words = "The PMIx server's listener thread failed to start. We cannot continue."
    first = f"import os, sys\nif not os.path.exists({str(began)!r}): open({str(began)!r}, 'w'); print({words!r}); sys.exit(1)"
    assert ask(question("n", f"{first}\n{ANSWERS}"), 30.0).report is not None and began.exists()


def test_nothing_is_started_where_a_node_would_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = NodeVerdict("n1", (Finding("gpus", "ok", "8 × H100"),), 1.0)
    old = NodeVerdict("n2", (Finding("image", "failed", "another image", "Copy it."),), 1.0)
    plan = RunPlan("train", "megatron", launcher="mpirun", hosts=("n1:8", "n2"))
    asked = answers_of(monkeypatch, good, old)
    with pytest.raises(UserError, match="n2 would stop it") as caught:
        check_nodes(plan, Workspace(tmp_path))
    assert caught.value.remedy == "Copy it." and asked == [["n1:8", "n2"]]
    slow = NodeVerdict("n2", (Finding("clock", "warning", "3 s slow", "chrony"),), 1.0)
    answers_of(monkeypatch, good, slow)
    assert check_nodes(plan, Workspace(tmp_path)) == plan
    answers_of(monkeypatch, dataclasses.replace(good, port=14541), slow)
    assert check_nodes(plan, Workspace(tmp_path)).environment["MASTER_PORT"] == "14541"
    with pytest.raises(UserError, match="has no nodes to ask"):
        check_nodes(dataclasses.replace(plan, launcher="slurm"), Workspace(tmp_path))
