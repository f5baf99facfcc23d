"""Reading the list of runs in a thread, once a second; words for one run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from rich.text import Text
from textual.screen import Screen

from backends.runs.catalog import RunInfo, runs
from backends.workspace import Workspace
from tui.bridge import Bridge

PAUSE = 1.0  # s between two looks
STYLES = {
    "running": "bold green",
    "starting": "blue",
    "stopping": "yellow",
    "finished": "green",
    "failed": "bold red",
    "lost": "red",
}


class RunWatch:
    """Looks at the runs of a workspace while its screen is in sight and hands the list to `deliver`."""

    def __init__(
        self, screen: Screen[Any], workspace: Workspace, deliver: Callable[[list[RunInfo]], None]
    ) -> None:
        self._screen, self._workspace, self._deliver = screen, workspace, deliver
        self._bridge: Bridge[list[RunInfo]] | None = None

    def start(self) -> None:
        if self._bridge is None:
            closed = threading.Event()
            self._bridge = Bridge(
                self._screen, lambda: self._looks(closed), self._deliver, close_source=closed.set
            ).start()

    resume = start

    def pause(self) -> None:
        if self._bridge is not None:
            self._bridge.close()
            self._bridge = None

    def _looks(self, closed: threading.Event) -> Iterator[list[RunInfo]]:
        before: list[RunInfo] | None = None
        while not closed.is_set():
            found = runs(self._workspace)
            if found != before:
                before = found
                yield found
            closed.wait(PAUSE)


def phase_text(info: RunInfo) -> Text:
    return Text(f"{info.phase:<9}", style=STYLES.get(info.phase, ""))


def progress_text(info: RunInfo) -> str:
    """ "1,250 / 5,000", the address of a server, or ""."""
    if info.kind == "serve":
        return (info.address or "").removeprefix("http://")
    if info.iteration is None:
        return ""
    return f"{info.iteration:,}" + (f" / {info.train_iters:,}" if info.train_iters else "")


def when_text(info: RunInfo) -> str:
    """ "11-30 09:32", local time of its end, or of its start while it lives."""
    stamp = info.ended or info.started
    try:
        return datetime.fromisoformat(stamp).astimezone().strftime("%m-%d %H:%M") if stamp else ""
    except ValueError:
        return ""
