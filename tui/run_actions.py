"""What is done with runs from any screen: resume, serve, start the demo, stop. The command is shown before it runs.

Plans are made and jobs started in threads; what was started is opened in the monitor; a refusal is shown in words.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tui.background import in_background

if TYPE_CHECKING:
    from backends.runs.catalog import RunInfo
    from backends.runs.folder import RunFolder
    from backends.runs.plan import Problem, RunPlan
    from backends.workspace import Workspace
    from tui.app import MdkApp
    from tui.screens.stop import StopChoice, StopProspect


BY_HAND = "the command, edited by hand"


@dataclass(frozen=True, slots=True)
class Prospect:
    """What would be started. `shell` is the same as a command of mdk-tui, `command` the job's own, word for word.

    `edit` makes the prospect of a command that was changed by hand; it raises UserError, and reads the disk.
    """

    title: str
    shell: str
    command: str
    problems: tuple[Problem, ...]
    start: Callable[[], RunFolder]
    notes: str = ""  # what is to be known before: where it goes on from, what differs
    edit: Callable[[str], Prospect] | None = None
    editable: str = ""  # the command, or the batch script, as it is edited


def shell_command(workspace: Workspace, *words: str) -> str:
    return shlex.join(["mdk-tui", "-w", str(workspace.root), *words])


def prospect_of(
    workspace: Workspace,
    plan: RunPlan,
    title: str,
    shell: str,
    *,
    against: Callable[[RunPlan], Sequence[Problem]] | None = None,
    begin: Callable[[RunPlan], RunFolder] | None = None,
    notes: str = "",
) -> Prospect:
    """What starting `plan` would be, by `begin`; `against` says what speaks against it. Edited by hand, it is the same for
    the plan that was edited. Raises UserError when no launcher can run `plan`."""
    from backends.launch.commands import commands, problems
    from backends.launch.editing import editable, edited
    from backends.launch.start import start

    def by_hand(text: str) -> Prospect:
        new = edited(plan, workspace, text)
        return prospect_of(workspace, new, title, BY_HAND, against=against, begin=begin, notes=notes)

    command = commands(plan, workspace)
    return Prospect(
        title,
        shell,
        command.shell(),
        tuple(against(plan) if against else problems(plan, workspace)),
        lambda: begin(plan) if begin else start(plan, workspace),
        notes,
        by_hand,
        editable(command),
    )


def resume_prospect(
    workspace: Workspace, given: Path, iteration: int | None = None, changes: Sequence[str] = ()
) -> Prospect:
    """Going on from `given`, a save folder or one checkpoint of it, or from `iteration` in a branch, with changed Megatron
    arguments. Raises UserError when there is nothing whole."""
    from datetime import datetime

    from backends.launch.resume import placed_resumption, resume_problems, start_resumption
    from backends.runs.resuming import resumption
    from tui.commands.resume_text import REBUILT, difference_lines

    found = placed_resumption(resumption(workspace, given, iteration, changes, datetime.now()), workspace)
    branch = () if iteration is None else ("--iteration", str(iteration))
    more = ("--", *changes) if changes else ()
    source = found.source
    what = "branch" if source.branch else "continue"
    return prospect_of(
        workspace,
        found.plan,
        f"{what} from iteration {source.iteration}",
        shell_command(workspace, "resume", str(given), *branch, *more),
        against=lambda plan: resume_problems(replace(found, plan=plan), workspace),
        begin=lambda plan: start_resumption(replace(found, plan=plan), workspace),
        notes="\n".join(
            [
                *([source.why] if source.why else []),
                *([REBUILT] if found.rebuilt else []),
                *difference_lines(found),
            ]
        ),
    )


def serve_prospect(workspace: Workspace, save: Path, iteration: int | None = None) -> Prospect:
    """A text server on checkpoint `iteration` of `save`, else on its newest. Raises UserError when there is none."""
    from backends.inference.serving import serve_plan
    from backends.launch.ports import with_master_port
    from backends.runs.planning import free_port

    plan = with_master_port(serve_plan(workspace, save, port=free_port(), iteration=iteration), workspace)
    step = () if iteration is None else ("--iteration", str(iteration))
    return prospect_of(workspace, plan, "serve", shell_command(workspace, "serve", str(save), *step))


def again_prospect(workspace: Workspace, folder: RunFolder) -> Prospect:
    """The run stopped, its checkpoint saved where there is something to lose, and started again. Raises UserError."""
    from datetime import datetime

    from backends.launch.again import again_plan, saves_first, start_again
    from backends.launch.commands import problems
    from backends.runs.catalog import describe
    from backends.settings import read_settings

    saves = saves_first(folder, describe(folder))
    plan = again_plan(folder, workspace, datetime.now(), saves=saves)
    stop_words = shell_command(workspace, "stop", folder.name, *(() if saves else ("--now",)))
    goes_on = plan.load is not None and plan.load == plan.save
    then = shell_command(workspace, "resume", plan.save or "") if goes_on else f"sh {folder.command}"
    limit = 60 * read_settings(workspace.settings).stop.limit_minutes
    return prospect_of(
        workspace,
        plan,
        "stop and start again",
        f"{stop_words} && {then}",
        # What it will load is not there yet when its stop is to save it.
        against=lambda plan: problems(replace(plan, load=None) if saves else plan, workspace),
        begin=lambda plan: start_again(folder, workspace, plan, saves=saves, limit=limit),
    )


def ask_again(app: MdkApp, info: RunInfo) -> None:
    """Show what stopping and starting again would do; do it when it is wanted."""
    from backends.runs.folder import RunFolder

    folder = RunFolder(info.path)
    propose(app, lambda: again_prospect(app.workspace, folder))


def demo_prospect(workspace: Workspace) -> Prospect:
    """The training of the preset tiny, with a text server that answers from its first checkpoint on."""
    from datetime import datetime

    from backends.inference.trained_and_served import start_both, tiny_plan

    return prospect_of(
        workspace,
        tiny_plan(workspace.checkpoints, datetime.now()),
        "demo",
        shell_command(workspace, "demo"),
        begin=lambda plan: start_both(workspace, plan),
    )


def propose(
    app: MdkApp, make: Callable[[], Prospect], *, then: Callable[[RunFolder], None] | None = None
) -> None:
    """Work out what would be started, show it, and start it when it is wanted. `then`: instead of opening the monitor."""

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
    """Show what stopping would do; do it when it is wanted."""
    from backends.runs.folder import RunFolder
    from tui.screens.stop import StopScreen

    folder = RunFolder(info.path)

    def show(prospect: StopProspect) -> None:
        app.push_screen(StopScreen(prospect), lambda how: stop(app, folder, how, 60 * prospect.limit_minutes))

    in_background(app, lambda: stop_prospect(app.workspace, folder, info), show, app.tell_failure)


def call_off(app: MdkApp, info: RunInfo) -> None:
    """Have a run that crashed not resumed by itself: that harms nothing and can be made good by hand."""
    from backends.launch.ending import stop_run
    from backends.runs.folder import RunFolder

    def called_off() -> RunInfo:
        *_, last = stop_run(RunFolder(info.path), app.workspace)
        return last

    in_background(app, called_off, lambda last: app.tell(f"{last.run}: {last.again or ''}"), app.tell_failure)


def stop_prospect(workspace: Workspace, folder: RunFolder, info: RunInfo) -> StopProspect:
    """Raises UserError when the plan or the settings cannot be read."""
    from backends.runs.checkpoints import read_tracker
    from backends.runs.judgement import hanging, withheld
    from backends.runs.signs import Signs
    from backends.settings import read_settings
    from tui.screens.stop import StopProspect

    state = folder.state()
    signs, plan = state.signs if state else Signs(), folder.plan()
    settings = read_settings(workspace.settings)
    return StopProspect(
        folder.name,
        info.kind or "train",
        info.save,
        info.iteration,
        settings.stop.limit_minutes,
        withheld(plan, signs),
        hangs=hanging(signs, _quiet(folder.log)),
        saved=read_tracker(Path(plan.save)).iteration if plan.save else None,
        resumes=settings.resume.automatic > 0,
    )


def _quiet(log: Path) -> float:
    """s since it last grew; 0 where that is not known."""
    try:
        return time.time() - log.stat().st_mtime
    except OSError:
        return 0.0


def stop(app: MdkApp, folder: RunFolder, how: StopChoice | None, limit: float) -> None:
    """Ask for it in a thread and say how it ended; the list of runs shows its progress meanwhile."""
    from backends.launch.ending import stop_run

    if how is None:
        return

    def ending() -> RunInfo:
        *_, last = stop_run(folder, app.workspace, now=how == "now", hung=how == "hung", limit=limit)
        return last

    def ended(info: RunInfo) -> None:
        app.tell(" ".join(filter(None, (f"{info.run}: {info.phase}.", info.reason, info.again))))

    app.tell(f"{folder.name} is asked to {'save and end' if how == 'save' else 'end now'}.")
    in_background(app, ending, ended, app.tell_failure)
