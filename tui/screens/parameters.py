"""A form for how the model is to answer: tokens, temperature, top-k, top-p, seed, stop."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Label, Static

from backends.errors import UserError
from backends.inference.parameters import FIELDS, request_of
from backends.inference.request import Request


class ParametersScreen(ModalScreen[Request | None]):
    """Returns the parameters, or None when nothing is to change."""

    DEFAULT_CSS = """
    ParametersScreen { align: center middle; }
    ParametersScreen > Vertical { width: 70; max-width: 94%; height: auto; border: round $primary; padding: 1 2; background: $surface; }
    ParametersScreen Horizontal { height: 1; }
    ParametersScreen Label { width: 14; }
    ParametersScreen Input, ParametersScreen Input:focus { width: 12; height: 1; border: none; padding: 0 1; background: $panel; }
    ParametersScreen Input:focus { background: $primary 30%; }
    ParametersScreen .note { width: 1fr; color: $foreground 55%; padding-left: 2; }
    ParametersScreen #wrong { height: 2; padding-top: 1; color: $text-error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "accept", "use these", id="parameters.accept", tooltip="Use these numbers", priority=True),
        Binding("up", "app.focus_previous", "field above", show=False, id="parameters.up", tooltip="The field above"),
        Binding("down", "app.focus_next", "field below", show=False, id="parameters.down", tooltip="The field below"),
        Binding("escape", "dismiss(None)", "leave", key_display="esc", id="parameters.leave", tooltip="Change nothing"),
    ]  # fmt: skip

    def __init__(self, request: Request) -> None:
        super().__init__()
        self._request = request

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Text("parameters")  # pyright: ignore[reportAttributeAccessIssue]
            for field in FIELDS:
                value = getattr(self._request, field.name)
                with Horizontal():
                    yield Label(field.label, markup=False)
                    entry = Input(
                        "" if value is None else f"{value:g}" if not field.whole else str(value),
                        id=field.name,
                    )
                    entry.cursor_blink = False
                    yield entry
                    yield Label(field.note, markup=False, classes="note")
            yield Static("", id="wrong", markup=False)
        yield Footer()

    def action_accept(self) -> None:
        try:
            self.dismiss(
                request_of({field.name: self.query_one(f"#{field.name}", Input).value for field in FIELDS})
            )
        except UserError as error:
            self.query_one("#wrong", Static).update(str(error))
