"""Reading and writing small files so that a reader sees the old or the new content, never half of one."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import functools
import hashlib
import json
import math
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

from backends.errors import UserError
from backends.text import clean_line

PLAIN = (str, int, float, bool, type(None))  # of JSON


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write `data` to `path` by a temporary file beside it, fsync and rename. Raises OSError; `path` is then as before."""
    content = data.encode() if isinstance(data, str) else data
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            # mkstemp's 0600 would hide a run from the colleague who watches it.
            os.fchmod(file.fileno(), 0o644)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def write_json(path: Path, value: Any) -> None:
    """`write_atomic` of `value` as indented JSON. NaN and infinities are refused with ValueError."""
    write_atomic(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`; None when it is missing, unreadable, not JSON or not an object."""
    try:
        value = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def read_regular(path: Path, limit: int = -1) -> bytes:
    """The first `limit` bytes of a regular file (-1: all). Raises OSError, also for pipes and devices: they may never end."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        return file.read(limit)


@contextlib.contextmanager
def named_errors(
    path: Path | str, deed: str = "read", remedy: str = "Check its permissions."
) -> Generator[None, None, None]:
    """Turns an OSError into a UserError: "PATH cannot be read: Permission denied." """
    try:
        yield
    except OSError as error:
        raise UserError(f"{clean_line(str(path))} cannot be {deed}: {error.strerror}.", remedy) from None


def as_seconds(value: object) -> float | None:
    """A finite number from JSON as seconds; anything else is None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    with contextlib.suppress(OverflowError):
        return float(value) if math.isfinite(value) else None
    return None


def plain_fields(kind: type, value: object) -> dict[str, Any]:
    """name → value of the fields of the dataclass `kind` that the object `value` holds with the right type.

    Fields that are not text, numbers, bool or None are left out, and so is everything if `value` is no object.
    """
    found: dict[str, Any] = {}
    if isinstance(value, Mapping):
        for name, kinds in _plain_kinds(kind).items():
            item = cast("Mapping[str, Any]", value).get(name)
            if float in kinds:
                item = as_seconds(item)
            if type(item) in kinds:
                found[name] = item
    return found


@functools.cache
def _plain_kinds(kind: type) -> dict[str, tuple[type, ...]]:
    hints = get_type_hints(kind)
    kinds = {
        field.name: get_args(hints[field.name]) or (hints[field.name],) for field in dataclasses.fields(kind)
    }
    return {name: types for name, types in kinds.items() if all(one in PLAIN for one in types)}


def append_json_lines(path: Path, values: Iterable[Any]) -> None:
    """Add each value as a line of JSON, all in one write. Raises OSError."""
    lines = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    with path.open("ab") as file:
        file.write(lines.encode(errors="replace"))


def read_json_lines(path: Path, newest: int | None = None) -> Iterator[dict[str, Any]]:
    """The JSON objects of the (last `newest`) lines; other lines are skipped. A missing file has none."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    for line in lines if newest is None else lines[-newest:]:
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def existing(name: str) -> Path | None:
    """The path that a user typed, if it exists; None if it does not, or if `name` is no valid path."""
    try:
        path = Path(name).expanduser()
        return path if name and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a zero byte, an unknown user
        return None


def existing_parent(folder: Path) -> Path:
    """`folder`, or its nearest parent that exists. It may be a file or a broken link."""
    return next((place for place in (folder, *folder.parents) if os.path.lexists(place)), folder)


def free_bytes(folder: Path) -> int | None:
    """Bytes that this user may still write to the file system of `folder`, which need not exist. None: not known."""
    try:
        return shutil.disk_usage(existing_parent(folder)).free
    except OSError:
        return None


def hold_lock(path: Path) -> bool:
    """Take the lock `path` for as long as this process lives; False when another process holds it.

    On a file system without locks (Lustre is often mounted so), only processes of this machine are noticed.
    """
    try:
        descriptor = _lock_file(path)
    except OSError:
        return _hold_name(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    except OSError:
        os.close(descriptor)
        return _hold_name(path)
    return True


def _lock_file(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # another user, who adopted the run, owns the file


def _hold_name(path: Path) -> bool:
    """Take an abstract socket name as the lock. The kernel gives it to one process and frees it when that process ends."""
    name = hashlib.sha256(os.fsencode(real(path))).hexdigest()
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(f"\0mdk-tui-{name}")
    except OSError as error:
        holder.close()
        return error.errno != errno.EADDRINUSE
    holder.detach()  # held until this process ends
    return True


def real(path: Path) -> Path:
    """`path` with links followed as far as they lead. Unlike `Path.resolve`, it accepts links in a circle."""
    return Path(os.path.realpath(path))
