"""Runs: all runs, newest first: open, resume, serve, stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from tui.glyphs import Glyphs, glyphs
from tui.run_words import cell, end, loss, progress, style_of, when, widest
from tui.screens import run_actions
from tui.screens.run_list import RunListScreen
from tui.widgets.attention import wrapped
from tui.widgets.line import Line
from tui.widgets.listing import Listing, ListRow
from tui.widgets.panel import Panel, Span

if TYPE_CHECKING:
    from backends.runs.watching import SeenRun
    from backends.workspace import Workspace


class RunDetails(Panel, can_focus=False):
    """The marked run in a few rows."""

    DEFAULT_CSS = "RunDetails { height: 7; }"

    def __init__(self, *, id: str | None = None, ascii_only: bool = False) -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self._seen: SeenRun | None = None

    def update(self, seen: SeenRun | None) -> None:
        self._seen = seen
        self.show()

    def title(self) -> tuple[Sequence[Span], Sequence[Span]]:
        return ([(self._seen.info.run, "title")] if self._seen else []), ()

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        if self._seen is None:
            return []
        return [[(f"{name:<10}", "dim"), (text, "text")] for name, text in details(self._seen, width - 10)]


def details(seen: SeenRun, width: int) -> list[tuple[str, str]]:
    """What is known of a run besides its row; the reason of its end comes first."""
    info = seen.info
    rows: list[tuple[str, str]] = []
    for at, line in enumerate(wrapped(end(info), max(width, 10), 2) if end(info) else []):
        rows.append(("" if at else "why", line))
    if info.phase == "stopping":
        rows.append(("stopping", info.stopping or ""))
    if seen.checkpoint is not None:
        rows.append(("checkpoint", f" iteration {seen.checkpoint:,}"))
    for name, text in (("saves to", info.save), ("loads", info.load if info.load != info.save else None)):
        if text:
            rows.append((name, text))
    rows.append(
        ("answers at", f" {info.address}") if info.address else ("log", str(info.path / "output.log"))
    )
    return rows


def heading(done: int) -> tuple[Span, ...]:
    cells = (cell("run", 19), cell("phase", 8), cell("iteration", done, right=True), cell("when", 11), "what")
    return (("    " + "  ".join(cells), "dim"),)


def row(seen: SeenRun, done: int, sign: Glyphs, today: datetime) -> ListRow:
    info = seen.info
    style = style_of(info.phase)
    more = info.address or loss(seen)
    return ListRow(
        str(info.path),
        (
            (f"  {sign.phase(info.phase)} ", style),
            (cell(info.run, 19), "text"),
            (f"  {info.phase:<8}", style),
            (f"  {cell(progress(info), done, right=True)}", "text"),
            (f"  {cell(when(info, today), 11)}", "dim"),
            (f"  {more}" if more else "", "text"),
            (f"  {info.title or '?'}", "dim"),
        ),
    )


class RunsScreen(RunListScreen):
    WHERE = "Runs"
    CSS = """
    RunsScreen Listing { margin: 0 1; }
    RunsScreen #heading { height: 1; margin: 1 1 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", id="runs.open", tooltip="Open the monitor on the marked run"),
        Binding("r", "resume", "resume", id="runs.resume", tooltip="Continue from its newest checkpoint, after showing the command"),
        Binding("v", "serve", "serve", id="runs.serve", tooltip="Serve its newest checkpoint, after showing the command"),
        Binding("S", "stop", "stop…", id="runs.stop", tooltip="Stop the marked run, after saying what that does; if it crashed, call off its automatic resume"),
    ]  # fmt: skip

    def __init__(
        self, workspace: Workspace, *, ascii_only: bool = False, now: Callable[[], datetime] = datetime.now
    ) -> None:
        super().__init__(workspace, ascii_only=ascii_only, now=now)
        self._seen: dict[str, SeenRun] = {}

    def content(self) -> Iterable[Widget]:
        yield Line(id="heading", ascii_only=self.ascii_only)
        yield Listing(id="list", ascii_only=self.ascii_only, empty="reading the runs of this workspace")
        yield RunDetails(id="details", ascii_only=self.ascii_only)

    def on_screen_resume(self) -> None:
        if self._seen:
            self.runs_changed(tuple(self._seen.values()))

    def runs_changed(self, runs: tuple[SeenRun, ...]) -> None:
        self._seen = {str(seen.info.path): seen for seen in runs}
        listing = self.query_one(Listing)
        done = widest([progress(seen.info) for seen in runs], len("iteration"), 24)
        listing.empty = "no runs yet: 1 shows what to start"
        self.query_one("#heading", Line).update(*(heading(done) if runs else ()))
        listing.update([row(seen, done, glyphs(self.ascii_only), self._now()) for seen in runs])
        self._describe()

    def on_listing_marked(self) -> None:
        self._describe()

    @property
    def chosen(self) -> SeenRun | None:
        return self._seen.get(self.query_one(Listing).marked or "")

    def _describe(self) -> None:
        self.query_one(RunDetails).update(self.chosen)
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action not in ("open", "resume", "serve", "stop") or not self.is_mounted:
            return True
        seen = self.chosen
        if seen is None:
            return False
        return {
            "open": True,
            "resume": seen.info.over and seen.info.kind == "train" and seen.info.save is not None,
            "serve": seen.checkpoint is not None,
            "stop": not seen.info.over or seen.info.again_due,
        }[action]

    # What can be done with the marked run.

    def action_open(self) -> None:
        from backends.runs.folder import RunFolder

        if seen := self.chosen:
            self.mdk.open_run(RunFolder(seen.info.path))

    def action_resume(self) -> None:
        if (seen := self.chosen) and seen.info.save:
            self.resume(Path(seen.info.save))

    def action_serve(self) -> None:
        if (seen := self.chosen) and seen.info.save:
            self.serve(Path(seen.info.save))

    def action_stop(self) -> None:
        if (seen := self.chosen) and seen.info.over:
            run_actions.call_off(self.mdk, seen.info)
        elif seen:
            run_actions.ask_stop(self.mdk, seen.info)
