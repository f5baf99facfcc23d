"""What any screen does with a run: resume, serve, start again, start the demo, stop. Each is shown before it happens.

This module is part of the first paint, so what an action needs is imported by the action: the backends of a launch, which
take most of a second, in its thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tui.background import in_background

if TYPE_CHECKING:
    from backends.launch.prospect import Prospect
    from backends.launch.stop_prospect import StopProspect
    from backends.runs.catalog import RunInfo
    from backends.runs.folder import RunFolder
    from tui.app import MdkApp
    from tui.screens.stop import StopChoice

Then: TypeAlias = "Callable[[RunFolder], None]"


def resume(app: MdkApp, given: Path, iteration: int | None = None, changes: Sequence[str] = ()) -> None:
    """Continue from `given`, a save folder or one checkpoint; from `iteration` of it: in a branch."""

    def make() -> Prospect:
        from backends.launch.prospect import resume_prospect

        return resume_prospect(app.workspace, given, iteration, changes)

    propose(app, make)


def serve(app: MdkApp, save: Path, iteration: int | None = None, *, then: Then) -> None:
    """Start a text server on the newest checkpoint of `save`, or on `iteration`."""

    def make() -> Prospect:
        from backends.inference.serving import serve_prospect

        return serve_prospect(app.workspace, save, iteration)

    propose(app, make, then=then)


def start_again(app: MdkApp, info: RunInfo) -> None:
    """Stop a run and start it again."""

    def make() -> Prospect:
        from backends.launch.prospect import restart_prospect
        from backends.runs.folder import RunFolder

        return restart_prospect(app.workspace, RunFolder(info.path))

    propose(app, make)


def demo(app: MdkApp) -> None:
    """Train the preset tiny and serve it."""

    def make() -> Prospect:
        from backends.inference.trained_and_served import demo_prospect

        return demo_prospect(app.workspace)

    propose(app, make)


def propose(app: MdkApp, make: Callable[[], Prospect], *, then: Then | None = None) -> None:
    """Work out in a thread what would be started, show it, and start it if the user agrees.

    `then` gets the run that was started; the default opens the monitor on it.
    """

    def show(prospect: Prospect) -> None:
        from tui.screens.confirm import Confirm

        question = Confirm(prospect)

        def answered(wanted: bool | None) -> None:
            if wanted:
                app.tell(f"Starting: {prospect.title}")
                in_background(app, question.prospect.start, then or app.open_run, app.tell_failure)

        app.push_screen(question, answered)

    in_background(app, make, show, app.tell_failure)


def ask_stop(app: MdkApp, info: RunInfo) -> None:
    """Show what stopping would do, and stop the run as the user chooses."""
    from backends.runs.folder import RunFolder
    from tui.screens.stop import StopScreen

    folder = RunFolder(info.path)

    def make() -> StopProspect:
        from backends.launch.stop_prospect import stop_prospect

        return stop_prospect(app.workspace, folder, info)

    def show(prospect: StopProspect) -> None:
        def answered(how: StopChoice | None) -> None:
            if how is not None:
                stop(app, folder, how, 60 * prospect.limit_minutes)

        app.push_screen(StopScreen(prospect), answered)

    in_background(app, make, show, app.tell_failure)


def stop(app: MdkApp, folder: RunFolder, how: StopChoice, limit: float) -> None:
    """Stop the run in a thread and say how it ended. `limit`: seconds for it to save and exit."""

    def ending() -> RunInfo:
        from backends.launch.stop import stop_run

        *_, last = stop_run(folder, app.workspace, now=how == "now", hung=how == "hung", limit=limit)
        return last

    def ended(info: RunInfo) -> None:
        app.tell(" ".join(filter(None, (f"{info.run}: {info.phase}.", info.reason, info.again))))

    app.tell(f"{folder.name} is asked to {'save and end' if how == 'save' else 'end now'}.")
    in_background(app, ending, ended, app.tell_failure)


def call_off(app: MdkApp, info: RunInfo) -> None:
    """Call off the automatic resume of a run that crashed. It needs no question: the run can be resumed by hand."""

    def called_off() -> RunInfo:
        from backends.launch.stop import stop_run
        from backends.runs.folder import RunFolder

        *_, last = stop_run(RunFolder(info.path), app.workspace)
        return last

    in_background(app, called_off, lambda last: app.tell(f"{last.run}: {last.again or ''}"), app.tell_failure)
