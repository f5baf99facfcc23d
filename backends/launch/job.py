"""A job as a supervisor handles it: a process of this machine in a session of its own, or a job of Slurm."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from backends.launch.launcher import Command
from backends.runs.folder import RunFolder
from backends.runs.processes import MARK, Process, find_process, is_alive, job_processes
from backends.runs.state import JobExit

WRAPPER = Path(__file__).with_name("wrapper.py")
START_LIMIT = 120.0  # s for the wrapper to say the pid of the job


class RunningJob(Protocol):
    """A job that was started, wherever it runs. `main` and `leader` are its processes if it runs on this machine."""

    main: Process | None
    leader: Process | None

    def lives(self) -> bool: ...
    def wait(self, seconds: float) -> None:
        """Return when it may have ended, after at most `seconds`."""
        ...

    @property
    def waits(self) -> bool:
        """Whether it waits in a queue, also after a requeue."""
        ...

    @property
    def note(self) -> str | None:
        """What a reader should know while it lives, or why it ended, if the batch system says so."""
        ...

    def exit(self) -> JobExit | None:
        """How it ended; None when nobody saw it."""
        ...

    def processes(self) -> list[Process]:
        """Its processes on this machine."""
        ...

    def ask_to_save(self) -> None:
        """Ask it to save and exit."""
        ...

    def signal_all(self, number: int) -> None: ...


@dataclass(slots=True)
class Job:
    """A job of this machine. `main` is the trainer, `leader` the wrapper that leads its session.

    An adopted job has no `command`, so it cannot be started again, and its wrapper is no child of this process.
    """

    folder: RunFolder
    mark: str
    stop_gracefully: Callable[[Process], None]
    main: Process | None = None
    leader: Process | None = None
    command: Command | None = None
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    wrapper: subprocess.Popen[bytes] | None = None

    @property
    def waits(self) -> bool:
        return False

    @property
    def note(self) -> str | None:
        return None

    def ask_to_save(self) -> None:
        if self.main is not None and is_alive(self.main):  # the pid may belong to another process by now
            with contextlib.suppress(OSError):  # it has just ended
                self.stop_gracefully(self.main)

    def lives(self) -> bool:
        """Whether the wrapper or the trainer runs."""
        if self.wrapper is not None:
            return self.wrapper.poll() is None or is_alive(self.main)
        return is_alive(self.leader) or is_alive(self.main)

    def wait(self, seconds: float) -> None:
        """Return when the wrapper has ended, after at most `seconds`."""
        try:
            descriptor = os.pidfd_open(self.leader.pid) if self.leader else -1
        except (OSError, AttributeError):  # it is gone, or the kernel is older than 5.3
            descriptor = -1
        if descriptor < 0:
            time.sleep(seconds)
            return
        try:
            select.select([descriptor], [], [], seconds)
        finally:
            os.close(descriptor)

    def exit(self) -> JobExit | None:
        """How it ended; None when nobody saw it."""
        written = self.folder.job_exit()
        if written is None and self.wrapper is not None and self.wrapper.returncode is not None:
            code = self.wrapper.returncode
            return JobExit(code, None) if code >= 0 else JobExit(None, -code)
        return written

    def processes(self) -> list[Process]:
        return job_processes(self.leader, self.mark)

    def signal_all(self, number: int) -> None:
        """Signal every process of the job but the wrapper, which writes how the job ended; the wrapper too if it is alone."""
        processes = self.processes()
        others = [process for process in processes if process != self.leader]
        for process in others or processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)

    def start(self) -> None:
        """Start `command` in a new session, its output straight to output.log. Raises OSError when that cannot be done."""
        assert self.command is not None
        self.folder.exit_file.unlink(missing_ok=True)  # of an earlier start
        reader, writer = os.pipe()
        try:
            self.wrapper = self._wrap(self.command, writer)
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        self.leader = find_process(self.wrapper.pid)
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            ready, _, _ = select.select([pipe], [], [], START_LIMIT)
            said = pipe.read(32) if ready else b""
        if not said:
            if self.wrapper.poll() is None:
                self.wrapper.send_signal(signal.SIGKILL)
            self.wrapper.wait()
            raise OSError("the job's wrapper did not start; see output.log")
        self.main = find_process(int(said))

    def _wrap(self, command: Command, pid_pipe: int) -> subprocess.Popen[bytes]:
        """The wrapper as a process: it writes the job's pid to `pid_pipe`."""
        output = os.open(self.folder.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    str(WRAPPER),
                    str(pid_pipe),
                    str(self.folder.exit_file),
                    *command.argv,
                ],
                cwd=command.cwd,
                env={**self.environment, **command.env, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(pid_pipe,),
                start_new_session=True,
            )
        finally:
            os.close(output)
