"""Asks several nodes at a time, each by a process with a time limit, so that a dead node delays no other."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import secrets
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from backends.launch.false_start import WORDS
from backends.launch.launcher import NOBODY_TO_ASK
from backends.nodes.report import CLOCK, NodeReport, read_report
from backends.runs.processes import MARK, find_process, job_processes
from backends.text import clean, clean_line

TOGETHER = 8  # nodes at a time: each needs an mpirun on this machine
GRACE = 1.0  # s for mpirun to exit after the node has answered
MAX_OUTPUT = 1 << 20  # bytes kept of what a node prints


@dataclass(frozen=True, slots=True)
class Question:
    """The command that asks one node."""

    name: str
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Asked:
    """A node's answer, or why there is none (`failure` and `remedy`). `ahead`: s by which its clock is ahead of ours."""

    name: str
    report: NodeReport | None
    failure: str
    remedy: str
    ahead: float | None
    seconds: float


# What mpirun and ssh print when a node cannot be reached, what it means, and what helps. The first match counts.
# "setpgid(…) failed … Permission denied(13)" is a remark of mpirun's and no refusal.
FAILURES = (
    (r"Could not resolve hostname|Name or service not known|unknown host", "Its name is not known here.", "Check its spelling in the hostfile, or /etc/hosts."),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "Its host key is another one than before.", "If it was installed anew: ssh-keygen -R {name}, then enter it once by hand: ssh {name}"),
    (r"Permission denied \([^)]*(?:password|keyboard-interactive)", "It asks for a password, which nobody can type for mpirun.", "Put your key there: ssh-copy-id {name}. This must work without a question: ssh -o BatchMode=yes {name} true"),
    (r"Permission denied(?: \(|, please)", "ssh does not let us in.", "Put your key there: ssh-copy-id {name}. This must work: ssh -o BatchMode=yes {name} true"),
    (r"Host key verification failed", "ssh does not know its host key.", "Enter it once by hand: ssh {name}"),
    (r"Connection refused|[Cc]onnection timed out|No route to host|Network is unreachable", "It cannot be reached by ssh.", "Is it switched on? Try: ssh {name} true"),
    (r"not enough slots", "mpirun finds no slot there.", "Give it slots in the hostfile, or look at [mpi] options in mdk.toml."),
    (r"(?:prted|orted)\b.*(?:not found|No such file)", "Open MPI is not in the PATH of a shell without login there.", "Add it in ~/.bashrc before the test for interactive shells, or give --prefix DIR in [mpi] options."),
    (r"failed to report back|unable to complete a TCP connection", "mpirun's daemon did not come up there, or could not connect back.", "Try: ssh {name} mpirun --version. A firewall between the nodes does this too, and another Open MPI."),
    (r"There is no mpirun|No such file or directory: 'mpirun'", "There is no mpirun here.", "Load the Open MPI module of this site."),
)  # fmt: skip


def ask_all(questions: Sequence[Question], limit: float, together: int = TOGETHER) -> Iterator[Asked]:
    """Yield each node's answer as it comes. `limit`: s for each node from the moment in which it is asked.

    If the caller leaves the iteration early, the nodes being asked end by themselves.
    """
    todo: queue.SimpleQueue[Question] = queue.SimpleQueue()
    done: queue.SimpleQueue[Asked] = queue.SimpleQueue()
    for question in questions:
        todo.put(question)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                done.put(ask(todo.get_nowait(), limit))

    for _ in range(min(together, len(questions))):
        threading.Thread(target=work, daemon=True, name="ask-node").start()
    for _ in questions:
        yield done.get()


@dataclass(frozen=True, slots=True)
class Talk:
    """The output of a command until it was enough, the command ended, or the time was over (`late`). `ahead` as in `Asked`."""

    output: str
    status: int | None
    late: bool
    ahead: float | None
    seconds: float


def ask(question: Question, limit: float) -> Asked:
    """One node's answer. Never fails, and leaves no process of this machine behind."""
    began = time.monotonic()
    try:
        talk = converse(question, limit, lambda lines: read_report(lines) is not None)
        while WORDS in talk.output and (left := began + limit - time.monotonic()) > 0:
            talk = converse(question, left, lambda lines: read_report(lines) is not None)
    except OSError as error:
        why = f"{question.argv[0]} cannot be run: {error.strerror or error}."
        return Asked(question.name, None, why, "Load the Open MPI module of this site.", None, 0.0)
    report = read_report(talk.output.splitlines())
    if report is not None:
        return Asked(question.name, report, "", "", talk.ahead, talk.seconds)
    failure, remedy = explain(question.name, talk.output, talk.status, limit if talk.late else None)
    return Asked(question.name, None, failure, remedy, None, talk.seconds)


def converse(question: Question, limit: float, enough: Callable[[Sequence[str]], bool]) -> Talk:
    """Run a command until `enough` accepts its lines, it ends, or `limit` s are over. Raises OSError if it cannot be run.

    Processes that it leaves behind on this machine are killed: a killed mpirun leaves many.
    """
    began = time.monotonic()
    mark = f"probe-{secrets.token_hex(8)}"
    process = subprocess.Popen(
        question.argv,
        cwd=question.cwd,
        env={**question.env, **NOBODY_TO_ASK, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    leader = find_process(process.pid)
    pipe = cast("IO[bytes]", process.stdout)
    try:
        output, ahead, answered = _read(pipe, began + limit, enough)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE if answered else max(0.0, min(GRACE, began + limit - time.monotonic())))
        late = process.poll() is None
    finally:
        pipe.close()
        for left in job_processes(leader, mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(left.pid, signal.SIGKILL)
        process.wait()
    return Talk(output, process.returncode, late and not answered, ahead, time.monotonic() - began)


def _read(
    pipe: IO[bytes], deadline: float, enough: Callable[[Sequence[str]], bool]
) -> tuple[str, float | None, bool]:
    """(output until it is enough, its end or the deadline; s by which the node's clock is ahead; whether it was enough)."""
    os.set_blocking(pipe.fileno(), False)
    output, ahead, answered = b"", None, False
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while not answered and (left := deadline - time.monotonic()) > 0 and len(output) < MAX_OUTPUT:
            if not selector.select(left):
                continue
            now = time.time()
            data = os.read(pipe.fileno(), 65536)
            if not data:
                break
            output += data
            lines = output[: output.rfind(b"\n") + 1].decode(errors="replace").splitlines()
            if ahead is None and (clock := next(filter(None, map(CLOCK.search, lines)), None)):
                ahead = float(clock[1]) - now
            answered = enough(lines)
    return clean(output.decode(errors="replace")), ahead, answered


def explain(name: str, output: str, status: int | None, limit: float | None) -> tuple[str, str]:
    """(why a node did not answer, what to try). `limit`: the time limit in s, if it was reached."""
    for pattern, why, remedy in FAILURES:
        if re.search(pattern, output):
            return why, remedy.format(name=name)
    if limit is not None:
        return (
            f"No answer within {limit:g} s.",
            f"Is it switched on, and the way to it free? Try: ssh {name} true",
        )
    words = next((line.strip() for line in output.splitlines() if line.strip(" -=\t")), "nothing was printed")
    return f"mpirun ended with status {status}: {clean_line(words, 200)}", f"Try by hand: ssh {name} true"
