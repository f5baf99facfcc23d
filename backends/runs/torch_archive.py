"""Reads files of torch.save without torch and without executing anything from them.

A .pt file is a zip. Its member `*/data.pkl` is a pickle, the tensors are other members. The unpickler here knows no
classes: everything becomes a plain value or an inert `Opaque`, so a hostile file can do nothing.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

LOCAL_HEADER, DIRECTORY_ENTRY, END_RECORD = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
ZIP64_LOCATOR = b"PK\x06\x07"
TAIL = 65_557  # bytes: the end record and the longest comment
PICKLE_LIMIT = 256 * 2**20  # bytes; core_r0.8.0 writes some hundred KB


class Opaque:
    """Replaces an object of any other class: keeps its state and does nothing."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __call__(self, *arguments: Any) -> Opaque:
        return Opaque(*arguments)

    # Pickles fill subclasses of list and dict item by item.
    def append(self, item: Any) -> None: ...
    def extend(self, items: Any) -> None: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...


class PlainDict(dict[Any, Any]):
    """A dictionary whose attributes are dropped, such as `_metadata` of a model's state_dict."""

    def __setstate__(self, state: Any) -> None: ...


class _Reader(pickle.Unpickler):
    """Replaces every global of the pickle by `Opaque`, except the containers of plain values."""

    PLAIN: dict[tuple[str, str], Any] = {  # noqa: RUF012  (a constant table)
        ("collections", "OrderedDict"): PlainDict,
        ("builtins", "set"): set,
        ("builtins", "dict"): dict,
        ("argparse", "Namespace"): Opaque,
    }

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return self.PLAIN.get((module_name, global_name), Opaque)

    def persistent_load(self, pid: Any, /) -> Any:
        return None


def read_pickle(content: bytes) -> Any:
    """The value of a pickle with all other objects inert. Raises ValueError if it cannot be read."""
    if len(content) > PICKLE_LIMIT:
        raise ValueError("the pickle is too large")
    try:
        return _Reader(io.BytesIO(content)).load()
    except Exception as error:  # a hostile pickle may raise anything from its opcodes
        raise ValueError(f"the pickle cannot be read: {type(error).__name__}") from None


def torn(path: Path) -> str | None:
    """Why the zip at `path` is not whole; None when its head, its end and its directory agree. Reads 64 KiB at most."""
    size = path.stat().st_size
    if size == 0:
        return "is empty"
    with path.open("rb") as file:
        head = file.read(4)
        if head[:1] == b"\x80":
            return None  # a plain pickle, as torch < 1.6 wrote: its end cannot be checked
        if head != LOCAL_HEADER:
            return "is no torch file"
        file.seek(max(0, size - TAIL))
        tail = file.read()
        end = tail.rfind(END_RECORD)
        if end < 0 or len(tail) - end < 22:
            return "is cut off"
        length, offset = struct.unpack("<II", tail[end + 12 : end + 20])
        expected_end = size - len(tail) + end
        if tail[max(0, end - 20) : end].startswith(ZIP64_LOCATOR):
            # torch.save always writes the zip64 end record, whatever the size.
            (expected_end,) = struct.unpack("<Q", tail[end - 12 : end - 4])
            record = _read_at(file, expected_end, size, 56)
            if len(record) < 56:
                return "is damaged"
            length, offset = struct.unpack("<QQ", record[40:56])
        whole = offset + length == expected_end and _read_at(file, offset, size, 4) == DIRECTORY_ENTRY
        return None if whole else "is damaged"


def _read_at(file: BinaryIO, offset: int, size: int, count: int) -> bytes:
    """`count` bytes from `offset`; fewer where the file, which has `size`, ends before."""
    file.seek(min(offset, size))
    return file.read(count)


@dataclass(frozen=True, slots=True)
class Archive:
    """The training arguments in a checkpoint file (name → plain value) and the state of the learning-rate schedule by the
    names of Megatron-LM's OptimizerParamScheduler. None: not in the file."""

    arguments: dict[str, Any] | None
    scheduler: dict[str, Any] | None


def read_archive(path: Path) -> Archive | None:
    """The plain values of the checkpoint file `path`; None if it cannot be read.

    Megatron stores an argparse.Namespace under "args"; the demo trainer stores `args.json` and `state.json`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if "args.json" in names:
                state = _json(archive, "state.json") if "state.json" in names else {}
                return Archive(_json(archive, "args.json"), _plain_values(state.get("opt_param_scheduler")))
            pickled = next((name for name in names if name.endswith("data.pkl")), None)
            if pickled is None or archive.getinfo(pickled).file_size > PICKLE_LIMIT:
                return None
            state = read_pickle(archive.read(pickled))
    except Exception:  # a hostile or torn zip raises anything from its members: zlib.error, struct.error, …
        return None
    if not isinstance(state, dict):
        return None
    values = cast("dict[str, Any]", state)
    return Archive(_plain_values(values.get("args")), _plain_values(values.get("opt_param_scheduler")))


def stored_arguments(path: Path) -> dict[str, Any] | None:
    """The training arguments inside a checkpoint file; None if there are none or they cannot be read."""
    found = read_archive(path)
    return found.arguments if found else None


def _json(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    """The JSON object in one member. Raises ValueError for another value."""
    if archive.getinfo(name).file_size > PICKLE_LIMIT:
        raise ValueError(f"{name} is too large")
    value = json.loads(archive.read(name))
    if not isinstance(value, dict):
        raise ValueError(f"{name} holds no object")
    return cast("dict[str, Any]", value)


def _plain_values(stored: Any) -> dict[str, Any] | None:
    state = stored.state if isinstance(stored, Opaque) else stored
    if not isinstance(state, dict):
        return None
    values = cast("dict[Any, Any]", state)
    plain = (str, int, float, bool, list, tuple, type(None))
    return {str(name): value for name, value in values.items() if isinstance(value, plain)}
