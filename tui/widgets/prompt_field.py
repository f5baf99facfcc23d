"""The field that prompts are written in."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message
from textual.widgets import TextArea


class PromptField(TextArea):
    """Several lines; `up` in the first of them recalls what was asked before, `down` in the last comes back.

    Two keys send and begin a new line: ctrl+j and enter, or, with `enter_sends`, the other way round.
    """

    DEFAULT_CSS = """
    PromptField { height: 5; border: round $foreground 25%; background: $background; padding: 0 1; }
    PromptField:focus { border: round $primary; }
    """

    class Recall(Message):
        """`step` 1: an older prompt; -1: a newer one."""

        def __init__(self, step: int) -> None:
            self.step = step
            super().__init__()

    class Send(Message):
        """What stands in the field is to be asked; `score`: only how likely it is.

        The field handles these keys itself: as the application's bindings they would overtake letters typed just before.
        """

        def __init__(self, *, score: bool = False) -> None:
            self.score = score
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(show_line_numbers=False, soft_wrap=True, id=id)
        self.cursor_blink = False
        self.enter_sends = False

    async def _on_key(self, event: events.Key) -> None:
        if event.key not in ("enter", "ctrl+j", "ctrl+l"):
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        if event.key == "ctrl+l":
            self.post_message(self.Send(score=True))
        elif (event.key == "enter") == self.enter_sends:
            self.post_message(self.Send())
        else:
            self.replace("\n", *self.selection)

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


class Recalling:
    """Going back through what was asked before, and forward again to what was being written."""

    def __init__(self) -> None:
        self._back = 0  # how many prompts back the field shows; 0: what was written
        self._written = ""

    def step(self, step: int, prompts: Sequence[str], text: str) -> str | None:
        """What the field is to show `step` prompts further back; `prompts` newest first, `text` what it shows now.

        None: there is nothing further that way.
        """
        wanted = min(max(self._back + step, 0), len(prompts))
        if wanted == self._back:
            return None
        if self._back == 0:
            self._written = text
        self._back = wanted
        return prompts[wanted - 1] if wanted else self._written
