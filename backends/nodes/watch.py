"""Finds out which node or rank a training run waits for: `python -m backends.nodes.watch RUNDIR WORKSPACE`, a companion.

mpirun notices neither a node that was cut off nor a rank that stands still: the other ranks wait for ever, and the log is
silent. When no iteration has come for [mpi] silence_minutes, every node of the run is asked, or this machine when the run
has no other. The answer stands in nodes.json until an iteration comes; whoever lists the run shows it as its note.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.files import hold_lock, write_json
from backends.nodes.asking import Asked
from backends.nodes.report import NodeReport
from backends.nodes.survey import Survey, named_nodes
from backends.programs import RealPrograms
from backends.runs.folder import RunFolder
from backends.runs.state import Phase
from backends.settings import read_settings
from backends.setup.step import Site
from backends.workspace import Workspace

LOOK = 1.0  # s between two looks at state.json
AGAIN = 60.0  # s, the least time between two questions to the nodes
IDLE = 0.05  # a rank that uses fewer cores stands still
BUSY = 0.3  # a rank that uses more cores computes, or waits in a collective operation


@dataclass(slots=True)
class Silence:
    """How long a run has been in one phase and at one iteration. Times are s of one clock."""

    limit: float
    seen: tuple[Phase, int | None] | None = None
    since: float = 0.0

    def look(self, phase: Phase, iteration: int | None, now: float) -> float | None:
        """Seconds of silence, once they are more than the limit. A run that stops is not silent."""
        if phase not in ("starting", "running") or self.seen != (phase, iteration):
            self.seen, self.since = (phase, iteration), now
        silent = now - self.since
        return silent if silent > self.limit else None


def words(silent: float, asked: Sequence[Asked], ranks: int, *, training: bool) -> str | None:
    """What a reader of the run should know. `asked`: the answer of each node; `ranks`: how many the run has.

    None while it starts and no node or rank is at fault: loading and compiling take long.
    """
    said = f"No iteration for {_span(silent)}"
    dead = [node for node in asked if node.report is None]
    if dead:
        names = ", ".join(node.name for node in dead)
        return f"{said}: {names} {'does' if len(dead) == 1 else 'do'} not answer. {dead[0].failure}"
    if fault := rank_at_fault([node.report for node in asked if node.report], ranks, training=training):
        return f"{said}: {fault}"
    if not training:
        return None
    nodes = f", though all {len(asked)} nodes answer" if len(asked) > 1 else ""
    return f"{said}{nodes}: look at GPUs and network (mdk-tui probe --all-reduce)."


def rank_at_fault(reports: Sequence[NodeReport], ranks: int, *, training: bool) -> str | None:
    """The rank that the others must be waiting for, and why; None when none stands out.

    Ranks that wait in a collective operation use a core each, so one that uses none is the one they wait for.
    """
    processes = [(report.host, process) for report in reports for process in report.ranks or ()]
    for host, process in processes:
        where = f"rank {process.rank} on {host} (pid {process.pid})"
        if process.state in "Tt":
            return f"{where} is stopped by a signal. Let it go on: kill -CONT {process.pid}"
        if process.state == "D" and process.cpu < IDLE:
            return f"{where} waits in the kernel, for a disk or a driver: see dmesg there."
    used = dict[int, float]()
    for _, process in processes:
        used[process.rank] = used.get(process.rank, 0.0) + process.cpu
    told = all(report.ranks is not None for report in reports)
    if told and used and (gone := sorted(set(range(ranks)) - set(used))):
        return (
            f"rank {gone[0]} has no process any more{f', nor have {len(gone) - 1} more' if gone[1:] else ''}."
        )
    idle = sorted(rank for rank, cores in used.items() if cores < IDLE)
    if training and idle and any(cores > BUSY for cores in used.values()):
        return f"rank {', '.join(map(str, idle[:5]))} computes nothing, and the others wait for it."
    return None


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def watch(
    folder: RunFolder,
    limit: float,
    ask: Callable[[], Sequence[Asked]],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Write and remove nodes.json until the run is over."""
    silence, asked, noted = Silence(limit), float("-inf"), False
    while (state := folder.state()) is None or not state.over:
        phase, iteration = (state.phase, state.iteration) if state else ("starting", None)
        silent = silence.look(phase, iteration, clock())
        if silent is None and noted:
            folder.nodes_file.unlink(missing_ok=True)
            noted, asked = False, float("-inf")
        elif silent is not None and clock() - asked >= max(AGAIN, limit):
            asked = clock()
            answers, plan = ask(), folder.plan()
            # Without hosts in the plan, mpirun may use nodes that are not asked: their ranks cannot be counted.
            ranks = plan.processes if plan.hosts else 0
            note = words(silent + clock() - asked, answers, ranks, training=phase == "running")
            noted = True
            with contextlib.suppress(OSError):  # a full disk: nothing more can be said
                write_json(folder.nodes_file, {"note": note})
        pause(LOOK)
    folder.nodes_file.unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> None:
    folder, workspace = RunFolder(Path(arguments[0])), Workspace(Path(arguments[1]))
    if not hold_lock(folder.path / "nodes.lock"):
        return
    settings = read_settings(workspace.settings)
    site = Site(workspace, settings, os.environ, RealPrograms(os.environ))
    nodes = named_nodes(folder.plan().hosts)

    def ask() -> list[Asked]:
        state = folder.state()
        survey = Survey(site, nodes, paths=(), mark=state.mark if state else None)
        if not nodes.hosts:
            return [survey.ask_here()]
        answers = {answer.name: answer for answer in survey.ask()}
        return [answers[name] for name in nodes.names]

    watch(folder, settings.mpi.silence_minutes * 60, ask)


if __name__ == "__main__":
    main(sys.argv[1:])
