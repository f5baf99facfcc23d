"""Runs as a list shows them, without folders, processes or clocks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from backends.runs.catalog import RunInfo
from backends.runs.watching import SeenRun
from backends.workspace import Workspace

WORKSPACE = Workspace(Path("/home/user/mdk"))  # never there: what looks into it finds nothing
TINY = "a tiny GPT on the CPU: Python's own help, letter by letter"


def seen(
    name: str, *, last: dict[str, float] | None = None, checkpoint: int | None = None, **known: Any
) -> SeenRun:
    """The run DATE/TIME `name`; it trains, if nothing else is said."""
    facts: dict[str, Any] = dict.fromkeys(RunInfo.__slots__)
    facts |= {"run": name, "path": WORKSPACE.runs / name, "kind": "train", "phase": "running", "title": TINY}
    facts |= {"started": "2024-11-30T09:32:12+00:00", "save": f"/home/user/mdk/outputs/checkpoints/{name}"}
    facts |= {"orphaned": False, "again_due": False, **known}
    return SeenRun(RunInfo(**facts), last or {}, checkpoint)


TRAINING = seen(
    "2024-11-30/09-32-12", iteration=120, train_iters=1000, checkpoint=100,
    last={"lm loss": 2.913, "elapsed time per iteration (ms)": 120.0},
)  # fmt: skip
SERVER = seen(
    "2024-11-30/09-32-13", kind="serve", title=f"{TINY} (server)", save=None,
    load="/home/user/mdk/outputs/checkpoints/2024-11-30/09-32-12", address="http://127.0.0.1:8028",
)  # fmt: skip
FINISHED = seen(
    "2024-11-29/18-00-00", phase="finished", iteration=1000, train_iters=1000, checkpoint=1000,
    ended="2024-11-29T18:12:00+00:00", exit_code=0,
)  # fmt: skip
FAILED = seen(
    "2024-11-28/03-12-00", phase="failed", title="gpt3-7b: the tutorial's recipe", iteration=4310, train_iters=500_000,
    checkpoint=4000, ended="2024-11-28T04:00:00+00:00", exit_code=1,
    reason="Rank 3 ran out of GPU memory: tried to allocate 20.00 GiB.",
)  # fmt: skip


def listing(*runs: SeenRun) -> Callable[[threading.Event], Iterator[tuple[SeenRun, ...]]]:
    """A watch that sees `runs` once."""
    return lambda ended: iter([runs])
