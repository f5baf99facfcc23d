"""Opening and reading what a user names as a log. Every failure becomes one sentence with a remedy."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from backends.errors import UserError
from backends.text import clean_line

CHUNK = 2**20  # bytes read at once
LOOKED_AT = 4096  # bytes at the start of a file that tell text from anything else
# The first bytes of compressed files, and the program that unpacks them to standard output.
PACKED = (
    (b"\x1f\x8b", "zcat"),
    (b"BZh", "bzcat"),
    (b"\xfd7zXZ\0", "xzcat"),
    (b"\x28\xb5\x2f\xfd", "zstdcat"),
)
NO_TEXT = bytes(c for c in range(1, 32) if c not in b"\a\b\t\n\v\f\r\x1b")
MOST_ODD = 0.05  # share of such bytes that text may have


def open_log(path: Path) -> BufferedReader:
    """Open the log, or the named pipe, at `path`. Raises UserError."""
    shown = clean_line(str(path), 300)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UserError(f"{shown} is a folder.", candidates(path), status=2)
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
            raise UserError(f"{shown} is no file.", "Give that of a log, or - for standard input.", status=2)
        file = path.open("rb")
        start = file.peek(LOOKED_AT)[:LOOKED_AT] if stat.S_ISREG(mode) else b""
    except FileNotFoundError:
        raise UserError(f"There is no log {shown}.", candidates(path.parent), status=2) from None
    except OSError as error:
        raise UserError(f"{shown} cannot be read: {error.strerror}.", "Check its permissions.") from None
    except ValueError:
        raise UserError("A file name cannot hold a null character.", status=2) from None
    if program := next((program for magic, program in PACKED if start.startswith(magic)), None):
        file.close()
        remedy = f"Unpack it on the way: {program} {shown} | mdk-tui summary - (or parse -, watch -)."
        raise UserError(f"{shown} is compressed.", remedy, status=2)
    return file


def read_chunks(file: BufferedReader, name: str) -> Iterator[bytes]:
    """The bytes of `file`, called `name` in messages, as they arrive. Raises UserError when reading fails."""
    while True:
        try:
            data = file.read1(CHUNK)
        except OSError as error:
            raise UserError(
                f"{clean_line(name, 300)} cannot be read further: {error.strerror}.",
                "Check that its file system is mounted and healthy, then read it again.",
            ) from None
        if not data:
            return
        yield data


def is_text(start: bytes) -> bool:
    """Whether a file that begins with `start` may be a log. Zero bytes do not count: truncated logs and UTF-16 have them."""
    letters = start.replace(b"\0", b"")
    return len(letters) - len(letters.translate(None, NO_TEXT)) <= MOST_ODD * len(letters)


def candidates(folder: Path) -> str:
    """A remedy that lists the newest logs in `folder`."""
    newest: list[tuple[float, str]] = []
    try:
        with os.scandir(folder) as entries:
            newest = [
                (entry.stat().st_mtime, entry.name)
                for entry in entries
                if entry.name.endswith((".log", ".out", ".txt")) and entry.is_file()
            ]
    except (OSError, ValueError):
        pass
    names = ", ".join(clean_line(name, 100) for _, name in sorted(newest, reverse=True)[:3])
    shown = clean_line(str(folder), 300)
    return f"Logs in {shown}: {names}." if names else "Name the file into which the job's output goes."
