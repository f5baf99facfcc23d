"""Before checkpoints are removed: which go, which stay and why, and what that frees."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from backends.text import clean
from backends.ticks import size_words
from tui.widgets.key_line import KeyLine

if TYPE_CHECKING:
    from backends.runs.pruning import Pruning


class PruneQuestion(ModalScreen[bool]):
    """True when what is shown is to be removed. `shell`: the command that does the same."""

    DEFAULT_CSS = """
    PruneQuestion { align: center middle; }
    PruneQuestion > VerticalScroll { width: 90; max-width: 94%; height: auto; max-height: 85%; border: round $warning; padding: 1 2; background: $surface; }
    PruneQuestion Static { width: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "answer(True)", "remove", id="prune.yes", tooltip="Remove the checkpoints that are named, for good"),
        Binding("escape,enter,q", "answer(False)", "keep all", key_display="esc", id="prune.no", tooltip="Remove nothing"),
    ]  # fmt: skip

    def __init__(self, plan: Pruning, shell: str) -> None:
        super().__init__()
        self._plan, self._shell = plan, shell

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = Text("make room")  # pyright: ignore[reportAttributeAccessIssue]
            yield Static(Text(clean(pruning_words(self._plan, self._shell))), markup=False)
        yield KeyLine()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (action == "answer" and parameters == (True,) and not self._plan.remove)

    def action_answer(self, wanted: bool) -> None:
        self.dismiss(wanted)


def pruning_words(plan: Pruning, shell: str) -> str:
    lines = [plan.save, ""]
    lines += [f"remove  {c.iteration!s:>10}  {size_words(c.size):>8}" for c in plan.remove]
    lines += [f"keep    {c.iteration!s:>10}  {size_words(c.size):>8}  {why}" for c, why in plan.kept]
    what = (
        f"This frees {size_words(plan.freed)}; it cannot be undone."
        if plan.remove
        else "Nothing is to be removed."
    )
    return "\n".join([*lines, "", what, "", f"The same from a shell:  {shell}"])
