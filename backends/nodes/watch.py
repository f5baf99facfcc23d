"""Asks the nodes of a run when no iteration comes: `python -m backends.nodes.watch RUNDIR WORKSPACE`, a companion.

mpirun does not notice a node that was cut off: the others wait for it for ever, and the log is silent. What is found
stands in nodes.json until an iteration comes again; whoever lists the run shows it as its note.
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
from backends.nodes.survey import Survey, named_nodes
from backends.nodes.verdicts import Expected, NodeVerdict, judge
from backends.programs import RealPrograms
from backends.runs.folder import RunFolder
from backends.settings import read_settings
from backends.setup.step import Site
from backends.workspace import Workspace

LOOK = 1.0  # s between two looks at state.json
AGAIN = 60.0  # s at least between two questions to the nodes


@dataclass(slots=True)
class Silence:
    """How long no iteration has come. Times are s of one clock."""

    limit: float
    iteration: int | None = None
    since: float | None = None

    def look(self, iteration: int | None, trains: bool, now: float) -> float | None:
        """Seconds of silence, once they are more than the limit. What does not train yet, or stops, is not silent."""
        if not trains or iteration != self.iteration or self.since is None:
            self.iteration, self.since = iteration, now
        silent = now - self.since
        return silent if silent > self.limit else None


def words(silent: float, verdicts: Sequence[NodeVerdict]) -> str:
    """What a reader of the run should know."""
    said = f"No iteration for {_span(silent)}"
    dead = [verdict for verdict in verdicts if not verdict.reached]
    if dead:
        names = ", ".join(verdict.name for verdict in dead)
        return f"{said}: {names} {'does' if len(dead) == 1 else 'do'} not answer. {dead[0].finding.evidence}"
    return f"{said}, though all {len(verdicts)} nodes answer: look at GPUs and network (mdk-tui probe --all-reduce)."


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def watch(
    folder: RunFolder,
    limit: float,
    ask: Callable[[], Sequence[NodeVerdict]],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Until the run is over."""
    silence, asked, noted = Silence(limit), float("-inf"), False
    while (state := folder.state()) is None or not state.over:
        trains = state is not None and state.phase == "running"
        silent = silence.look(state.iteration if state else None, trains, clock())
        if silent is None and noted:
            folder.nodes_file.unlink(missing_ok=True)
            noted, asked = False, float("-inf")
        elif silent is not None and clock() - asked >= max(AGAIN, limit):
            asked = clock()
            verdicts = ask()
            with contextlib.suppress(OSError):  # a full disk: nothing more can be said
                write_json(
                    folder.nodes_file,
                    {"note": words(silent + clock() - asked, verdicts), "time": time.time()},
                )
                noted = True
        pause(LOOK)
    folder.nodes_file.unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> None:
    folder, workspace = RunFolder(Path(arguments[0])), Workspace(Path(arguments[1]))
    if not hold_lock(folder.path / "nodes.lock"):
        return
    settings = read_settings(workspace.settings)
    site = Site(workspace, settings, os.environ, RealPrograms(os.environ))
    survey = Survey(site, named_nodes(folder.plan().hosts), paths=())

    def ask() -> list[NodeVerdict]:
        answers = {answer.name: answer for answer in survey.ask()}
        known = Expected(None, None, (), None, {}, None)
        return judge([answers[name] for name in survey.nodes.names], known)

    watch(folder, settings.mpi.silence_minutes * 60, ask)


if __name__ == "__main__":
    main(sys.argv[1:])
