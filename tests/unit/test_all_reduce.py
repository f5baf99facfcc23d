"""The all-reduce over all nodes: its command, its figures and the node it blames for a failure; and a run that falls silent."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from backends.files import write_json
from backends.launch.hostfile import parse
from backends.launch.hostfile_source import FoundHostfile
from backends.nodes import allreduce
from backends.nodes.allreduce import Result, Speed, command, explain_failure, judge, read_result, tried
from backends.nodes.asking import Asked, Question
from backends.nodes.node_program import ranks_of
from backends.nodes.report import NodeReport, RankProcess, from_json
from backends.nodes.survey import Nodes
from backends.nodes.verdicts import NodeVerdict
from backends.nodes.watch import Silence, rank_at_fault, watch, words
from backends.programs import RealPrograms
from backends.runs.catalog import describe
from backends.runs.folder import RunFolder, create_run_folder
from backends.runs.plan import RunPlan
from backends.runs.processes import MARK, this_machine
from backends.runs.state import RunState
from backends.settings import Settings
from backends.setup.step import Finding, Site
from backends.workspace import Workspace

GB = 10**9
TEXT = "n1 slots=8\nn2 slots=8\n"
NODES = Nodes(parse(TEXT).hosts, "the hostfile", FoundHostfile("asked for", None, TEXT))
GOOD = tuple(NodeVerdict(name, (Finding("gpus", "ok", "8"),), 1.0, gpus=8) for name in ("n1", "n2"))
DEAD = NodeVerdict("n2", (Finding("reached", "failed", "No answer within 20 s.", "Try: ssh n2 true"),), 20.0)


def site(root: Path, image: bool = False) -> Site:
    workspace = Workspace(root)
    if image:
        workspace.megatron.mkdir(parents=True)
        (workspace.megatron / "pytorch.sif").touch()
    return Site(
        workspace,
        Settings(),
        {"PATH": "/usr/bin:/bin"},
        RealPrograms({"PATH": "/usr/local/bin:/usr/bin:/bin"}),
    )


def result(**fields: Any) -> Result:
    usual = {
        "ranks": 16,
        "right": True,
        "whole": (Speed(16, 1 << 20, 1e-3), Speed(16, 256 << 20, 1e-3)),
        "within": {"n1": 400.0 * GB, "n2": 402.0 * GB},
        "between": (("n1", "n2", 90.0 * GB),),
    }
    return Result(**{**usual, **fields})


def test_a_process_a_slot_in_the_image_with_a_place_to_meet(tmp_path: Path) -> None:
    where = dataclasses.replace(site(tmp_path, image=True), settings=Settings())
    question = command(where, NODES, gpus=True, port=29400)
    argv = question.argv
    assert argv[:3] == ("mpirun", "--np", "16")
    assert argv[argv.index("--host") + 1] == "n1:8,n2:8" and argv[argv.index("--map-by") + 1] == "slot"
    assert (question.env["MASTER_ADDR"], question.env["MASTER_PORT"]) == ("n1", "29400")
    assert "--nv" in argv and str(where.image) in argv
    assert json.loads(argv[-1])["gpus"] is True and "class Nccl" in argv[-2]
    own = Nodes(parse("vm slots=2").hosts, "mpirun's own allocation")
    alone = command(site(tmp_path), own, gpus=False, port=29400)
    assert "--host" not in alone.argv and alone.env["MASTER_ADDR"] == "localhost"


def test_bandwidth_is_counted_as_nccl_tests_do() -> None:
    assert Speed(16, 256 << 20, 1e-3).bus == pytest.approx(2 * 15 / 16 * (256 << 20) * 1000)
    finding = judge(result(), gpus=True)
    assert finding.verdict == "ok"
    assert finding.evidence == (
        "16 GPUs: 503.3 GB/s at 256 MiB · n1 alone 400.0 GB/s · n2 alone 402.0 GB/s · n1 to n2 90.0 GB/s"
        " · slowest n1, 100% of the usual"
    )


def test_a_slow_node_is_named_by_its_own_gpus() -> None:
    finding = judge(result(within={"n1": 400.0 * GB, "n2": 90.0 * GB, "n3": 401.0 * GB}), gpus=True)
    assert (
        finding.verdict == "warning"
        and "slowest n2, 22%" in finding.evidence
        and "Look at n2" in finding.remedy
    )


def test_a_slow_link_is_laid_at_the_node_that_has_two_of_them() -> None:
    ring = (
        ("n1", "n2", 90.0),
        ("n2", "n3", 20.0),
        ("n3", "n4", 21.0),
        ("n4", "n5", 90.0),
        ("n5", "n1", 91.0),
    )
    slow = result(within={}, between=tuple((a, b, speed * GB) for a, b, speed in ring))
    assert slow.slowest() == ("n3", pytest.approx(21 / 90))


def test_a_wrong_sum_is_a_failure_whatever_its_speed() -> None:
    finding = judge(result(right=False), gpus=True)
    assert finding.verdict == "failed" and "wrongly" in finding.evidence
    assert judge(result(ranks=1, within={}, between=()), gpus=False).evidence.startswith("one process alone")


SAID = {
    "ranks": 2, "right": True, "sizes": [{"bytes": 1048576, "seconds": 0.001}],
    "nodes": [{"name": "n\u001b[2J1", "ranks": 1, "seconds": None}], "links": [{"nodes": ["n1", "n2"], "seconds": 0.01}],
}  # fmt: skip


def test_a_damaged_result_of_rank_0_is_ignored() -> None:
    lines = ["noise", f"[1,0]<stdout>: mdk-allreduce {json.dumps(SAID)}"]
    found = read_result(lines)
    assert found is not None and found.within == {} and found.between[0][:2] == ("n1", "n2")
    for broken in (
        "{}",
        "{",
        '{"sizes": []}',
        '{"ranks": 2, "right": true, "sizes": [{"bytes": 1, "seconds": "x"}]}',
    ):
        assert read_result([f"mdk-allreduce {broken}"]) is None
    assert read_result([]) is None


def step(rank: int, host: str, name: str) -> str:
    return f"mdk-rank {json.dumps({'rank': rank, 'host': host, 'step': name})}"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([step(0, "n1.site", "started")], "no process came up on n2"),
        ([step(0, "n1", "started"), step(8, "n2", "started")], "did not find each other (within 5 s)"),
        ([step(0, "n1", "joined"), step(8, "n2", "joined")], "stuck between 2 nodes"),
        ([step(0, "n1", "started"), step(8, "n2", "started"), "RuntimeError: NCCL error: unhandled"], "RuntimeError: NCCL"),
        (["ModuleNotFoundError: No module named 'mpi4py'"], "has no mpi4py"),
        (["FATAL:   could not open image /i.sif"], "could not open image"),
        (["There are not enough slots available"], "no slot"),
        ([], "No answer within 5 s"),
    ],
)  # fmt: skip
def test_a_failure_names_the_node_at_fault(lines: list[str], words: str) -> None:
    finding = explain_failure(NODES, lines, None, 5.0)
    assert finding.verdict == "failed" and words in finding.evidence and finding.remedy


def test_it_is_not_tried_where_a_node_did_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = tried(site(tmp_path), NODES, (GOOD[0], DEAD))
    assert (finding.verdict, finding.evidence) == ("skipped", "n2 did not answer")

    def talking(where: Site, nodes: Nodes, *, gpus: bool, port: int) -> Question:
        program = f"print('mdk-allreduce {json.dumps({**SAID, 'right': gpus})}')"
        return Question("all", (sys.executable, "-c", program), Path("/"), {})

    monkeypatch.setattr(allreduce, "command", talking)
    assert tried(site(tmp_path), NODES, GOOD).verdict == "ok"
    without = (GOOD[0], dataclasses.replace(GOOD[1], gpus=0))
    assert tried(site(tmp_path), NODES, without).verdict == "failed"


# A run that falls silent.


def test_silence_counts_from_the_newest_iteration_of_a_run_that_trains() -> None:
    silence = Silence(60.0)
    assert silence.look("starting", None, 50.0) is None
    assert silence.look("starting", None, 111.0) == 61.0, "a node that hangs may keep it from starting"
    assert silence.look("running", None, 112.0) is None
    assert silence.look("running", 5, 120.0) is None
    assert silence.look("running", 5, 180.0) is None
    assert silence.look("running", 5, 181.0) == 61.0
    assert silence.look("running", 6, 182.0) is None
    assert silence.look("stopping", 6, 300.0) is None
    assert silence.look("stopping", 6, 400.0) is None


def answered(name: str, *ranks: RankProcess) -> Asked:
    return Asked(name, NodeReport(name, ranks=ranks), "", "", None, 0.1)


SILENT = Asked("n2", None, "No answer within 20 s.", "", None, 20.0)


def test_a_silent_run_names_the_node_that_does_not_answer() -> None:
    for training in (True, False):
        said = words(200.0, (answered("n1"), SILENT), 2, training=training)
        assert said == "No iteration for 3 min: n2 does not answer. No answer within 20 s."
    both = (answered("n1"), answered("n2"))
    assert "though all 2 nodes answer" in (words(61.0, both, 2, training=True) or "")
    assert words(61.0, both, 2, training=False) is None, "it loads"


@pytest.mark.parametrize(
    ("state", "cores", "said"),
    [
        ("T", 0.0, "rank 1 on n2 (pid 8) is stopped by a signal. Let it go on: kill -CONT 8"),
        ("D", 0.0, "rank 1 on n2 (pid 8) waits in the kernel, for a disk or a driver: see dmesg there."),
        ("S", 0.0, "rank 1 computes nothing, and the others wait for it."),
        ("R", 0.9, None),
    ],
)
def test_a_silent_run_names_the_rank_that_stands_still(state: str, cores: float, said: str | None) -> None:
    spins = RankProcess(0, 7, "R", 0.9)
    reports = [NodeReport("n1", ranks=(spins,)), NodeReport("n2", ranks=(RankProcess(1, 8, state, cores),))]
    assert rank_at_fault(reports, 2, training=True) == said
    assert rank_at_fault(reports, 2, training=False) == (said if state in "TD" else None), (
        "it may load a file"
    )


def test_a_silent_run_names_the_rank_that_has_no_process() -> None:
    here = NodeReport("n1", ranks=(RankProcess(0, 7, "R", 0.9),))
    for there, said in (
        (NodeReport("n2", ranks=()), "rank 1 has no process any more."),
        (NodeReport("n2"), None),
    ):
        assert rank_at_fault([here, there], 2, training=True) == said, "a node without python3 tells no ranks"
    assert rank_at_fault([here], 4, training=True) == "rank 1 has no process any more, nor have 2 more."


def test_a_node_tells_the_ranks_of_a_run_from_other_processes() -> None:
    """A real stopped process; one of another run beside it."""
    wait = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(600)"]
    environment = {**os.environ, MARK: "ours", "OMPI_COMM_WORLD_RANK": "3"}
    others = {**environment, MARK: "other"}
    both = [subprocess.Popen(wait, env=env, stdout=subprocess.PIPE) for env in (environment, others)]
    try:
        for process in both:
            assert process.stdout and process.stdout.readline() == b"up\n"
        both[0].send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, both[0].pid, os.WSTOPPED)
        [row] = ranks_of("ours")
        assert (row["rank"], row["pid"], row["state"], row["cpu"]) == (3, both[0].pid, "T", 0.0)
        report = from_json({"ranks": [row, {"rank": "x"}]})
        assert report.ranks == (RankProcess(3, both[0].pid, "T", 0.0),)
    finally:
        for process in both:
            process.kill()
            process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = create_run_folder(tmp_path / "runs", datetime(2026, 11, 30, 9, 0, 0))
    write_json(
        folder.plan_file, RunPlan("train", "demo", launcher="mpirun", hosts=("n1:8", "n2:8")).as_json()
    )
    return folder


def test_the_note_is_there_while_it_is_silent_and_gone_with_the_next_iteration(folder: RunFolder) -> None:
    """A story told by the pauses: each moves the clock by a minute and changes the run."""
    now, asked, notes = [0.0], [0], list[str | None]()
    iterations = [5, 5, 5, 5, 6, 6]

    def state(phase: Any, iteration: int) -> RunState:
        # A supervisor that is gone would be the run's note.
        return RunState(phase=phase, machine=dataclasses.replace(this_machine(), host="elsewhere"),
                        heartbeat=datetime.now().timestamp(), iteration=iteration)  # fmt: skip

    def pause(seconds: float) -> None:
        notes.append(describe(folder).note)
        now[0] += 60.0
        iteration = iterations.pop(0) if iterations else None
        folder.write_state(state("running", iteration) if iteration else state("failed", 6))

    def ask() -> Sequence[Asked]:
        asked[0] += 1
        return (answered("n1"), SILENT)

    folder.write_state(state("running", 5))
    watch(folder, 100.0, ask, lambda: now[0], pause)
    assert [note is not None and "n2 does not answer" in note for note in notes] == [
        False, False, True, True, True, False, False,
    ]  # fmt: skip
    assert asked[0] == 2, "again only after a while"
    assert not folder.nodes_file.exists()
