"""The steps of the set-up: checked in threads, their jobs watched through files, shown as they change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from textual import events
from textual.widget import Widget

from backends.setup.job_watch import JobView, watch_jobs
from backends.setup.standing import Standing, in_parallel, standing_of
from backends.setup.step import Site, Step, site_of
from backends.setup.steps import STEPS
from tui.bridge import Bridge
from tui.glyphs import glyphs
from tui.screens import setup_view
from tui.screens.place import PlaceScreen
from tui.widgets.listing import Listing
from tui.widgets.text_pane import TextPane

if TYPE_CHECKING:
    from backends.workspace import Workspace


ROOMY = 32  # rows of a screen that has room for three panes


class StepsScreen(PlaceScreen):
    """A list of the steps, the details of the marked one, and the output of its job. Subclasses add the keys."""

    DEFAULT_CSS = """
    StepsScreen #steps { height: 7; margin: 0 1; }
    StepsScreen #about { height: 1fr; min-height: 5; }
    StepsScreen #output { height: 1fr; max-height: 16; display: none; }
    StepsScreen.-printed #output { display: block; }
    StepsScreen.-zoom #steps, StepsScreen.-zoom TextPane { display: none; }
    StepsScreen.-zoom TextPane.-zoomed { display: block; max-height: 100%; }
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        ascii_only: bool = False,
        site: Callable[[Workspace], Site] = site_of,
        steps: Sequence[Step] = STEPS,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        super().__init__(workspace, ascii_only=ascii_only)
        self._make_site = site
        self._steps = {step.name: step for step in steps}
        self._now = now
        self._site: Site | None = None
        self._standings: dict[str, Standing] = {}
        self._jobs: Mapping[str, JobView] | None = None  # None: not looked yet
        self._looking: Bridge[dict[str, Standing]] | None = None
        self._watching: Bridge[Mapping[str, JobView]] | None = None
        self._shown = ""  # the step that the panes are about
        self._verified = 0.0  # when it was last asked for, in seconds since the epoch
        self._placed = False  # whether a key or the screen has placed the mark

    def content(self) -> Iterable[Widget]:
        yield Listing(id="steps", ascii_only=self.ascii_only)
        yield TextPane(id="about", ascii_only=self.ascii_only)
        yield TextPane(id="output", ascii_only=self.ascii_only, follows=True)

    def on_mount(self) -> None:
        self.query_one(Listing).focus()
        self._show()
        self.look_again()

    def on_screen_resume(self) -> None:
        ended = threading.Event()
        self._watching = Bridge(
            self,
            partial(watch_jobs, self.workspace, list(self._steps), ended),
            self._jobs_changed,
            close_source=ended.set,
            failed=self.mdk.tell_failure,
        ).start()

    def on_screen_suspend(self) -> None:
        if self._watching is not None:
            self._watching.close()

    def on_unmount(self) -> None:
        for bridge in (self._watching, self._looking):
            if bridge is not None:
                bridge.close()

    # What is known.

    def action_verify(self) -> None:
        """Check all steps again, and no longer show how earlier jobs ended."""
        self._verified = self._now().timestamp()
        self.look_again()
        self._show()

    def look_again(self) -> None:
        """Check all steps at the same time in the background; each is shown as soon as it is known."""
        if self._looking is not None:
            self._looking.close()
        self._looking = Bridge(
            self, self._look, self._found, merge=lambda old, new: old | new, failed=self.mdk.tell_failure
        ).start()

    def _look(self) -> Iterator[dict[str, Standing]]:
        site = self._make_site(self.workspace)
        self._site = site
        calls = [partial(_named, step, site) for step in self._steps.values()]
        for name, standing in in_parallel(calls):
            yield {name: standing}

    def _found(self, standings: dict[str, Standing]) -> None:
        self._standings.update(standings)
        self._show()
        if not self._placed and len(self._standings) == len(self._steps):
            self._placed = True
            done = ("ok", "skipped")
            todo = (name for name in self._steps if self._standings[name].finding.verdict not in done)
            self.query_one(Listing).mark(next(todo, next(iter(self._steps))))

    def _jobs_changed(self, jobs: Mapping[str, JobView]) -> None:
        before, self._jobs = self._jobs, jobs
        # The next steps depend on what a job made. Its end may be the first thing that is seen of it.
        if before is not None and any(_ended(before.get(name), job) for name, job in jobs.items()):
            self.look_again()
        self._show()

    def _phase(self, name: str) -> str:
        job = self.job(name)
        return job.state.phase if job else ""

    def job(self, name: str) -> JobView | None:
        """The newest job of a step, unless it ended before the last check that the user asked for."""
        job = self._jobs.get(name) if self._jobs else None
        old = job is not None and job.state.ended is not None and job.state.ended < self._verified
        return None if old else job

    def jobs(self) -> dict[str, JobView]:
        return {name: job for name in self._steps if (job := self.job(name)) is not None}

    @property
    def marked(self) -> Step:
        return self._steps[self.query_one("#steps", Listing).marked or next(iter(self._steps))]

    def _show(self) -> None:
        signs = glyphs(self.ascii_only)
        self.query_one(Listing).update(
            setup_view.rows(
                list(self._steps.values()),
                self._standings,
                self.jobs(),
                signs,
                ascii_only=self.ascii_only,
            )
        )
        self._show_marked()

    def _show_marked(self) -> None:
        step = self.marked
        standing, job = self._standings.get(step.name), self.job(step.name)
        about, output = self.query_one("#about", TextPane), self.query_one("#output", TextPane)
        if step.name != self._shown:
            self._shown = step.name
            about.back_to_start()
            output.back_to_start()
        words = setup_view.about(step, standing, job, self._now(), ascii_only=self.ascii_only)
        keys = setup_view.keys(standing, job)
        about.update(((step.title, "title"),), words, keys=keys)
        lines = [(setup_view.plain(line, self.ascii_only), "text") for line in job.lines] if job else []
        phase = job.state.phase if job else ""
        # On a low screen the output of a job that ended well takes room from the rest.
        self.set_class(bool(lines) and (phase != "finished" or self.size.height >= ROOMY), "-printed")
        output.update((("what it printed", "title"),), lines, ((phase, "dim"),))
        self.refresh_bindings()

    def on_key(self, event: events.Key) -> None:
        self._placed = True

    def on_listing_marked(self, message: Listing.Marked) -> None:
        message.stop()
        self._show_marked()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._show)


def _ended(before: JobView | None, now: JobView) -> bool:
    if now.state.phase == "running":
        return False
    return before is None or before.state.phase == "running" or before.state.started != now.state.started


def _named(step: Step, site: Site) -> tuple[str, Standing]:
    return step.name, standing_of(step, site)
