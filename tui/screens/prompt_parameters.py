"""A form for the parameters of an answer: tokens, temperature, top-k, top-p, seed, stop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from backends.errors import UserError
from backends.inference.parameters import (
    FIELDS,
    PRESETS,
    Field,
    preset_of,
    request_of,
    stop_words,
    with_preset,
    words,
)
from backends.inference.request import Request
from tui.screens.dialog import Dialog

NAMES = tuple(field.name for field in FIELDS)


class ParametersScreen(Dialog[Request | None]):
    """Returns the parameters, or None when nothing is to change."""

    READS = False
    DEFAULT_CSS = """
    ParametersScreen > #box { width: 70; }
    ParametersScreen Horizontal { height: 1; }
    ParametersScreen Label { width: 14; }
    ParametersScreen Input, ParametersScreen Input:focus { width: 16; height: 1; border: none; padding: 0 1; background: $panel; }
    ParametersScreen Input:focus { background: $primary 30%; }
    ParametersScreen .note { width: 1fr; color: $foreground 55%; padding-left: 2; }
    ParametersScreen #wrong { height: 2; padding-top: 1; color: $text-error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "accept", "use these", id="parameters.accept", tooltip="Use these parameters", priority=True),
        Binding("ctrl+n", "preset", "preset", id="parameters.preset", tooltip="Take the next preset: greedy, careful, balanced, as trained, wild", priority=True),
        Binding("up", "app.focus_previous", "field above", show=False, id="parameters.up", tooltip="Go to the field above or below"),
        Binding("down", "app.focus_next", "field below", show=False, id="parameters.down", tooltip="Go to the field above or below"),
        Binding("escape", "dismiss(None)", "leave", key_display="esc", id="parameters.leave", tooltip="Change nothing"),
    ]  # fmt: skip

    def __init__(self, request: Request) -> None:
        super().__init__("parameters")
        self._request = request

    def content(self) -> Iterable[Widget]:
        for field in FIELDS:
            with Horizontal():
                yield Label(field.label, markup=False)
                entry = Input(_written(field, self._request), id=field.name)
                entry.cursor_blink = False
                yield entry
                yield Label(field.note, markup=False, classes="note")
        with Horizontal():
            yield Label("stop", markup=False)
            entry = Input(stop_words(self._request.stop), id="stop")
            entry.cursor_blink = False
            yield entry
            yield Label(r"commas between; \n is a newline", markup=False, classes="note")
        yield Static("", id="wrong", markup=False)

    def action_accept(self) -> None:
        try:
            self.dismiss(self._request_written())
        except UserError as error:
            self.query_one("#wrong", Static).update(str(error))

    def _request_written(self) -> Request:
        """Raises UserError."""
        return request_of({name: self.query_one(f"#{name}", Input).value for name in (*NAMES, "stop")})

    def action_preset(self) -> None:
        """The one after that which the fields hold; the first when they hold none."""
        try:
            written = self._request_written()
        except UserError:
            written = self._request
        names, current = list(PRESETS), preset_of(written)
        name = names[(names.index(current) + 1) % len(names)] if current else names[0]
        chosen = with_preset(written, name)
        for field in FIELDS:
            self.query_one(f"#{field.name}", Input).value = _written(field, chosen)
        self.query_one("#wrong", Static).update(f"{name}: {words(chosen)}")


def _written(field: Field, request: Request) -> str:
    """The value of `field` as one writes it."""
    value = getattr(request, field.name)
    return "" if value is None else str(value) if field.whole else f"{value:g}"
