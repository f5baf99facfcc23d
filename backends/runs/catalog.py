"""All runs of a workspace, newest first, each with its present state."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backends.errors import UserError
from backends.files import existing, read_json
from backends.runs.folder import DATE, NAME, TIME, RunFolder
from backends.runs.judgement import Ending, Observation, ending, observe
from backends.runs.plan import Kind, RunPlan
from backends.runs.processes import is_alive, job_processes, this_machine
from backends.runs.signs import read_signs
from backends.runs.state import Phase, RunState
from backends.text import clean_line
from backends.workspace import Workspace

STARTING_LIMIT = 60.0  # s; a folder without state.json counts as starting, and after that as lost
JSON_KEYS = ("run", "kind", "phase", "pid", "host", "started", "ended", "exit_code", "iteration", "train_iters",
             "address", "path", "title", "save", "load", "signal", "reason", "stopping", "note", "slurm_job",
             "again")  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run as a list shows it. `pid` is the job's, times are ISO, None means not known (yet).

    `reason` says why it ended, `stopping` how far a stop has come, `note` what the reader should know, `again` what
    happens to its automatic resume (`again_due`: it is still to come).
    """

    run: str
    path: Path
    kind: Kind | None
    phase: Phase
    title: str
    pid: int | None
    host: str | None
    started: str | None
    ended: str | None
    exit_code: int | None
    signal: int | None
    iteration: int | None
    train_iters: int | None
    address: str | None
    save: str | None
    load: str | None
    reason: str | None
    stopping: str | None
    note: str | None
    orphaned: bool
    slurm_job: str | None = None
    again: str | None = None
    again_due: bool = False

    @property
    def over(self) -> bool:
        return self.phase in ("finished", "failed", "lost")

    def as_json(self) -> dict[str, Any]:
        value = asdict(self)
        return {key: str(value[key]) if key == "path" else value[key] for key in JSON_KEYS}


def run_folders(workspace: Workspace) -> Iterator[RunFolder]:
    """Newest first. Skips folders whose names are not DATE/TIME."""
    for date in _children(workspace.runs, DATE.fullmatch):
        for path in _children(date, TIME.fullmatch):
            yield RunFolder(path)


def trained(workspace: Workspace) -> Iterator[tuple[RunFolder, Path]]:
    """The training runs, newest first, and where each saves. Skips a run whose plan cannot be read."""
    for folder in run_folders(workspace):
        try:
            plan = folder.plan()
        except UserError:
            continue
        if plan.kind == "train" and plan.save:
            yield folder, Path(plan.save)


def runs(workspace: Workspace) -> list[RunInfo]:
    """All runs of a workspace, newest first."""
    return [describe(folder) for folder in run_folders(workspace)]


def describe(folder: RunFolder) -> RunInfo:
    """The present state of a run. Never fails: `note` names what is damaged."""
    plan, note = _plan(folder)
    state = folder.state()
    if state is None:
        state, observation = RunState(), _without_state(folder)
    else:
        observation = observation_of(folder, state)
    kind = plan.kind if plan else None
    again = state.again if state.again and (observation.orphaned or _expected(state)) else None
    return RunInfo(
        run=folder.name,
        path=folder.path,
        kind=kind,
        phase=observation.phase,
        title=clean_line((plan.title or plan.preset or plan.trainer) if plan else "", 100),
        pid=state.job.pid if state.job else None,
        host=_clean(state.machine.host),
        started=_clean(state.started),
        ended=_clean(state.ended),
        exit_code=state.exit_code,
        signal=state.signal,
        iteration=state.iteration,
        train_iters=state.train_iters or (plan.train_iters if plan else None),
        address=state.address if observation.phase in ("running", "stopping") else None,
        save=_clean(plan.save if plan else None),
        load=_clean(plan.load if plan else None),
        reason=_clean(state.reason),
        stopping=None if state.over else _clean(state.stopping),
        note=note or observation.note or (None if state.over else _note(folder, state)),
        orphaned=observation.orphaned,
        slurm_job=folder.batch_job(),
        again=_clean(state.again.words() if state.again else None),
        again_due=again is not None and again.due,
    )


def _expected(state: RunState) -> bool:
    here = state.machine.host == this_machine().host
    return state.again is not None and (here or state.again.expected(time.time()))


def _note(folder: RunFolder, state: RunState) -> str | None:
    """The note of the supervisor, or of the check of the nodes."""
    return _clean(state.note or nodes_note(folder))


def _clean(words: str | None) -> str | None:
    return clean_line(words) if words else None


def nodes_note(folder: RunFolder) -> str | None:
    """What the check of the nodes found while the run makes no progress; None if all is well."""
    words = (read_json(folder.nodes_file) or {}).get("note")
    return words if isinstance(words, str) and words else None


def observation_of(folder: RunFolder, state: RunState) -> Observation:
    """What `state` of the run in `folder` means now, from its files and the processes of this machine."""

    def end() -> Ending:
        plan, _ = _plan(folder)
        signs = read_signs(folder.log, state.signs)
        return ending(plan.kind if plan else "train", folder.job_exit(), signs, stopped=state.stopping)

    batch = folder.batch_file.exists()
    return observe(
        state,
        this_machine(),
        time.time(),
        alive=is_alive,
        job_lives=lambda state: (
            is_alive(state.job)
            or bool(job_processes(state.leader, state.mark))
            or (batch and not folder.job_exit())
        ),
        anywhere=batch,
        end=end,
    )


def find_run(workspace: Workspace, name: str | None, *, training: bool = False) -> RunFolder:
    """The run `name` (DATE/TIME or a path). None means the newest running one, else the newest. Raises UserError.

    `training`: without a name, text servers are skipped if there is any other run.
    """
    if name is None:
        return _newest(workspace, training)
    if NAME.fullmatch(name):
        folder = RunFolder(workspace.runs / name)
        if folder.path.is_dir():
            return folder
    elif (path := existing(name)) is not None and path.is_dir():
        folder = RunFolder(path.resolve())
        if folder.plan_file.exists() or folder.state_file.exists():
            return folder
        raise UserError(
            f"{clean_line(name, 200)} is no run folder: it holds no plan.json.",
            "See `mdk-tui runs`.",
            status=2,
        )
    known = [folder.name for folder in run_folders(workspace)]
    near = difflib.get_close_matches(name[:100], known, n=3, cutoff=0.5) or known[:3]
    remedy = (
        f"Nearest: {', '.join(near)}."
        if near
        else "There are no runs yet: `mdk-tui demo` or `mdk-tui launch`."
    )
    raise UserError(f"There is no run {clean_line(name, 200)!r} in {workspace.runs}.", remedy, status=2)


def find_log(
    workspace: Workspace, name: str | None, *, training: bool = False
) -> tuple[Path, RunFolder | None]:
    """(the log at the path `name`, None), else (the log of the run that `find_run` finds, that run). Raises UserError."""
    if name is not None and (path := existing(name)) is not None and not path.is_dir():
        return path, None
    try:
        run = find_run(workspace, name, training=training)
    except UserError as error:
        raise (
            error
            if name is None
            else UserError(f"{error.message} Nor is it a log.", error.remedy, status=error.status)
        ) from None
    return run.log, run


def _newest(workspace: Workspace, training: bool) -> RunFolder:
    folders = list(run_folders(workspace))
    if not folders:
        raise UserError(
            f"There are no runs in {workspace.runs} yet.",
            "Start one: `mdk-tui demo` or `mdk-tui launch`. Another workspace: -w DIR.",
            status=2,
        )
    if training:
        folders = [folder for folder in folders if not _serves(folder)] or folders
    live = (folder for folder in folders if _may_run(folder) and not describe(folder).over)
    return next(live, folders[0])


def _serves(folder: RunFolder) -> bool:
    plan, _ = _plan(folder)
    return plan is not None and plan.kind == "serve"


def _may_run(folder: RunFolder) -> bool:
    state = folder.state()
    return state is None or not state.over


def _without_state(folder: RunFolder) -> Observation:
    if folder.state_file.exists():
        return Observation("lost", note="state.json is damaged.")
    try:
        age = time.time() - folder.path.stat().st_mtime
    except OSError:
        return Observation("lost", note="The run folder cannot be read.")
    return (
        Observation("starting") if age < STARTING_LIMIT else Observation("lost", note="It was never started.")
    )


def _plan(folder: RunFolder) -> tuple[RunPlan | None, str | None]:
    try:
        return folder.plan(), None
    except UserError as error:
        return None, clean_line(error.message)


def _children(folder: Path, accept: Any) -> list[Path]:
    try:
        return sorted((p for p in folder.iterdir() if accept(p.name) and p.is_dir()), reverse=True)
    except OSError:
        return []
