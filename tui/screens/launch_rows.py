"""The rows of the launch form: a text, one of several, on or off, the button. Each shows its problem below itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Label, Static

from backends.models.problem import Problem
from backends.text import clean
from tui.glyphs import glyphs

NOTES_FROM = 56  # columns from which notes are always shown, not only at the marked row


class Form(VerticalScroll, can_focus=False, inherit_bindings=False):
    """The rows, one below the other. Arrow keys go from row to row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "up",
            "app.focus_previous",
            "row above",
            show=False,
            id="form.up",
            tooltip="Go to the row above or below",
        ),
        Binding(
            "down",
            "app.focus_next",
            "row below",
            show=False,
            id="form.down",
            tooltip="Go to the row above or below",
        ),
    ]


class Changed(Message):
    """The user has changed the row `name` to `value`."""

    def __init__(self, name: str, value: str) -> None:
        super().__init__()
        self.name = name
        self.value = value


def trouble_of(problem: Problem | None, ascii_only: bool) -> Content:
    if problem is None:
        return Content("")
    sign, style = (
        (glyphs(ascii_only).failed, "$text-error") if problem.severity == "error" else ("!", "$text-warning")
    )
    key = " (^t)" if problem.fix else ""
    return Content.assemble((f"{sign} {clean(problem.message)}", style), f" {clean(problem.remedy)}{key}")


class EntryField(Input):
    """One line without a frame. Enter goes to the next row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "app.focus_next", "next", show=False, id="form.next", tooltip="Go to the next row"),
    ]
    cursor_blink = False


class Entry(Vertical):
    """A text. An empty one shows the value that is used instead."""

    def __init__(self, name: str, label: str, tip: str, *, ascii_only: bool) -> None:
        super().__init__(id=f"row-{name}")
        self.row = name
        self._label = label
        self._tip = tip
        self._ascii_only = ascii_only
        self._shown: tuple[str, Problem | None] | None = None

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label(self._label, markup=False)
            field = EntryField(id=self.row, tooltip=self._tip)
            field.cursor_blink = False
            yield field
        yield Static("", classes="trouble", markup=False)

    @property
    def field(self) -> EntryField:
        return self.query_one(EntryField)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(Changed(self.row, event.value))

    def write(self, text: str) -> None:
        """Set the text without posting `Changed`."""
        if self.field.value != text:
            with self.field.prevent(Input.Changed):
                self.field.value = text

    def show(self, without: str, problem: Problem | None) -> None:
        if (without, problem) == self._shown:
            return
        self._shown = (without, problem)
        self.field.placeholder = clean(without)
        trouble = self.query_one(".trouble", Static)
        trouble.display = problem is not None
        trouble.update(trouble_of(problem, self._ascii_only))


class LineRow(Static, can_focus=True):
    """A row that draws itself: `line`, and below it `note` if there is room or the row is marked."""

    def __init__(self, name: str, *, note: str = "", ascii_only: bool) -> None:
        super().__init__("", id=f"row-{name}", markup=False)
        self.row = name
        self._note = note
        self._ascii_only = ascii_only
        self._problem: Problem | None = None
        self._drawn: Content | None = None

    def line(self) -> Content:
        raise NotImplementedError

    def draw(self) -> None:
        parts = [self.line()]
        roomy = self.has_focus or self.size.width >= NOTES_FROM
        if self._note and roomy:
            parts.append(Content.styled(f"    {self._note}", "$foreground 55%"))
        if self._problem is not None:
            trouble = Content("  ") + trouble_of(self._problem, self._ascii_only)
            # A narrow form shows one line of the problem; all of it is at the right, and here when the row is marked.
            parts.append(
                trouble if roomy else trouble.truncate(max(self.size.width, 8), ellipsis=not self._ascii_only)
            )
        drawn = Content("\n").join(parts)
        if drawn != self._drawn:
            self._drawn = drawn
            self.update(drawn)

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def on_focus(self) -> None:
        self.draw()

    def on_blur(self) -> None:
        self.draw()


class OneOf(LineRow):
    """One of several, by ← and →; enter opens a list of them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "left",
            "step(-1)",
            "the one before",
            show=False,
            id="form.before",
            tooltip="Take the previous or next choice",
        ),
        Binding(
            "right,space",
            "step(1)",
            "the next",
            show=False,
            id="form.after",
            tooltip="Take the previous or next choice",
        ),
        Binding("enter", "open", "list", show=False, id="form.list", tooltip="List all choices"),
    ]

    def __init__(self, name: str, label: str, *, note: str = "", ascii_only: bool) -> None:
        super().__init__(name, note=note, ascii_only=ascii_only)
        self._label = label
        self._options: Sequence[tuple[str, str]] = ()  # what it is, a note for the list
        self.value = ""

    def offer(self, options: Sequence[tuple[str, str]], value: str) -> None:
        self._options, self.value = options, value
        self.draw()

    def show(self, value: str, problem: Problem | None) -> None:
        self.value, self._problem = value, problem
        self.draw()

    def line(self) -> Content:
        marks = ("< ", " >") if self.has_focus else ("  ", "")
        return Content.assemble(
            (f"{self._label:<15}", "$foreground 55%"), f"{marks[0]}{clean(self.value)}{marks[1]}"
        )

    def _choose(self, value: str | None) -> None:
        if value is not None and value != self.value:
            self.value = value
            self.draw()
            self.post_message(Changed(self.row, value))

    def action_step(self, step: int) -> None:
        names = [name for name, _ in self._options]
        if names:
            at = names.index(self.value) if self.value in names else -1
            self._choose(names[(at + step) % len(names)])

    def action_open(self) -> None:
        from tui.screens.choose import Choice, Chooser

        listed = [Choice(name, clean(name), clean(note)) for name, note in self._options]
        self.app.push_screen(Chooser(self._label, listed, self.value), self._choose)


class OnOff(LineRow):
    """Something that is on or off, with its effect on the estimate."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,enter", "turn", "on or off", show=False, id="form.turn", tooltip="Turn it on or off"),
    ]

    def __init__(self, name: str, label: str, *, note: str = "", ascii_only: bool) -> None:
        super().__init__(name, note=note, ascii_only=ascii_only)
        self._label = label
        self._effect = ""
        self.on = False

    def show(self, on: bool, effect: str, problem: Problem | None) -> None:
        self.on, self._effect, self._problem = on, effect, problem
        self.draw()

    def line(self) -> Content:
        return Content.assemble(
            f"[{'x' if self.on else ' '}] {self._label}  ", (self._effect, "$text-primary")
        )

    def action_turn(self) -> None:
        self.on = not self.on
        self.draw()
        self.post_message(Changed(self.row, "on" if self.on else ""))


class Heading(Static):
    def __init__(self, text: str, classes: str = "") -> None:
        super().__init__(text, markup=False, classes=f"heading {classes}")


class LaunchButton(LineRow):
    """Enter starts the run that is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.launch", "launch", id="form.launch", tooltip="Start the run that is shown"),
    ]

    def line(self) -> Content:
        return Content.assemble(("  Launch  ", "bold"), ("  enter, or ^r from anywhere", "$foreground 55%"))
