"""The settings of a step of the set-up, written into mdk.toml with the comments kept."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from backends.errors import UserError
from backends.files import named_errors
from backends.settings import Settings, write_setting
from backends.text import clean
from tui.screens.dialog import Dialog

Value: TypeAlias = str | int | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Option:
    """A setting. `words` describe it, `otherwise` is the default in words."""

    section: str
    key: str
    words: str
    otherwise: str


Changes: TypeAlias = list[tuple[Option, Value]]
OPTIONS: dict[str, tuple[Option, ...]] = {
    "megatron": (
        Option("megatron", "repository", "clone from (address, folder or bundle)", "NVIDIA's repository"),
        Option("megatron", "branch", "branch or tag", "core_r0.8.0"),
    ),
    "image": (
        Option("image", "path", "the image", "pytorch.sif in the clone"),
        Option("image", "definition", "build it from (a path, pytorch.def or cpu.def)", "pytorch.def"),
        Option(
            "image", "build_arguments", "build arguments (NAME=VALUE …)", "none; OPENMPI follows the host"
        ),
        Option("image", "singularity", "singularity", "found in PATH or /opt/singularity/bin"),
        Option("image", "bind", "folders to bind (SRC:DEST:OPTIONS …)", "none"),
        Option("image", "options", "more options of singularity exec", "none"),
        Option("image", "no_home", "hide the home folder (yes or no)", "no"),
    ),
    "data": (
        Option("data", "corpus", "a .jsonl of your own", "the RedPajama sample"),
        Option("data", "key", "where a document's text is", "text"),
        Option("data", "workers", "processes of the preprocessing", "one a core"),
    ),
}
YES, NO = ("yes", "y", "true", "1"), ("no", "n", "false", "0", "")


def shown(value: Value) -> str:
    """A setting as text that `read` understands; "" for the default."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return shlex.join(value)
    return "" if value == 0 else str(value)


def read(text: str, like: Value, name: str) -> Value:
    """The typed text as a value of the type of `like`. Raises UserError."""
    text = text.strip()
    if isinstance(like, bool):
        if text.lower() in YES + NO:
            return text.lower() in YES
        raise UserError(f"{name} is yes or no, not {text!r}.")
    if isinstance(like, int):
        if not text or (text.isascii() and text.isdigit()):
            return int(text or 0)
        raise UserError(f"{name} is a whole number, not {text!r}.")
    if isinstance(like, tuple):
        try:
            return tuple(shlex.split(text))
        except ValueError as error:
            raise UserError(f"{name} cannot be read: {error}.", "Close the quotation.") from None
    return text


def changes(options: tuple[Option, ...], settings: Settings, typed: list[str]) -> Changes:
    """The settings that the user changed; an empty field means the default. Raises UserError."""
    found: Changes = []
    for option, text in zip(options, typed, strict=True):
        now: Value = getattr(getattr(settings, option.section), option.key)
        default: Value = getattr(getattr(Settings(), option.section), option.key)
        value = read(text, now, option.words) if text.strip() else default
        if value != now:
            found.append((option, value))
    return found


def write_changes(path: Path, found: Changes) -> None:
    """Raises UserError."""
    with named_errors(path, "written"):
        for option, value in found:
            write_setting(path, option.section, option.key, value)


class SetupOptions(Dialog[Changes | None]):
    """Returns the changes, or None. Text that cannot be read is refused here. `path` is only shown."""

    READS = False
    DEFAULT_CSS = """
    SetupOptions > #box { width: 84; max-height: 90%; padding: 0 2; }
    SetupOptions Label { color: $foreground 55%; }
    SetupOptions:ansi Label { color: ansi_default; }
    SetupOptions Input, SetupOptions Input:focus { border: none; height: 1; padding: 0 1; background: $panel; }
    SetupOptions Input:focus { background: $primary 30%; }
    SetupOptions Input:ansi:focus { text-style: reverse; }
    SetupOptions #refusal { color: $text-error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,ctrl+s", "save", "save", id="options.save", tooltip="Write these into mdk.toml", priority=True),
        Binding("escape", "leave", "leave it", key_display="esc", id="options.leave", tooltip="Change nothing", priority=True),
    ]  # fmt: skip

    def __init__(self, step: str, settings: Settings, path: Path) -> None:
        super().__init__(clean(str(path)))
        self._options = OPTIONS[step]
        self._settings = settings
        self._path = path

    def content(self) -> Iterable[Widget]:
        for option in self._options:
            yield Label(f"{option.words}  [{option.section}] {option.key}", markup=False)
            value = shown(getattr(getattr(self._settings, option.section), option.key))
            field = Input(clean(value), placeholder=option.otherwise)
            field.cursor_blink = False
            yield field
        yield Static("", id="refusal", markup=False)

    def on_mount(self) -> None:
        self.query(Input).first().focus()

    def action_save(self) -> None:
        typed = [field.value for field in self.query(Input)]
        try:
            self.dismiss(changes(self._options, self._settings, typed))
        except UserError as error:
            self.query_one("#refusal", Static).update(Text(clean(str(error))))

    def action_leave(self) -> None:
        self.dismiss(None)
