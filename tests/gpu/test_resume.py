"""Resuming with the real Megatron-LM core_r0.8.0 on one GPU, through mdk-tui's own commands: one story in the order of the file.

It runs after test_real_megatron.py, whose corpus and patches it uses, in a workspace of its own beside that one's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from backends.megatron.record import Record
from backends.megatron.summary import read_log
from backends.runs.argument_values import planned_values
from backends.runs.catalog import describe
from backends.runs.checkpoints import checkpoints, read_tracker
from backends.runs.comparison import compare
from backends.runs.difference import same
from backends.runs.folder import RunFolder
from backends.runs.processes import marked_processes
from backends.runs.schedule_comparison import OVERRIDE, schedule_changes, schedule_state
from backends.runs.stored_values import Stored, read_stored
from backends.workspace import Workspace

T = TypeVar("T")
GIVEN, IMAGE = os.environ.get("MDK_GPU_WORKSPACE"), os.environ.get("MDK_GPU_IMAGE")
pytestmark = pytest.mark.skipif(
    not (GIVEN and IMAGE and shutil.which("nvidia-smi")),
    reason="needs a GPU and Megatron-LM: tests/gpu/prepare.sh",
)
CLONE = Path(GIVEN or "/nonexistent") / "outputs" / "Megatron-LM"
KEEP = os.environ.get("OUT")  # where logs are kept, if anywhere
SETTINGS = '[image]\nbind = ["/usr", "/opt", "/tmp", "/etc"]\n[mlflow]\nenabled = false\n'
ITERATIONS, SAVE, KILL = 120, 40, 90
LIMIT = 240.0  # s for a run to start, to train and to end
NEAR = 0.02  # of a loss of 5 to 8: sums in another order on the GPU, nothing else
FATAL = ("finished", "failed", "lost")


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    """Beside the other tests' workspace, with the same clone."""
    if not (CLONE / "corpus_text_document.idx").exists():
        pytest.fail("run tests/gpu/test_real_megatron.py before: it makes the corpus and applies the patches")
    root = Path(GIVEN or "").parent / "resume"
    shutil.rmtree(root, ignore_errors=True)
    (root / "outputs").mkdir(parents=True)
    (root / "outputs" / "Megatron-LM").symlink_to(CLONE)
    (root / "mdk.toml").write_text(SETTINGS)
    return Workspace(root)


def mdk(workspace: Workspace, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tui.cli import main; main()", "-w", str(workspace.root), *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL
    )
    assert done.returncode == status, (words, done.stdout[-2000:], done.stderr[-3000:])
    return done


def started(workspace: Workspace, *words: str) -> RunFolder:
    return RunFolder(Path(json.loads(mdk(workspace, *words).stdout)["path"]))


def until(what: Callable[[], T | None], words: str) -> T:
    deadline = time.monotonic() + LIMIT
    while not (value := what()):
        assert time.monotonic() < deadline, f"not within {LIMIT:g} s: {words}"
        time.sleep(0.1)
    return value


def ended(folder: RunFolder) -> Record:
    """The log of a run that has ended well."""
    until(lambda: describe(folder).over, f"the end of {folder.name}")
    info = describe(folder)
    if KEEP:
        shutil.copy(folder.log, Path(KEEP) / f"resume-{folder.path.name}.log")
    assert info.phase == "finished", (info.reason, folder.log.read_text(errors="replace")[-3000:])
    return read_log(folder.log)


def losses(record: Record, first: int, last: int) -> dict[int, float]:
    """Every tenth one; while fp16 looks for its loss scale, in the first ten, there is none."""
    found = {at: record.value_at("lm loss", at) for at in range(first, last + 1, 10)}
    missing = [at for at, loss in found.items() if loss is None]
    assert set(missing) <= {10}, f"no loss at {missing}"
    return {at: float(loss) for at, loss in found.items() if loss is not None}


def assert_same_course(wanted: dict[int, float], got: dict[int, float]) -> None:
    apart = {at: abs(wanted[at] - got[at]) for at in got}
    print("largest difference of a loss:", max(apart.values()), "of", wanted)
    assert max(apart.values()) < NEAR, (wanted, got)


def launch_words(workspace: Workspace, base: str) -> list[str]:
    data = ["--data-path", str(CLONE / "corpus_text_document"), "--vocab-file", str(CLONE / "vocab.json")]
    length = ["--train-iters", str(ITERATIONS), "--save-interval", str(SAVE), "--log-interval", "10"]
    where = ["--image", IMAGE or "", "--np", "1", "--gpus", "1", "--save", str(workspace.root / base)]
    more = [*data, "--merge-file", str(CLONE / "merges.txt"), *length, "--eval-interval", "1000"]
    return ["launch", "--json", "--preset", "smoke", *where, "--", *more]


@pytest.fixture(scope="module")
def whole(workspace: Workspace) -> dict[int, float]:
    """The losses of a run that nothing interrupts."""
    return losses(ended(started(workspace, *launch_words(workspace, "whole"))), 10, ITERATIONS)


@pytest.fixture(scope="module")
def killed(workspace: Workspace) -> RunFolder:
    """The same run, killed with KILL, all its processes, after its second save."""
    folder = started(workspace, *launch_words(workspace, "interrupted"))
    until(lambda: (describe(folder).iteration or 0) >= KILL or describe(folder).over, f"iteration {KILL}")
    state = folder.state()
    assert state is not None and state.iteration is not None and state.iteration < ITERATIONS, state
    for process in marked_processes(state.mark):
        if process != state.leader:
            os.kill(process.pid, signal.SIGKILL)
    until(lambda: describe(folder).over, "the end of what was killed")
    assert describe(folder).phase == "failed"
    return folder


@pytest.fixture(scope="module")
def resumed(workspace: Workspace, killed: RunFolder) -> RunFolder:
    folder = started(workspace, "resume", "--json")
    ended(folder)
    return folder


def save_of(folder: RunFolder) -> Path:
    return Path(folder.plan().save or "")


def stored_of(folder: RunFolder, iteration: int) -> Stored:
    stored = read_stored(save_of(folder) / f"iter_{iteration:07d}", None)
    assert stored is not None, "the restricted reader does not read the real file"
    return stored


def test_a_killed_run_continues_as_if_nothing_had_happened(
    whole: dict[int, float], killed: RunFolder, resumed: RunFolder
) -> None:
    record = read_log(resumed.log)
    assert any(c.action == "loaded" and c.iteration == 2 * SAVE for c in record.checkpoints)
    assert record.segments[0].first == 2 * SAVE + 10 and record.iteration == ITERATIONS
    assert resumed.plan().load == resumed.plan().save == killed.plan().save
    assert_same_course(whole, losses(record, 2 * SAVE + 10, ITERATIONS))


def test_the_arguments_in_the_real_file_are_those_that_the_plan_meant(resumed: RunFolder) -> None:
    """Read without torch; defaults and what Megatron-LM derives are known rightly, or a resume would be refused wrongly."""
    stored, plan = stored_of(resumed, ITERATIONS), resumed.plan()
    planned = planned_values(plan.arguments, plan.trainer, plan.processes)
    # training.py sets it to the heads when it counts FLOPs; it decides nothing without group query attention.
    known = [name for name in planned if name in stored.values and name != "num_query_groups"]
    differing = {n: (stored.values[n], planned[n]) for n in known if not same(stored.values[n], planned[n])}
    assert len(known) > 50 and differing == {}, differing
    assert stored.scheduler is not None
    steps = stored.scheduler["num_steps"]  # what fp16 skipped while it looked for its loss scale is no step
    assert steps % 32 == 0 and 0 < steps <= ITERATIONS * 32
    assert schedule_changes(stored.scheduler, stored.values, planned) == []
    assert compare(stored, plan) == ()
    assert [(c.complete, c.layout.tp, c.layout.pp) for c in checkpoints(save_of(resumed))] == [
        (True, 1, 1)
    ] * 3


def test_a_branch_from_the_earlier_iteration_leaves_the_original_alone(
    workspace: Workspace, whole: dict[int, float], resumed: RunFolder
) -> None:
    save = save_of(resumed)
    before = {path: path.stat().st_mtime_ns for path in save.rglob("*")}
    words = ("--exit-interval", str(2 * SAVE))
    folder = started(workspace, "resume", str(save), "--iteration", str(SAVE), "--json", "--", *words)
    record = ended(folder)
    assert any(c.action == "loaded" and c.iteration == SAVE for c in record.checkpoints)
    assert_same_course(whole, losses(record, SAVE + 10, 2 * SAVE))
    assert read_tracker(save).iteration == ITERATIONS and read_tracker(save_of(folder)).iteration == 2 * SAVE
    assert {path: path.stat().st_mtime_ns for path in save.rglob("*")} == before


def test_a_longer_schedule_is_refused_without_the_flag_and_goes_on_with_it(
    workspace: Workspace, resumed: RunFolder
) -> None:
    longer = ("resume", str(save_of(resumed)), "--json")
    changes = ("--", "--train-iters", str(ITERATIONS + 20))
    shown: dict[str, Any] = json.loads(mdk(workspace, *longer, "--dry-run", *changes).stdout)
    assert [(d["flag"], d["verdict"]) for d in shown["differences"]] == [("--train-iters", "flag")]
    assert OVERRIDE in shown["argv"] and shown["problems"] == []

    without = [word for word in shown["argv"] if word != OVERRIDE]
    log = workspace.root / "refused.log"
    with log.open("wb") as file:
        status = subprocess.run(
            without,
            cwd=shown["cwd"],
            env={**os.environ, **shown["env"]},
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            check=False,
        ).returncode
    if KEEP:
        shutil.copy(log, Path(KEEP) / "resume-refused.log")
    assert status != 0
    assert [e.kind for e in read_log(log).all_errors()][:1] == ["scheduler-mismatch"]
    foreseen = shown["differences"][0]["message"]
    refusal = next(
        line
        for line in log.read_text(errors="replace").splitlines()
        if "OptimizerParamScheduler: class input" in line
    )
    assert refusal.strip().partition(" for ")[2].removesuffix(" do not match") in foreseen, (
        refusal,
        foreseen,
    )

    record = ended(started(workspace, *longer, *changes))
    assert record.iteration == ITERATIONS + 20
    stored = stored_of(resumed, ITERATIONS + 20)
    planned = planned_values((*resumed.plan().arguments, "--train-iters", str(ITERATIONS + 20)), "megatron")
    wanted = schedule_state(planned)
    assert stored.scheduler is not None and stored.scheduler["wd_incr_steps"] == wanted["wd_incr_steps"]


@pytest.mark.parametrize(
    "changes", [("--tensor-model-parallel-size", "2"), ("--hidden-size", "1024"), ("--swiglu",)]
)
def test_an_unloadable_checkpoint_is_refused_before_anything_starts(
    workspace: Workspace, resumed: RunFolder, changes: tuple[str, ...]
) -> None:
    before = sorted(workspace.runs.glob("*/*"))
    words = ("resume", str(save_of(resumed)), "--", "--train-iters", "500", *changes)
    refused = mdk(workspace, *words, status=1)
    assert re.search(rf"^{changes[0]} .*cannot load$", refused.stderr, re.MULTILINE), refused.stderr
    assert sorted(workspace.runs.glob("*/*")) == before


def test_the_real_one_refuses_another_width_in_the_foreseen_way(
    workspace: Workspace, resumed: RunFolder
) -> None:
    """What `cannot load` says is true: the command that was refused, run by hand."""
    words = ("resume", str(save_of(resumed)), "--json", "--dry-run", "--", "--train-iters", "500", "--swiglu")
    shown: dict[str, Any] = json.loads(mdk(workspace, *words).stdout)
    assert [p["field"] for p in shown["problems"] if p["severity"] == "error"] == ["--swiglu"]
    log = workspace.root / "swiglu.log"
    with log.open("wb") as file:
        environment = {**os.environ, **shown["env"]}
        done = subprocess.run(
            shown["argv"], cwd=shown["cwd"], env=environment, stdout=file, stderr=subprocess.STDOUT, timeout=LIMIT, check=False
        )  # fmt: skip
    if KEEP:
        shutil.copy(log, Path(KEEP) / "resume-swiglu.log")
    assert done.returncode != 0 and [e.kind for e in read_log(log).all_errors()][:1] == ["state-mismatch"]
