"""Asks before a run is started: shows the command, word for word, and what speaks against it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from backends.text import clean
from tui.background import in_background
from tui.screens.dialog import Dialog
from tui.screens.edit_command import EditCommand
from tui.widgets.clipboard import copy

if TYPE_CHECKING:
    from backends.launch.prospect import Prospect
    from tui.app import MdkApp


class Confirm(Dialog[bool]):
    """Returns True to start it, which an error forbids. `prospect` is what is shown: the user may have edited it."""

    DEFAULT_CSS = """
    Confirm > #box { width: 100; }
    Confirm .quiet { color: $foreground 55%; }
    Confirm #problems { color: $text-warning; }
    Confirm #problems.-forbidden { color: $text-error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "dismiss(True)", "start", id="confirm.yes", tooltip="Run this command"),
        Binding("e", "edit", "edit", id="confirm.edit", tooltip="Change the command by hand"),
        Binding("y", "copy", "copy", id="confirm.copy", tooltip="Copy the command"),
        Binding("escape,q", "dismiss(False)", "leave it", key_display="esc", id="confirm.no", tooltip="Run nothing"),
    ]  # fmt: skip

    def __init__(self, prospect: Prospect) -> None:
        super().__init__(prospect.title)
        self.prospect = prospect

    @property
    def forbidden(self) -> bool:
        return any(problem.severity == "error" for problem in self.prospect.problems)

    def content(self) -> Iterable[Widget]:
        found = "\n\n".join(f"{p.severity}: {p.message}\n{p.remedy}" for p in self.prospect.problems)
        if found:
            yield Static(
                f"{clean(found)}\n", id="problems", markup=False, classes="-forbidden" * self.forbidden
            )
        if self.prospect.notes:
            yield Static(f"{clean(self.prospect.notes)}\n", id="notes", markup=False)
        yield Static(f"{clean(self.prospect.shell)}\n", markup=False)
        yield Static("which runs, independent of this terminal:\n", classes="quiet", markup=False)
        yield Static(clean(self.prospect.command), classes="quiet", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "edit":
            return self.prospect.edit is not None
        return not (action == "dismiss" and parameters == (True,) and self.forbidden)

    def action_edit(self) -> None:
        """Replace the command that is shown by the edited one. Nothing starts yet."""
        from backends.launch.editing import check_edited

        def use(text: str | None) -> None:
            edit = self.prospect.edit
            if text is not None and edit is not None:
                in_background(self, lambda: edit(text), self._show, cast("MdkApp", self.app).tell_failure)

        self.app.push_screen(EditCommand(self.prospect.editable, check_edited), use)

    def _show(self, prospect: Prospect) -> None:
        self.prospect = prospect
        self.refresh(recompose=True)

    def action_copy(self) -> None:
        copy(self.app, self.prospect.command)
