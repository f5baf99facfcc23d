"""Before a run is stopped: what will happen, in words, and the choice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from tui.screens.dialog import Dialog

StopChoice: TypeAlias = Literal["save", "now", "hung"]


@dataclass(frozen=True, slots=True)
class StopProspect:
    """What a stop of `run` would do. `withheld`: why saving would do harm now; None when it would not.

    `hangs`: the error that nothing has followed; `saved`: what its tracker names; `resumes`: whether settings have a
    crash resumed by itself.
    """

    run: str
    kind: str  # train, serve
    save: str | None
    iteration: int | None
    limit_minutes: float
    withheld: str | None
    hangs: str | None = None
    saved: object = None
    resumes: bool = False

    def words(self) -> str:
        command = f"The same from a shell:  mdk-tui stop {self.run}"
        if self.kind != "train":
            return f"The server {self.run} is told to end; its answers stop at once.\n\n{command}"
        now = "Stop now (n) ends every process of it at once: TERM, then KILL. What came after the last checkpoint is lost."
        if self.hangs is not None:
            return self._hangs_words()
        if self.withheld:
            return f"{self.withheld}\n\nSo only stopping without saving is offered here.\n\n{now}\n\n{command} --now"
        where = f" to {self.save}" if self.save else ""
        at = "" if self.iteration is None else f", now at iteration {self.iteration:,}"
        return (
            f"Save and stop (s) asks {self.run}{at} to finish its iteration, save a checkpoint{where} and exit. "
            f"If that takes longer than {self.limit_minutes:g} minutes, its processes are ended: TERM, then KILL.\n\n"
            f"{now}\n\n{command}"
        )

    def _hangs_words(self) -> str:
        saved = f"iteration {self.saved} is its newest checkpoint" if self.saved else "it has no checkpoint"
        then = "is resumed by itself, as [resume] of mdk.toml says" if self.resumes else "can be resumed"
        return (
            f"It hangs: nothing has followed this error.\n{self.hangs}\n\n"
            f"End it (e) ends every process of it at once, TERM, then KILL, and so frees its GPUs. What hangs cannot save: "
            f"{saved}. It then {then}.\n\n"
            "Stop now (n) does the same, and it is not resumed by itself.\n\n"
            f"The same from a shell:  mdk-tui stop {self.run} --hung"
        )


class StopScreen(Dialog[StopChoice | None]):
    """Returns how to stop, or None: nothing is done without a second key."""

    DEFAULT_CSS = """
    StopScreen > #box { width: 76; border: round $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "s", "choose('save')", "save and stop", id="stop.save", tooltip="Save a checkpoint, then end"
        ),
        Binding("e", "choose('hung')", "end it", id="stop.hung", tooltip="End what hangs, as after a crash"),
        Binding("n", "choose('now')", "stop now", id="stop.now", tooltip="End at once, without saving"),
        Binding(
            "escape,q", "cancel", "let it run", key_display="esc", id="stop.cancel", tooltip="Change nothing"
        ),
    ]

    def __init__(self, prospect: StopProspect) -> None:
        super().__init__(f"stop {prospect.run}")
        self._prospect = prospect

    def content(self) -> Iterable[Widget]:
        yield Static(Text(self._prospect.words()), markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "choose" and parameters == ("save",):
            prospect = self._prospect
            return prospect.kind == "train" and prospect.withheld is None and prospect.hangs is None
        if action == "choose" and parameters == ("hung",):
            return self._prospect.kind == "train" and self._prospect.hangs is not None
        return True

    def action_choose(self, how: StopChoice) -> None:
        self.dismiss(how)

    def action_cancel(self) -> None:
        self.dismiss(None)
