"""Asks before checkpoints are removed: shows which, which stay and why, and how much that frees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from backends.text import clean
from backends.ticks import size_words
from tui.screens.dialog import Dialog

if TYPE_CHECKING:
    from backends.runs.pruning import Pruning


class PruneQuestion(Dialog[bool]):
    """Returns True to remove them. `shell`: the command that does the same."""

    DEFAULT_CSS = """
    PruneQuestion > #box { width: 90; border: round $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "dismiss(True)", "remove", id="prune.yes", tooltip="Remove these checkpoints for good"),
        Binding("escape,enter,q", "dismiss(False)", "keep all", key_display="esc", id="prune.no", tooltip="Keep all checkpoints"),
    ]  # fmt: skip

    def __init__(self, plan: Pruning, shell: str) -> None:
        super().__init__("make room")
        self._plan, self._shell = plan, shell

    def content(self) -> Iterable[Widget]:
        yield Static(Text(clean(pruning_words(self._plan, self._shell))), markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (action == "dismiss" and parameters == (True,) and not self._plan.remove)


def pruning_words(plan: Pruning, shell: str) -> str:
    lines = [plan.save, ""]
    lines += [f"remove  {c.iteration!s:>10}  {size_words(c.size):>8}" for c in plan.remove]
    lines += [f"keep    {c.iteration!s:>10}  {size_words(c.size):>8}  {why}" for c, why in plan.kept]
    what = (
        f"This frees {size_words(plan.freed)}; it cannot be undone."
        if plan.remove
        else "There is nothing to remove."
    )
    return "\n".join([*lines, "", what, "", f"From a shell:  {shell}"])
