"""Which MLflow run a run belongs to, and what it tells MLflow. All attempts that save into one folder share one MLflow run."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from backends.errors import UserError
from backends.megatron.events import IterationBatch
from backends.megatron.parser import Parser
from backends.megatron.segment import seconds_of
from backends.runs.folder import NAME, RunFolder
from backends.runs.plan import RunPlan
from backends.runs.state import RunState
from backends.tracking.points import allowed_name
from backends.tracking.store import Wanted
from backends.workspace import Workspace

LONGEST_VALUE = 500  # characters of a parameter, MLflow's limit since 1.28
HEAD = 512  # bytes at the start of a log that distinguish it from an earlier log at the same path


@dataclass(frozen=True, slots=True)
class Subject:
    """What is tracked: a run or a log, with its files, tags and parameters."""

    wanted: Wanted
    name: str  # name of this attempt, part of the tags that record how far its files were sent
    log: Path
    telemetry: Path | None = None
    files: tuple[Path, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


def subject_of_run(folder: RunFolder, workspace: Workspace, run_id: str | None = None) -> Subject:
    """Raises UserError for a run that does not train, or that has no plan."""
    plan = folder.plan()
    if plan.kind != "train":
        raise UserError(
            f"{folder.name} is a text server and has no numbers to track.", "Name a run that trains."
        )
    state = folder.state()
    began = _seconds(state.started) if state and state.started else folder.plan_file.stat().st_mtime
    return Subject(
        wanted_of_run(plan, folder, workspace, began, run_id),
        folder.name,
        folder.log,
        folder.telemetry,
        (folder.plan_file, folder.command),
        _tags(plan, folder, state),
        _parameters(plan),
    )


def wanted_of_run(
    plan: RunPlan, folder: RunFolder, workspace: Workspace, began: float, run_id: str | None = None
) -> Wanted:
    """The MLflow run of all attempts that save where `plan` does, named after that folder. `began`: s since the epoch."""
    parent = _parent_save(plan, workspace)
    lineage = _lineage(plan.save or str(folder.path))
    name = _dated(plan.save) or folder.name
    return Wanted(lineage, name, began, _lineage(parent) if parent else None, run_id)


def subject_of_log(log: Path) -> Subject:
    """A log that is not part of a run. Raises OSError."""
    log = log.resolve()
    with log.open("rb") as file:
        head = file.read(2**20)
    digest = hashlib.sha256(head[:HEAD]).hexdigest()[:16]
    name = f"{log.parent.name}/{log.name}"
    wanted = Wanted(_lineage(f"{log} {digest}"), name, _first_time(head) or log.stat().st_mtime)
    return Subject(wanted, allowed_name(log.name), log, tags={"mdk.log": str(log)})


def cut(values: Mapping[str, str]) -> dict[str, str]:
    """`values` within MLflow's limits: allowed names, and 500 characters, where training_mlflow.patch cuts them, too."""
    return {allowed_name(name): value[:LONGEST_VALUE] for name, value in values.items()}


def _lineage(text: str) -> str:
    """The value of the tag that identifies a lineage; it needs no quoting in a filter."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]


def _dated(save: str | None) -> str | None:
    """DATE/TIME of a save folder with such a name."""
    name = "/".join(Path(save).parts[-2:]) if save else ""
    return name if NAME.fullmatch(name) else None


def _parent_save(plan: RunPlan, workspace: Workspace) -> str | None:
    """The save folder of the run that this one branched off from; None if it continues a run or is new."""
    if plan.parent is None or not NAME.fullmatch(plan.parent):
        return None
    try:
        parent = RunFolder(workspace.runs / plan.parent).plan()
    except UserError:
        return None
    return parent.save if parent.save and parent.save != plan.save else None


def _tags(plan: RunPlan, folder: RunFolder, state: RunState | None) -> dict[str, str]:
    found = {
        "mdk.run": str(folder.path),
        "mdk.preset": plan.preset,
        "mdk.trainer": plan.trainer,
        "mdk.launcher": plan.launcher,
        "mdk.image": plan.image,
        "mdk.hosts": ", ".join(plan.hosts) or (state.machine.host if state else None),
        "mdk.patches": ", ".join(plan.patches),
        "mdk.version": plan.versions.get("mdk-tui"),
        "mlflow.source.git.commit": plan.commit,
    }
    return {name: value for name, value in found.items() if value}


def _parameters(plan: RunPlan) -> dict[str, str]:
    """What the plan says beyond the arguments in the log."""
    found = {
        "plan.arguments": shlex.join(plan.arguments),
        "plan.processes": str(plan.processes),
        "plan.data": plan.data,
        "plan.load": plan.load,
        "plan.save": plan.save,
        **{f"plan.layout.{name}": str(size) for name, size in plan.layout.items()},
    }
    return {name: value for name, value in found.items() if value}


def _seconds(stamp: str) -> float:
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _first_time(head: bytes) -> float | None:
    """s since the epoch: the first time stamp of an iteration line in the first bytes of a log."""
    for event in Parser().feed(head):
        if isinstance(event, IterationBatch) and (stamp := event.times[0]):
            return seconds_of(stamp)
    return None
