"""Plans a resume: continue or branch, compare the arguments with the stored ones, and find what forbids it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from backends.errors import UserError
from backends.models.arguments import flatten, int_of, merge_arguments, value_of
from backends.models.problem import Problem
from backends.runs.branching import base_of, pin_of
from backends.runs.catalog import describe
from backends.runs.checkpoint_choice import Source, find_source
from backends.runs.checkpoints import checkpoints, read_tracker
from backends.runs.comparison import compare, needed_flags
from backends.runs.difference import Difference
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.planning import new_save_folder, next_plan, writer_of, writers_of
from backends.runs.processes import this_machine
from backends.runs.stored_values import Stored, read_stored
from backends.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Resumption:
    """A plan that goes on from `source`, and its differences from the stored arguments.

    The plan already has the flags that the differences need. `compared_with` says where the stored arguments were found
    (None: nowhere). `rebuilt`: no run of the workspace wrote the checkpoint, so the plan is made from its contents.
    """

    source: Source
    plan: RunPlan
    differences: tuple[Difference, ...]
    compared_with: str | None
    rebuilt: bool = False

    @property
    def branches(self) -> bool:
        """Whether the checkpoint must be linked into the folder that the plan loads from before the run starts."""
        return self.source.branch


def resumption(
    workspace: Workspace, given: Path | None, iteration: int | None, changes: Sequence[str], now: datetime
) -> Resumption:
    """Continue or branch with the plan of the run that wrote the checkpoint and `changes`. Raises UserError."""
    source = find_source(workspace, given, iteration)
    target = new_save_folder(base_of(source.save), now) if source.branch else source.save
    if not source.branch:
        check_idle(workspace, source.save)
    plan = next_plan(workspace, source.save, source.iteration, target, changes)
    return dataclasses.replace(_compared(workspace, source, plan), rebuilt=plan.parent is None)


def loading(workspace: Workspace, plan: RunPlan, given: Path) -> Resumption:
    """A new run, `plan`, that loads a checkpoint and saves to a dated folder of its own. Raises UserError."""
    source = find_source(workspace, given, None)
    load = plan.save if source.branch else str(source.save)
    if source.branch and plan.begins_anew:
        # It will reach that iteration again, and must not save through a branch's link.
        load = str(pin_of(workspace, source.save, source.iteration))
    writer = writer_of(workspace, source.save)
    return _compared(
        workspace, source, dataclasses.replace(plan, load=load, parent=writer.name if writer else None)
    )


def _compared(workspace: Workspace, source: Source, plan: RunPlan) -> Resumption:
    stored = read_stored(source.checkpoint, writer_of(workspace, source.save))
    if stored is None:
        return Resumption(source, plan, (), None)
    differences = compare(stored, plan)
    arguments = merge_arguments(plan.arguments, flatten(needed_flags(differences).items()))
    return Resumption(source, dataclasses.replace(plan, arguments=arguments), differences, stored.source)


def check_idle(workspace: Workspace, save: Path, besides: RunFolder | None = None) -> None:
    """Raises UserError if a run other than `besides` saves into `save`: they would overwrite each other's checkpoints."""
    for folder in writers_of(workspace, save):
        if folder == besides:
            continue
        info, state = describe(folder), folder.state()
        if info.over and state is not None and not state.over and state.machine.host != this_machine().host:
            raise UserError(
                f"{info.run} saves into {save}; {info.host}, where it runs, is silent, but its job may live on.",
                f"On that host: mdk-tui status {info.run}. If it is gone, branch: mdk-tui resume {save} --iteration N",
            )
        if not info.over:
            raise UserError(
                f"{info.run} {'still runs' if info.phase == 'running' else f'is still {info.phase}'} and saves into {save}.",
                f"Stop it first: mdk-tui stop {info.run}",
            )


def load_problems(plan: RunPlan, workspace: Workspace, source: Source | None = None) -> list[Problem]:
    """What forbids loading `source` (None: the checkpoint that the tracker of `plan.load` names).

    `RunPlan.check` refuses a folder without a valid tracker, so here that is no problem.
    """
    if plan.kind != "train" or plan.load is None:
        return []
    if source is None:
        save = Path(plan.load)
        iteration = read_tracker(save).iteration
        if iteration is None:
            return []
        source = Source(save, iteration, False)
    stored = read_stored(source.checkpoint, writer_of(workspace, source.save))
    differences = compare(stored, plan) if stored else ()
    found = [problem for difference in differences if (problem := difference.as_problem())]
    return [*found, *_overwriting(plan, source, stored), *_in_the_way(plan, source)]


def _overwriting(plan: RunPlan, source: Source, stored: Stored | None) -> Iterator[Problem]:
    """A run that saves where it loads must not save an iteration that is there: a branch would write through its link."""
    in_place = plan.load == plan.save
    if plan.begins_anew:
        if in_place:
            message = (
                "--finetune starts again at iteration 0 and would write over the checkpoints that are there."
            )
            remedy = f"Start a new run: mdk-tui launch --load {source.checkpoint} -- --finetune"
            yield Problem("error", "--finetune", message, remedy, {"--finetune": None})
        return
    done, wanted, flag = source.iteration, plan.train_iters, "--train-iters"
    if wanted is None and stored is not None:
        flag = "--train-samples"
        done, wanted = stored.values.get("consumed_train_samples"), int_of(plan.arguments, flag)
    skips = value_of(plan.arguments, "--skip-train") is not None
    if wanted and isinstance(done, int) and done >= wanted and not skips:
        message = f"The checkpoint is already at {'iteration' if flag == '--train-iters' else 'sample'} {done} of {wanted}."
        remedy = f"Train longer: {flag} {2 * done}."
        yield Problem("error" if in_place else "warning", flag, message, remedy)


def _in_the_way(plan: RunPlan, source: Source) -> Iterator[Problem]:
    """core_r0.8.0 refuses to save a distributed checkpoint into a folder that a crashed save has left behind."""
    in_place = plan.load == plan.save == str(source.save)
    if not in_place or value_of(plan.arguments, "--use-dist-ckpt") is None:
        return
    begins = source.iteration
    for found in checkpoints(source.save):
        newer = isinstance(found.iteration, int) and isinstance(begins, int) and found.iteration > begins
        if newer and found.size:  # core_r0.8.0 saves into an empty folder
            message = f"{found.path} is newer than what the tracker names: core_r0.8.0 stops with an error when it saves there."
            remedy = f"Move it away: mv {found.path} {found.path}.old"
            if found.complete:
                remedy = f"It is complete. Go on from it: mdk-tui resume {found.path}"
            yield Problem("error", "load", message, remedy)
