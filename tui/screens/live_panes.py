"""A screen of panes with sources: their items arrive in the event loop until the screen closes the sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tui.bridge import Bridge
from tui.screens.panes import PaneScreen


class LivePanes(PaneScreen):
    """`carry` opens a source; `close_sources`, and unmounting the screen, close all of them."""

    def __init__(self) -> None:
        super().__init__()
        self._bridges: list[Bridge[Any]] = []

    def carry(
        self, items: Callable[[], Iterator[Any]], deliver: Callable[[Any], None], **options: Any
    ) -> None:
        """Deliver each of `items` to `deliver`; `options` are those of a Bridge."""
        self._bridges.append(Bridge(self, items, deliver, failed=self._source_failed, **options).start())

    def close_sources(self) -> None:
        for bridge in self._bridges:
            bridge.close()
        self._bridges.clear()

    def on_unmount(self) -> None:
        self.close_sources()

    def _source_failed(self, error: Exception) -> None:
        words = (
            f"{error.strerror}: {error.filename}"
            if isinstance(error, OSError)
            else f"{type(error).__name__}: {error}"
        )
        self.app.notify(f"Reading stopped: {words}", severity="error", markup=False, timeout=15)
