"""The Prompt screen: the servers that answer, the questions so far, and a field to write in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import randrange
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget

from backends.inference.history import Turn
from backends.inference.parameters import SEEDS, for_several, toggled_greedy, words
from backends.inference.request import Request
from backends.settings import PromptSettings, read_settings
from backends.text import clean
from tui.glyphs import glyphs
from tui.question import Question
from tui.screens.place import PlaceScreen
from tui.screens.prompt_answerers import PromptAnswerers
from tui.screens.prompt_files import PromptFiles
from tui.screens.prompt_keys import KEYS
from tui.screens.prompt_parameters import ParametersScreen
from tui.screens.prompt_past import PromptPast
from tui.widgets.answer_text import LEGEND, View, side_by_side
from tui.widgets.clipboard import copy
from tui.widgets.exchanges import Exchanges, ExchangeView
from tui.widgets.line import Line
from tui.widgets.prompt_field import PromptField

if TYPE_CHECKING:
    from backends.runs.watching import SeenRun
    from backends.workspace import Workspace

ALTERNATIVES = 5  # likeliest tokens that are asked for at each place, where a server tells them


class PromptScreen(PlaceScreen):
    WHERE = "Prompt"
    AUTO_FOCUS = ""  # after the field was left letters are keys, also after a window was over the screen
    CSS = """
    PromptScreen #second { display: none; }
    PromptScreen.-two #second { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = KEYS

    def __init__(self, workspace: Workspace, *, ascii_only: bool = False) -> None:
        super().__init__(workspace, ascii_only=ascii_only)
        self._request = Request("")
        self.answerers = PromptAnswerers(self)
        self._question: Question | None = None
        self._answer: ExchangeView | None = None
        self._view: View = "plain"
        self._made_from: float | None = None  # the turn that the text in the field was taken from
        self.past = PromptPast(self)
        self.files = PromptFiles(self)

    def content(self) -> Iterable[Widget]:
        yield Line(id="server", ascii_only=self.ascii_only)
        yield Line(id="second", ascii_only=self.ascii_only)
        yield Exchanges(self._render_turns, id="turns")
        yield Line(id="parameters", ascii_only=self.ascii_only)
        yield PromptField(id="field")

    def on_mount(self) -> None:
        self.field.focus()
        self._settings_came(PromptSettings())
        self._show_parameters()
        self.set_interval(1.0, self.answerers.tick)
        self.past.read()
        self.in_background(lambda: read_settings(self.workspace.settings).prompt, self._settings_came)

    @property
    def field(self) -> PromptField:
        return self.query_one(PromptField)

    @property
    def exchanges(self) -> Exchanges:
        return self.query_one(Exchanges)

    def _settings_came(self, settings: PromptSettings) -> None:
        self.answerers.settings_came(settings)
        self.field.enter_sends = settings.enter_sends
        keys = ("enter", "ctrl+j") if settings.enter_sends else ("ctrl+j", "enter")
        self.field.border_subtitle = Content(f"{keys[0]} sends, {keys[1]} begins a line")
        self.refresh_bindings()

    # Who answers.

    def runs_changed(self, runs: tuple[SeenRun, ...]) -> None:
        self.answerers.runs_came(runs)
        self.refresh_bindings()

    @property
    def asked_at(self) -> float | None:
        """When the question was asked that has no answer yet: s, monotonic."""
        return None if self._question is None else self._question.began

    def action_answerer(self) -> None:
        self.answerers.choose(second=False)

    def action_compare(self) -> None:
        self.answerers.choose(second=True)

    def action_serve(self) -> None:
        self.answerers.serve_newest()

    # Asking.

    def on_prompt_field_send(self, message: PromptField.Send) -> None:
        if message.score:
            self.action_score()
        else:
            self.action_send()

    def action_send(self) -> None:
        self.ask(self.field.text, parent=self._made_from)

    def action_leave(self) -> None:
        self.set_focus(None)

    def action_score(self) -> None:
        self.ask(self.field.text, score=True)

    def ask(
        self, prompt: str, *, request: Request | None = None, parent: float | None = None, score: bool = False
    ) -> bool:
        """Send `prompt`. Returns whether it was sent; if not, a message says why."""
        answerers = self.answerers.ready()
        if self._question is not None:
            why = "The server answers one request at a time: esc stops waiting."
        elif len(answerers) < len(self.answerers.names):
            why = "No server can answer yet; see the second line."
        elif not prompt.strip():
            why = "The prompt is empty: write something to go on from."
        else:
            wanted = replace(
                request or self._request, prompt=prompt, logprobs=True, alternatives=ALTERNATIVES
            )
            if len(answerers) > 1:
                wanted = for_several(wanted, randrange(SEEDS))
            self._question = Question(
                self, answerers, wanted, self._heard, self.mdk.note_failure, parent=parent, score=score
            )
            self._answer = self.exchanges.add(self._question.turns)
            self.answerers.show()
            self.refresh_bindings()
            return True
        self.mdk.tell(why, warning=True)
        return False

    def _heard(self, question: Question) -> None:
        if question is not self._question or self._answer is None:
            return
        self._answer.show(question.turns)
        self.exchanges.mark(None)
        if not question.waiting:
            self._ended(question)

    def _ended(self, question: Question) -> None:
        self._question = self._answer = None
        self._made_from = None
        if question.answered and not question.turns[0].scored and self.field.text == question.request.prompt:
            self.field.clear()
        self.past.add(question.turns)
        self.files.next()
        self.answerers.show()
        self.refresh_bindings()

    def action_stop_waiting(self) -> None:
        question, answer = self._question, self._answer
        if question is None or answer is None:
            return
        self.files.forget()
        question.close()
        if any(turn.continuation for turn in question.turns):
            self._ended(question)
        else:
            self.exchanges.drop(answer)
            self._question = self._answer = None
            self.answerers.show()
            self.refresh_bindings()
        self.mdk.tell(
            "No longer waiting. Megatron-LM's server cannot cancel: it works on until the answer is complete."
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if not self.is_mounted:  # keys may arrive before the field exists
            return False
        if action == "stop_waiting":
            return self._question is not None
        if action == "serve":
            return self.answerers.may_serve
        if action == "write":
            return self.focused is not self.field  # `has_focus` is not yet up to date here
        if action == "leave":
            return self.focused is self.field and self._question is None
        if action == "send":
            return not self.field.enter_sends
        return True

    # Questions so far.

    def _render_turns(self, turns: Sequence[Turn]) -> list[Content]:
        return side_by_side(turns, glyphs(self.ascii_only), self._view)

    def action_mark(self, step: int) -> None:
        self.exchanges.mark(step)

    def action_view(self, view: View) -> None:
        self._view = "plain" if self._view == view else view
        self.exchanges.redraw()
        self._show_parameters()

    def action_tokens(self) -> None:
        from tui.screens.details import Details
        from tui.screens.prompt_tokens import token_table

        if turns := self.exchanges.marked:
            self.app.push_screen(Details("tokens", token_table(turns)))

    def action_copy(self) -> None:
        marked = [turn.continuation for turn in self.exchanges.marked or () if turn.continuation]
        answer = "\n\n".join(marked) or self.past.newest_answer
        if answer:
            copy(self.app, clean(answer))
        else:
            self.mdk.tell("There is no answer yet.")

    def action_again(self) -> None:
        if turns := self.exchanges.marked:
            asked = turns[0].request
            if asked.greedy:
                self.mdk.tell("Greedy gives the same answer again: ctrl+g samples.", warning=True)
            request = replace(asked, seed=None if asked.seed is None else (asked.seed + 1) % SEEDS)
            self.ask(asked.prompt, request=request, parent=turns[0].at, score=turns[0].scored)

    def action_edit(self) -> None:
        if turns := self.exchanges.marked:
            self.write(turns[0].prompt, turns[0].at)

    def action_branch(self) -> None:
        if turns := self.exchanges.marked:
            self.write(turns[0].prompt + turns[0].continuation, turns[0].at)

    def write(self, text: str, parent: float | None = None) -> None:
        """Put `text` into the field. `parent`: the turn that it is taken from."""
        self._made_from = parent
        self.field.text = clean(text)
        self.field.move_cursor(self.field.document.end)
        self.set_focus(self.field)

    def action_search(self) -> None:
        self.past.search()

    def action_samples(self) -> None:
        self.files.show_samples()

    def action_file(self) -> None:
        self.files.ask_for_file()

    def action_export(self) -> None:
        self.files.export()

    def on_prompt_field_recall(self, message: PromptField.Recall) -> None:
        self.past.recall(message.step)

    # Parameters.

    def action_write(self) -> None:
        self.set_focus(self.field)

    def action_greedy(self) -> None:
        self._set_parameters(toggled_greedy(self._request))

    def action_parameters(self) -> None:
        self.app.push_screen(ParametersScreen(self._request), self._set_parameters)

    def _set_parameters(self, chosen: Request | None) -> None:
        if chosen is not None:
            self._request = chosen
            self._show_parameters()

    def _show_parameters(self) -> None:
        dot = glyphs(self.ascii_only).dot
        meaning = LEGEND if self._view != "plain" else ()
        self.query_one("#parameters", Line).update((words(self._request, dot), "dim"), *meaning)
