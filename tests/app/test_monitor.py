"""The monitor on real logs, on hostile logs and on runs, at both sizes, operated by keys."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual import events
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input, Static
from waiting import LIMIT, until_seen

from backends.files import write_json
from backends.inference.samples import Sample, append
from backends.launch.stop_prospect import StopProspect
from backends.megatron.diagnosis import diagnose
from backends.megatron.record import Record
from backends.runs.folder import RunFolder
from backends.workspace import Workspace
from tui.screens import monitor_sources
from tui.screens.choose import Chooser
from tui.screens.details import Details
from tui.screens.monitor import MonitorScreen
from tui.screens.monitor_headline import headline
from tui.screens.monitor_sources import NOT_SEEN, standings
from tui.screens.stop import StopScreen, stop_words
from tui.widgets.attention import AttentionPanel
from tui.widgets.gpu_panel import GpuPanel
from tui.widgets.log_view import LogView
from tui.widgets.panel import Panel
from tui.widgets.plot import Plot

NOW = 1_796_020_000.0  # s since the epoch
WRITTEN = NOW - 5


class MonitorApp(App[None]):
    """One monitor without GPUs and with a clock that stands still."""

    def __init__(
        self, workspace: Path, source: Path | None, run: RunFolder | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.set_class(options.get("ascii_only", False), "-ascii")
        self.monitor = MonitorScreen(Workspace(workspace), run, source, now=lambda: NOW, **options)

    def on_mount(self) -> None:
        self.push_screen(self.monitor)

    def text(self) -> str:
        """All that the monitor's panels show."""
        return "\n".join(
            "".join(segment.text for segment in panel.render_line(y))
            for panel in self.monitor.query(Panel)
            if panel.size.height
            for y in range(panel.size.height)
        )


async def read(pilot: Pilot[Any]) -> None:
    """Until the log has been read to its present end."""
    monitor = pilot.app.monitor  # type: ignore[attr-defined]
    await until_seen(
        pilot,
        lambda: monitor.model is not None and monitor.model.news is not None and monitor.model.news.caught_up,
    )
    await pilot.pause()


@pytest.fixture
def log(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A real log by name, in the current folder, just written."""
    monkeypatch.chdir(tmp_path)

    def named(name: str) -> Path:
        shutil.copy(logs / name, name)
        os.utime(name, (WRITTEN, WRITTEN))
        return Path(name)

    return named


def written(text: str) -> Path:
    path = Path("hostile.log")
    path.write_text(text)
    os.utime(path, (WRITTEN, WRITTEN))
    return path


# Words

SAYS = {
    "h200-core_r0.8.0-train.log": ("FINISHED", "iteration 200 / 200", "3.661", "val 4.844 @ 200"),
    "2xh200-oom-then-hangs.log": ("HANGING", "The GPU's memory is full", "--micro-batch-size"),
    "2xh200-rank-killed.log": ("FAILED", "killed by a signal", "checkpoint of iteration 140 saved"),
    "2xh200-bf16-nan-unchecked.log": ("FINISHED", "The loss is NaN", "no loss in the log"),
    "2xh200-mpirun-terminated.log": ("RUNNING", "100,000", "4.190"),
    "tutorial-1node.log": ("RUNNING", "iteration 100 / 500,000", "ETA 69 d", "875.6", "73.3 GiB"),
    "h200-core_r0.8.0-resume-refused.log": ("FAILED",),
    "h200-core_r0.8.0-serve.log": ("SERVING",),
    "tutorial-preprocess.log": ("PREPROCESSING", "13,000 documents so far, 365 documents/s"),
}


@pytest.mark.parametrize("name", SAYS)
async def test_headline_and_panes_of_a_real_log(name: str, log: Callable[[str], Path], tmp_path: Path):
    app = MonitorApp(tmp_path, log(name))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await read(pilot)
        # Errors are held back for a second of silence: more ranks may report them.
        await settled(pilot, lambda: all(words in app.text() for words in SAYS[name]))


# Pictures (CI never updates them)

PICTURES = ["h200-core_r0.8.0-train.log", "2xh200-oom-then-hangs.log", "tutorial-1node.log"]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("name", PICTURES)
def test_picture(
    name: str, size: tuple[int, int], log: Callable[[str], Path], tmp_path: Path, snap_compare: Any
):
    async def before(pilot: Pilot[Any]) -> None:
        await settled(
            pilot, lambda: SAYS[name][0] in app.text() and app.monitor.query_one(GpuPanel).note == NOT_SEEN
        )
        await pilot.pause()

    app = MonitorApp(tmp_path, log(name))
    assert snap_compare(app, terminal_size=size, run_before=before)


async def test_a_log_that_stopped_growing_is_said_to_be_quiet(log: Callable[[str], Path], tmp_path: Path):
    path = log("2xh200-mpirun-terminated.log")
    os.utime(path, (NOW - 5400, NOW - 5400))
    app = MonitorApp(tmp_path, path)
    async with app.run_test(size=(120, 40)) as pilot:
        await read(pilot)
        assert "QUIET no line for 1 h 30 m" in app.text()
        assert "ETA" not in app.text()


def test_a_log_is_not_judged_before_it_was_read_to_its_end():
    record = Record()
    times = {"started": None, "ended": None, "written": NOW - 5400, "now": NOW}
    words = [
        headline(record, diagnose(record), "log", run_phase=None, caught_up=read, **times).phase  # type: ignore[arg-type]
        for read in (False, True)
    ]
    assert words == ["reading the log", "no training found"]


async def test_every_log_can_be_looked_at(logs: Path, tmp_path: Path):
    for path in sorted(logs.glob("*")):
        app = MonitorApp(tmp_path, path)
        async with app.run_test(size=(80, 24), notifications=True) as pilot:
            await read(pilot)
            assert app.is_running and "log" in app.text()
            assert all(panel.region.right <= 80 for panel in app.monitor.query(Panel))


@pytest.mark.parametrize("size", [(200, 50), (80, 24), (20, 5)])
@pytest.mark.parametrize("name", ["2xh200-mpirun-terminated.log", "2xh200-oom-then-hangs.log"])
async def test_every_key_at_every_size(
    name: str, size: tuple[int, int], log: Callable[[str], Path], tmp_path: Path
):
    keys = [
        "s",
        "l",
        "x",
        "plus",
        "left",
        "comma",
        "z",
        "z",
        "escape",
        "tab",
        "tab",
        "space",
        "tab",
        "up",
        "down",
        "y",
    ]
    app = MonitorApp(tmp_path, log(name))
    async with app.run_test(size=size, notifications=True) as pilot:
        await read(pilot)
        await pilot.press(*keys)
        assert app.is_running


async def test_hostile_text_is_text_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    evil = "[/scratch] [rank0]: [@click=app.quit]x[/] \x1b]52;c;ZXZpbA==\x07\x1b[2J 日本語"
    iteration = (
        " [2026-11-30 03:34:{0:02}] iteration {0:8}/ 100 | elapsed time per iteration (ms): 48.5 | "
        "[bold]lm loss[/x]: 4.{0:02}E+00 | lm loss: 5.{0:02}E+00 | 日本語: {0} |"
    )
    lines = [evil, *(iteration.format(i) for i in range(1, 30)), f"RuntimeError: {evil}", f"WARNING {evil}"]
    app = MonitorApp(tmp_path, written("\n".join(lines) + "\n"))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await read(pilot)
        text = app.text()
        assert "[@click=app.quit]x[/]" in text
        assert {cell_len(row) for row in text.splitlines() if row.startswith("│")} <= {60, 120}
        assert not any(ord(character) < 32 for row in text.splitlines() for character in row)
        await pilot.press("m")
        assert isinstance(app.screen, Chooser)
        await pilot.press("down", "enter")
        app.monitor.query_one(LogView).focus()
        await pilot.press("y", "up", "enter")
        assert isinstance(app.screen, Details)
        assert "[@click=app.quit]x[/]" in str(app.screen.query_one(Static).render())
        await pilot.press("y", "escape")
        app.monitor.query_one(AttentionPanel).focus()
        await pilot.press("enter", "escape")
        app.monitor.action_search()
        await pilot.press(*"[/scratch", "enter")
        assert "/[/scratch" in app.text()


# Keys


async def test_tab_brings_each_pane_up_full_on_a_small_screen(log: Callable[[str], Path], tmp_path: Path):
    app = MonitorApp(tmp_path, log("h200-core_r0.8.0-train.log"))
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot)
        for pane in MonitorScreen.PANES:
            await pilot.press("tab")
            await pilot.pause()
            widget = app.monitor.query_one(f"#{pane}")
            assert widget.has_focus
            assert (widget.size.width, widget.size.height) == (80, 22)
        await pilot.press("tab")
        assert app.monitor.zoomed is None
        assert app.monitor.query_one("#loss").has_focus


async def test_a_zoomed_plot_gives_way_when_the_job_failed_before_its_first_iteration(
    log: Callable[[str], Path], tmp_path: Path
):
    app = MonitorApp(tmp_path, log("tutorial-1node.log"))
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot)
        await pilot.press("tab")
        assert app.monitor.zoomed == "loss"
        app.monitor.look_at(None, log("2xh200-oom-then-hangs.log"))
        await settled(pilot, lambda: "HANGING" in app.text())
        assert app.monitor.zoomed is None
        await settled(pilot, lambda: app.monitor.query_one(AttentionPanel).has_focus)
        await pilot.press("tab")
        assert app.monitor.zoomed == "gpus"


async def test_z_fills_the_screen_and_esc_leaves_one_thing_at_a_time(
    log: Callable[[str], Path], tmp_path: Path
):
    app = MonitorApp(tmp_path, log("h200-core_r0.8.0-train.log"))
    async with app.run_test(size=(120, 40)) as pilot:
        await read(pilot)
        plot = app.monitor.query_one("#loss", Plot)
        await pilot.press("z", "left")
        assert plot.size.width == 120 and plot.view.crosshair is not None
        await pilot.press("escape")
        assert plot.view.crosshair is None and app.monitor.zoomed == "loss"
        await pilot.press("escape")
        assert app.monitor.zoomed is None


async def test_m_shows_another_metric_in_the_focused_plot(log: Callable[[str], Path], tmp_path: Path):
    app = MonitorApp(tmp_path, log("h200-core_r0.8.0-train.log"))
    async with app.run_test(size=(120, 40)) as pilot:
        await read(pilot)
        await pilot.press("tab", "m", *"grad", "enter")
        await pilot.pause()
        assert app.monitor.query_one("#speed", Plot).metric == "grad norm"
        assert app.monitor.query_one("#loss", Plot).metric == "lm loss"


async def test_search_and_filter_work_from_any_pane(log: Callable[[str], Path], tmp_path: Path):
    app = MonitorApp(tmp_path, log("2xh200-tp2-mpirun-output-rank.log"))
    async with app.run_test(size=(120, 40)) as pilot:
        await read(pilot)
        await pilot.press("slash")
        assert isinstance(app.focused, Input)
        await pilot.press(*"iteration", "enter")
        view = app.monitor.query_one(LogView)
        assert view.has_focus and not view.following
        await pilot.press("f", *"rank", "space", "1", "enter")
        await pilot.pause()
        assert view.buffer.filter.rank == 1
        assert all(line.rank == 1 or 1 in line.ranks for line in view.buffer.window(0, 500))


async def test_g_leads_from_an_alert_to_its_line(log: Callable[[str], Path], tmp_path: Path):
    app = MonitorApp(tmp_path, log("2xh200-oom-then-hangs.log"))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_seen(pilot, lambda: "HANGING" in app.text())
        attention = app.monitor.query_one(AttentionPanel)
        attention.focus()
        entry = next(entry for entry in attention.entries if entry.line)
        await until_seen(pilot, lambda: attention.has_focus)
        await pilot.press(*["down"] * attention.entries.index(entry), "g")
        await until_seen(pilot, lambda: f"line {entry.line:,} of" in app.text())
        assert app.monitor.query_one(LogView).has_focus


async def test_a_copy_is_in_a_file_too(
    log: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    app = MonitorApp(tmp_path, log("tutorial-1node.log"))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await read(pilot)
        app.monitor.query_one(LogView).focus()
        await pilot.press("y")
        copied = (tmp_path / "cache" / "mdk-tui" / "copied.txt").read_text()
    assert "iteration      100/  500000" in copied
    assert app.clipboard == copied.rstrip("\n")


async def test_lines_that_come_later_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    path = written("first words\n")
    app = MonitorApp(tmp_path, path)
    async with app.run_test(size=(120, 40)) as pilot:
        await read(pilot)
        with path.open("a") as file:
            file.write(
                " iteration        1/     100 | elapsed time per iteration (ms): 48.5 | lm loss: 5.123456E+00 |\n"
            )
        # The first line of an unknown form is held back for a second: it may go on in the next one.
        await settled(pilot, lambda: "5.123" in app.text() and "iteration 1 / 100" in app.text())


async def test_space_holds_the_picture_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    line = " iteration {0:8}/     100 | elapsed time per iteration (ms): 48.5 | lm loss: {0}.000000E+00 |\n"
    path = written(line.format(7))
    app = MonitorApp(tmp_path, path)
    async with app.run_test(size=(120, 40)) as pilot:
        await read(pilot)
        await pilot.press("space")
        with path.open("a") as file:
            file.write(line.format(8))
        await settled(pilot, lambda: app.monitor._waiting is not None)
        assert "7.000" in app.text() and "8.000" not in app.text() and "view paused" in app.text()
        await pilot.press("space")
        assert "8.000" in app.text() and "iteration 8 / 100" in app.text() and "held" not in app.text()


async def test_letters_typed_right_after_the_slash_are_searched(log: Callable[[str], Path], tmp_path: Path):
    app = MonitorApp(tmp_path, log("tutorial-1node.log"))
    async with app.run_test(size=(120, 40)) as pilot:
        await read(pilot)
        for character in "/iteration":
            app.post_message(events.Key("slash" if character == "/" else character, character))
        await pilot.press("enter")
        assert app.monitor.query_one(LogView).search == "iteration"


async def test_leaving_the_screen_ends_its_threads(log: Callable[[str], Path], tmp_path: Path):
    app = MonitorApp(tmp_path, log("tutorial-1node.log"))
    async with app.run_test(size=(120, 40)) as pilot:
        await read(pilot)
        bridges = list(app.monitor._bridges)
        app.pop_screen()
        await pilot.pause()
        assert bridges and all(bridge.join(LIMIT) for bridge in bridges)


async def test_plain_ascii_is_plain_ascii(log: Callable[[str], Path], tmp_path: Path):
    app = MonitorApp(tmp_path, log("2xh200-rank-killed.log"), ascii_only=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await read(pilot)
        assert app.text().isascii()


# Runs


def run_folder(workspace: Path, log: str, **state: Any) -> RunFolder:
    path = workspace / "outputs/runs/2026-11-30/09-32-12"
    path.mkdir(parents=True)
    (path / "output.log").write_text(log)
    plan = {
        "kind": "train",
        "trainer": "demo",
        "launcher": "local",
        "title": "tiny [/x]",
        "save": "ck",
        "arguments": [],
    }
    (path / "plan.json").write_text(json.dumps(plan))
    (path / "state.json").write_text(json.dumps(state))
    return RunFolder(path)


async def settled(pilot: Pilot[Any], met: Callable[[], bool]) -> None:
    await until_seen(pilot, met)


async def test_a_run_shows_its_name_and_how_it_ended(tmp_path: Path):
    run = run_folder(tmp_path, "words\n", phase="lost", reason="The job is gone.")
    app = MonitorApp(tmp_path, None, run)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot, lambda: app.monitor.model is not None and app.monitor.model.info is not None)
        await pilot.pause()
        assert "2026-11-30/09-32-12" in app.text() and "LOST" in app.text()
        assert "The job is gone." in app.text()
        await pilot.press("S")
        assert app.screen is app.monitor  # over: there is nothing to stop


async def test_a_shows_how_the_answers_of_its_run_change(tmp_path: Path):
    run = run_folder(tmp_path, "words\n", phase="finished")
    app = MonitorApp(tmp_path, None, run)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot, lambda: bool(app.monitor.check_action("samples", ())))
        await pilot.press("a")
        await settled(
            pilot, lambda: any("[samples] prompts" in toast.message for toast in app._notifications)
        )
        assert app.screen is app.monitor
        append(run.path, [Sample(1.0, 100, "Once", " upon"), Sample(2.0, 200, "Once", " more [/x]")])
        await pilot.press("a")
        await settled(pilot, lambda: "iteration 200" in words_of(app))
        assert "iteration 100\nOnce upon\n" in words_of(app) and "Once more [/x]" in words_of(app)
        await pilot.press("escape")
        assert app.screen is app.monitor


async def test_a_log_alone_has_no_answers(log: Callable[[str], Path], tmp_path: Path):
    app = MonitorApp(tmp_path, log("tutorial-1node.log"))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await read(pilot)
        await pilot.press("a")
        assert app.screen is app.monitor and not app._notifications


def words_of(app: App[Any]) -> str:
    """Of the samples' screen."""
    return "\n".join(str(static.content) for static in app.screen.query(Static))


async def test_it_says_when_mlflow_is_away_and_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(monitor_sources, "standings", functools.partial(standings, look=0.01))
    run = run_folder(tmp_path, "words\n", phase="lost", reason="The job is gone.")

    def stands(**more: object) -> None:
        write_json(run.tracking, {"address": "http://x:5000", "sent": 40, "waiting": 1234, **more})

    stands(trouble="connection refused")
    app = MonitorApp(tmp_path, None, run)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot, lambda: "MLflow did not take everything (connection refused)." in app.text())
        assert app.text().index("The job is gone.") < app.text().index("MLflow did not take")
        stands(waiting=0, complete=True)
        await settled(pilot, lambda: "MLflow" not in app.text())


async def test_without_a_run_it_says_how_to_start_one(tmp_path: Path):
    app = MonitorApp(tmp_path, None)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_seen(pilot, lambda: "mdk-tui demo" in app.text())


def test_the_question_before_a_stop_describes_each_choice():
    prospect = StopProspect("2026-11-30/09-32-12", "train", "ck/2026", 4310, 15, None)
    words = stop_words(prospect)
    assert "ck/2026" in words and "iteration 4,310" in words and "15 minutes" in words
    withheld = StopProspect(
        "r", "train", "ck", 1, 15, "A NaN alert is open: saving now would keep broken weights."
    )
    assert "broken weights" in stop_words(withheld) and "Save and stop" not in stop_words(withheld)
    hangs = StopProspect("r", "train", "ck", 10, 15, None, hangs="RuntimeError: NCCL error", saved=8)
    assert "hangs" in stop_words(hangs) and "RuntimeError: NCCL error" in stop_words(hangs)
    assert "iteration 8 is its newest checkpoint" in stop_words(hangs) and "can be resumed" in stop_words(
        hangs
    )
    assert "mdk-tui stop r --hung" in stop_words(hangs) and "Save and stop" not in stop_words(hangs)
    assert "resumed by itself, as [resume]" in stop_words(dataclasses.replace(hangs, resumes=True))


@pytest.mark.parametrize(
    ("withheld", "hangs", "key", "answer"),
    [
        (None, None, "s", "save"),
        (None, None, "n", "now"),
        (None, None, "escape", None),
        ("It has not loaded yet.", None, "n", "now"),
        (None, "NCCL error", "e", "hung"),
        (None, "NCCL error", "n", "now"),
    ],
)
async def test_stopping_takes_a_second_key(
    withheld: str | None, hangs: str | None, key: str, answer: str | None
) -> None:
    app, answers = App[None](), list[str | None]()
    prospect = StopProspect("r", "train", "ck", 1, 15, withheld, hangs)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(StopScreen(prospect), answers.append)
        await pilot.press(*(["s"] if withheld or hangs else []), *([] if hangs else ["e"]))
        assert answers == []
        await pilot.press(key)
        assert answers == [answer]


def every_binding() -> list[Any]:
    classes = (MonitorScreen, Plot, LogView, AttentionPanel, Chooser, Details, StopScreen)
    return [binding for owner in classes for binding in owner.BINDINGS]


def test_every_key_has_an_id_and_a_tooltip():
    assert all(binding.id and binding.tooltip for binding in every_binding())
    ids = [binding.id for binding in every_binding()]
    assert len(ids) == len(set(ids))
