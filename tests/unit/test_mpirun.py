"""The launcher mpirun: its command, its refusals, and ports that two jobs do not share."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from backends.errors import UserError
from backends.files import write_json
from backends.launch.hostfile_source import FoundHostfile, hosts_of
from backends.launch.image import INSIDE, bound_folders, find_singularity
from backends.launch.mpirun import SCRIPTS, Mpirun
from backends.launch.placement import Placement, default_launcher, found_files, placed
from backends.launch.preview import preview_of
from backends.models.arguments import data_prefixes
from backends.runs.folder import create_run_folder
from backends.runs.plan import RunPlan
from backends.runs.ports import (
    PortBook,
    choose,
    free_port,
    promise_server_port,
    promised,
    unseen_port,
    with_master_port,
)
from backends.runs.state import RunState
from backends.settings import ImageSettings
from backends.workspace import Workspace

FLAGS = ("--num-layers", "2", "--lr", "1e-3", "--train-iters", "10", "--exit-signal-handler")


def everything(name: str) -> str:
    return f"/usr/bin/{name}"


def nothing(name: str) -> None:
    return None


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def clone(workspace: Workspace) -> Path:
    """What the checks look for in a clone of Megatron-LM."""
    files = (*SCRIPTS.values(), "gpt2/vocab.json", "gpt2/merges.txt")
    for name in files:
        path = workspace.megatron / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return workspace.megatron


def planned(**fields: Any) -> RunPlan:
    usual = {
        "kind": "train",
        "trainer": "megatron",
        "launcher": "mpirun",
        "arguments": FLAGS,
        "save": "/s/2026",
    }
    return RunPlan(**{**usual, **fields})


def mpirun(**fields: Any) -> Mpirun:
    return Mpirun(**{"find": everything, "cpus": 64, "root": False, **fields})


def after(argv: Sequence[str], word: str) -> tuple[str, ...]:
    return tuple(argv[argv.index(word) + 1 :])


def test_megatron_in_an_image_runs_the_tutorials_script(workspace: Workspace, clone: Path) -> None:
    data = ("--data-path", "0.3", "/data/a", "0.7", "/data/b", "--split", "99,1,0")
    plan = planned(arguments=(*FLAGS, *data), image="/i/pytorch.sif", processes=8, load="/s/2025")
    command = mpirun().command(plan, workspace)
    assert command.cwd == str(clone)
    assert command.argv[:7] == ("mpirun", "--np", "8", "--bind-to", "none", "singularity", "exec")
    assert command.argv[7] == "--nv"
    assert after(command.argv, "/i/pytorch.sif") == (
        "bash", "examples/gpt3/train_gpt3_7b_mpi.sh", "/s/2026", "/s/2026/tensorboard", f"{clone}/gpt2/vocab.json",
        f"{clone}/gpt2/merges.txt", "0.3 /data/a 0.7 /data/b", "--load", "/s/2025", *FLAGS, "--split", "99,1,0",
    )  # fmt: skip


def test_the_demo_in_an_image_brings_its_packages_read_only(workspace: Workspace) -> None:
    command = mpirun().command(planned(trainer="demo", image="/i/cpu.sif", processes=2), workspace)
    bound = [spec for spec in command.argv if spec.endswith(":ro")]
    assert [spec.rpartition(":")[0].rpartition(":")[2] for spec in bound] == [
        f"{INSIDE}/backends",
        f"{INSIDE}/autograd",
    ]
    assert "--nv" not in command.argv and f"PYTHONPATH={INSIDE}" in command.argv
    assert after(command.argv, "/i/cpu.sif")[:4] == ("python3", "-u", "-m", "backends.demo.train")
    assert command.argv[-2:] == ("--save", "/s/2026") and command.cwd == str(workspace.root)


def test_the_server_gets_its_port_by_the_environment(workspace: Workspace, clone: Path) -> None:
    arguments = ("--num-layers", "2", "--port", "8030", "--fp8-format", "hybrid")
    plan = planned(kind="serve", trainer="server", arguments=arguments, load="/s/2026", save=None)
    command = mpirun().command(plan, workspace)
    assert command.env == {"MDK_SERVER_PORT": "8030", "MDK_SERVER_HOST": "127.0.0.1"}
    assert after(command.argv, "bash")[0] == "examples/gpt3/inference_gpt3_7b_mpi.sh"
    assert command.argv[-2:] == ("--num-layers", "2")


def test_some_gpus_root_and_few_cores(workspace: Workspace) -> None:
    command = mpirun(root=True, cpus=8).command(planned(gpus=(4, 5, 6, 7), processes=8), workspace)
    assert command.env["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"
    assert command.env["OMPI_ALLOW_RUN_AS_ROOT"] == command.env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    assert "--oversubscribe" in command.argv
    assert "--oversubscribe" not in mpirun(cpus=16).command(planned(processes=8), workspace).argv


def test_several_nodes_are_named_and_get_the_variables(workspace: Workspace) -> None:
    plan = planned(hosts=("n1:8", "n2:8"), processes=16, environment={"MASTER_PORT": "14540"})
    argv = mpirun(root=True).command(plan, workspace).argv
    assert argv[argv.index("--host") + 1] == "n1:8,n2:8"
    assert argv[argv.index("--map-by") + 1] == "slot", (
        "a rank takes GPU rank mod GPUs: those of a node follow each other"
    )
    carried = [argv[place + 1] for place, word in enumerate(argv) if word == "-x"]
    assert carried == ["MDK_RUN", "MASTER_ADDR", "MASTER_PORT"]
    assert mpirun().command(plan, workspace).env["MASTER_ADDR"] == "n1"


def test_settings_and_a_wish_add_options(workspace: Workspace) -> None:
    workspace.settings.write_text(
        '[mpi]\noptions = ["--output", "tag"]\n'
        '[image]\nsingularity = "/x/sing"\nbind = ["/d:/data"]\noptions = ["--cleanenv"]\nno_home = true\n'
    )
    plan = planned(image="/i/p.sif", image_options=("--no-home",))
    argv = mpirun().command(plan, workspace).argv
    assert argv[3:7] == ("--output", "tag", "/x/sing", "exec")
    assert argv.count("--no-home") == 1
    assert after(argv, "/d:/data")[:2] == ("--cleanenv", "/i/p.sif")


def test_a_bound_folder_is_bound_once(workspace: Workspace, tmp_path: Path) -> None:
    elsewhere = tmp_path.parent
    inside = planned(save=f"{tmp_path}/outputs/checkpoints/x", load=f"{tmp_path}/outputs/checkpoints/y")
    assert bound_folders(inside, workspace) == [str(tmp_path)]
    outside = planned(save="/big/disk/x", arguments=("--data-path", f"{elsewhere}/data_text_document"))
    assert sorted(bound_folders(outside, workspace)) == sorted([str(elsewhere), "/big/disk/x"])


def test_singularity_is_found_where_these_servers_have_it() -> None:
    def outside(name: str) -> str | None:
        return name if name == "/opt/singularity/bin/singularity" else None

    assert find_singularity(ImageSettings(), everything) == "singularity"
    assert find_singularity(ImageSettings(), outside) == "/opt/singularity/bin/singularity"
    assert find_singularity(ImageSettings(singularity="/no"), nothing) is None


def test_missing_files_and_programs_are_reported_with_a_remedy(workspace: Workspace, clone: Path) -> None:
    plan = planned(image=str(clone / "pytorch.sif"), arguments=(*FLAGS, "--mock-data"))
    assert [p.field for p in mpirun(find=nothing).check(plan, workspace)] == ["launcher", "image", "image"]
    (clone / "pytorch.sif").touch()
    assert mpirun().check(plan, workspace) == []
    assert [p.field for p in mpirun().check(planned(), workspace)] == ["--data-path"]
    (clone / "gpt2/merges.txt").unlink()
    (clone / SCRIPTS["train"]).unlink()
    assert [p.field for p in mpirun().check(plan, workspace)] == ["trainer", "--merge-file"]
    other = Workspace(workspace.root / "empty")
    assert [p.remedy for p in mpirun().check(plan, other)] == ["Run: mdk-tui setup megatron"]


def test_a_path_that_cannot_be_bound_and_too_few_gpus(workspace: Workspace, clone: Path) -> None:
    (clone / "pytorch.sif").touch()
    arguments = (*FLAGS, "--mock-data")
    odd = planned(image=str(clone / "pytorch.sif"), arguments=arguments, save="/s/a:b")
    assert [p.field for p in mpirun().check(odd, workspace)] == ["image"]
    few = planned(arguments=arguments, gpus=(0, 1), processes=4)
    assert [(p.field, p.remedy) for p in mpirun().check(few, workspace)] == [("gpus", "Give --np 2.")]


def test_two_jobs_get_two_ports(workspace: Workspace) -> None:
    book = PortBook(workspace.root / "ports")

    def ported(plan: RunPlan, free: Callable[[int], bool] = lambda port: True) -> str:
        return with_master_port(plan, workspace, free, book=book).environment["MASTER_PORT"]

    first = with_master_port(planned(), workspace, lambda port: True, book=book)
    assert first.environment["MASTER_PORT"] == "14535"
    folder = create_run_folder(workspace.runs, datetime(2026, 11, 30, 5, 0, 0))
    write_json(folder.plan_file, first.as_json())
    assert promised(workspace) == {"14535"}
    assert ported(planned(), lambda port: port != 14536) == "14537"
    folder.write_state(RunState(phase="finished"))
    assert ported(dataclasses.replace(planned(), parent="x")) == "14535"
    assert with_master_port(planned(trainer="demo"), workspace) == planned(trainer="demo")
    with pytest.raises(UserError, match="No port from 65535 on is free"):
        choose(65535, (), lambda port: False)


def test_a_promised_port_is_reserved_until_its_run_ends_or_the_promise_expires(tmp_path: Path) -> None:
    """Runs of two workspaces, that is of two users: neither sees the other's plans."""
    clock = [time.time()]
    book = PortBook(tmp_path / "ports", lambda: clock[0])
    runs = [create_run_folder(tmp_path / name / "outputs/runs", datetime(2026, 11, 30)) for name in "ab"]

    def promise(at: int) -> str:
        workspace = Workspace(tmp_path / "ab"[at])
        plan = with_master_port(planned(), workspace, lambda port: True, book=book, run=runs[at].path)
        return plan.environment["MASTER_PORT"]

    assert [promise(0), promise(1)] == ["14535", "14536"]
    runs[0].write_state(RunState(phase="failed"))
    assert book.promised() == {"14536"}
    clock[0] += 3600
    assert book.promised() == set()


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        (("node2:8", "login:8"), "node2"),
        (("me@node2.site:8",), "me@node2.site"),
        (("192.0.2.7:8",), "192.0.2.7"),  # RFC 5737: nobody's
        (("login:8", "node2:8"), None),
        (("me@login.site:8",), None),
        (("localhost:8",), None),
        (("127.0.0.1:8",), None),
        ((), None),
    ],
)
def test_a_port_that_was_probed_on_another_machine_is_reported(
    hosts: tuple[str, ...], first: str | None
) -> None:
    plan = planned(hosts=hosts, environment={"MASTER_PORT": "14535"})
    found = unseen_port(plan, "login.cluster")
    assert [problem.severity for problem in found] == (["warning"] if first else [])
    assert all(f"looked on {first}," in problem.message for problem in found)
    assert unseen_port(dataclasses.replace(plan, environment={}), "login") == []  # the demo's


@pytest.mark.parametrize(("first", "port"), [("node2.elsewhere:8", "14535"), ("localhost:8", "14540")])
def test_listeners_of_this_machine_do_not_matter_if_rank_0_runs_elsewhere(
    tmp_path: Path, first: str, port: str
) -> None:
    plan = with_master_port(
        planned(hosts=(first,)),
        Workspace(tmp_path),
        lambda port: port >= 14540,
        book=PortBook(tmp_path / "ports"),
    )
    assert plan.environment["MASTER_PORT"] == port


def test_a_port_that_the_probe_chose_is_not_warned_of(workspace: Workspace) -> None:
    plan = planned(hosts=("node2.elsewhere:8",))
    fields = [problem.field for problem in preview_of(plan, workspace).problems]
    assert "MASTER_PORT" in fields
    named = dataclasses.replace(plan, environment={"MASTER_PORT": "14541"})
    assert "MASTER_PORT" not in [problem.field for problem in preview_of(named, workspace).problems]


def test_foreign_files_in_the_port_folder_block_nobody(tmp_path: Path) -> None:
    """Everybody may write to the folder: a pipe instead of a promise or of the lock, and a lock that is never released."""
    folder = tmp_path / "ports"
    book = PortBook(folder, patience=0.1)
    folder.mkdir()
    os.mkfifo(folder / "14535")
    assert book.promised() == set()
    os.mkfifo(folder / "lock")
    with book.locked():
        pass
    (folder / "lock").unlink()
    (folder / "lock").touch()
    with (folder / "lock").open() as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        with book.locked():
            book.promise(14536, tmp_path)
    assert (folder / "14536").read_text() == f"{tmp_path}\n"


def test_simultaneous_starts_never_share_a_port(tmp_path: Path) -> None:
    book = PortBook(tmp_path / "ports", patience=180.0)

    def promise(number: int) -> str:
        workspace = Workspace(tmp_path / str(number))
        run = create_run_folder(workspace.runs, datetime(2026, 11, 30))
        plan = with_master_port(planned(), workspace, lambda port: True, book=book, run=run.path)
        return plan.environment["MASTER_PORT"]

    with ThreadPoolExecutor(8) as pool:
        ports = list(pool.map(promise, range(40)))
    assert sorted(ports) == [str(port) for port in range(14535, 14575)]


def test_a_server_that_begins_to_listen_later_keeps_its_port(tmp_path: Path) -> None:
    book = PortBook(tmp_path / "ports")
    promise_server_port(planned(), tmp_path, book)
    assert book.promised() == set(), "a training run has no server"
    folder = create_run_folder(tmp_path / "outputs/runs", datetime(2026, 11, 30))
    promise_server_port(planned(kind="serve", arguments=("--port", "8028")), folder.path, book)

    def found(wanted: int, free: Callable[[int], bool] = lambda port: True) -> int:
        return free_port(wanted, book=book, free=free, sample=lambda ports, count: list(ports[:count]))

    assert [found(8028), found(8029), found(0)] == [20000, 8029, 20000]
    assert found(8029, lambda port: port > 20001) == 20002
    with pytest.raises(UserError, match="No port is free"):
        found(8029, lambda port: False)


def test_a_hostfile_says_nodes_and_processes(workspace: Workspace) -> None:
    path = workspace.root / "hosts"
    path.write_text("# two nodes\nn1 slots=8\n\nn2.site slots = 8 max-slots=8 # the other\nn3\n")
    assert hosts_of(FoundHostfile("asked for", path, path.read_text())) == ("n1:8", "n2.site:8", "n3")
    assert placed(planned(), workspace, Placement(hostfile=path, in_image=False)).processes == 17
    path.write_text("n1 slots=8\nn2 --evil\n")
    with pytest.raises(UserError, match="line 2: '--evil' is not understood"):
        hosts_of(FoundHostfile("asked for", path, path.read_text()))


@pytest.mark.parametrize(
    ("processes", "severity", "words"),
    [
        (17, "error", "17 processes, but the nodes have 16 slots."),
        (16, None, ""),
        (9, None, ""),
        (8, "warning", "others stay idle"),
    ],
)
def test_processes_fill_the_nodes_and_no_more(
    workspace: Workspace, clone: Path, processes: int, severity: str | None, words: str
) -> None:
    plan = planned(hosts=("n1:8", "n2:8"), processes=processes)
    found = [problem for problem in mpirun().check(plan, workspace) if problem.field == "hosts"]
    assert [problem.severity for problem in found] == ([severity] if severity else [])
    assert all(words in problem.message for problem in found)


def test_files_are_found_from_where_the_user_is_and_from_the_clone(workspace: Workspace, clone: Path) -> None:
    here = workspace.root / "here"
    here.mkdir()
    (here / "a.idx").touch()
    (clone / "b_text_document.idx").touch()
    words = (
        "--data-path",
        "0.3",
        "a",
        "0.7",
        "./b_text_document",
        "--vocab-file",
        "gpt2/vocab.json",
        "--lr",
        "a",
    )
    plan = placed(planned(arguments=words), workspace, Placement(in_image=False), present=4, here=here)
    assert plan.arguments == (
        "--data-path", "0.3", f"{here}/a", "0.7", f"{clone}/b_text_document",
        "--vocab-file", f"{clone}/gpt2/vocab.json", "--lr", "a",
    )  # fmt: skip
    assert data_prefixes(plan.arguments) == (f"{here}/a", f"{clone}/b_text_document")
    assert plan.processes == 4 and plan.layout == {"tp": 1, "pp": 1, "cp": 1, "dp": 4}
    for name in ("b", "b_text_document", "b_text_document.idx", f"{clone}/b"):
        assert found_files(("--data-path", name), (here, clone))[1] == f"{clone}/b_text_document"
    for name in ("", "..", "/", "nothing"):
        assert found_files(("--tokenizer-model", name), (here / "x",))[1] in (name, "/", str(here))


def test_prefixes_with_and_without_weights() -> None:
    for words, prefixes in (
        (["a"], ("a",)),
        (["1", "a", "2", "b"], ("a", "b")),
        (["0.3 a 0.7 b"], ("a", "b")),
        (["a", "b"], ("a", "b")),
        (["a", "b", "c"], ("a", "b", "c")),
        (["a prefix with blanks"], ("a prefix with blanks",)),
    ):
        assert data_prefixes(("--data-path", *words)) == prefixes


def test_a_server_has_a_process_for_each_part_of_its_model(workspace: Workspace) -> None:
    split = ("--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "4")
    server = planned(kind="serve", trainer="server", arguments=split, gpus=tuple(range(8)))
    assert placed(server, workspace, Placement()).processes == 8
    assert default_launcher("server") == "mpirun" and default_launcher("demo") == "local"


def test_unset_choices_get_their_defaults(workspace: Workspace) -> None:
    plan = placed(planned(gpus=(2, 3)), workspace, Placement(no_home=True))
    assert plan.processes == 2 and plan.image == str(workspace.megatron / "pytorch.sif")
    assert plan.image_options == ("--no-home",)
    assert placed(planned(trainer="demo"), workspace, Placement()).image is None
    assert placed(planned(), workspace, Placement(in_image=False, processes=3)).image is None
    assert RunPlan.from_json(plan.as_json() | {"gpus": [2, 3]} | _lists(plan), "test") == plan


def _lists(plan: RunPlan) -> dict[str, Any]:
    """Tuples as JSON gives them back."""
    return {name: list(value) for name, value in plan.as_json().items() if isinstance(value, tuple)}
