"""Draw README's picture: the monitor on a real log of core_r0.8.0 on an H200, beside readings of such a GPU.

python .ci/picture.py        writes tui/monitor.svg
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from textual.app import App

from backends.telemetry.nvml import GpuReader
from backends.telemetry.readings import HostReading, Snapshot
from backends.workspace import Workspace
from tui.screens.monitor import MonitorScreen
from tui.themes import THEMES

TOP = Path(__file__).resolve().parents[1]
LOGS = TOP / "tests/data/logs"
LOG = Path("h200-core_r0.8.0-train.log")
SIZE = (120, 36)
GIB = 1 << 30

sys.path.append(str(TOP / "tests/unit"))
from fake_nvml import FakeNvml  # noqa: E402 (a module of the tests, found by the line above)


class Recording:
    """A reading that was taken from an H200; a source of snapshots for the monitor."""

    def __call__(self) -> Iterator[Snapshot]:
        driver = FakeNvml(LOGS / "2xh200-nvml.jsonl")
        driver.frame = len(driver.frames) - 2
        gpus = GpuReader(driver, lambda pid: ("python3", "root")).read()[:1]
        yield Snapshot(0.0, HostReading("h200", 32, 21.0, 6.5, 18 * GIB, 252 * GIB), gpus)

    def close(self) -> None:
        """Nothing is left to end."""


class Picture(App[None]):
    """The monitor alone, in the application's own colours."""

    def on_mount(self) -> None:
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = THEMES[0].name
        written = LOG.stat().st_mtime
        self.push_screen(MonitorScreen(Workspace(TOP), source=LOG, telemetry=Recording, now=lambda: written))


async def draw() -> str:
    """The SVG, once the log has been read to its end."""
    app = Picture()
    async with app.run_test(size=SIZE) as pilot:
        while not (isinstance(app.screen, MonitorScreen) and app.screen.news and app.screen.news.caught_up):
            await pilot.pause(0.05)
        await pilot.pause(0.5)
        return app.export_screenshot(title="mdk-tui")


if __name__ == "__main__":
    os.chdir(LOGS)
    (TOP / "tui/monitor.svg").write_text(asyncio.run(draw()), encoding="utf-8")
