"""The log pane: it follows, holds, searches, filters and copies, and shows hostile text as text."""

from __future__ import annotations

from rich.cells import cell_len
from textual.app import App, ComposeResult

from backends.megatron.events import LogLine
from backends.text import clean
from tui.widgets.attention import AttentionPanel, Entry, wrapped
from tui.widgets.log_buffer import LogBuffer, LogFilter
from tui.widgets.log_view import LogView
from tui.widgets.log_words import displayed
from tui.widgets.panel import Panel, fit, width_of

HOSTILE = (
    "[/scratch/ckpt] [rank0]: [bold]x[/bold] [/x]",
    "[@click=app.quit]press[/]",
    "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b]0;title\x07 end",
    "日本語のログ行 " * 20,
)


def line(
    number: int, text: str = "", *, rank: int | None = None, level: str = "info", count: int = 1
) -> LogLine:
    return LogLine(number, rank, level, text or f"line {number}", count)  # type: ignore[arg-type]


# The buffer


def test_a_repeat_counts_and_takes_no_room():
    buffer = LogBuffer()
    buffer.add([line(1, "flood", count=2)])
    buffer.add([line(1, "flood", count=12_288), line(13_000, "next")])
    assert [(entry.text, entry.count) for entry in buffer.window(0, 9)] == [("flood", 12_288), ("next", 1)]
    assert (buffer.total, buffer.folded) == (13_000, 12_287)


def test_the_follower_may_count_on_in_the_same_object():
    buffer, flood = LogBuffer(), line(1, "flood", count=2)
    buffer.add([flood])
    flood.count = 10
    buffer.add([flood])
    assert buffer.folded == 9


def test_only_the_newest_lines_are_kept():
    buffer = LogBuffer(kept=100)
    buffer.add(line(number) for number in range(1, 251))
    assert len(buffer) == 100
    assert buffer.window(0, 1)[0].number == 151
    assert buffer.dropped == 150


def test_filters_let_ranks_and_levels_through():
    buffer = LogBuffer()
    buffer.add([line(1, rank=0), line(2, rank=1, level="warning"), line(3, level="error")])
    buffer.let_through(LogFilter(level="warning"))
    assert [entry.number for entry in buffer.window(0, 9)] == [2, 3]
    buffer.let_through(LogFilter(rank=1))
    buffer.add([line(4, rank=1), line(5, rank=0)])
    assert [entry.number for entry in buffer.window(0, 9)] == [2, 4]


def test_a_search_goes_round_and_ignores_case():
    buffer = LogBuffer()
    buffer.add([line(1, "Loss is NaN"), line(2), line(3, "nan again")])
    assert buffer.find("NAN", 2, -1) == 2
    assert buffer.find("NAN", 1, -1) == 0
    assert buffer.find("nan", 3, 1) == 0
    assert buffer.find("absent", 0, 1) is None


def test_an_iteration_line_leads_with_its_loss():
    raw = (
        " [2024-09-03 16:13:01] iteration      100/  500000 | consumed samples:       102400 | "
        "elapsed time per iteration (ms): 12104.3 | throughput per GPU (TFLOP/s/GPU): 875.3 | "
        "learning rate: 1.03E-05 | lm loss: 5.846813E+00 | grad norm: 5.630 |"
    )
    assert displayed(raw) == (
        "16:13:01 iteration 100/500000 | loss 5.846813E+00 | 12104.3 ms | 875.3 TFLOP/s | lr 1.03E-05 | "
        "grad norm 5.630 | 102400 samples"
    )
    assert displayed("    indented traceback") == "    indented traceback"


# The view


class LogApp(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.view = LogView()
        self.messages: list[object] = []

    def compose(self) -> ComposeResult:
        yield self.view

    def on_log_view_copied(self, message: LogView.Copied) -> None:
        self.messages.append(message.text)

    def on_log_view_opened(self, message: LogView.Opened) -> None:
        self.messages.append(message.line.number)

    def rows(self) -> list[str]:
        return picture(self.view)


def picture(panel: Panel) -> list[str]:
    return ["".join(segment.text for segment in panel.render_line(y)) for y in range(panel.size.height)]


async def test_it_follows_and_holds():
    app = LogApp()
    async with app.run_test(size=(60, 10)) as pilot:
        app.view.focus()
        app.view.add(line(number) for number in range(1, 101))
        assert "line 100" in app.rows()[-2]
        await pilot.press("space")
        held = app.rows()[1:-1]
        app.view.add(line(number) for number in range(101, 201))
        assert app.rows()[1:-1] == held
        assert "paused" in app.rows()[0]
        await pilot.press("space")
        assert "line 200" in app.rows()[-2]


async def test_lines_in_view_stay_while_old_lines_are_dropped():
    app = LogApp()
    app.view.buffer = LogBuffer(kept=100)
    async with app.run_test(size=(60, 10)) as pilot:
        app.view.focus()
        app.view.add(line(number) for number in range(1, 101))
        await pilot.press("up")
        held = app.rows()[1:-1]
        app.view.add(line(number) for number in range(101, 151))
        assert app.rows()[1:-1] == held


async def test_search_marks_the_newest_match_first():
    app = LogApp()
    async with app.run_test(size=(60, 10)) as pilot:
        app.view.focus()
        app.view.add(
            line(number, f"step {number}{' ERROR' if number in (5, 50) else ''}") for number in range(1, 101)
        )
        app.view.look_for("error")
        assert any("step 50" in row for row in app.rows())
        await pilot.press("n")
        assert any("step 5 " in row for row in app.rows())
        assert "/error  2 lines" in app.rows()[0]
        await pilot.press("y", "enter")
        assert app.messages == ["step 5 ERROR", 5]


async def test_hostile_text_is_shown_as_text_and_clipped_by_cells():
    app = LogApp()
    async with app.run_test(size=(60, 10), notifications=True):
        app.view.add(line(i + 1, clean(text), rank=i) for i, text in enumerate(HOSTILE))
        rows = app.rows()
    assert "[/scratch/ckpt] [rank0]: [bold]x[/bold] [/x]" in rows[1]
    assert "[@click=app.quit]press[/]" in rows[2]
    assert not any(ord(character) < 32 for row in rows for character in row)
    assert {cell_len(row) for row in rows} == {60}


async def test_a_wide_character_is_never_cut_in_two():
    app = LogApp()
    async with app.run_test(size=(41, 10)) as pilot:
        app.view.focus()
        app.view.add([line(1, "あいうえお" * 30)])
        for _ in range(4):
            await pilot.press("right")
            assert cell_len(app.rows()[1]) == 41


def test_fit_is_exact_in_cells():
    for width in range(1, 12):
        assert width_of(fit([("日本語", "text"), ("abc", "dim")], width)) == width


# Attention


class AttentionApp(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.panel = AttentionPanel()
        self.opened: list[str] = []

    def compose(self) -> ComposeResult:
        yield self.panel

    def on_attention_panel_opened(self, message: AttentionPanel.Opened) -> None:
        self.opened.append(message.entry.message)


ENTRIES = [
    Entry(90, "error", "rank 3: The GPU's memory is full.", "Lower --micro-batch-size."),
    Entry(50, "info", "validation at 4,000: 3.02"),
]


async def test_an_error_stands_with_its_remedy_and_opens():
    app = AttentionApp()
    async with app.run_test(size=(60, 8)) as pilot:
        app.panel.update(ENTRIES)
        app.panel.focus()
        text = "\n".join(picture(app.panel))
        assert "✗ rank 3" in text and "Lower --micro-batch-size." in text and "1 error" in text
        await pilot.press("down", "enter")
        assert app.opened == ["validation at 4,000: 3.02"]


async def test_the_marked_entry_is_always_in_view():
    app = AttentionApp()
    async with app.run_test(size=(60, 8)) as pilot:
        app.panel.update([Entry(100 - i, "warning", f"alert {i}", "A remedy of its own.") for i in range(40)])
        app.panel.focus()
        for i in range(1, 40):
            await pilot.press("down")
            assert any(f"alert {i} " in row for row in picture(app.panel))


def test_wrapping_is_by_cells_and_says_that_there_is_more():
    lines = wrapped("損失がNaNになりました" * 5, 20, 2)
    assert len(lines) == 2 and lines[1].endswith("…")
    assert all(cell_len(text) <= 20 for text in lines)
