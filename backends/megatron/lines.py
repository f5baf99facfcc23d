"""From bytes to clean lines without launcher prefixes: what is done before any matching."""

from __future__ import annotations

import json
import re
import string
from typing import cast

from backends.text import clean

LINE_LIMIT = 64 * 1024  # bytes; dumps of data set configurations and DDP bucket listings exceed 10 KiB
BOM = "\ufeff".encode()
CLIPPED = " … [clipped]"
DIGITS_TO_0 = bytes.maketrans(b"123456789", b"000000000")
# Complete colour sequences. `clean` removes the others.
COLOURS = re.compile(rb"\x1b\[[0-9;]*[mK]")

LEVEL = r"(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b"
# What launchers, loggers and log collectors put before a line. A group is the rank. An alternative with a group must not
# contain a time, because `prefix_form` keeps its text as it is.
PREFIX = re.compile(
    rf"""(?:
      \[\w{{3}}\ \w{{3}}\ +\d+\ \d\d:\d\d:\d\d\ \d{{4}}\](?=\[)          # mpirun --output timestamp
    | \[\d+,(?P<tag>\d{{1,9}})\]<std(?:out|err|diag)>:\ ?                  # Open MPI: [job,rank]<stdout>:
    | \[[\w.-]+[@,][\d,]*?(?P<full>\d{{1,9}})\](?:\[[^\]]*\])?<std(?:out|err|diag)>:\ ?   # Open MPI 5: tag-detailed, tag-fullname
    | \[(?P<only>\d{{1,9}})\]<std(?:out|err|diag)>:\ ?                     # Open MPI 5: --output rank
    | \[default(?P<local>\d{{1,9}})\]:                                     # torchrun --tee: the local rank
    | \[[A-Za-z][\w.-]*:(?P<node>\d{{1,6}})\]:                             # [node:local rank]:
    | \[rank(?P<torch>\d{{1,9}})\]:\ ?(?!\[[WEIF]\d{{3,4}}\ )             # torch itself, also below another launcher
    | \ *(?P<srun>\d{{1,6}}):(?=[ A-Za-z[(>-])\ ?                       # srun -l; Open MPI 5: rank
    | \d{{4}}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?:?\ (?:std(?:out|err)\ [FP]\ ?)?  # kubernetes, docker, loggers
    | (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\ [ \d]\d\ \d\d:\d\d:\d\d\ (?:[\w.-]+\ [\w./-]+\[\d+\]:\ )?   # ts, journald
    | \d{{10}}\.\d+\                                                    # ts %.s
    | \((?:\w+\ pid=\d+|raylet)(?:,\ ip=[\w.:]+)?\)\ ?                    # Ray
    | \[pod/[\w./-]+\]\ ?                                               # kubectl logs --prefix
    | [a-z][a-z-]*-\d+\ +\|\ | [A-Za-z]\w*/\d+\ (?=\D)                      # docker compose; torchx
    | (?:[a-z][a-z-]*\d[\w.-]*|\d+\.\d+\.\d+\.\d+):\ (?!line\ )           # pdsh, DeepSpeed's launcher: node
    | \[\d{{4}}-\d\d-\d\d\ \d\d:\d\d:\d\d,\d+\]\ \[\w+\]\ \[[\w.]+:\d+:[\w<>]+\]\ ?       # DeepSpeed
    | \[\d{{4}}-\d\d-\d\d\ \d\d:\d\d:\d\d\.\d+\]\[\w+\]\[[\w./]+:\d+\]\ -\ ?              # argonne-lcf
    | \[\d{{8}}\ \d\d:\d\d:\d\d\](?=\[rank-) | \[rank-(?P<of>\d{{1,6}})/\d+\]            # Primus
    | \[{LEVEL}\ *\]\ ?\[[\w.-]+:\d+\]\ ?:\ ?
    | \[NeMo\ [IWE]\ [^\]]*\]\ ?
    | \[Rank\ (?P<said>\d{{1,6}})(?:\ \|\ Local\ Rank\ \d+)?\]\ (?!\(after|Watchdog|NCCL|Exception|Found|Received|Timeout)
    | (?:\|\ |-\ (?:[\w.]+\ -\ )?)?{LEVEL}\ *(?:\|\ [\w.]+:\w+:\d+\ -\ |-\ |\[[\w.]+:\d+\]\ (?:=>\ )?|[\w.]+:\ )  # after a time
    | {LEVEL}:[\w.]+:                                                  # Python's root handler
    | >\ (?=[ >\[(]|-{{5}}|using\ world|saving|Traceback|[\w.]*(?:Error|Exception|Interrupt)\b)   # a quotation
    )""",
    re.VERBOSE,
)
STACKED = 16  # prefixes before one line, at most
NUMBERED = re.compile(rb"(?:\d+\.\d+s\t)? *\d+\t")  # cat -n, notebooks; before tabs are expanded
MAY_HAVE_PREFIX = frozenset(f"[(> |-{string.digits}{string.ascii_letters}")
QUIET = re.compile(
    r"(?<!NCCL )\b(?:DEBUG|INFO|WARN|WARNING)\b|\[NeMo [IW] |(?:^|\]:)\[?[WI](?:\d{3,4} \d\d:| [\w.]+\.(?:cpp|cu|cc|h):\d)"
)


def strip_prefixes(text: str) -> tuple[str, int | None]:
    """(`text` without the prefixes of launchers and loggers, the rank that they name). Prefixes may stack."""
    rank: int | None = None
    for _ in range(STACKED):
        if not text or text[0] not in MAY_HAVE_PREFIX:
            break
        match = PREFIX.match(text)
        if match is None:
            break
        if match.lastgroup:
            rank = int(match[match.lastgroup])
        text = text[match.end() :]
    return text, rank


def is_quiet(line: str, text: str) -> bool:
    """Whether a logger marks `line` as a warning or less. `text` is `line` without its prefixes."""
    return QUIET.search(line, 0, len(line) - len(text) + 24) is not None


def prefix_form(before: bytes, any_rank: bool = False) -> bytes:
    """An expression for prefixes like `before`: any time and logger; the same rank, or with `any_rank` a group for the rank."""
    parts: list[bytes] = []
    while before.isascii() and (match := PREFIX.match(before.decode())):
        form, end = re.escape(before[: match.end()]), match.end()
        if not match.lastgroup:
            form = re.sub(rb"[A-Za-z]+|\d+", _any_word, form)
        elif any_rank:
            start, stop = match.span(match.lastgroup)
            form = re.escape(before[:start]) + rb"(\d{1,9})" + re.escape(before[stop:end])
            any_rank = False
        parts.append(form)
        before = before[end:]
    return b"".join([*parts, re.escape(before)])


def _any_word(word: re.Match[bytes]) -> bytes:
    return rb"\d+" if word[0].isdigit() else rb"[A-Za-z]+"


def fold(line: bytes) -> bytes:
    """What a terminal shows of a `line` with carriage returns: the text after the last one, trailing ones ignored."""
    line = line.rstrip(b"\r")
    return line[line.rindex(b"\r") + 1 :] if b"\r" in line else line


def decode(line: bytes) -> str:
    """One raw line as clean text: `\\r` folded, escape sequences removed, invalid UTF-8 replaced, long lines clipped."""
    if b"\r" in line:
        line = fold(line)
    if line.startswith(BOM):
        line = line[len(BOM) :]
    if b"\t" in line and (numbered := NUMBERED.match(line)):
        line = line[numbered.end() :]
    if len(line) > LINE_LIMIT:
        return clean(line[:LINE_LIMIT].decode(errors="replace")) + CLIPPED
    return clean(line.decode(errors="replace"))


JSON_TEXT = ("log", "message", "msg", "textPayload", "line")  # keys that docker, fluentd and others use


def unwrapped(block: bytes) -> bytes:
    """Whole lines. Lines that a log collector wrapped into JSON objects become again what the job printed."""
    # A search for one byte is far quicker than one for three, and most blocks contain no brace.
    if b"{" not in block or not (block.startswith(b'{"') or b'\n{"' in block):
        return block
    return b"\n".join(_text_of(line) if line.startswith(b'{"') else line for line in block.split(b"\n"))


def _text_of(line: bytes) -> bytes:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return line
    values = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    texts = (values.get(name) for name in JSON_TEXT)
    text = next((text for text in texts if isinstance(text, str)), None)
    if text is None:
        return line
    return text.rstrip("\r\n").replace("\n", " ").encode(errors="replace")


class LineSplitter:
    """Cuts chunks of bytes into whole lines.

    `rest` is the last line while its newline is missing; of a long one little more than `LINE_LIMIT` bytes are kept.
    """

    def __init__(self) -> None:
        self.rest = b""
        self._settled = False  # the newline of a line that `settle` returned is still to come

    def feed(self, data: bytes) -> bytes:
        """The lines that `data` completes, each with its newline, as one block."""
        if self._settled and data:
            data, self._settled = data.removeprefix(b"\n"), False
        end = data.rfind(b"\n") + 1
        if not end:
            self.rest = _kept(self.rest + data)
            return b""
        block = b"".join((self.rest, memoryview(data)[:end]))
        self.rest = _kept(data[end:])
        return unwrapped(block)

    def settle(self) -> bytes:
        """Call it when the log pauses: `rest` with a newline, if it ends as lines of values do, else nothing."""
        if not self.rest.rstrip(b" ").endswith(b"|"):
            return b""
        self._settled = True
        return self.finish() + b"\n"

    def finish(self) -> bytes:
        """The last line of a log that ends without a newline."""
        block, self.rest = self.rest, b""
        return unwrapped(block)


def _kept(rest: bytes) -> bytes:
    """As much of an unfinished line as is needed to read it later: without progress bars that were overwritten."""
    if len(rest) <= LINE_LIMIT:
        return rest
    shown = fold(rest)[: LINE_LIMIT + 1]  # one more than the limit, so that the clipping shows
    return shown + b"\r" if rest.endswith(b"\r") else shown
