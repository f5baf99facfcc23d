"""The process that supervises a run: `python -m backends.launch.supervisor RUNDIR WORKSPACE [--ready FD]`.

It leaves the session of whoever started it, starts the job or adopts the one that state.json names, and then runs the loop
of `supervision`, which explains the whole. FD gets one line of JSON: {} when the job runs, or {"message", "remedy"}.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from backends.errors import UserError
from backends.files import hold_lock
from backends.launch.automatic_resume import AutomaticResume
from backends.launch.commands import commands, launcher_of
from backends.launch.hang_checks import hang_checks_of
from backends.launch.job import Job, RunningJob
from backends.launch.launcher import NOBODY_TO_ASK
from backends.launch.notification import Notifier
from backends.launch.sidecars import sidecars_of
from backends.launch.slurm import Slurm
from backends.launch.start import SUPERVISOR
from backends.launch.state_file import StateFile, iso
from backends.launch.supervision import Supervision
from backends.runs.automatic import Again, automatic_resume
from backends.runs.checkpoints import read_tracker
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.processes import MARK, find_process, session_of_mark, this_machine
from backends.runs.state import RunState
from backends.settings import read_settings
from backends.workspace import Workspace

RESTARTED = "this machine was restarted in the meantime."


def main(arguments: Sequence[str] | None = None, program: Sequence[str] = SUPERVISOR) -> None:
    """`program`: the command that starts the supervisor of an automatic resume."""
    parser = argparse.ArgumentParser(prog="supervisor", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--ready", type=int, default=1)
    options = parser.parse_args(arguments)
    if os.fork():
        os._exit(0)  # the starter must not wait for this process
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ready = os.fdopen(options.ready, "w", encoding="utf-8")
    folder, workspace = RunFolder(options.folder), Workspace(options.workspace)
    mine = hold_lock(folder.path / "supervisor.lock")  # one supervisor a run
    supervision, answer = None, dict[str, str]()
    try:
        supervision = prepare(folder, workspace) if mine else None
        if supervision is not None and supervision.over:
            supervision.run()  # it only writes the end, which the caller wants to read
            supervision = None
    except UserError as error:
        supervision, mine, answer = None, False, {"message": error.message, "remedy": error.remedy}
    with contextlib.suppress(OSError), ready:  # the starter may be gone
        ready.write(json.dumps(answer) + "\n")
    if supervision is not None:
        supervision.run()
    if mine:
        crashed = folder.state()
        AutomaticResume(folder, workspace, program, say).run()
        tell_of_resume(folder, workspace, crashed)


def say(text: str) -> None:
    """Write a line to supervisor.log, unless the disk is full."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{iso(time.time())} {text}\n")


def tell_of_resume(folder: RunFolder, workspace: Workspace, crashed: RunState | None) -> None:
    """Run the command of [notify] with the outcome of the automatic resume."""
    now = folder.state()
    if crashed is None or now is None or now.again == crashed.again:
        return
    try:
        settings = read_settings(workspace.settings).notify
        if settings.command:
            Notifier(folder.name, folder.plan(), crashed, settings, say).close(now)
    except UserError as error:
        say(f"no notification: {error}")


def prepare(folder: RunFolder, workspace: Workspace) -> Supervision | None:
    """Start the run's job, or adopt it; None when the run is over. Raises UserError."""
    plan = folder.plan()
    state = folder.state()
    me = find_process(os.getpid())
    if state is not None and state.over:
        if state.again is not None and state.again.due:
            here = state.machine == this_machine()
            again = state.again if here else dataclasses.replace(state.again, dropped=RESTARTED)
            folder.write_state(dataclasses.replace(state, supervisor=me, again=again))
        return None
    if state is None:
        # A job may be running, and a second one would overwrite its log.
        if folder.state_file.exists() or folder.log.exists():
            message = f"{folder.state_file} is damaged, so its job is unknown."
            raise UserError(message, f"Its log can still be read: mdk-tui watch {folder.log}")
        first = RunState(supervisor=me, mark=_new_mark(folder), machine=this_machine(), heartbeat=time.time())
        job, first = _start(folder, plan, workspace, dataclasses.replace(first, started=iso(time.time())))
    else:
        first = dataclasses.replace(state, supervisor=me, heartbeat=time.time())
        job, first = _adopt(folder, plan, workspace, first)
    tracked = read_tracker(Path(plan.load)).iteration if plan.load else None
    state_file = StateFile(folder, first, say)
    state_file.write(first)
    sidecars = sidecars_of(folder, plan, workspace, first, say)
    checks = hang_checks_of(plan, job, workspace, _hang_limit(workspace))

    def after(final: RunState) -> Again | None:
        return again_after(final, plan, workspace)

    return Supervision(folder, plan, launcher_of(plan), job, state_file, sidecars, checks, after, tracked)


def _hang_limit(workspace: Workspace) -> float:
    """In s. Settings that have become unreadable do not keep a run from being adopted."""
    try:
        return 60 * read_settings(workspace.settings).stop.hang_minutes
    except UserError as error:
        say(f"settings: {error}")
        return 0.0


def again_after(final: RunState, plan: RunPlan, workspace: Workspace) -> Again | None:
    """The automatic resume that the settings ask for after a crash. Raises UserError for unreadable settings."""
    wanted = read_settings(workspace.settings).resume
    tracked = read_tracker(Path(plan.save)).iteration if plan.save else None
    pause = 60 * wanted.pause_minutes
    return automatic_resume(plan, final.signs, tracked, limit=wanted.automatic, pause=pause, now=time.time())


def _start(
    folder: RunFolder, plan: RunPlan, workspace: Workspace, first: RunState
) -> tuple[RunningJob, RunState]:
    launcher, command = launcher_of(plan), commands(plan, workspace)
    try:
        folder.write_state(first)  # before the job starts: without its mark nobody could adopt it
        environment = {name: value for name, value in os.environ.items() if name != MARK} | NOBODY_TO_ASK
        if isinstance(launcher, Slurm):
            job = launcher.submit(folder, command, first.mark, environment, workspace)
        else:
            job = Job(folder, first.mark, launcher.stop_gracefully, command=command, environment=environment)
            job.start()
    except (OSError, ValueError, UserError) as error:
        what = (error.strerror if isinstance(error, OSError) else None) or str(error)
        ended = dataclasses.replace(
            first, phase="failed", reason=f"It could not be started: {what}", ended=first.started
        )
        with contextlib.suppress(OSError):
            folder.write_state(ended)
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"The run in {folder.path} could not be started: {what}.",
            "Check the space and permissions there.",
        ) from None
    return job, dataclasses.replace(first, job=job.main, leader=job.leader)


def _adopt(
    folder: RunFolder, plan: RunPlan, workspace: Workspace, state: RunState
) -> tuple[RunningJob, RunState]:
    launcher = launcher_of(plan)
    if isinstance(launcher, Slurm):
        say("adopted: the previous supervisor was gone")
        return launcher.adopt(folder, workspace), dataclasses.replace(state, machine=this_machine())
    if state.leader is None and state.job is None:
        leader, main_process = session_of_mark(state.mark)
        state = dataclasses.replace(state, leader=leader, job=main_process)
    say("adopted: the previous supervisor was gone")
    return Job(folder, state.mark, launcher.stop_gracefully, state.job, state.leader), state


def _new_mark(folder: RunFolder) -> str:
    return f"{folder.name}-{secrets.token_hex(8)}"


if __name__ == "__main__":
    main()
