"""Waiting until a text server can answer, and what its log says meanwhile."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from backends.errors import UserError
from backends.launch.adoption import looked_after
from backends.launch.start import start
from backends.launch.stop import stop_run
from backends.runs.catalog import RunInfo
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.text import clean_line
from backends.workspace import Workspace

TAIL = 1 << 16  # bytes at the end of a log
POLL = 0.2  # s
# s that a server may listen without saying that it has loaded: ranks print in any order.
SETTLE = 15.0
# The stage that a line of the log begins, in the order in which core_r0.8.0's server and the demo's reach them.
STAGES = (
    (re.compile(r"using world size:"), "reading its arguments"),
    (re.compile(r"> building \S+ tokenizer"), "building the tokenizer"),
    (re.compile(r"> initializing torch distributed"), "bringing the ranks together"),
    (re.compile(r"> compiling"), "compiling kernels"),
    (re.compile(r"WARNING: Forcing exit_on_missing_checkpoint"), "looking for the checkpoint"),
    (re.compile(r"building GPT model"), "building the model"),
    (re.compile(r"\bloading (?:distributed )?checkpoint from .* at iteration (\d+)"), "loading iteration {}"),
    (re.compile(r"successfully loaded checkpoint"), "loaded, opening its port"),
)


def stage_of(text: str) -> tuple[int, str]:
    """(number, words) of the latest stage that `text`, a piece of a log, has reached; 0 is the start."""
    reached, words = 0, "starting"
    for line in text.splitlines():
        for number, (sign, said) in enumerate(STAGES, 1):
            if number >= reached and (match := sign.search(line)):
                reached, words = number, said.format(*match.groups())
    return reached, words


def loading_words(log: Path) -> str:
    """ "loading iteration 200 (7 of 8)", from the end of the log."""
    try:
        with log.open("rb") as file:
            file.seek(max(file.seek(0, 2) - TAIL, 0))
            text = file.read(TAIL).decode(errors="replace")
    except OSError:
        text = ""
    reached, words = stage_of(text)
    return clean_line(f"{words} ({reached} of {len(STAGES)})", 100)


@dataclass(frozen=True, slots=True)
class Readiness:
    """How a text server does. `address`: where it answers, once it may; `ended`: why it is over, as the end of a sentence;
    `doubt`: why it must not be called ready although it listens."""

    address: str | None = None
    ended: str | None = None
    doubt: str | None = None


def until_address(
    look: Callable[[], Readiness],
    log: Path,
    *,
    run: str = "",
    limit: float | None = None,
    settle: float = SETTLE,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[str]:
    """What the server is doing, each time that changes, and its address at last.

    Raises UserError with the reason when the server ends, when it listens and stays in doubt for `settle` s, or when it
    is not ready after `limit` s. `run`: its name, if it is a run that can be stopped.
    """
    name = f"The text server {run}".rstrip()
    began = since = clock()  # `since`: when `shown` was said
    shown = ""
    while True:
        found = look()
        if found.address:
            yield found.address
            return
        if found.ended:
            raise UserError(f"{name} {found.ended}", f"See {log}")
        words = found.doubt or loading_words(log)
        if words != shown:
            shown, since = words, clock()
            yield words
        if found.doubt and clock() - since >= settle:
            end = f"End it: mdk-tui stop {run}; see {log}" if run else f"See {log}"
            raise UserError(f"{name} must not answer. {found.doubt}", end)
        if limit is not None and clock() - began > limit:
            raise UserError(f"{name} is not ready after {limit:.0f} s: {words}.", f"See {log}")
        sleep(POLL)


def until_ready(
    folder: RunFolder, workspace: Workspace, *, limit: float | None = None, settle: float = SETTLE
) -> Iterator[str]:
    """`until_address` for a server that is a run. Raises UserError."""

    def look() -> Readiness:
        return readiness_of(looked_after(folder, workspace))

    return until_address(look, folder.log, run=folder.name, limit=limit, settle=settle)


@contextlib.contextmanager
def temporary_server(
    plan: RunPlan, workspace: Workspace, limit: float | None = None
) -> Generator[tuple[RunFolder, str], None, None]:
    """(run, address) of a server that is started with `plan`, and stopped with the context. Raises UserError."""
    folder = start(plan, workspace)
    try:
        *_, address = until_ready(folder, workspace, limit=limit)
        yield folder, address
    finally:
        for _ in stop_run(folder, workspace):
            pass


def readiness_of(info: RunInfo) -> Readiness:
    """The readiness of a server that a supervisor watches, from the state of its run."""
    ended = f"{info.phase}. {info.reason or ''}".strip() if info.over else None
    return Readiness(info.address, ended, info.reason)
