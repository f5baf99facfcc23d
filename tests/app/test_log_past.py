"""The log pane goes back to any line of a file, searches all of it, and never waits for the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from waiting import until_seen

from backends.megatron.events import LogLine
from backends.megatron.folding import Folder
from tui.widgets.log_buffer import KEPT, LogFilter
from tui.widgets.log_view import LogView

LINES = 30_000


def text(number: int) -> str:
    if number % 10_000 == 77:
        return f"RuntimeError: number {number}"
    return f"step {number} of a long log, and some words that make it a line of some length"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text("".join(text(number) + "\n" for number in range(1, LINES + 1)))
    return path


class LongLogApp(App[None]):
    """A log pane that has been told of the end of `path`, as a follower would."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self.path = path
        self.view = LogView()

    def compose(self) -> ComposeResult:
        yield self.view

    def on_mount(self) -> None:
        self.view.restart(self.path)
        self.view.caught_up = True
        self.view.add(LogLine(n, None, "info", text(n)) for n in range(LINES - KEPT, LINES + 1))
        self.view.focus()

    def rows(self) -> list[str]:
        return [
            "".join(segment.text for segment in self.view.render_line(y))
            for y in range(self.view.size.height)
        ]

    def says(self, *words: str) -> Callable[[], bool]:
        return lambda: all(word in "\n".join(self.rows()) for word in words)


async def test_the_first_line_of_a_long_log_is_one_key_away_and_so_is_the_last(log: Path):
    app = LongLogApp(log)
    async with app.run_test(size=(100, 12), notifications=True) as pilot:
        await pilot.press("g")
        await until_seen(pilot, app.says("step 1 of", "step 10 of", f"line 1 of {LINES:,}", "paused"))
        await pilot.press("G")
        await until_seen(pilot, app.says(f"step {LINES} of", "follow"))
        assert not len(app.view.past)


async def test_line_by_line_and_page_by_page_nothing_is_left_out(log: Path):
    app = LongLogApp(log)
    async with app.run_test(size=(100, 12), notifications=True) as pilot:
        await pilot.press("up")
        await until_seen(pilot, app.says(f"line {LINES - 1:,} of"))
        assert app.says(f"step {LINES} of")()  # what was in view stays there
        seen = {LINES - 1}
        for page in range(1, 30):
            at = LINES - 1 - 9 * page
            await pilot.press("pageup")
            await until_seen(pilot, app.says(f"line {at:,} of"))
            seen |= {line.number for line in app.view.past.window(app.view._top, 10)}
        assert seen >= set(range(LINES - 1 - 9 * 29, LINES))


async def test_pages_are_read_on_demand_and_the_view_stays_where_it_is(log: Path):
    app = LongLogApp(log)
    async with app.run_test(size=(100, 12), notifications=True) as pilot:
        app.view.go_to(15_000)
        await until_seen(pilot, app.says("line 15,000 of"))
        assert app.says("step 14996 of", "step 15004 of")()
        for _ in range(60):
            app.view.action_move(-200)
        await until_seen(pilot, app.says("line 3,000 of", "step 3001 of"))
        app.view.action_move(12_000)
        await until_seen(pilot, app.says("line 15,000 of", "step 14999 of"))
        app.view.action_move(LINES)
        await until_seen(pilot, app.says(f"line {LINES:,} of"))
        assert len(app.view.past) < 2 * KEPT


async def test_the_marked_line_stays_in_sight_at_any_size(log: Path):
    app = LongLogApp(log)
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        app.view.display = False
        await pilot.pause()
        app.view.go_to(15_000)
        app.view.display = True
        await until_seen(pilot, app.says("line 15,000 of", "step 15000 of"))
        for size in ((60, 5), (100, 40), (100, 8)):
            await pilot.resize_terminal(*size)
            await until_seen(pilot, app.says("step 15000 of"))


async def test_lines_written_while_the_view_is_in_the_past_can_be_reached(log: Path):
    app = LongLogApp(log)
    async with app.run_test(size=(100, 12), notifications=True) as pilot:
        await pilot.press("up")
        await until_seen(pilot, app.says(f"line {LINES - 1:,} of"))
        with log.open("a") as file:
            file.write("a new line\n")
        await pilot.press("down", "down")
        await until_seen(pilot, app.says(f"line {LINES + 1:,}", "a new line"))


async def test_the_whole_log_is_searched_and_its_matches_counted(log: Path):
    app = LongLogApp(log)
    async with app.run_test(size=(100, 12), notifications=True) as pilot:
        app.view.look_for("runtimeerror")
        await until_seen(pilot, app.says("number 20077", "/runtimeerror  3 lines"))
        for found in (10_077, 77, 20_077):  # upward, and round
            await pilot.press("n")
            await until_seen(pilot, app.says(f"line {found:,} of"))
        await pilot.press("N")
        await until_seen(pilot, app.says("line 77 of"))
        app.view.look_for("nowhere at all")
        await until_seen(
            pilot, lambda: any("nowhere at all" in toast.message for toast in app._notifications)
        )
        await until_seen(pilot, app.says("line 77 of", "nowhere at all  0 lines"))


async def test_a_search_that_is_ended_moves_nothing(log: Path):
    app = LongLogApp(log)
    async with app.run_test(size=(100, 12), notifications=True) as pilot:
        app.view.look_for("number 77")
        app.view.look_for("")
        await pilot.pause()
        assert app.view.following and app.says(f"step {LINES} of", "follow")()
        assert app.view.past.progress is None and not app.view.past.counting


async def test_a_filter_finds_what_is_no_longer_kept(log: Path):
    app = LongLogApp(log)
    async with app.run_test(size=(100, 12), notifications=True) as pilot:
        app.view.let_through(LogFilter(level="error"))
        await until_seen(pilot, app.says("number 77", "number 10077", "number 20077"))
        assert "step" not in "".join(app.rows())
        app.view.let_through(LogFilter(rank=7))
        await until_seen(pilot, lambda: any("rank 7" in toast.message for toast in app._notifications))


async def test_a_log_that_is_replaced_while_the_view_is_in_the_past_stays_in_view(log: Path):
    app = LongLogApp(log)
    async with app.run_test(size=(100, 12), notifications=True) as pilot:
        await pilot.press("g")
        await until_seen(pilot, app.says("line 1 of"))
        log.rename(log.with_suffix(".1"))
        log.write_text("the new log\n")
        app.view.past.before = LINES
        app.view.add([LogLine(LINES + 1, None, "info", "the new log")])
        app.view.action_move(1800)
        await until_seen(pilot, app.says("line 1,801 of"))
        await pilot.press("G")
        await until_seen(pilot, app.says("the new log"))
        await pilot.press("g")
        await until_seen(pilot, app.says(f"line {LINES + 1:,} of", "the new log"))
        app.view.go_to(5)
        await until_seen(
            pilot, lambda: any("truncated or replaced" in toast.message for toast in app._notifications)
        )


async def test_a_log_that_is_cut_while_the_view_is_in_the_past_is_reported(log: Path):
    app = LongLogApp(log)
    async with app.run_test(size=(100, 12), notifications=True) as pilot:
        app.view.go_to(15_000)
        await until_seen(pilot, app.says("line 15,000 of"))
        log.write_text("cut\n")
        assert app.says("step 15000 of")()
        app.view.go_to(20_000)
        await until_seen(
            pilot, lambda: any("it was truncated" in toast.message for toast in app._notifications)
        )
        assert app.view.following and app.says(f"step {LINES} of")()


async def test_a_file_that_vanished_does_not_break_the_screen(log: Path):
    app = LongLogApp(log)
    async with app.run_test(size=(100, 12), notifications=True) as pilot:
        log.unlink()
        await pilot.press("g")
        await until_seen(
            pilot, lambda: any("cannot be read" in toast.message for toast in app._notifications)
        )
        assert app.view.following


async def test_a_pipe_says_that_older_lines_were_not_kept(log: Path):
    app = LongLogApp(None)
    async with app.run_test(size=(100, 12), notifications=True) as pilot:
        app.view.buffer.kept = 1000
        app.view.add([LogLine(LINES + 1, None, "info", "last")])
        await pilot.press("g")
        await until_seen(pilot, app.says(f"line {LINES - 998:,} of {LINES + 1:,}, older ones were not kept"))


async def test_a_short_log_is_not_read_again(tmp_path: Path):
    path = tmp_path / "short.log"
    path.write_text("first\nsecond\n")
    app = LongLogApp(path)
    async with app.run_test(size=(100, 12)) as pilot:
        app.view.restart(path)
        app.view.caught_up = True
        app.view.add(Folder().feed(path.read_bytes()))
        path.unlink()
        await pilot.press("up", "up")
        await until_seen(pilot, app.says("line 1 of 2", "first"))
