"""Shown in place of a screen that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from tui.widgets.clipboard import copy
from tui.widgets.key_line import KeyLine

if TYPE_CHECKING:
    from tui.app import MdkApp

WORDS = """This screen failed. This is a bug in mdk-tui; your runs are not affected.

enter or esc opens the screen again, y copies the report for a bug report.
"""


class FailureScreen(Screen[None]):
    DEFAULT_CSS = """
    FailureScreen VerticalScroll { padding: 1 2; }
    FailureScreen #words { color: $text-warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,escape", "app.try_again", "open it again", key_display="enter", id="failure.again", tooltip="Open the screen again"),
        Binding("y", "copy", "copy", id="failure.copy", tooltip="Copy the report"),
    ]  # fmt: skip

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(WORDS, id="words", markup=False)
            yield Static(id="report", markup=False)
        yield KeyLine()

    def on_screen_resume(self) -> None:
        self.query_one("#report", Static).update(Text(cast("MdkApp", self.app).report))

    def action_copy(self) -> None:
        copy(self.app, cast("MdkApp", self.app).report)
