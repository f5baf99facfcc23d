"""A training that is interrupted at random moments and resumed, again and again, with the checks after each interruption.

`python tests/unit/interruptions.py COUNT [SEED]` runs COUNT interruptions in a folder of its own and prints the table.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from demo_runs import SMALL, write_corpus
from scripted_jobs import clean_up, wait_for

from backends.launch.adoption import looked_after
from backends.launch.resume import start_resumption
from backends.launch.start import start
from backends.runs.catalog import RunInfo, describe, run_folders
from backends.runs.checkpoints import checkpoints, read_tracker
from backends.runs.folder import RunFolder
from backends.runs.planning import train_plan
from backends.runs.processes import is_alive, marked_processes
from backends.runs.resuming import resumption
from backends.runs.state import RunState
from backends.workspace import Workspace

LOSS = re.compile(rb"iteration +(\d+)/.*\| lm loss: (\S+) \|.*\|\s*\n")
SAVING = re.compile(rb"saving checkpoint at iteration +(\d+) to")
SAVED = re.compile(rb"successfully saved checkpoint from iteration +(\d+) to")
LOADED = re.compile(rb"successfully loaded checkpoint from .* at iteration (\d+)\n")
SETTINGS = "[mlflow]\nenabled = false\n"  # importing it would take longer than the training
STARTER = """
import sys
from interruptions import Chain
from backends.workspace import Workspace
from pathlib import Path
Chain(Workspace(Path(sys.argv[1])), None).begin()
print("started", flush=True)
sys.stdin.readline()
"""
# What is killed, how often in 100. While saving: within some ms after the log says that a save begins.
KINDS = {"trainer": 22, "trainer while saving": 30, "trainer while starting": 8, "supervisor": 14, "screen": 8,
         "supervisor and trainer": 8, "all processes": 10}  # fmt: skip


class Violation(AssertionError):
    """Something that must always hold did not."""


@dataclass(slots=True)
class Chain:
    """`random` chooses what is killed and when; None where nothing is."""

    workspace: Workspace
    random: random.Random | None
    seconds: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    counts: Counter[str] = field(default_factory=Counter[str])
    digests: dict[Path, str] = field(default_factory=dict[Path, str])
    losses: dict[int, bytes] = field(default_factory=dict[int, bytes])
    checked: set[Path] = field(default_factory=set[Path])
    cut_off: int = 0
    untold: int = 0

    @property
    def save(self) -> Path:
        return self.workspace.root / "save"

    @property
    def newest(self) -> RunFolder:
        return next(run_folders(self.workspace))

    # Starting.

    def begin(self) -> RunFolder:
        """The first run, or one more that goes on from what is there."""
        if any(run_folders(self.workspace)) and read_tracker(self.save).iteration is not None:
            return start_resumption(
                resumption(self.workspace, self.save, None, (), datetime.now()), self.workspace
            )
        self.workspace.settings.write_text(SETTINGS)
        corpus = write_corpus(self.workspace.root / "corpus.jsonl")
        words = (
            "--train-iters",
            "1000000",
            "--save-interval",
            "3",
            "--eval-iters",
            "0",
            "--data-path",
            str(corpus),
        )
        return start(train_plan("demo", SMALL, words, self.save), self.workspace)

    def begin_from_a_screen(self) -> RunFolder:
        """Started by a process that is killed as soon as it has started it."""
        screen = subprocess.Popen(
            [sys.executable, "-c", STARTER, str(self.workspace.root)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        with screen:
            assert screen.stdout is not None and screen.stdout.readline() == b"started\n"
            os.killpg(screen.pid, signal.SIGKILL)
        return self.newest

    # One interruption.

    def interrupt(self) -> str:
        """Kill something of what runs (start it before, if nothing does), look, and check everything. The kind."""
        assert self.random is not None
        kind = self.random.choices(list(KINDS), list(KINDS.values()))[0]
        began = time.monotonic()
        info = describe(self.newest) if any(run_folders(self.workspace)) else None
        if info is None or info.over:
            tracked = read_tracker(self.save).iteration
            folder = self.begin_from_a_screen() if kind == "screen" else self.begin()
            self._check_start(folder, tracked, wait=kind != "trainer while starting")
        elif kind == "screen":
            kind = "supervisor"  # there is no screen whose end could matter to a run that goes on
        folder = self.newest
        self._kill(kind, folder)
        self._check_state(kind, folder)
        self.check_checkpoints(folder)
        self.counts[kind] += 1
        self.seconds.setdefault(kind, []).append(time.monotonic() - began)
        return kind

    def _kill(self, kind: str, folder: RunFolder) -> None:
        assert self.random is not None
        state = self._state(folder)
        if kind == "trainer while saving":
            self._wait_for_save(folder)
            time.sleep(self.random.uniform(0, 0.004))
        elif kind == "trainer while starting":
            time.sleep(self.random.uniform(0, 0.7))
        else:
            time.sleep(self.random.uniform(0, 0.25))
        processes = (
            [process.pid for process in marked_processes(state.mark)] if kind == "all processes" else []
        )
        job, supervisor = state.job.pid if state.job else 0, state.supervisor.pid if state.supervisor else 0
        named = {"supervisor": [supervisor], "supervisor and trainer": [supervisor, job], "screen": []}
        for pid in named.get(kind, [supervisor, *processes] if kind == "all processes" else [job]):
            os.kill(pid, signal.SIGKILL)

    def _wait_for_save(self, folder: RunFolder) -> None:
        """Returns in the instant in which one more save begins."""
        with folder.log.open("rb") as log:
            log.seek(0, 2)
            wait_for(lambda: b"saving checkpoint at" in log.read() or None)

    def _state(self, folder: RunFolder) -> RunState:
        return wait_for(lambda: s if (s := folder.state()) and s.job and s.supervisor else None)

    # What must hold.

    def _check_start(self, folder: RunFolder, tracked: object, *, wait: bool) -> None:
        """It goes on from what the tracker named, at the iteration after it; never from random weights."""
        if not wait:
            return
        text = wait_for(
            lambda: t if LOSS.search(t := folder.log.read_bytes()) or describe(folder).over else None
        )
        _demand(b"from random" not in text, folder, "started from random weights")
        found, first = LOADED.search(text), LOSS.search(text)
        _demand(first is not None, folder, f"did not train: {text[-500:]!r}")
        loaded = int(found[1]) if found else None
        _demand(loaded == tracked, folder, f"loaded {loaded}, the tracker named {tracked}")
        _demand(
            first is not None and int(first[1]) == (loaded or 0) + 1, folder, "skipped or repeated iterations"
        )

    def _check_state(self, kind: str, folder: RunFolder) -> None:
        if kind == "screen":
            _demand(not describe(folder).over, folder, "ended with its screen")
            return
        if kind == "supervisor":
            state = self._state(folder)
            wait_for(lambda: not is_alive(state.supervisor))
            info = looked_after(folder, self.workspace)
            _demand(
                not info.over and not info.orphaned,
                folder,
                f"is {info.phase} after its supervisor was killed",
            )
            return
        info = self._over(folder)
        lost = kind in ("all processes", "supervisor and trainer")
        expected = ("failed", "lost") if lost else ("failed",)
        _demand(info.phase in expected, folder, f"is {info.phase} after: {kind}")
        if info.phase == "failed":
            _demand(info.signal == signal.SIGKILL, folder, f"is said to have ended otherwise: {info.reason}")
        mark = self._state(folder).mark
        wait_for(lambda: not marked_processes(mark))  # the killed ones are a moment in dying
        self.digests[folder.log] = _digest(folder.log)

    def _over(self, folder: RunFolder) -> RunInfo:
        def look() -> RunInfo | None:
            info = looked_after(folder, self.workspace)
            return info if info.over and not info.orphaned else None

        return wait_for(look)

    def check_checkpoints(self, folder: RunFolder) -> None:
        """Every save that was completed is there, whole, and the tracker names the newest, or one newer still."""
        text = folder.log.read_bytes()
        for iteration, loss in LOSS.findall(text):
            known = self.losses.setdefault(int(iteration), loss)
            _demand(known == loss, folder, f"iteration {int(iteration)}: {loss!r} after {known!r}")
        saved = [int(iteration) for iteration in SAVED.findall(text)]
        tracker = read_tracker(self.save)
        begun = [int(iteration) for iteration in SAVING.findall(text)]
        if describe(folder).over and begun and begun[-1:] != saved[-1:]:
            whole = (self.save / f"iter_{begun[-1]:07d}/mp_rank_00/model_optim_rng.pt").is_file()
            self.cut_off, self.untold = self.cut_off + (not whole), self.untold + whole
        if not saved:
            return
        _demand(isinstance(tracker.iteration, int), folder, f"tracker: {tracker.problem}")
        _demand(
            isinstance(tracker.iteration, int) and tracker.iteration >= max(saved),
            folder,
            "lost the newest save",
        )
        found = {
            c.iteration: c for c in checkpoints(self.save) if Path(c.path) not in self.checked or c.tracked
        }
        for iteration in {*saved[-20:], tracker.iteration}:
            if self.save / f"iter_{iteration:07d}" in self.checked:
                continue
            there = found.get(iteration)  # type: ignore[arg-type]
            _demand(there is not None and there.complete, folder, f"iteration {iteration}: {there}")
        self.checked |= {Path(c.path) for c in found.values() if c.complete}

    def check_history(self) -> None:
        """At the end: each log as it was, every iteration from the first to the last, all checkpoints of all saves."""
        for log, digest in self.digests.items():
            _demand(_digest(log) == digest, RunFolder(log.parent), "its log has changed after its end")
        texts = [folder.log.read_bytes() for folder in run_folders(self.workspace)]
        for iteration in (int(n) for text in texts for n, _ in LOSS.findall(text)):
            self.losses.setdefault(iteration, b"")
        _demand(
            sorted(self.losses) == list(range(1, max(self.losses) + 1)), self.newest, "iterations are missing"
        )
        whole = {c.iteration for c in checkpoints(self.save) if c.complete}
        saved = {int(n) for text in texts for n in SAVED.findall(text)}
        _demand(saved <= whole, self.newest, f"saves are missing: {sorted(saved - whole)}")  # type: ignore[type-var]

    def close(self) -> None:
        for folder in run_folders(self.workspace):
            clean_up(folder)

    def table(self) -> str:
        rows = [f"{'killed':<24}{'times':>6}{'s each':>8}"]
        for kind in KINDS:
            each = sum(self.seconds.get(kind, [0.0])) / max(1, self.counts[kind])
            rows.append(f"{kind:<24}{self.counts[kind]:>6}{each:>8.1f}")
        runs = len(list(run_folders(self.workspace)))
        rows.append(
            f"{'in all':<24}{sum(self.counts.values()):>6}  {runs} runs, {len(self.losses)} iterations"
        )
        torn = f"{self.cut_off} before the file was whole, {self.untold} between the file and the word"
        rows.append(f"saves cut off: {torn}")
        return "\n".join(rows)


def _demand(holds: bool, folder: RunFolder, what: str) -> None:
    if not holds:
        raise Violation(f"{folder.path}: {what}")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def interrupted(root: Path, count: int, seed: int, tell: Callable[[str], None] = lambda text: None) -> Chain:
    """`count` interruptions of one line of training below `root`. Raises Violation."""
    chain = Chain(Workspace(root), random.Random(seed))
    try:
        for at in range(1, count + 1):
            kind = chain.interrupt()
            if at % 20 == 0:
                tell(f"{at} of {count}, the last: {kind}")
        chain.check_history()
    finally:
        chain.close()
        tell(chain.table())
    return chain


if __name__ == "__main__":
    interrupted(
        Path(tempfile.mkdtemp(prefix="interruptions-")),
        int(sys.argv[1]),
        int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time()),
        lambda text: print(text, flush=True),
    )
