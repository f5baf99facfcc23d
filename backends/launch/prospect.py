"""What would be started, for a screen that shows it and asks: the command, what speaks against it, how it is edited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from backends.launch.commands import commands, problems
from backends.launch.editing import editable, edited
from backends.launch.restart import restart_plan, saves_first, start_again
from backends.launch.resume import placed_resumption, resume_problems, start_resumption
from backends.launch.start import start
from backends.models.problem import Problem
from backends.runs.catalog import describe
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.resuming import resumption
from backends.runs.resumption_text import resumption_lines
from backends.settings import read_settings
from backends.workspace import Workspace, shell_command

BY_HAND = "the command, edited by hand"


@dataclass(frozen=True, slots=True)
class Prospect:
    """What would be started. `shell` is the same as a command of mdk-tui, `command` the job's own, word for word.

    `notes`: what the user should know first, such as how the arguments differ. `editable` is the command or batch script
    as text; `edit` turns a changed text into a new prospect (it reads the disk and raises UserError).
    """

    title: str
    shell: str
    command: str
    problems: tuple[Problem, ...]
    start: Callable[[], RunFolder]
    notes: str = ""
    edit: Callable[[str], Prospect] | None = None
    editable: str = ""


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
    """The prospect of starting `plan`. Raises UserError when no launcher can run it.

    `against` finds the problems and `begin` starts the plan, where that differs from a plain launch; both are also used
    for the plan as the user edited it.
    """

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
    """Continue from `given` (a save folder or one checkpoint in it), or branch from `iteration`; `changes` are Megatron
    arguments. Raises UserError when there is no complete checkpoint."""
    found = placed_resumption(resumption(workspace, given, iteration, changes, datetime.now()), workspace)
    branch = () if iteration is None else ("--iteration", str(iteration))
    more = ("--", *changes) if changes else ()
    source = found.source
    return prospect_of(
        workspace,
        found.plan,
        f"{'branch' if source.branch else 'continue'} from iteration {source.iteration}",
        shell_command(workspace, "resume", str(given), *branch, *more),
        against=lambda plan: resume_problems(replace(found, plan=plan), workspace),
        begin=lambda plan: start_resumption(replace(found, plan=plan), workspace),
        notes="\n".join(resumption_lines(found)),
    )


def restart_prospect(workspace: Workspace, folder: RunFolder) -> Prospect:
    """Stop the run, saving first where there is something to lose, and start it again. Raises UserError."""
    saves = saves_first(folder, describe(folder))
    plan = restart_plan(folder, workspace, datetime.now(), saves=saves)
    stop = shell_command(workspace, "stop", folder.name, *(() if saves else ("--now",)))
    continues = plan.load is not None and plan.load == plan.save
    then = shell_command(workspace, "resume", plan.save or "") if continues else f"sh {folder.command}"
    limit = 60 * read_settings(workspace.settings).stop.limit_minutes
    return prospect_of(
        workspace,
        plan,
        "stop and start again",
        f"{stop} && {then}",
        # The checkpoint to load does not exist yet when the stop is to save it.
        against=lambda plan: problems(replace(plan, load=None) if saves else plan, workspace),
        begin=lambda plan: start_again(folder, workspace, plan, saves=saves, limit=limit),
    )
