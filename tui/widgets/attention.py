"""What needs attention: errors and alerts with their remedies, and the other news of the run, newest first."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from rich.cells import cell_len, chop_cells
from textual.binding import Binding, BindingType
from textual.message import Message

from tui.widgets.panel import Panel, Span, fit

Severity: TypeAlias = Literal["error", "warning", "good", "info"]
GLYPHS: dict[Severity, tuple[str, str]] = {
    "error": ("✗", "X"),
    "warning": ("!", "!"),
    "good": ("✓", "+"),
    "info": ("·", "-"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to know, newest first by its `line` of the log (0: not from the log). `details`: what the raw log says."""

    line: int
    severity: Severity
    message: str
    remedy: str = ""
    details: str = ""

    def whole(self) -> str:
        """The whole text."""
        parts = [
            self.message,
            self.details if self.details != self.message else "",
            self.remedy and f"Try: {self.remedy}",
        ]
        return "\n\n".join([*filter(None, parts), *([f"line {self.line:,} of the log"] if self.line else [])])


class AttentionPanel(Panel):
    """Entries, newest first. Errors and warnings are shown with their remedy; `enter` opens one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,o", "open", "open", id="attention.open", tooltip="Show the whole text of the marked entry"),
        Binding("up,k", "move(-1)", "up", id="attention.up", tooltip="Go up or down", show=False),
        Binding("down,j", "move(1)", "down", id="attention.down", tooltip="Go up or down", show=False),
        Binding("g", "point", "go to line", id="attention.point", tooltip="Go to this entry's line in the log"),
        Binding("y", "copy", "copy", id="attention.copy", tooltip="Copy the marked entry"),
    ]  # fmt: skip

    class Opened(Message):
        def __init__(self, entry: Entry) -> None:
            self.entry = entry
            super().__init__()

    class Pointed(Message):
        """Line `line` of the log is to be shown."""

        def __init__(self, line: int) -> None:
            self.line = line
            super().__init__()

    class Copied(Message):
        def __init__(self, text: str) -> None:
            self.text = text
            super().__init__()

    def __init__(self, *, id: str | None = None, ascii_only: bool = False) -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self.entries: Sequence[Entry] = ()
        self.empty = ""  # shown while there are no entries
        self._marked = 0
        self._below = 0  # entries below the last one shown

    def update(self, entries: Sequence[Entry]) -> None:
        """New entries, newest first. The marked one stays marked."""
        if self._marked and self._marked < len(self.entries):
            old = self.entries[self._marked]
            self._marked = entries.index(old) if old in entries else 0
        self.entries = entries
        self.show()

    def title(self) -> tuple[Sequence[Span], Sequence[Span]]:
        errors = sum(entry.severity == "error" for entry in self.entries)
        warnings = sum(entry.severity == "warning" for entry in self.entries)
        words: list[Span] = []
        if errors:
            words.append((f"{errors} error{'s' * (errors > 1)}", "error"))
        if warnings:
            words.append((f"{'  ' * bool(errors)}{warnings} alert{'s' * (warnings > 1)}", "warning"))
        return [("attention", "title")], words

    def foot(self) -> Sequence[Span]:
        return [(f"{self._below} more", "dim")] if self._below else []

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        self._below = 0
        if not self.entries:
            return [[(self.empty, "dim")]]
        if not self.framed:
            worst = next((e for e in self.entries if e.severity in ("error", "warning")), self.entries[0])
            return [self._first_row(worst, wrapped(worst.message, max(width - 2, 1), 1)[0], False)]
        first = self._marked if self.has_focus else 0
        # Start so that the marked entry is in view.
        rows: list[Sequence[Span]] = []
        start = max(first - max(height // 3, 1) + 1, 0)
        for index in range(start, len(self.entries)):
            entry = self.entries[index]
            message, remedy = self._entry_rows(entry, width, self.has_focus and index == first)
            if index > start and entry.remedy == self.entries[index - 1].remedy:
                remedy = []  # it is shown right above
            room = height - len(rows)
            if rows and len(message) > room:
                self._below = len(self.entries) - index
                break
            rows += message + (remedy if len(message) + len(remedy) <= room or not rows else [])
        return rows[:height]

    def _first_row(self, entry: Entry, text: str, marked: bool) -> list[Span]:
        glyph = GLYPHS[entry.severity][self.ascii_only]
        return [(glyph + " ", entry.severity), (text, "selected" if marked else self._style(entry))]

    def _style(self, entry: Entry) -> str:
        return "dim" if entry.severity in ("info", "good") else "text"

    def _entry_rows(
        self, entry: Entry, width: int, marked: bool
    ) -> tuple[list[Sequence[Span]], list[Sequence[Span]]]:
        """The rows of its message, and those of its remedy."""
        room = max(width - 2, 1)
        lines = wrapped(entry.message, room, 3)
        rows: list[Sequence[Span]] = [self._first_row(entry, lines[0], marked)]
        rows += [[("  ", "text"), (line, "selected" if marked else self._style(entry))] for line in lines[1:]]
        if marked:
            rows = [fit(rows[0], width, "selected"), *rows[1:]]
        advice = (
            wrapped(entry.remedy, room, 4) if entry.remedy and entry.severity in ("error", "warning") else []
        )
        return rows, [[("  ", "text"), (line, "dim")] for line in advice]

    def action_move(self, step: int) -> None:
        self._marked = min(max(self._marked + step, 0), max(len(self.entries) - 1, 0))
        self.show()

    def action_open(self) -> None:
        if self.entries:
            self.post_message(self.Opened(self.entries[min(self._marked, len(self.entries) - 1)]))

    def action_point(self) -> None:
        if self.entries and (line := self.entries[min(self._marked, len(self.entries) - 1)].line):
            self.post_message(self.Pointed(line))

    def action_copy(self) -> None:
        if self.entries:
            self.post_message(self.Copied(self.entries[min(self._marked, len(self.entries) - 1)].whole()))


def wrapped(text: str, width: int, most: int) -> list[str]:
    """`text` in at most `most` lines of `width` cells; an ellipsis in the last one means that there is more."""
    lines: list[str] = []
    for line in textwrap.wrap(" ".join(text.split()), width) or [""]:
        lines += chop_cells(line, width) if cell_len(line) > width else [line]
    if len(lines) > most:
        last = lines[most - 1]
        while cell_len(last) > width - 1:
            last = last[:-1]
        lines = [*lines[: most - 1], last + "…"]
    return lines
