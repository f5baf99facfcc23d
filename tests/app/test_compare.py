"""The comparison screen: a curve for each run, final figures, differing arguments; live updates, exports and keys."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lineages import three_runs
from log_lines import iterations
from textual.app import App
from textual.pilot import Pilot
from waiting import until_seen

from backends.runs.side_by_side import Subject, subjects
from backends.workspace import Workspace
from tui.app import MdkApp, Opening
from tui.appearance import Appearance
from tui.screens.compare import CompareScreen
from tui.screens.compare_view import COLOURS, best_of, figure_words, legend, style_of
from tui.widgets.curves import Line
from tui.widgets.panel import Panel
from tui.widgets.plot import Plot
from tui.widgets.table_view import TableRow, TableView, shortened

NAMES = ("h200-core_r0.8.0-train.log", "2xh200-rank-killed.log", "2xh200-mpirun-terminated.log")


def test_more_runs_than_colours_keep_their_own_values_in_the_legend() -> None:
    names = [Subject(f"2026-11-30/09-00-{n:02}", Path(f"{n}.log")) for n in range(COLOURS + 2)]
    lines = [Line([1.0], [n], [n], [n + 1.5], style_of(n), n) for n in range(len(names))]
    assert [words.split() for words, _ in legend(names, lines, None)] == [
        [str(n), f"{n + 1.5:.3f}"] for n in range(len(names))
    ]


class CompareApp(App[None]):
    def __init__(self, workspace: Workspace, compared: list[Subject], *, ascii_only: bool = False) -> None:
        super().__init__()
        self.set_class(ascii_only, "-ascii")
        self.compare = CompareScreen(workspace, compared, folder=workspace.root, ascii_only=ascii_only)

    def on_mount(self) -> None:
        self.push_screen(self.compare)

    def text(self) -> str:
        return "\n".join(
            "".join(segment.text for segment in panel.render_line(y))
            for panel in self.compare.query(Panel)
            for y in range(panel.size.height)
        )


async def settled(pilot: Pilot[Any], met: Callable[[], bool]) -> None:
    await until_seen(pilot, met)


@pytest.fixture
def compared(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Workspace, list[Subject]]:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        shutil.copy(logs / name, name)
    workspace = Workspace(tmp_path)
    return workspace, subjects(workspace, NAMES)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_picture(size: tuple[int, int], compared: tuple[Workspace, list[Subject]], snap_compare: Any):
    async def before(pilot: Pilot[Any]) -> None:
        await settled(pilot, lambda: all(value in app.text() for value in ("3.661", "4.244", "3.985")))
        await pilot.pause()

    app = CompareApp(*compared)
    assert snap_compare(app, terminal_size=size, run_before=before)


async def test_time_begins_at_zero_and_the_crosshair_reads_every_curve(
    compared: tuple[Workspace, list[Subject]],
):
    app = CompareApp(*compared)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot, lambda: all(value in app.text() for value in ("3.661", "4.244", "3.985")))
        await pilot.press("x")
        assert app.compare.query_one(Plot).view.x == "time"
        assert "40 s" in app.text()
        await pilot.press("left", "left")
        foot = "".join(text for text, _ in app.compare.query_one(Plot).foot())
        assert foot.startswith("time ") and foot.count("h200-") == 3


async def test_keys_at_every_size_and_in_ascii(compared: tuple[Workspace, list[Subject]]):
    for size in ((200, 50), (80, 24), (20, 5)):
        app = CompareApp(*compared, ascii_only=True)
        async with app.run_test(size=size, notifications=True) as pilot:
            await settled(pilot, lambda app=app: app.compare.query_one(Plot).metric != "")
            keys = [
                "s",
                "l",
                "x",
                "plus",
                "left",
                "z",
                "tab",
                "down",
                "right",
                "z",
                "tab",
                "pagedown",
                "up",
                "tab",
            ]
            await pilot.press(*keys)
            assert app.is_running and app.text().isascii()


async def test_an_export_says_where_it_went(compared: tuple[Workspace, list[Subject]], tmp_path: Path):
    app = CompareApp(*compared)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot, lambda: "3.661" in app.text())
        await pilot.press("e", *"svg", "enter")
        await settled(pilot, lambda: bool(app._notifications))
        assert any("compare.svg" in toast.message for toast in app._notifications)
    assert (tmp_path / "compare.svg").read_text().startswith("<svg")


async def test_a_run_that_grows_is_followed_and_a_lineage_is_one_curve(tmp_path: Path):
    workspace, branch = three_runs(tmp_path)
    found = subjects(workspace, [branch.name, "2026-11-30/10-00-00"])
    app = CompareApp(workspace, found)
    async with app.run_test(size=(120, 40)) as pilot:
        plot = app.compare.query_one(Plot)
        await settled(pilot, lambda: len(plot.source("lm loss", "iteration", None, None, 500)) == 5)
        with branch.log.open("a") as file:
            file.write(iterations(201, 240))
        await settled(pilot, lambda: "240" in app.text())


async def test_the_command_opens_it_and_esc_leads_home(compared: tuple[Workspace, list[Subject]]):
    workspace, found = compared
    app = MdkApp(workspace, Appearance(), Opening("compare", compared=found), watch=lambda ended: iter([()]))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        assert isinstance(app.screen, CompareScreen)
        await pilot.press("escape")
        assert app.current_mode == "home"
        app.open_comparison(found[:2])
        await pilot.pause()
        assert app.current_mode == "compare"
        await settled(pilot, lambda: len(app.screen.query_one("#figures", TableView)._head) == 2)


def test_the_best_stands_out_where_there_is_a_best():
    assert best_of("loss", [3.0, None, 2.0]) == 2.0
    assert best_of("tokens/s", [3.0, 2.0]) == 3.0
    assert best_of("loss", [2.0, 2.0]) is None and best_of("iteration", [1, 2]) is None
    assert figure_words("elapsed (s)", 125.0) == "2 m 5 s" and figure_words("loss", None) == ""


def test_the_end_of_a_name_is_kept():
    assert shortened("2026-11-30/09-32-12", 8) == "..-32-12"
    assert shortened("ab", 4) == "  ab"
    assert shortened("計算機の記録", 7) == " ..記録"


async def test_columns_that_do_not_fit_come_with_the_arrows():
    class TableApp(App[None]):
        def compose(self) -> Any:
            yield TableView("table", ascii_only=True)

    app = TableApp()
    async with app.run_test(size=(40, 8)) as pilot:
        table = app.query_one(TableView)
        table.focus()
        head = [(f"run {n}", f"curve-{n}") for n in range(1, 6)]
        table.update(head, [TableRow("loss", tuple((f"{n}.000", "text") for n in range(1, 6)))])
        assert "run 1" in table.render_line(1).text and "run 5" not in table.render_line(1).text
        await pilot.press(*["right"] * 9)
        assert "run 5" in table.render_line(1).text and "5.000" in table.render_line(2).text
