"""Prompt: who answers, the turns so far, and a field to write in."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static, TextArea

from backends.errors import UserError
from backends.inference.client import Completion, Request, TextClient
from backends.inference.history import Turn, append, read
from backends.runs.catalog import RunInfo
from backends.text import clean
from backends.workspace import Workspace
from tui.screens.run_list import RunWatch
from tui.widgets.clipboard import copy

Choice = TypeVar("Choice")
SHOWN = 100  # turns on the screen
NO_SERVER = "No text server runs. 6 lists the runs: v serves the newest checkpoint of one."


@dataclass(frozen=True, slots=True)
class Parameters:
    tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    seed: int | None = None

    def words(self) -> str:
        if self.top_k == 1:
            how = "greedy"
        else:
            cut = f"top-k {self.top_k}" if self.top_k else f"top-p {self.top_p:g}" if self.top_p else "no cut"
            how = f"temperature {self.temperature:g} · {cut}"
        return f"{self.tokens} tokens · {how}" + (f" · seed {self.seed}" if self.seed is not None else "")


TOKENS = (16, 32, 64, 128, 256, 512)
TEMPERATURES = (0.2, 0.5, 0.8, 1.0, 1.2)
CUTS = ((0, 0.0), (1, 0.0), (40, 0.0), (0, 0.9))  # pure sampling, greedy, top-k, top-p


class PromptScreen(Screen[None]):
    DEFAULT_CSS = """
    PromptScreen #server { height: 1; padding: 0 1; }
    PromptScreen #turns { height: 1fr; padding: 0 1; }
    PromptScreen #parameters { height: 1; padding: 0 1; color: $text-muted; }
    PromptScreen TextArea { height: 5; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j", "send", "send", id="prompt.send", tooltip="Send the prompt", priority=True),
        Binding("ctrl+t", "turn_tokens", "tokens", id="prompt.tokens", tooltip="How many tokens to generate", priority=True),
        Binding("ctrl+e", "turn_temperature", "temperature", id="prompt.temperature", tooltip="How boldly to sample", priority=True),
        Binding("ctrl+g", "turn_cut", "greedy/top-k/top-p", id="prompt.cut", tooltip="Pure sampling, greedy, top-k 40, top-p 0.9", priority=True),
        Binding("ctrl+s", "turn_seed", "seed", id="prompt.seed", tooltip="The same answer every time, or another", priority=True),
        Binding("ctrl+o", "copy", "copy", id="prompt.copy", tooltip="Copy the newest answer", priority=True),
        Binding("up", "recall", "recall", show=False, id="prompt.recall", tooltip="In an empty field: the prompts before"),
        Binding("escape", "leave", "stop waiting / out of the field", key_display="esc", id="prompt.leave", tooltip="Stop waiting for an answer, or leave the field so that 1 … 6 go places"),
        Binding("i", "write", "write", id="prompt.write", tooltip="Into the field"),
    ]  # fmt: skip

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self.workspace = workspace
        self._history_file = workspace.outputs / "prompts.jsonl"
        self._turns: list[Turn] = []
        self._parameters = Parameters()
        self._server: RunInfo | None = None
        self._asking: TextClient | None = None
        self._since = 0.0
        self._recalled = 0
        self._watch = RunWatch(self, workspace, self._runs_came)

    def compose(self) -> ComposeResult:
        yield Static(Text.assemble((" mdk-tui", "bold"), "  Prompt"), id="where", markup=False)
        yield Static("…", id="server", markup=False)
        with VerticalScroll(id="turns", can_focus=False):
            yield Static("", id="text", markup=False)
        yield Static("", id="parameters", markup=False)
        field = TextArea(show_line_numbers=False, soft_wrap=True)
        field.cursor_blink = False
        yield field
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one(TextArea).focus()
        self._show_parameters()
        self._watch.start()
        self.set_interval(1.0, self._tick)
        self.run_worker(self._load, thread=True, exit_on_error=False)

    def on_screen_suspend(self) -> None:
        self._watch.pause()

    def on_screen_resume(self) -> None:
        self._watch.resume()

    # Who answers

    def _runs_came(self, found: list[RunInfo]) -> None:
        servers = [info for info in found if info.kind == "serve" and not info.over]
        self._server = next((info for info in servers if info.address), servers[0] if servers else None)
        self._show_server()

    def _show_server(self) -> None:
        server = self._server
        if server is None:
            words = Text(NO_SERVER, style="yellow")
        elif not server.address:
            words = Text(
                f"loading   {server.run}   {server.title}   it answers once a checkpoint is loaded",
                style="blue",
            )
        else:
            waited = f"busy {time.monotonic() - self._since:.0f} s" if self._asking else "ready"
            words = Text.assemble(
                (f"{waited:<9}", "yellow" if self._asking else "green"),
                f" {server.address}   {server.title}   {server.load or ''}",
            )
        self._update("#server", words)

    def _tick(self) -> None:
        if self._asking:
            self._show_server()

    def _update(self, selector: str, words: Text) -> None:
        """Write only what changed: an unchanged line costs nothing on the wire."""
        widget = self.query_one(selector, Static)
        if getattr(widget, "_said", None) != words:
            widget._said = words  # pyright: ignore[reportAttributeAccessIssue]
            widget.update(words)

    # Turns

    def _load(self) -> None:
        self.app.call_from_thread(self._loaded, read(self._history_file))

    def _loaded(self, turns: list[Turn]) -> None:
        self._turns = turns + self._turns
        self._show_turns()

    def _show_turns(self) -> None:
        self.query_one("#text", Static).update(
            Text("\n\n").join([turn_text(turn) for turn in self._turns[-SHOWN:]])
        )
        self.query_one("#turns", VerticalScroll).scroll_end(animate=False)

    def action_send(self) -> None:
        prompt = self.query_one(TextArea).text
        if self._asking:
            self.notify(
                "The server answers one request at a time: esc stops waiting.",
                markup=False,
                severity="warning",
            )
        elif self._server is None or not self._server.address:
            self.notify(
                NO_SERVER if self._server is None else "The server is still loading.",
                markup=False,
                severity="warning",
            )
        else:
            p = self._parameters
            request = Request(prompt, p.tokens, p.temperature, p.top_k, p.top_p, p.seed)
            client = TextClient(self._server.address)
            self._asking, self._since = client, time.monotonic()
            self._show_server()
            self.run_worker(lambda: self._ask(client, request), thread=True, exit_on_error=False, group="ask")

    def _ask(self, client: TextClient, request: Request) -> None:
        try:
            answer: Completion | UserError = client.complete(request)
        except UserError as error:
            answer = error
        self.app.call_from_thread(self._answered, client, request, answer)

    def _answered(self, client: TextClient, request: Request, answer: Completion | UserError) -> None:
        if self._asking is not client:
            return  # nobody waits for it any more
        self._asking = None
        words, field = self._parameters.words(), self.query_one(TextArea)
        if isinstance(answer, UserError):  # the prompt stays in the field
            turn = Turn(time.time(), client.url, request.prompt, error=str(answer), parameters=words)
        else:
            turn = Turn(
                time.time(),
                client.url,
                request.prompt,
                answer.continuation,
                "",
                answer.seconds,
                answer.tokens_per_second,
                words,
            )
            if field.text == request.prompt:
                field.clear()
        self._turns.append(turn)
        self._recalled = 0
        self._show_turns()
        self._show_server()
        self.run_worker(lambda: self._keep(turn), thread=True, exit_on_error=False)

    def _keep(self, turn: Turn) -> None:
        try:
            append(self._history_file, turn)
        except OSError as error:
            self.app.call_from_thread(
                self.notify,
                f"The history cannot be written: {error.strerror}.",
                severity="warning",
                markup=False,
            )

    # Keys

    def action_leave(self) -> None:
        if self._asking:
            self._asking = None
            self._show_server()
            self.notify(
                "No longer waiting. The server itself cannot be told: it goes on until it is done.",
                markup=False,
            )
        elif isinstance(self.focused, TextArea):
            self.set_focus(None)
        else:
            self.app.action_go("home")  # pyright: ignore[reportAttributeAccessIssue]

    def action_write(self) -> None:
        self.query_one(TextArea).focus()

    def action_recall(self) -> None:
        """Older prompts one by one; only where the cursor stands in the first line would `up` have nothing else to do."""
        prompts = list(dict.fromkeys(turn.prompt for turn in reversed(self._turns) if turn.prompt))
        if prompts:
            field = self.query_one(TextArea)
            field.text = prompts[self._recalled % len(prompts)]
            self._recalled += 1
            field.focus()

    def on_key(self, event: object) -> None:
        field = self.query_one(TextArea)
        if (
            getattr(event, "key", "") == "up"
            and field.has_focus
            and (not field.text or self._recalled)
            and field.cursor_location[0] == 0
        ):
            self.action_recall()
            event.prevent_default()  # type: ignore[attr-defined]
            event.stop()  # type: ignore[attr-defined]

    def action_copy(self) -> None:
        answer = next((turn.continuation for turn in reversed(self._turns) if turn.continuation), "")
        if answer:
            self.notify(copy(self.app, answer), markup=False)

    def action_turn_tokens(self) -> None:
        self._set(replace(self._parameters, tokens=after(TOKENS, self._parameters.tokens)))

    def action_turn_temperature(self) -> None:
        self._set(replace(self._parameters, temperature=after(TEMPERATURES, self._parameters.temperature)))

    def action_turn_cut(self) -> None:
        top_k, top_p = after(CUTS, (self._parameters.top_k, self._parameters.top_p))
        self._set(replace(self._parameters, top_k=top_k, top_p=top_p))

    def action_turn_seed(self) -> None:
        self._set(replace(self._parameters, seed=1234 if self._parameters.seed is None else None))

    def _set(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._show_parameters()

    def _show_parameters(self) -> None:
        self._update("#parameters", Text(self._parameters.words()))


def after(choices: tuple[Choice, ...], value: Choice) -> Choice:
    """The choice that follows `value`, the first after the last."""
    at = choices.index(value) if value in choices else -1
    return choices[(at + 1) % len(choices)]


def turn_text(turn: Turn) -> Text:
    """Prompt dim, continuation bright, an error in words."""
    text = Text(clean(turn.prompt), style="dim")
    if turn.error:
        text.append(f"\n✗ {clean(turn.error)}", style="red")
        return text
    text.append(clean(turn.continuation), style="bold not dim")
    rate = f" · {turn.tokens_per_second:.0f} tokens/s" if turn.tokens_per_second else ""
    text.append(f"\n{turn.seconds:.1f} s{rate} · {turn.parameters}", style="dim italic")
    return text
