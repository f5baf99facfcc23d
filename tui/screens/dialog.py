"""A window over the screen: a framed box with a title, and its keys in the last line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, ScreenResultType
from textual.widget import Widget

from tui.widgets.key_line import KeyLine


class Dialog(ModalScreen[ScreenResultType]):
    """Subclasses define what is in the box (`content`). `title` is plain text.

    `READS`: the box holds only text, so it has the focus itself and arrow keys scroll it.
    """

    READS: ClassVar[bool] = True

    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > #box { max-width: 94%; height: auto; max-height: 85%; border: round $primary; padding: 1 2; background: $surface; }
    Dialog Static { width: 100%; }
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def content(self) -> Iterable[Widget]:
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="box", can_focus=self.READS) as box:
            box.border_title = Text(self._title)  # pyright: ignore[reportAttributeAccessIssue]
            yield from self.content()
        yield KeyLine()
