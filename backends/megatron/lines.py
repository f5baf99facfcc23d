"""From bytes to clean lines: the hygiene that comes before any matching (reference: section 0 of how Megatron prints)."""

from __future__ import annotations

import re

from backends.text import clean

LINE_LIMIT = 64 * 1024  # bytes; data set dumps and DDP bucket listings exceed 10 KiB
CLIPPED = " … [clipped]"
# Whole sequences; where there are others too, only `clean` tells them apart.
COLOURS = re.compile(rb"\x1b\[[0-9;]*[mK]")

# What launchers put before a line. The group, where there is one, is the rank.
PREFIX = re.compile(
    r"""(?:
      \[\w{3}\ \w{3}\ +\d+\ \d\d:\d\d:\d\d\ \d{4}\](?=\[)          # mpirun --output timestamp
    | \[\d+,(?P<tag>\d{1,9})\]<std(?:out|err|diag)>:\ ?                  # Open MPI: [job,rank]<stdout>:
    | \[[\w.-]+[@,][\d,]*?(?P<full>\d{1,9})\](?:\[[^\]]*\])?<std(?:out|err|diag)>:\ ?   # Open MPI 5: tag-detailed, tag-fullname
    | \[(?P<only>\d{1,9})\]<std(?:out|err|diag)>:\ ?                     # Open MPI 5: --output rank
    | \[default(?P<local>\d{1,9})\]:                                     # torchrun --tee: the local rank
    | \[rank(?P<torch>\d{1,9})\]:\ ?(?!\[[WEIF]\d{4})                    # torch itself, also below another launcher
    | \ *(?P<srun>\d{1,6}):(?=[ A-Za-z[(>-])\ ?                       # srun -l; Open MPI 5: rank
    | \d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)\ std(?:out|err)\ [FP]\ ?   # kubernetes
    | (?:DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]+:                  # Python's root handler
    )""",
    re.VERBOSE,
)
MAY_HAVE_PREFIX = frozenset("[0123456789 DIWEC")


def strip_prefixes(text: str) -> tuple[str, int | None]:
    """(`text` without what launchers and loggers put before it, the rank they named). Prefixes may stack."""
    rank: int | None = None
    while text and text[0] in MAY_HAVE_PREFIX:
        match = PREFIX.match(text)
        if match is None:
            break
        if match.lastgroup:
            rank = int(match[match.lastgroup])
        text = text[match.end() :]
    return text, rank


def prefix_form(before: bytes) -> bytes:
    """An expression for prefixes like `before`: the rank as it is, times and loggers of any value."""
    parts: list[bytes] = []
    while before.isascii() and (match := PREFIX.match(before.decode())):
        form, before = re.escape(before[: match.end()]), before[match.end() :]
        parts.append(form if match.lastgroup else re.sub(rb"[A-Za-z]+|\d+", _any_word, form))
    return b"".join([*parts, re.escape(before)])


def _any_word(word: re.Match[bytes]) -> bytes:
    return rb"\d+" if word[0].isdigit() else rb"[A-Za-z]+"


def fold(line: bytes) -> bytes:
    """What a terminal would show of `line` after its carriage returns: what follows the last that something follows."""
    line = line.rstrip(b"\r")
    return line[line.rindex(b"\r") + 1 :] if b"\r" in line else line


def decode(line: bytes) -> str:
    """One raw line as clean text: `\\r` rewrites folded, escapes gone, invalid UTF-8 replaced, too long a line clipped."""
    if b"\r" in line:
        line = fold(line)
    if len(line) > LINE_LIMIT:
        return clean(line[:LINE_LIMIT].decode(errors="replace")) + CLIPPED
    return clean(line.decode(errors="replace"))


class LineSplitter:
    """Cuts chunks of bytes into whole lines. Of an unfinished one it holds little more than `LINE_LIMIT` bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Whole lines, each with its newline, as one block; what is unfinished waits for the next call."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._rest = _kept(self._rest + data)
            return b""
        block = b"".join((self._rest, memoryview(data)[:end]))
        self._rest = _kept(data[end:])
        return block

    def finish(self) -> bytes:
        """The last line, where the log ends without a newline."""
        block, self._rest = self._rest, b""
        return block


def _kept(rest: bytes) -> bytes:
    """As much of an unfinished line as its end may still need: progress bars that were rewritten are not."""
    if len(rest) <= LINE_LIMIT:
        return rest
    shown = fold(rest)[: LINE_LIMIT + 1]  # one more than the limit, so that the clipping shows
    return shown + b"\r" if rest.endswith(b"\r") else shown
