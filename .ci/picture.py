"""Draw README's picture: the monitor on a real log of core_r0.8.0 on an H200, beside readings of such a GPU.

python .ci/picture.py        writes tui/monitor.svg
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from textual.app import App

from backends.files import write_json
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.processes import find_process, this_machine
from backends.runs.state import RunState
from backends.telemetry.nvml import GpuReader
from backends.telemetry.readings import HostReading, Snapshot
from backends.workspace import Workspace
from tui.screens.monitor import MonitorScreen
from tui.themes import THEMES

TOP = Path(__file__).resolve().parents[1]
LOGS = TOP / "tests/data/logs"
LOG = "h200-core_r0.8.0-train.log"
UNTIL = 160  # the iteration at which the picture is taken, and when that was (s since the epoch, UTC)
THEN = datetime(2026, 11, 30, 2, 53, 13, tzinfo=timezone.utc).timestamp()
SIZE = (120, 36)
GIB = 1 << 30

sys.path.append(str(TOP / "tests/unit"))
from fake_nvml import FakeNvml  # noqa: E402 (a module of the tests, found by the line above)


class Recording:
    """A reading that was taken from an H200, as if it were of this machine."""

    def snapshots(self) -> Iterator[Snapshot]:
        driver = FakeNvml(LOGS / "2xh200-nvml.jsonl")
        driver.frame = len(driver.frames) - 2
        gpus = GpuReader(driver, lambda pid: ("python3", "root")).read()[:1]
        yield Snapshot(0.0, HostReading("h200", 32, 21.0, 6.5, 18 * GIB, 252 * GIB), gpus)

    def close(self) -> None:
        """Nothing is left to end."""


def run_of(workspace: Workspace) -> RunFolder:
    """The log as that of a run which this process owns."""
    folder = RunFolder(workspace.runs / "2026-11-30/02-52-31")
    folder.path.mkdir(parents=True)
    whole = (LOGS / LOG).read_text()
    folder.log.write_text(whole[: whole.index("\n", whole.index(f"iteration {UNTIL:8d}/")) + 1])
    os.utime(folder.log, (THEN, THEN))
    write_json(folder.plan_file, RunPlan("train", "megatron", title="gpt 8 × 512").as_json())
    me = find_process(os.getpid())
    folder.write_state(
        RunState(
            "running",
            me,
            me,
            me,
            machine=this_machine(),
            heartbeat=time.time(),
            started="2026-11-30T02:52:31+00:00",
        )
    )
    return folder


class Picture(App[None]):
    """The monitor alone, in the application's own colours."""

    def __init__(self, workspace: Workspace, run: RunFolder) -> None:
        super().__init__()
        self.monitor = MonitorScreen(workspace, run, live=Recording, now=lambda: THEN)

    def on_mount(self) -> None:
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = THEMES[0].name
        self.push_screen(self.monitor)

    @property
    def read(self) -> bool:
        model = self.monitor.model
        return bool(model and model.news and model.news.caught_up and model.info)


async def draw() -> str:
    """The SVG, once the log has been read to its end."""
    with tempfile.TemporaryDirectory() as root:
        workspace = Workspace(Path(root))
        app = Picture(workspace, run_of(workspace))
        async with app.run_test(size=SIZE) as pilot:
            while not app.read:
                await pilot.pause(0.05)
            await pilot.pause(1.0)
            return app.export_screenshot(title="mdk-tui")


if __name__ == "__main__":
    (TOP / "tui/monitor.svg").write_text(asyncio.run(draw()), encoding="utf-8")
