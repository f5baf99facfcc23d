"""Small scripted jobs under the real supervisor, for tests: `python scripted_jobs.py RUNDIR WORKSPACE …` supervises one.

The launcher "scripted" runs the title of a plan as a Python program.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from waiting import LIMIT

from backends.launch.commands import LAUNCHERS
from backends.launch.launcher import Command
from backends.launch.start import start
from backends.models.problem import Problem
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.processes import Process, is_alive, marked_processes
from backends.runs.state import RunState
from backends.workspace import Workspace

T = TypeVar("T")
PROGRAM = (sys.executable, str(Path(__file__).resolve()))

# Prints as Megatron-LM does; saves and exits on TERM, as with --exit-signal-handler; ends by itself when FILE "end" is there.
TRAINER = """
import os, signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
def line(iteration):
    print(f" [2026-11-30 05:00:00] iteration {iteration:8d}/     500 | consumed samples: {iteration:12d} | elapsed time per iteration (ms): 100.0"
          " | learning rate: 1.000000E-04 | global batch size:     1 | lm loss: 5.000000E+00 | loss scale: 1.0 | grad norm: 1.000"
          " | number of skipped iterations:   0 | number of nan iterations:   0 |", flush=True)
print("training ...", flush=True)
for iteration in range(1, 501):
    line(iteration)
    time.sleep(0.05)
    if asked:
        print(f"saving checkpoint at iteration {iteration:7d} to X in torch format", flush=True)
        print(f"  successfully saved checkpoint from iteration {iteration:7d} to X", flush=True)
        print("[exiting program after receiving SIGTERM.] datetime: 2026-11-30 05:00:00 ", flush=True)
        sys.exit(0)
    if os.path.exists("end"):
        print("[after training is done] datetime: 2026-11-30 05:00:00 ", flush=True)
        sys.exit(int(open("end").read() or 0))
"""


class Scripted:
    name = "scripted"

    def check(self, plan: RunPlan, workspace: Workspace) -> list[Problem]:
        return []

    def command(self, plan: RunPlan, workspace: Workspace) -> Command:
        return Command((sys.executable, "-u", "-c", plan.title), str(workspace.root), {})

    def term_saves(self, plan: RunPlan) -> bool:
        return plan.kind == "train"

    def stop_gracefully(self, job: Process) -> None:
        os.kill(job.pid, signal.SIGTERM)


LAUNCHERS["scripted"] = Scripted()


def scripted(program: str, kind: Literal["train", "serve"] = "train", load: str | None = None) -> RunPlan:
    arguments = ("--train-iters", "500") if kind == "train" else ()
    return RunPlan(kind, "demo", launcher="scripted", title=program, arguments=arguments, load=load)


def start_scripted(
    workspace: Workspace,
    program: str = TRAINER,
    kind: Literal["train", "serve"] = "train",
    load: str | None = None,
) -> RunFolder:
    return start(scripted(program, kind, load), workspace, program=PROGRAM)


def wait_for(what: Callable[[], T | None], seconds: float = LIMIT) -> T:
    """What `what` returns as soon as it is true; fails the test when that takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain"
        time.sleep(0.02)
    return value


def state_of(folder: RunFolder) -> RunState:
    state = folder.state()
    assert state is not None
    return state


def wait_for_phase(folder: RunFolder, *phases: str) -> RunState:
    return wait_for(lambda: s if (s := folder.state()) and s.phase in phases else None)


def clean_up(folder: RunFolder) -> None:
    """End whatever a test left: the supervisor, and every process with the run's mark."""
    state = folder.state()
    if state is None:
        return
    if state.supervisor and is_alive(state.supervisor):
        os.kill(state.supervisor.pid, signal.SIGKILL)
    for process in marked_processes(state.mark):
        os.kill(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    from backends.launch.supervisor import main

    main(program=PROGRAM)
