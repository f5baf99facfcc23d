"""Resume: all checkpoints, newest first: continue, branch, see which arguments differ, prune."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from backends.errors import UserError
from backends.workspace import Workspace, shell_command
from tui.bridge import Bridge
from tui.glyphs import glyphs
from tui.screens import resume_view, run_actions
from tui.screens.one_line import OneLine
from tui.screens.place import PlaceScreen
from tui.screens.prune_question import PruneQuestion
from tui.screens.resume_view import Comparison
from tui.widgets.listing import Listing
from tui.widgets.panel import Panel, Span

if TYPE_CHECKING:
    from backends.runs.checkpoints import Checkpoint
    from backends.runs.lineages import Lineage, SavedPoint
    from backends.runs.pruning import Pruning
    from backends.runs.watching import SeenRun

Look = Callable[[Callable[[], bool]], Iterator[tuple["Lineage", ...]]]
KEEP = "3"  # checkpoints that pruning proposes to keep
NONE = "none"  # the word that takes all changes back


class ResumeDetails(Panel, can_focus=False):
    """The marked checkpoint and what a resume of it would change."""

    DEFAULT_CSS = "ResumeDetails { height: 11; }"

    def __init__(self, *, id: str | None = None, ascii_only: bool = False) -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self._found: tuple[Lineage, SavedPoint] | None = None
        self._comparison: Comparison | None = None
        self._changes: Sequence[str] = ()

    def update(
        self, found: tuple[Lineage, SavedPoint] | None, comparison: Comparison | None, changes: Sequence[str]
    ) -> None:
        self._found, self._comparison, self._changes = found, comparison, changes
        self.show()

    def title(self) -> tuple[Sequence[Span], Sequence[Span]]:
        if self._found is None:
            return (), ()
        return [(f"iteration {self._found[1].checkpoint.iteration}", "title")], ()

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        return resume_view.details(self._found, self._comparison, self._changes, width, height)


class ResumeScreen(PlaceScreen):
    """`look` yields the lineages each time more is known, until its argument returns True."""

    WHERE = "Resume"
    CSS = "ResumeScreen Listing { margin: 1 1 0 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "go_on", "continue", id="resume.continue", tooltip="Continue from the marked checkpoint, after showing the command"),
        Binding("b", "branch", "branch", id="resume.branch", tooltip="Continue from it in a new folder, after showing the command"),
        Binding("a", "arguments", "arguments…", id="resume.arguments", tooltip="Change Megatron arguments for the resume, such as --train-iters"),
        Binding("p", "prune", "prune…", id="resume.prune", tooltip="Remove old checkpoints of this folder, after showing which"),
        Binding("x", "everything", "all", id="resume.all", tooltip="Show all checkpoints, or the newest of each folder"),
        Binding("u", "look", "look again", id="resume.look", tooltip="Read the folders again", show=False),
    ]  # fmt: skip

    def __init__(self, workspace: Workspace, *, ascii_only: bool = False, look: Look | None = None) -> None:
        super().__init__(workspace, ascii_only=ascii_only)
        self._look = look or self._look_at_folders
        self._lineages: tuple[Lineage, ...] = ()
        self._reading: Bridge[tuple[Lineage, ...]] | None = None
        self._comparing: Bridge[Comparison] | None = None
        self._comparison: Comparison | None = None
        self._compared: tuple[str, tuple[str, ...]] | None = None
        self._changes: tuple[str, ...] = ()
        self._everything = False
        self._runs: tuple[tuple[str, str, int | None], ...] | None = None

    def _look_at_folders(self, closed: Callable[[], bool]) -> Iterator[tuple[Lineage, ...]]:
        from backends.runs.lineages import lineages

        return lineages(self.workspace, closed)

    def content(self) -> Iterable[Widget]:
        yield Listing(id="list", ascii_only=self.ascii_only, empty="reading the folders of all runs")
        yield ResumeDetails(id="details", ascii_only=self.ascii_only)

    def on_mount(self) -> None:
        self.query_one(Listing).focus()
        self.action_look()

    def on_unmount(self) -> None:
        for bridge in (self._reading, self._comparing):
            if bridge is not None:
                bridge.close()

    def runs_changed(self, runs: tuple[SeenRun, ...]) -> None:
        known = tuple((seen.info.run, seen.info.phase, seen.checkpoint) for seen in runs)
        if self._runs is not None and known != self._runs:
            self.action_look()
        self._runs = known

    # Reading, in threads.

    def action_look(self) -> None:
        if self._reading is not None:
            self._reading.close()
        ended: list[bool] = []
        self._reading = Bridge(
            self,
            lambda: self._look(lambda: bool(ended)),
            self._came,
            close_source=lambda: ended.append(True),
            failed=self.mdk.tell_failure,
        ).start()

    def _came(self, lineages: tuple[Lineage, ...]) -> None:
        self._lineages = lineages
        listing = self.query_one(Listing)
        listing.empty = "no checkpoints yet: 1 shows what to start"
        listing.update(resume_view.rows(lineages, glyphs(self.ascii_only), everything=self._everything))
        self._describe()

    def on_listing_marked(self) -> None:
        self._describe()

    @property
    def chosen(self) -> tuple[Lineage, SavedPoint] | None:
        return resume_view.find(self._lineages, self.query_one(Listing).marked)

    def _describe(self) -> None:
        found = self.chosen
        wanted = (found[1].checkpoint.path, self._changes) if found else None
        if wanted != self._compared:
            self._compared, self._comparison = wanted, None
            if self._comparing is not None:
                self._comparing.close()
            if found is not None:
                path, changes = Path(found[1].checkpoint.path), self._changes
                self._comparing = self.in_background(
                    lambda: comparison_of(self.workspace, path, changes), self._comparison_came
                )
        self.query_one(ResumeDetails).update(found, self._comparison, self._changes)
        self.refresh_bindings()

    def _comparison_came(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self.query_one(ResumeDetails).update(self.chosen, comparison, self._changes)

    # What can be done with the marked checkpoint.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action not in ("go_on", "branch", "prune", "arguments") or not self.is_mounted:
            return True
        found = self.chosen
        if found is None:
            return False
        lineage, point = found
        whole, numbered = point.checkpoint.complete, isinstance(point.checkpoint.iteration, int)
        return {
            "go_on": whole and not (lineage.busy and point.checkpoint.tracked),
            "branch": whole and numbered,
            "prune": len(lineage.points) > 1,
            "arguments": True,
        }[action]

    def action_go_on(self) -> None:
        if found := self.chosen:
            run_actions.resume(self.mdk, Path(found[1].checkpoint.path), None, self._changes)

    def action_branch(self) -> None:
        if found := self.chosen:
            lineage, point = found
            at = point.checkpoint.iteration
            run_actions.resume(self.mdk, lineage.save, at if isinstance(at, int) else None, self._changes)

    def action_arguments(self) -> None:
        note = f"Megatron arguments to change, such as --train-iters 2000; {NONE} removes all changes."
        self.app.push_screen(OneLine("arguments", note, shlex.join(self._changes)), self._changed)

    def _changed(self, text: str | None) -> None:
        if text is None:
            return
        try:
            words = () if text == NONE else tuple(shlex.split(text))
        except ValueError as error:
            self.mdk.tell(f"This cannot be read: {error}.", warning=True)
            return
        if words and not words[0].startswith("--"):
            self.mdk.tell("Megatron's arguments begin with --.", warning=True)
            return
        self._changes = words
        self._describe()

    def action_everything(self) -> None:
        self._everything = not self._everything
        self._came(self._lineages)

    def action_prune(self) -> None:
        if found := self.chosen:
            save = found[0].save
            note = "How many of the newest complete checkpoints of this folder are kept?"
            self.app.push_screen(OneLine("prune", note, KEEP), lambda text: self._ask_prune(save, text))

    def _ask_prune(self, save: Path, text: str | None) -> None:
        if text is None:
            return
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            self.mdk.tell("That is no number above 0.", warning=True)
            return
        keep = int(text)

        def show(plan: Pruning) -> None:
            shell = shell_command(self.workspace, "prune", str(save), "--keep", str(keep))
            self.app.push_screen(
                PruneQuestion(plan, shell), lambda wanted: self._prune(plan) if wanted else None
            )

        self.in_background(lambda: pruning_of(self.workspace, save, keep), show)

    def _prune(self, plan: Pruning) -> None:
        from backends.runs.pruning import prune

        def done(removed: tuple[Checkpoint, ...]) -> None:
            stayed = len(plan.remove) - len(removed)
            but = f" {stayed} were kept: a tracker file or a branch now needs them." if stayed else ""
            self.mdk.tell(f"Removed {len(removed)} checkpoints.{but}")
            self.action_look()

        def removed() -> tuple[Checkpoint, ...]:
            return prune(plan, stamp, needed(self.workspace, Path(plan.save)))

        stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
        self.in_background(removed, done)


def comparison_of(workspace: Workspace, checkpoint: Path, changes: Sequence[str]) -> Comparison:
    """How the arguments of a resume from `checkpoint` would differ, or why it is not possible."""
    from datetime import datetime

    from backends.runs.resuming import resumption

    try:
        found = resumption(workspace, checkpoint, None, changes, datetime.now())
    except UserError as error:
        return Comparison(refusal=str(error))
    return Comparison(found.differences, found.compared_with)


def pruning_of(workspace: Workspace, save: Path, keep: int) -> Pruning:
    from backends.runs.pruning import plan_pruning

    return plan_pruning(save, keep, needed(workspace, save))


def needed(workspace: Workspace, save: Path) -> frozenset[Path]:
    from backends.runs.pruning import needed_by_branches

    return needed_by_branches(workspace, [save])
