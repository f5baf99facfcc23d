"""The history of the Prompt screen: kept in a file, recalled, searched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.inference import history
from backends.inference.history import Turn
from backends.text import clean_line
from tui.background import in_background
from tui.screens.choose import Choice, Chooser
from tui.widgets.prompt_field import Recalling

if TYPE_CHECKING:
    from tui.screens.prompt import PromptScreen


class PromptPast:
    """`turns`: all turns, oldest first. If the file cannot be written, a message says so and nothing is lost on the screen."""

    def __init__(self, screen: PromptScreen) -> None:
        self._screen = screen
        self._file = screen.workspace.outputs / "prompts.jsonl"
        self.turns: list[Turn] = []
        self._recall = Recalling()

    def read(self) -> None:
        self._screen.in_background(lambda: history.read(self._file), self._came)

    def _came(self, turns: list[Turn]) -> None:
        self.turns = turns + self.turns
        self._screen.exchanges.fill(history.exchanges(turns))

    def add(self, turns: Sequence[Turn]) -> None:
        self.turns += turns
        self._recall = Recalling()
        in_background(self._screen, lambda: history.append(self._file, turns), lambda _: None, self._failed)

    def _failed(self, error: Exception) -> None:
        why = error.strerror if isinstance(error, OSError) else str(error)
        self._screen.mdk.tell(f"The history cannot be written to {self._file}: {why}.", warning=True)

    @property
    def newest_answer(self) -> str:
        return next((turn.continuation for turn in reversed(self.turns) if turn.continuation), "")

    def recall(self, step: int) -> None:
        prompts = list(dict.fromkeys(turn.prompt for turn in reversed(self.turns) if turn.prompt))
        text = self._recall.step(step, prompts, self._screen.field.text)
        if text is not None:
            self._screen.write(text)

    def search(self) -> None:
        """Find a turn by words of its prompt or answer, and put its prompt into the field."""
        turns = {str(at): turn for at, turn in enumerate(self.turns)}
        listed = [
            Choice(key, clean_line(turn.prompt + turn.continuation, 300), turn.answered_by)
            for key, turn in reversed(turns.items())
        ]

        def chosen(key: str | None) -> None:
            if key is not None:
                self._screen.write(turns[key].prompt, turns[key].at)

        self._screen.app.push_screen(Chooser("asked before", listed), chosen)
