"""Going on from a checkpoint: which one is meant, with which arguments, and what differs from those stored in it."""

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
    """A plan that goes on from `source`, and what differs from the arguments stored there (`compared_with` says where).

    The flags that differences need are in the plan already. `compared_with` None: no stored arguments were found.
    `rebuilt`: the plan is made of what stands inside the checkpoint, since no run of the workspace wrote it.
    """

    source: Source
    plan: RunPlan
    differences: tuple[Difference, ...]
    compared_with: str | None
    rebuilt: bool = False

    @property
    def branches(self) -> bool:
        """Whether the checkpoint has to be linked into the folder that the plan loads from before it starts."""
        return self.source.branch


def resumption(
    workspace: Workspace, given: Path | None, iteration: int | None, changes: Sequence[str], now: datetime
) -> Resumption:
    """Go on with what the run that wrote the checkpoint did, with `changes`. Raises UserError."""
    source = find_source(workspace, given, iteration)
    target = new_save_folder(base_of(source.save), now) if source.branch else source.save
    if not source.branch:
        check_idle(workspace, source.save)
    plan = next_plan(workspace, source.save, source.iteration, target, changes)
    return dataclasses.replace(_compared(workspace, source, plan), rebuilt=plan.parent is None)


def loading(workspace: Workspace, plan: RunPlan, given: Path) -> Resumption:
    """A new run (`plan`, which saves to a dated folder of its own) that begins with a checkpoint. Raises UserError."""
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
    """Two runs that save into one folder overwrite each other's checkpoints. `besides`: who asks. Raises UserError."""
    for folder in writers_of(workspace, save):
        if folder == besides:
            continue
        info, state = describe(folder), folder.state()
        if info.over and state is not None and not state.over and state.machine.host != this_machine().host:
            raise UserError(
                f"{info.run} saves into {save}; {info.host}, where it runs, is silent, but its job may live on.",
                f"Look there: mdk-tui status {info.run}. If that machine is gone, branch: mdk-tui resume {save} --iteration N",
            )
        if not info.over:
            raise UserError(
                f"{info.run} still {info.phase if info.phase != 'running' else 'runs'} and saves into {save}.",
                f"Stop it first: mdk-tui stop {info.run}",
            )


def load_problems(plan: RunPlan, workspace: Workspace, source: Source | None = None) -> list[Problem]:
    """What speaks against loading `source` (None: what the tracker of the folder names that `plan` loads from).

    A folder without a valid tracker is `RunPlan.check`'s to refuse; here it has no problem.
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
    """A run that saves where it loads must get beyond what is there: a branch would write through its link."""
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
    """core_r0.8.0 saves a distributed checkpoint only into an empty folder: a crashed save's left-over ends the next."""
    in_place = plan.load == plan.save == str(source.save)
    if not in_place or value_of(plan.arguments, "--use-dist-ckpt") is None:
        return
    begins = source.iteration
    for found in checkpoints(source.save):
        if isinstance(found.iteration, int) and isinstance(begins, int) and found.iteration > begins:
            message = f"{found.path} is newer than what the tracker names: core_r0.8.0 ends when it is to save there."
            remedy = f"Move it away: mv {found.path} {found.path}.old"
            if found.complete:
                remedy = f"It is complete. Go on from it: mdk-tui resume {found.path}"
            yield Problem("error", "load", message, remedy)
