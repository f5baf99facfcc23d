"""Run folders on disk: named, claimed, listed, found, and judged, whatever others left there."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_lines import iteration

from backends.errors import UserError
from backends.files import write_json
from backends.megatron.events import Alert, Checkpoint, IterationBatch
from backends.megatron.parser import Parser
from backends.runs.automatic import LATE, Again
from backends.runs.catalog import describe, find_run, runs
from backends.runs.folder import (
    RunFolder,
    claim_dated_folder,
    create_run_folder,
    dated_name,
    moment_of,
    next_free,
)
from backends.runs.judgement import HANGS_AFTER, Ending, ending, hanging, observe, starts_silently
from backends.runs.plan import RunPlan
from backends.runs.processes import Machine, Process, find_process, is_alive, job_processes, this_machine
from backends.runs.requests import DEFAULT_LIMIT, StopRequest, request_stop, waiting_request
from backends.runs.signs import SignReader, Signs, read_signs
from backends.runs.state import JobExit, RunState
from backends.workspace import Workspace

NOW = datetime(2026, 11, 30, 9, 32, 59)
HERE, THERE = Machine("here", "boot"), Machine("there", "other")
JOB = Process(10, 10, 1)
LIVE = RunState(
    phase="running", supervisor=Process(11, 11, 2), job=JOB, mark="m", machine=HERE, heartbeat=1000.0
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def saved_run(workspace: Workspace, moment: datetime = NOW, state: RunState | None = None) -> RunFolder:
    folder = create_run_folder(workspace.runs, moment)
    write_json(folder.plan_file, RunPlan("train", "demo", title="a title").as_json())
    folder.write_state(state or RunState(phase="finished", machine=HERE))
    return folder


def test_a_taken_second_takes_the_next(tmp_path: Path) -> None:
    assert next_free(tmp_path, NOW) == tmp_path / "2026-11-30/09-32-59"
    names = [claim_dated_folder(tmp_path, NOW).relative_to(tmp_path) for _ in range(3)]
    assert [str(name) for name in names] == [
        "2026-11-30/09-32-59",
        "2026-11-30/09-33-00",
        "2026-11-30/09-33-01",
    ]
    assert next_free(tmp_path, NOW) == tmp_path / "2026-11-30/09-33-02"
    assert dated_name(moment_of("2026-11-30/09-33-02")) == "2026-11-30/09-33-02"


def test_a_file_in_the_way_is_no_endless_search(tmp_path: Path) -> None:
    (tmp_path / "2026-11-30").write_text("")
    with pytest.raises(UserError, match=r"in the way|cannot be made"):
        claim_dated_folder(tmp_path, NOW)


def test_runs_are_listed_newest_first_and_strangers_are_not(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    old, new = saved_run(workspace), saved_run(workspace, NOW.replace(year=2027))
    for name in ("2026-11-30/evil\x1b[2J", "2026-11-30/09-32-59x", "not-a-date/09-00-00"):
        (workspace.runs / name).mkdir(parents=True)
    assert [info.run for info in runs(workspace)] == [new.name, old.name]
    assert runs(Workspace(tmp_path / "empty")) == []


def test_a_run_is_found_by_name_by_path_or_as_the_newest(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    with pytest.raises(UserError, match="no runs"):
        find_run(workspace, None)
    old, new = saved_run(workspace), saved_run(workspace, NOW.replace(year=2027))
    assert find_run(workspace, old.name) == old == find_run(workspace, str(old.path))
    assert find_run(workspace, None) == new
    running = dataclasses.replace(LIVE, machine=this_machine(), supervisor=find_process(1), heartbeat=4e9)
    old.write_state(running)
    assert find_run(workspace, None) == old  # what runs goes before what is new


def test_find_run_prefers_a_training_run_when_asked(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    train, server = saved_run(workspace), saved_run(workspace, NOW.replace(year=2027))
    write_json(server.plan_file, RunPlan("serve", "demo", title="a server").as_json())
    assert find_run(workspace, None) == server and find_run(workspace, None, training=True) == train
    write_json(train.plan_file, RunPlan("serve", "demo", title="a server").as_json())
    assert find_run(workspace, None, training=True) == server


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "../..",
        "/",
        "/etc",
        "2026-11-30",
        "2026-11-30/09-32-58",
        "\0",
        "\x1b]0;evil\x07",
        "a" * 5000,
        "~nobody-of-that-name",
    ],
)
def test_a_name_that_is_no_run_is_refused_in_words_that_are_safe_to_show(tmp_path: Path, name: str) -> None:
    saved_run(Workspace(tmp_path))
    with pytest.raises(UserError) as caught:
        find_run(Workspace(tmp_path), name)
    assert len(str(caught.value)) < 1000 and "\x1b" not in str(caught.value) and "\0" not in str(caught.value)


def test_a_name_nearly_right_names_the_nearest(tmp_path: Path) -> None:
    folder = saved_run(Workspace(tmp_path))
    with pytest.raises(UserError) as caught:
        find_run(Workspace(tmp_path), "2026-11-30/09-32-58")
    assert folder.name in caught.value.remedy


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff\x00binary", b'{"phase": "sunny"}', b"9" * 100_000]
)
@pytest.mark.parametrize("file", ["plan.json", "state.json"])
def test_damaged_files_are_reported_and_the_rest_is_still_listed(
    tmp_path: Path, file: str, content: bytes
) -> None:
    workspace = Workspace(tmp_path)
    folder = saved_run(workspace)
    (folder.path / file).write_bytes(content)
    [info] = runs(workspace)
    assert info.run == folder.name and json.dumps(info.as_json())
    if file == "plan.json":
        assert info.kind is None and info.note and "plan.json" in info.note
    else:
        assert info.phase == "lost"


def test_hostile_words_are_cleaned_before_they_are_shown(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    folder = saved_run(workspace)
    evil = "\x1b]52;c;ZXZpbA==\x07[/red]\n" * 50
    write_json(folder.plan_file, RunPlan("train", "demo", title=evil, save=evil).as_json())
    folder.write_state(RunState(phase="failed", machine=Machine(evil, ""), reason=evil, started=evil))
    shown = describe(folder)
    assert not any(
        mark in str(value) for value in shown.as_json().values() for mark in ("\x1b", "\n", "\x07")
    )


@given(
    st.dictionaries(
        st.sampled_from([f.name for f in dataclasses.fields(RunState)] + ["host", "boot_id"]), JSON
    )
)
def test_any_json_object_is_some_state(value: dict[str, object]) -> None:
    state = RunState.from_json(value)
    assert RunState.from_json(json.loads(json.dumps(state.as_json()))) == state


def test_state_survives_its_file(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, NOW)
    state = dataclasses.replace(
        LIVE, exit_code=3, address="http://127.0.0.1:1", signs=Signs(read=7, loaded=True)
    )
    folder.write_state(state)
    assert folder.state() == state
    assert {"phase", "supervisor", "job", "boot_id", "host", "heartbeat", "started", "ended", "exit_code", "signal",
            "address"} <= json.loads(folder.state_file.read_text()).keys()  # fmt: skip
    assert folder.state_file.stat().st_mode & 0o044 == 0o044  # a colleague may watch


# The phase of a run.


@pytest.mark.parametrize(
    ("state", "supervised", "job", "now", "phase", "orphaned"),
    [
        (LIVE, True, True, 1000, "running", False),
        (LIVE, False, True, 1000, "running", True),  # adopted by the next who looks
        (LIVE, False, False, 1000, "lost", True),
        (dataclasses.replace(LIVE, phase="finished"), False, False, 9e9, "finished", False),
        (
            dataclasses.replace(LIVE, machine=THERE),
            False,
            False,
            1030,
            "running",
            False,
        ),  # the heartbeat decides
        (dataclasses.replace(LIVE, machine=THERE), True, True, 1100, "lost", False),
        (
            dataclasses.replace(LIVE, machine=Machine("here", "before")),
            True,
            True,
            1100,
            "lost",
            True,
        ),  # rebooted
        (
            dataclasses.replace(LIVE, machine=Machine("here", "before")),
            False,
            False,
            1030,
            "running",
            False,
        ),  # a twin: another machine, or container, of the same name
    ],
)
def test_how_a_run_does(
    state: RunState, supervised: bool, job: bool, now: float, phase: str, orphaned: bool
) -> None:
    seen = observe(state, HERE, now, lambda _: supervised, lambda _: job, lambda: Ending("lost", None))
    assert (seen.phase, seen.orphaned) == (phase, orphaned)


@pytest.mark.parametrize(
    ("machine", "supervised", "orphaned"),
    [
        (HERE, True, False),
        (HERE, False, True),
        (Machine("here", "before"), True, True),  # its number may be another's since the boot
        (THERE, False, False),
    ],
)
def test_a_supervisor_that_waits_for_an_automatic_resume_is_replaced(
    machine: Machine, supervised: bool, orphaned: bool
) -> None:
    state = dataclasses.replace(LIVE, phase="failed", machine=machine, again=Again(1, 3, at=2000))
    seen = observe(state, HERE, 1000, lambda _: supervised, lambda _: False, lambda: Ending("lost", None))
    assert (seen.phase, seen.orphaned) == ("failed", orphaned)


def test_nobody_waits_for_ever_for_a_machine_that_is_gone(tmp_path: Path) -> None:
    ended = dataclasses.replace(LIVE, phase="failed", machine=THERE)
    for at, due in ((time.time() + 5, True), (time.time() - 2 * LATE, False)):
        folder = saved_run(Workspace(tmp_path), state=dataclasses.replace(ended, again=Again(1, 3, at=at)))
        assert describe(folder).again_due == due


def test_a_state_that_is_not_written_any_more_is_noted() -> None:
    seen = observe(LIVE, HERE, 1100, lambda _: True, lambda _: True, lambda: Ending("lost", None))
    assert seen.phase == "running" and seen.note and "100 s old" in seen.note


@pytest.mark.parametrize(
    ("kind", "job_exit", "signs", "stopped", "phase"),
    [
        ("train", JobExit(0, None), Signs(ended=True), None, "finished"),
        ("train", JobExit(0, None), Signs(), None, "failed"),
        ("train", JobExit(1, None), Signs(ended=True), None, "failed"),
        ("train", JobExit(None, 9), Signs(ended=True), None, "failed"),
        ("train", JobExit(0, None), Signs(ended=True), "Stopped.", "finished"),
        ("train", JobExit(None, 9), Signs(), "Stopped.", "failed"),
        ("train", None, Signs(ended=True), None, "lost"),
        ("serve", JobExit(None, 15), Signs(), "Stopped.", "finished"),
        ("serve", JobExit(None, 15), Signs(), None, "failed"),
        ("serve", JobExit(0, None), Signs(address="http://x"), None, "finished"),
        ("serve", JobExit(0, None), Signs(), None, "failed"),
        ("serve", JobExit(0, None), Signs(random_start=True), "No checkpoint.", "failed"),
    ],
)
def test_how_a_job_ended(kind: str, job_exit: JobExit, signs: Signs, stopped: str | None, phase: str) -> None:
    end = ending(kind, job_exit, signs, stopped=stopped)  # pyright: ignore[reportArgumentType]
    assert end.phase == phase and (end.phase == "finished" or end.reason)


def test_every_sign_of_a_random_start_counts_and_a_running_training_has_no_end() -> None:
    for event in (Checkpoint(1, None, "missing", None, "x"), Alert(1, None, "random-weights", "", "")):
        signs = Signs(ended=True)
        signs.apply([event])
        assert signs.random_start and signs.ended
    signs.apply([IterationBatch([1], [None], [None], [10], [100], {})])
    assert signs.working and not signs.ended


def test_a_session_number_that_is_used_again_is_not_the_jobs(tmp_path: Path) -> None:
    """Otherwise a stop would send KILL to the processes of another program."""

    def process(pid: int, session: int, ticks: int, environment: bytes = b"") -> None:
        fields = ["S", "1", "1", str(session), *["0"] * 15, str(ticks)]
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a b) {' '.join(fields)}")
        (tmp_path / str(pid) / "environ").write_bytes(environment)

    def found() -> list[int]:
        return sorted(p.pid for p in job_processes(Process(100, 100, 5), "mark", tmp_path))

    process(100, 100, 5)
    process(101, 100, 6)
    process(200, 200, 7, b"A=1\0MDK_RUN=mark\0")
    assert found() == [100, 101, 200]
    process(100, 100, 99)  # another program's
    assert found() == [200]
    process(101, 100, 6, b"MDK_RUN=mark\0")  # a rank still holds the session
    assert found() == [100, 101, 200]


def test_a_cancelled_job_is_never_called_finished() -> None:
    signs = Signs()
    reader = SignReader(signs, Parser())
    reader.feed(
        b"slurmstepd: error: *** JOB 7 ON node1 CANCELLED AT 2026-11-30T10:00:00 DUE TO TIME LIMIT ***\n"
    )
    end = ending("train", JobExit(0, None), signs)  # the batch script caught the signal
    assert end.phase == "failed" and "status 0 before its end" in (end.reason or "")
    # Megatron-LM prints this line when it stops gracefully.
    reader.feed(b"[exiting program after receiving SIGTERM.] datetime: 2026-11-30 10:00:09 \n")
    assert ending("train", JobExit(0, None), signs).phase == "finished"


def test_the_reason_why_a_stop_did_not_save_is_reported() -> None:
    """Observed with mpirun 5.0.11: a node was lost during the save; mpirun reported that and exited with status 0."""
    signs = Signs()
    rule, lost = (
        "-" * 74,
        "PRTE has lost communication with a remote daemon.\n\n  HNP daemon   : [prterun-vm-1@0,0] on node vm",
    )
    reader = SignReader(signs, Parser())
    reader.feed(f"{rule}\n{lost}\n{rule}\n".encode())
    reader.finish()
    end = ending("train", JobExit(0, None), signs, stopped="Stopped on request.")
    assert end == Ending("failed", "Stopped on request. PRTE has lost communication with a remote daemon.")


# Signs in a log.


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("h200-core_r0.8.0-train.log", {"iteration": 200, "train_iters": 200, "ended": True, "saved": 200}),
        ("h200-core_r0.8.0-serve.log", {"loaded": True, "working": True}),
        ("h200-core_r0.8.0-resume-refused.log", {"ended": False, "working": False}),
        ("2xh200-rank-killed.log", {"ended": False}),
        ("2xh200-no-data.log", {"ended": False, "working": False}),
    ],
)
def test_the_signs_of_real_logs(logs: Path, log: str, expected: dict[str, object]) -> None:
    signs = read_signs(logs / log, Signs())
    assert {key: getattr(signs, key) for key in expected} == expected
    assert signs.read == (logs / log).read_bytes().rfind(b"\n") + 1


def test_the_address_of_a_server_is_read_from_its_log(logs: Path) -> None:
    assert (read_signs(logs / "h200-core_r0.8.0-serve.log", Signs()).address or "").startswith(
        "http://127.0.0.1:"
    )


def test_signs_are_the_same_however_the_log_is_cut(logs: Path) -> None:
    data = (logs / "h200-core_r0.8.0-serve.log").read_bytes()
    whole, pieces = SignReader(Signs(), Parser()), SignReader(Signs(), Parser())
    whole.feed(data)
    for start in range(0, len(data), 97):
        pieces.feed(data[start : start + 97])
    whole.finish()
    pieces.finish()
    assert whole.signs == pieces.signs


def test_a_new_supervisor_reads_on_where_the_old_one_stopped(logs: Path, tmp_path: Path) -> None:
    data = (logs / "h200-core_r0.8.0-train.log").read_bytes()
    half = SignReader(Signs(), Parser())
    half.feed(data[: len(data) // 2])
    (tmp_path / "log").write_bytes(data)
    on = read_signs(tmp_path / "log", Signs.from_json(json.loads(json.dumps(half.signs.as_json()))))
    whole = read_signs(tmp_path / "log", Signs())
    assert (on.iteration, on.saved, on.ended, on.read) == (
        whole.iteration,
        whole.saved,
        whole.ended,
        whole.read,
    )


def test_a_log_that_was_emptied_to_make_room_is_read_on(logs: Path, tmp_path: Path) -> None:
    log, reader = tmp_path / "log", SignReader(Signs(), Parser())
    data = (logs / "h200-core_r0.8.0-train.log").read_bytes()
    log.write_bytes(data + data)
    reader.read_from(log)
    log.write_bytes(iteration(777).encode())
    reader.read_from(log)
    reader.finish()
    assert reader.signs.iteration == 777


TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\nRuntimeError: NCCL error: unhandled system error\n'


def test_the_last_word_of_a_job_that_hangs_is_known_before_another_line_comes() -> None:
    reader = SignReader(Signs(), Parser())
    reader.feed((iteration(5) + TRACEBACK).encode())
    assert reader.signs.last_error is not None and "NCCL" in reader.signs.last_error[1]
    assert hanging(reader.signs, HANGS_AFTER) and hanging(reader.signs, HANGS_AFTER - 1) is None
    on = SignReader(Signs.from_json(json.loads(json.dumps(reader.signs.as_json()))), Parser())
    assert on.signs.last_error == reader.signs.last_error, "a new supervisor has only what was written down"
    on.finish()
    reader.finish()
    assert (on.signs.error_kind, on.signs.error) == (reader.signs.error_kind, reader.signs.error)
    lived = SignReader(Signs(), Parser())
    lived.feed((TRACEBACK + "".join(iteration(n) for n in range(6, 12))).encode())
    assert lived.signs.last_error is None, "it was survived"


@pytest.mark.parametrize(
    ("signs", "tracked", "flags", "silent"),
    [
        (Signs(random_start=True), 100, (), True),
        (Signs(iteration=1), 100, (), True),  # its words were lost among others, its numbers tell
        (Signs(iteration=100), 100, (), True),
        (Signs(iteration=101), 100, (), False),
        (Signs(iteration=1, loaded=True), 100, (), False),
        (Signs(iteration=1), 100, ("--finetune",), False),
        (Signs(iteration=1), None, (), False),
        (Signs(), 100, (), False),
    ],
)
def test_a_start_from_random_weights_is_seen(
    signs: Signs, tracked: int | None, flags: tuple[str, ...], silent: bool
) -> None:
    plan = RunPlan("train", "demo", load="/x", save="/x", arguments=flags)
    assert starts_silently(plan, signs, tracked) == silent
    assert not starts_silently(dataclasses.replace(plan, load=None), signs, tracked)


def test_a_nan_alert_is_open_until_a_healthy_iteration_follows() -> None:
    def batch(loss: float) -> IterationBatch:
        return IterationBatch([1], [None], [None], [10], [100], {"lm loss": [loss]})

    signs = Signs()
    signs.apply([batch(float("nan")), Alert(1, None, "nan-loss", "loss is NaN", "", severity="critical")])
    assert signs.nan_alert == "loss is NaN"
    signs.apply([Checkpoint(2, None, "saved", 10, "x"), batch(float("nan"))])
    assert signs.nan_alert
    signs.apply([batch(3.0)])
    assert signs.nan_alert is None


def test_the_real_log_with_unchecked_nan_leaves_an_alert_open(logs: Path) -> None:
    assert read_signs(logs / "2xh200-bf16-nan-unchecked.log", Signs()).nan_alert


# Requests and processes.


def test_a_request_stays_until_it_is_dropped_and_invalid_ones_are_ignored(tmp_path: Path) -> None:
    folder = saved_run(Workspace(tmp_path), state=LIVE)
    assert waiting_request(folder) is None
    request_stop(folder, StopRequest(now=True, limit=5))
    request = waiting_request(folder)
    assert request and (request.now, request.limit) == (True, 5) and waiting_request(folder) == request
    for rubbish in (b"", b"[]", b'{"action": "dance"}', b"\xff", b'{"action": "sto', b"[" * 100_000):
        folder.request_file.write_bytes(rubbish)
        assert waiting_request(folder) is None


@pytest.mark.parametrize("limit", ["Infinity", "NaN", "1" + "0" * 400, "-5", "true", '"5"', "null"])
def test_an_invalid_limit_of_a_request_becomes_the_default(tmp_path: Path, limit: str) -> None:
    """It must not end the supervisor."""
    folder = saved_run(Workspace(tmp_path), state=LIVE)
    folder.request_file.write_text(f'{{"action": "stop", "limit": {limit}}}')
    assert waiting_request(folder) == StopRequest(limit=DEFAULT_LIMIT)
    folder.state_file.write_text(f'{{"phase": "running", "heartbeat": {limit}}}')
    assert state_is_finite(folder)


def state_is_finite(folder: RunFolder) -> bool:
    state = folder.state()
    return state is not None and math.isfinite(state.heartbeat)


def test_a_process_is_its_number_and_its_start(tmp_path: Path) -> None:
    stat = tmp_path / "42/stat"
    stat.parent.mkdir()
    fields = "1 42 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 999 0"
    stat.write_text(f"42 (a) b (c) S {fields}")
    assert find_process(42, tmp_path) == Process(42, 7, 999)
    assert is_alive(Process(42, 7, 999), tmp_path) and not is_alive(Process(42, 7, 998), tmp_path)
    stat.write_text(f"42 (a) Z {fields}")
    assert find_process(42, tmp_path) is None  # a zombie only waits for its parent
