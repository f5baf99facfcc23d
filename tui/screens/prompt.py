"""Prompt: who answers, the turns so far, and a field to write in."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static, TextArea

from backends.errors import UserError
from backends.inference import history
from backends.inference.history import Turn
from backends.inference.megatron_api import MegatronClient
from backends.inference.parameters import toggled_greedy, words
from backends.inference.request import Completion, Request, complete
from backends.text import clean
from tui import run_actions
from tui.background import in_background
from tui.bridge import Bridge
from tui.glyphs import Glyphs, glyphs
from tui.screens.parameters import ParametersScreen
from tui.screens.place import PlaceScreen
from tui.widgets.panel import Panel, Span

if TYPE_CHECKING:
    from backends.runs.catalog import RunInfo
    from backends.runs.watching import SeenRun
    from backends.workspace import Workspace

DIM = "$foreground 55%"
SHOWN = 50  # turns on the screen; the file has them all


class Line(Panel, can_focus=False):
    """One row of words."""

    DEFAULT_CSS = "Line { height: 1; }"

    def __init__(self, *, id: str | None = None, ascii_only: bool = False) -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self._spans: tuple[Span, ...] = ()

    def update(self, *spans: Span) -> None:
        self._spans = spans
        self.show()

    def body(self, width: int, height: int) -> list[tuple[Span, ...]]:
        return [self._spans]


class PromptField(TextArea):
    """Several lines; `up` in the first of them recalls what was asked before, `down` in the last comes back."""

    class Recall(Message):
        def __init__(self, step: int) -> None:
            self.step = step
            super().__init__()

    def action_cursor_up(self, select: bool = False) -> None:
        if self.cursor_at_first_line and not select:
            self.post_message(self.Recall(1))
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        if self.cursor_at_last_line and not select:
            self.post_message(self.Recall(-1))
        else:
            super().action_cursor_down(select)


class PromptScreen(PlaceScreen):
    WHERE = "Prompt"
    CSS = """
    PromptScreen #turns { height: 1fr; padding: 1 1 0 1; scrollbar-size-vertical: 1; }
    PromptScreen PromptField { height: 5; border: round $foreground 25%; background: $background; padding: 0 1; }
    PromptScreen PromptField:focus { border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j", "send", "send", id="prompt.send", tooltip="Send the prompt", priority=True),
        Binding("ctrl+t", "parameters", "parameters", id="prompt.parameters", tooltip="Tokens, temperature, top-k, top-p, seed", priority=True),
        Binding("ctrl+g", "greedy", "greedy", id="prompt.greedy", tooltip="Always the likeliest token, or sampling again", priority=True),
        Binding("ctrl+o", "copy", "copy answer", id="prompt.copy", tooltip="Copy the newest answer", priority=True),
        Binding("ctrl+r", "serve", "start a server", id="prompt.serve", tooltip="Serve the newest checkpoint; the command is shown first", priority=True),
        Binding("i,enter", "write", "write", show=False, id="prompt.write", tooltip="Into the field"),
        Binding("escape", "stop_waiting", "stop waiting", key_display="esc", id="prompt.cancel", tooltip="Wait no longer for the answer", priority=True),
    ]  # fmt: skip

    def __init__(self, workspace: Workspace, *, ascii_only: bool = False) -> None:
        super().__init__(workspace, ascii_only=ascii_only)
        self._file = workspace.outputs / "prompts.jsonl"
        self._turns: list[Turn] = []
        self._parameters = Request("")
        self._server: RunInfo | None = None
        self._servable: SeenRun | None = None
        self._asking: Bridge[Completion] | None = None
        self._since = 0.0
        self._recalled = 0  # how many prompts back the field shows; 0: what was written
        self._written = ""

    def content(self) -> Iterable[Widget]:
        yield Line(id="server", ascii_only=self.ascii_only)
        with VerticalScroll(id="turns", can_focus=False):
            yield Static("", id="text", markup=False)
        yield Line(id="parameters", ascii_only=self.ascii_only)
        field = PromptField(show_line_numbers=False, soft_wrap=True, id="field")
        field.cursor_blink = False
        yield field

    def on_mount(self) -> None:
        self.query_one(PromptField).focus()
        self._show_parameters()
        self._show_server()
        self.set_interval(1.0, self._tick)
        in_background(self, lambda: history.read(self._file), self._history_came, self.mdk.tell_failure)

    # Who answers.

    def runs_changed(self, runs: tuple[SeenRun, ...]) -> None:
        servers = [seen.info for seen in runs if seen.info.kind == "serve" and not seen.info.over]
        self._server = next((info for info in servers if info.address), servers[0] if servers else None)
        self._servable = next((seen for seen in runs if seen.checkpoint is not None), None)
        self._show_server()
        self.refresh_bindings()

    def _show_server(self) -> None:
        self.query_one("#server", Line).update(
            *server_words(
                self._server,
                self._servable,
                None if self._asking is None else time.monotonic() - self._since,
                glyphs(self.ascii_only),
                read=self.mdk.runs is not None,
            )
        )

    def _tick(self) -> None:
        if self._asking is not None:
            self._show_server()

    def action_serve(self) -> None:
        if self._servable is not None and self._servable.info.save:
            save = Path(self._servable.info.save)
            run_actions.propose(
                self.mdk,
                lambda: run_actions.serve_prospect(self.workspace, save),
                then=lambda run: self.mdk.tell(f"The text server {run.name} is loading."),
            )

    # Asking.

    def action_send(self) -> None:
        prompt = self.query_one(PromptField).text
        if self._asking is not None:
            self.mdk.tell("The server answers one request at a time: esc stops waiting.", warning=True)
        elif self._server is None or not self._server.address:
            self.mdk.tell("No server can answer yet; see the second line.", warning=True)
        elif not prompt.strip():
            self.mdk.tell("The prompt is empty: write something to go on from.", warning=True)
        else:
            self._ask(MegatronClient(self._server.address), replace(self._parameters, prompt=prompt))

    def _ask(self, client: MegatronClient, request: Request) -> None:
        def turn(**what: object) -> Turn:
            return Turn(time.time(), client.url, request, **what)  # pyright: ignore[reportArgumentType]

        def answered(answer: Completion) -> None:
            field = self.query_one(PromptField)
            if field.text == request.prompt:
                field.clear()
            self._ended(turn(continuation=answer.continuation, seconds=answer.seconds, tokens_per_second=answer.tokens_per_second))  # fmt: skip

        def refused(error: Exception) -> None:
            """The prompt stays in the field."""
            self._ended(
                turn(error=str(error) if isinstance(error, UserError) else self.mdk.note_failure(error))
            )

        self._since = time.monotonic()
        self._asking = in_background(self, lambda: complete(client, request), answered, refused)
        self._show_server()
        self.refresh_bindings()

    def _ended(self, turn: Turn) -> None:
        self._asking = None
        self._recalled, self._written = 0, ""
        self._turns.append(turn)
        self._show_turns()
        self._show_server()
        self.refresh_bindings()
        in_background(self, lambda: history.append(self._file, [turn]), lambda _: None, self._history_failed)

    def action_stop_waiting(self) -> None:
        if self._asking is not None:
            self._asking.close()
            self._asking = None
            self._show_server()
            self.refresh_bindings()
            self.mdk.tell("No longer waiting. The server cannot be told: it goes on until it is done.")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "stop_waiting":
            return self._asking is not None
        if action == "serve":
            return self._server is None and self._servable is not None
        return True

    # Turns.

    def _history_came(self, turns: list[Turn]) -> None:
        self._turns = turns + self._turns
        self._show_turns()

    def _history_failed(self, error: Exception) -> None:
        why = error.strerror if isinstance(error, OSError) else str(error)
        self.mdk.tell(f"The history cannot be written to {self._file}: {why}.", warning=True)

    def _show_turns(self) -> None:
        sign = glyphs(self.ascii_only)
        text = Content("\n\n").join(turn_text(turn, sign) for turn in self._turns[-SHOWN:])
        self.query_one("#text", Static).update(text)
        self.query_one("#turns", VerticalScroll).scroll_end(animate=False)

    def action_copy(self) -> None:
        from tui.widgets.clipboard import copy

        answer = next((turn.continuation for turn in reversed(self._turns) if turn.continuation), None)
        self.mdk.tell(copy(self.app, clean(answer)) if answer else "There is no answer yet.")

    def on_prompt_field_recall(self, message: PromptField.Recall) -> None:
        prompts = list(dict.fromkeys(turn.prompt for turn in reversed(self._turns) if turn.prompt))
        wanted = min(max(self._recalled + message.step, 0), len(prompts))
        if wanted == self._recalled:
            return
        field = self.query_one(PromptField)
        if self._recalled == 0:
            self._written = field.text
        self._recalled = wanted
        field.text = clean(prompts[wanted - 1]) if wanted else self._written
        field.move_cursor(field.document.end)

    # Parameters.

    def action_write(self) -> None:
        self.query_one(PromptField).focus()

    def action_greedy(self) -> None:
        self._set_parameters(toggled_greedy(self._parameters))

    def action_parameters(self) -> None:
        self.app.push_screen(ParametersScreen(self._parameters), self._set_parameters)

    def _set_parameters(self, chosen: Request | None) -> None:
        if chosen is not None:
            self._parameters = chosen
            self._show_parameters()

    def _show_parameters(self) -> None:
        dot = glyphs(self.ascii_only).dot
        self.query_one("#parameters", Line).update((words(self._parameters, dot), "dim"))


def server_words(
    server: RunInfo | None, servable: SeenRun | None, waited: float | None, sign: Glyphs, *, read: bool
) -> tuple[Span, ...]:
    """Who answers and how it does: `waited` s for an answer, None when nobody asks."""
    if server is None and not read:
        return (("looking for a text server", "dim"),)
    if server is None:
        offer = "ctrl+r serves the newest checkpoint" if servable else "1 shows what to start first"
        return ((f"{sign.waiting} no text server runs: ", "warning"), (offer, "text"))
    if not server.address:
        words = f"   {server.title}: it answers once its checkpoint is loaded"
        return ((f"{sign.waiting} loading", "info"), (words, "dim"))
    state: Span = (
        (f"{sign.running} ready", "good")
        if waited is None
        else (f"{sign.waiting} busy {waited:3.0f} s", "warning")
    )
    return (state, (f"   {server.title}", "text"), (f"   {server.address}   {server.load or ''}", "dim"))


def turn_text(turn: Turn, sign: Glyphs) -> Content:
    """Prompt dim, continuation bright, an error in words; as text, whatever it looks like."""
    prompt = (clean(turn.prompt), DIM)
    if turn.error:
        return Content.assemble(prompt, (f"\n{sign.failed} {clean(turn.error)}", "$text-error"))
    continuation = clean(turn.continuation)
    if not continuation.strip():  # an answer that cannot be seen looks like none
        continuation = f"\n({len(continuation)} blanks, nothing else)"
    rate = f" {sign.dot} {turn.tokens_per_second:.0f} tokens/s" if turn.tokens_per_second else ""
    below = f"\n{turn.seconds:.1f} s{rate} {sign.dot} {words(turn.request, sign.dot)}"
    return Content.assemble(prompt, continuation, (below, f"{DIM} italic"))
