"""Before something is started: the command, word for word, and what speaks against it."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from backends.text import clean
from tui.run_actions import Prospect
from tui.widgets.clipboard import copy


class Confirm(ModalScreen[bool]):
    """True when it is to be started. An error forbids it."""

    DEFAULT_CSS = """
    Confirm { align: center middle; }
    Confirm > VerticalScroll { width: 100; max-width: 94%; height: auto; max-height: 85%; border: round $primary; padding: 1 2; background: $surface; }
    Confirm Static { width: 100%; }
    Confirm .quiet { color: $foreground 55%; }
    Confirm #problems { color: $text-warning; }
    Confirm #problems.-forbidden { color: $text-error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "answer(True)", "start", id="confirm.yes", tooltip="Run this command"),
        Binding("y", "copy", "copy", id="confirm.copy", tooltip="Copy the command"),
        Binding("escape,q", "answer(False)", "leave it", key_display="esc", id="confirm.no", tooltip="Run nothing"),
    ]  # fmt: skip

    def __init__(self, prospect: Prospect) -> None:
        super().__init__()
        self._prospect = prospect
        self._forbidden = any(problem.severity == "error" for problem in prospect.problems)

    def compose(self) -> ComposeResult:
        found = "\n\n".join(f"{p.severity}: {p.message}\n{p.remedy}" for p in self._prospect.problems)
        with VerticalScroll() as box:
            box.border_title = Text(self._prospect.title)  # pyright: ignore[reportAttributeAccessIssue]
            if found:
                yield Static(
                    f"{clean(found)}\n", id="problems", markup=False, classes="-forbidden" * self._forbidden
                )
            if self._prospect.notes:
                yield Static(f"{clean(self._prospect.notes)}\n", id="notes", markup=False)
            yield Static(f"{clean(self._prospect.shell)}\n", markup=False)
            yield Static("which runs, independent of this terminal:\n", classes="quiet", markup=False)
            yield Static(clean(self._prospect.command), classes="quiet", markup=False)
        yield Footer()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (action == "answer" and parameters == (True,) and self._forbidden)

    def action_answer(self, wanted: bool) -> None:
        self.dismiss(wanted)

    def action_copy(self) -> None:
        self.notify(copy(self.app, self._prospect.command), markup=False)
