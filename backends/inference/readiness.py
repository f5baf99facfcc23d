"""How a text server comes up, told by its log, and waiting until it can answer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from backends.errors import UserError
from backends.launch.adoption import looked_after
from backends.runs.catalog import RunInfo
from backends.runs.folder import RunFolder
from backends.text import clean_line
from backends.workspace import Workspace

TAIL = 1 << 16  # bytes at the end of a log
POLL = 0.2  # s
# Seconds that a server listens and may not be called ready, until it never will: ranks print in any order.
SETTLE = 15.0
# What a line of the log begins, in the order in which core_r0.8.0's server and the demo's get there.
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
    """(how far, in words): the number of the newest stage that `text`, a piece of a log, has reached; 0 at its start."""
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


def until_ready(
    folder: RunFolder,
    workspace: Workspace,
    *,
    limit: float | None = None,
    settle: float = SETTLE,
    look: Callable[[RunFolder, Workspace], RunInfo] = looked_after,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[str]:
    """How the server gets on, whenever that changes, until it can answer: its address is the last of all.

    Raises UserError with the reason when it fails, when it listens and must not be called ready for `settle` s, or when
    it is not ready after `limit` s.
    """
    began, shown = clock(), ""
    since = began  # when `shown` began to be so
    while True:
        info = look(folder, workspace)
        if info.address:
            yield info.address
            return
        if info.over:
            raise UserError(
                f"The text server {info.run} {info.phase}. {info.reason or ''}".strip(), f"See {folder.log}"
            )
        words = info.reason or loading_words(folder.log)
        if words != shown:
            shown, since = words, clock()
            yield words
        if info.reason and clock() - since >= settle:
            raise UserError(
                f"The text server {info.run} must not answer. {info.reason}",
                f"End it: mdk-tui stop {info.run}; see {folder.log}",
            )
        if limit is not None and clock() - began > limit:
            raise UserError(
                f"The text server {info.run} is not ready after {limit:.0f} s: {words}.", f"See {folder.log}"
            )
        sleep(POLL)
