"""How the model is to answer: tokens, temperature, top-k, top-p, seed; read, checked and said in a line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Label, Static

from backends.errors import UserError
from backends.inference.client import Request


@dataclass(frozen=True, slots=True)
class Field:
    """One number: `low` and `high` as the server of core_r0.8.0 takes them."""

    name: str
    label: str
    note: str
    low: float
    high: float
    whole: bool = True
    may_be_empty: bool = False


FIELDS = (
    Field("tokens", "tokens", "to generate, at most", 1, 100_000),
    Field("temperature", "temperature", "lower is more careful; up to 100", 0, 100, whole=False),
    Field("top_k", "top-k", "0 off, 1 greedy, or so many likeliest", 0, 1000),
    Field("top_p", "top-p", "0 off, or the likeliest with this share", 0, 1, whole=False),
    Field("seed", "seed", "empty: each time another answer", 0, 2**31 - 1, may_be_empty=True),
)


def words(request: Request, dot: str = "·") -> str:
    """ "64 tokens · temperature 0.8 · top-k 40 · seed 7", or "64 tokens · greedy"."""
    parts = [f"{request.tokens} tokens"]
    if request.top_k == 1:
        return f" {dot} ".join([*parts, "greedy"])
    parts.append(f"temperature {request.temperature:g}")
    if request.top_k:
        parts.append(f"top-k {request.top_k}")
    if request.top_p:
        parts.append(f"top-p {request.top_p:g}")
    if request.seed is not None:
        parts.append(f"seed {request.seed}")
    return f" {dot} ".join(parts)


def toggled_greedy(request: Request) -> Request:
    """Greedy is top-k 1 without top-p; back from it is plain sampling."""
    return replace(request, top_k=0) if request.top_k == 1 else replace(request, top_k=1, top_p=0.0)


def request_of(texts: dict[str, str]) -> Request:
    """The parameters that were written, by field name. Raises UserError in the server's limits and our words."""
    values: dict[str, float | int | None] = {}
    for field in FIELDS:
        text = texts[field.name].strip()
        if not text and field.may_be_empty:
            values[field.name] = None
            continue
        try:
            value = int(text) if field.whole else float(text)
        except ValueError:
            kind = "a whole number" if field.whole else "a number"
            raise UserError(f"{field.label}: {text[:40]!r} is not {kind}.") from None
        if not field.low <= value <= field.high or (field.name == "temperature" and value == 0):
            above = "above 0" if field.name == "temperature" else f"{field.low:g}"
            raise UserError(f"{field.label} is from {above} to {field.high:g}.")
        values[field.name] = value
    if values["top_k"] and values["top_p"]:
        raise UserError("top-k and top-p exclude each other: set one of them to 0.")
    return Request("", **values)  # pyright: ignore[reportArgumentType]


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
