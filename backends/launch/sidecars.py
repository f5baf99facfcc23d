"""What a supervisor does besides supervising: telemetry, MLflow, notifications, samples. A failing sidecar never harms the job."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from backends.launch.notification import Notifier
from backends.runs.catalog import nodes_note
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.processes import MARK
from backends.runs.state import RunState
from backends.settings import read_settings
from backends.telemetry.collector import Collector
from backends.telemetry.history import INTERVAL, TelemetryRecorder
from backends.tracking.place import is_tracked, said_of
from backends.workspace import Workspace

# Named, not imported: backends.launch must not import backends.inference.
SAMPLER = "backends.inference.sampler"
RESTARTS = 5  # how often a companion that fails is started again
RESTART_PAUSE = 30.0  # s


class Sidecar(Protocol):
    """Something that runs beside a job for as long as the job lives."""

    def look(self, state: RunState) -> None:
        """Called twice a second with the present state. Must not block."""
        ...

    def close(self, final: RunState) -> None:
        """Called when the job has ended, before `final` is written to state.json. Must not block."""
        ...


class Telemetry:
    """Appends the readings of GPUs and host to `telemetry.jsonl`."""

    def __init__(self, recorder: TelemetryRecorder) -> None:
        self._recorder = recorder

    def look(self, state: RunState) -> None:
        self._recorder.look()

    def close(self, final: RunState) -> None:
        self._recorder.close()


class Companion:
    """A sidecar in a process of its own, which may block: `python -m MODULE RUNDIR WORKSPACE`.

    It reads the run's files and exits by itself when state.json says that the run is over. It outlives a supervisor that
    is killed, and the next supervisor starts another one; so it holds a lock in the run folder (`backends.files.hold_lock`)
    and exits with status 0 when the lock is taken. A companion that fails is started again, at most `RESTARTS` times.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command, self._environment, self._say, self._clock = command, environment, say, clock
        self._failures = 0
        self._again_at: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._start()

    def look(self, state: RunState) -> None:
        if self._process is not None and (status := self._process.poll()) is not None:
            self._process = None
            if status != 0:
                self._failures += 1
                self._say(f"{self._command[-3]} ended with status {status}")
                if self._failures <= RESTARTS:
                    self._again_at = self._clock() + RESTART_PAUSE
        if self._again_at is not None and self._clock() >= self._again_at:
            self._again_at = None
            self._start()

    def close(self, final: RunState) -> None:
        """Nothing: the companion reads the end from state.json."""

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # its errors go to supervisor.log, like the supervisor's
                start_new_session=True,
            )
        except OSError as error:
            self._say(f"{self._command[-3]} could not be started: {error.strerror}")


def companion(
    module: str,
    folder: RunFolder,
    workspace: Workspace,
    say: Callable[[str], None],
    added: Mapping[str, str] | None = None,
) -> Companion:
    """A companion that runs `module`. The run's mark is not in its environment, since it is no part of the job."""
    command = (sys.executable, "-m", module, str(folder.path), str(workspace.root))
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    return Companion(command, {**environment, **(added or {})}, say)


def sidecars_of(
    folder: RunFolder, plan: RunPlan, workspace: Workspace, state: RunState, say: Callable[[str], None]
) -> list[Sidecar]:
    """The sidecars of a run. One that cannot be started is reported and left out."""
    sidecars: list[Sidecar] = []
    try:
        if plan.launcher != "slurm":  # a Slurm job does not use the GPUs of this machine
            sidecars.append(Telemetry(TelemetryRecorder(folder.telemetry, Collector(INTERVAL))))
    except OSError as error:
        say(f"no telemetry: {error.strerror}")
    try:
        settings = read_settings(workspace.settings)
    except Exception as error:  # a run is adopted even if its settings have become unreadable
        say(f"settings: {error}")
        return sidecars
    tracked = said_of(plan.environment)
    if plan.kind == "train" and is_tracked(settings.mlflow, {**os.environ, **tracked}):
        sidecars.append(companion("backends.tracking.mlflow_sidecar", folder, workspace, say, tracked))
    several = plan.launcher == "mpirun" and plan.kind == "train" and plan.processes > 1
    if several and settings.mpi.silence_minutes > 0:
        sidecars.append(companion("backends.nodes.watch", folder, workspace, say))
    if settings.notify.command:
        nodes = lambda: nodes_note(folder)  # noqa: E731
        sidecars.append(Notifier(folder.name, plan, state, settings.notify, say, nodes=nodes))
    if settings.samples.prompts and plan.kind == "train" and plan.save:
        sidecars.append(companion(SAMPLER, folder, workspace, say))
    return sidecars
