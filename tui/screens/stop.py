"""Asks how to stop a run, after saying what each way does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from tui.screens.dialog import Dialog

if TYPE_CHECKING:
    from backends.launch.stop_prospect import StopProspect

StopChoice: TypeAlias = Literal["save", "now", "hung"]


def stop_words(prospect: StopProspect) -> str:
    """What each choice would do, and the same as a command."""
    run = prospect.run
    command = f"From a shell:  mdk-tui stop {run}"
    if prospect.kind != "train":
        return f"The text server {run} ends and stops answering at once.\n\n{command}"
    if prospect.hangs is not None:
        return _hanging_words(prospect)
    now = (
        "Stop now (n) ends all its processes at once: TERM, then KILL. "
        "Everything after the last checkpoint is lost."
    )
    if prospect.withheld:
        return f"{prospect.withheld}\n\nTherefore it can only be stopped without saving.\n\n{now}\n\n{command} --now"
    where = f" to {prospect.save}" if prospect.save else ""
    at = "" if prospect.iteration is None else f", now at iteration {prospect.iteration:,}"
    return (
        f"Save and stop (s) asks {run}{at} to finish its iteration, save a checkpoint{where} and exit. "
        f"If that takes longer than {prospect.limit_minutes:g} minutes, its processes are ended: TERM, then KILL.\n\n"
        f"{now}\n\n{command}"
    )


def _hanging_words(prospect: StopProspect) -> str:
    saved = (
        f"iteration {prospect.saved} is its newest checkpoint" if prospect.saved else "it has no checkpoint"
    )
    then = "is resumed by itself, as [resume] of mdk.toml says" if prospect.resumes else "can be resumed"
    return (
        f"It hangs: the log is silent after this error.\n{prospect.hangs}\n\n"
        "End it (e) ends all its processes at once, TERM, then KILL, and frees its GPUs. A hanging run cannot save: "
        f"{saved}. It then {then}.\n\n"
        "Stop now (n) does the same, but the run is not resumed by itself.\n\n"
        f"From a shell:  mdk-tui stop {prospect.run} --hung"
    )


class StopScreen(Dialog[StopChoice | None]):
    """Returns how to stop; None leaves the run alone."""

    DEFAULT_CSS = """
    StopScreen > #box { width: 76; border: round $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "dismiss('save')", "save and stop", id="stop.save", tooltip="Save a checkpoint, then end"),
        Binding("e", "dismiss('hung')", "end it", id="stop.hung", tooltip="End a run that hangs, as after a crash"),
        Binding("n", "dismiss('now')", "stop now", id="stop.now", tooltip="End now, without saving"),
        Binding("escape,q", "dismiss(None)", "let it run", key_display="esc", id="stop.cancel", tooltip="Change nothing"),
    ]  # fmt: skip

    def __init__(self, prospect: StopProspect) -> None:
        super().__init__(f"stop {prospect.run}")
        self._prospect = prospect

    def content(self) -> Iterable[Widget]:
        yield Static(Text(stop_words(self._prospect)), markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "dismiss" and parameters == ("save",):
            prospect = self._prospect
            return prospect.kind == "train" and prospect.withheld is None and prospect.hangs is None
        if action == "dismiss" and parameters == ("hung",):
            return self._prospect.kind == "train" and self._prospect.hangs is not None
        return True
