"""Starts a run in such a way that it outlives the process that starts it."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from backends.errors import UserError
from backends.files import write_json
from backends.launch.commands import commands, problems, write_command
from backends.runs.folder import NAME, RunFolder, claim_dated_folder, create_run_folder, moment_of
from backends.runs.megatron_commit import applied_patches, git_commit
from backends.runs.plan import RunPlan
from backends.runs.ports import promise_server_port, with_master_port
from backends.runs.processes import MARK
from backends.runs.resuming import check_idle
from backends.tracking.handover import with_mlflow_run
from backends.tracking.place import said_of
from backends.workspace import Workspace

SUPERVISOR = (sys.executable, "-m", "backends.launch.supervisor")
READY_LIMIT = 180.0  # s for a supervisor to start its job, or for a busy Slurm to take it


def start(
    plan: RunPlan,
    workspace: Workspace,
    *,
    environment: Mapping[str, str] | None = None,
    now: datetime | None = None,
    program: Sequence[str] = SUPERVISOR,
) -> RunFolder:
    """Start `plan` under a supervisor of its own and return when its job runs. Raises UserError, with nothing left running.

    `environment`: the job's, before the plan adds to it (default: that of this process).
    """
    if errors := [problem for problem in problems(plan, workspace) if problem.severity == "error"]:
        raise UserError(errors[0].message, errors[0].remedy)
    environment = dict(os.environ if environment is None else environment)
    folder = create_run_folder(workspace.runs, now or datetime.now())
    try:
        owned = _own_save_folder(with_master_port(plan, workspace, run=folder.path))
        promise_server_port(owned, folder.path)
        owned = with_mlflow_run(owned, folder, workspace, {**environment, **said_of(owned.environment)})
        write_json(folder.plan_file, _with_versions(owned, workspace).as_json())
        write_command(folder.command, commands(owned, workspace), f"mdk-tui run {folder.name}")
        if owned.kind == "train" and owned.save is not None:
            # After plan.json was written: of two starts at the same time, one sees the other.
            check_idle(workspace, Path(owned.save), besides=folder)
    except OSError as error:
        _discard(folder)
        raise UserError(
            f"{folder.path} cannot be written: {error.strerror}.",
            "Make room on the disk, or choose another -w DIR.",
        ) from None
    except UserError:
        _discard(folder)
        raise
    start_supervisor(folder, workspace, environment, program)
    return folder


def _with_versions(plan: RunPlan, workspace: Workspace) -> RunPlan:
    """`plan` with the versions, the git commit and the patches that are on the disk now."""
    plan = dataclasses.replace(plan, versions=_versions())
    if plan.trainer == "demo":
        return plan
    clone = workspace.megatron
    return dataclasses.replace(plan, commit=git_commit(clone), patches=applied_patches(clone))


def _own_save_folder(plan: RunPlan) -> RunPlan:
    """Make the dated save folder of a new training run. If another run has taken the second, use the next. Raises UserError."""
    if plan.kind != "train" or plan.save is None or plan.load == plan.save:
        return plan
    save = Path(plan.save)
    name = f"{save.parent.name}/{save.name}"
    if NAME.fullmatch(name):
        own = str(claim_dated_folder(save.parents[1], moment_of(name)))
        return dataclasses.replace(plan.moved(str(save), own), save=own)
    try:
        save.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{save} cannot be made: {error.strerror}.", "Choose another --save BASE.") from None
    return plan


def _discard(folder: RunFolder) -> None:
    """Remove a run folder in which nothing was started."""
    shutil.rmtree(folder.path, ignore_errors=True)


def start_supervisor(
    folder: RunFolder,
    workspace: Workspace,
    environment: Mapping[str, str],
    program: Sequence[str] = SUPERVISOR,
) -> None:
    """Start a supervisor for `folder` and wait until its job runs or was adopted. Raises UserError with its reason."""
    reader, writer = os.pipe()
    inherited = {name: value for name, value in environment.items() if name != MARK}
    try:
        with folder.supervisor_log.open("ab") as log:
            subprocess.run(
                [*program, str(folder.path), str(workspace.root), "--ready", str(writer)],
                cwd="/",
                env=inherited,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                start_new_session=True,
                check=False,
            )
    except OSError as error:
        os.close(reader)
        raise UserError(
            f"No supervisor could be started for {folder.path}: {error.strerror}.",
            "Check the folder's permissions.",
        ) from None
    finally:
        os.close(writer)
    answer = _answer(reader)
    if answer is None:
        raise UserError(
            f"The supervisor of {folder.name} does not say that its job runs.",
            f"It says why in {folder.supervisor_log}; on a slow disk it may yet start: mdk-tui status {folder.name}",
        )
    if "message" in answer:
        raise UserError(str(answer["message"]), str(answer.get("remedy", "")))


def _answer(reader: int) -> dict[str, Any] | None:
    with os.fdopen(reader, "rb") as pipe:
        ready, _, _ = select.select([pipe], [], [], READY_LIMIT)
        try:
            return json.loads(pipe.readline()) if ready else None
        except ValueError:
            return None


def _versions() -> dict[str, str]:
    try:
        own = version("mdk-tui")
    except PackageNotFoundError:
        own = "unknown"
    return {
        "mdk-tui": own,
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": str(Path(sys.executable)),
    }
