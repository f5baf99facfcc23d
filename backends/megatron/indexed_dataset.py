"""Describes a preprocessed data set from the header of its .idx and three more reads.

Format: megatron/core/datasets/indexed_dataset.py, the same from v1.0 to main (little endian):
9 bytes magic, u64 version, u8 dtype code, u64 N sequences, u64 D entries of the document index (documents + 1),
then N × i32 lengths in tokens, N × i64 byte pointers, D × i64 document index, and N × i8 modes in multimodal sets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAGIC = b"MMIDIDX\x00\x00"
LEGACY_MAGIC = b"TNTIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
DTYPES = {
    1: ("uint8", 1),
    2: ("int8", 1),
    3: ("int16", 2),
    4: ("int32", 4),
    5: ("int64", 8),
    6: ("float64", 8),
    7: ("float32", 4),
    8: ("uint16", 2),
}
AGAIN = "Run the preprocessing again."


@dataclass(frozen=True, slots=True)
class IndexedDataset:
    """A .bin and its .idx. Numbers are None if the files do not tell them. `reason` is None if the set is complete."""

    prefix: str
    documents: int | None
    sequences: int | None
    tokens: int | None
    dtype: str | None
    size: int | None  # of the .bin, bytes
    reason: str | None

    @property
    def complete(self) -> bool:
        return self.reason is None


def find_prefix(given: Path) -> Path:
    """The prefix meant by `given`: as it is, without a typed `.bin` or `.idx`, or with `_text_document` added."""
    prefix = given.with_suffix("") if given.suffix in (".bin", ".idx") else given
    if not _beside(prefix, ".idx").exists() and not _beside(prefix, ".bin").exists():
        default_key = prefix.with_name(prefix.name + "_text_document")
        if _beside(default_key, ".idx").exists() or _beside(default_key, ".bin").exists():
            return default_key
    return prefix


def read_indexed_dataset(prefix: Path) -> IndexedDataset:
    """Describe the data set at `prefix`, the value of `--data-path` without suffix. No file content raises an error."""
    index, data = _beside(prefix, ".idx"), _beside(prefix, ".bin")
    size = data.stat().st_size if data.is_file() else None
    if not index.is_file():
        reason = (
            f"There is neither {index.name} nor {data.name}."
            if size is None
            else f"{index.name} is missing: it is written last, so the preprocessing still runs or has crashed. {AGAIN}"
        )
        return _unreadable(prefix, size, reason)
    try:
        with index.open("rb") as file:
            return _read(prefix, file, index.stat().st_size, size)
    except OSError as error:
        return _unreadable(prefix, size, f"{index.name} cannot be read: {error.strerror}.")


def _read(prefix: Path, file: BinaryIO, index_size: int, size: int | None) -> IndexedDataset:
    head = file.read(HEADER.size)
    if head.startswith(LEGACY_MAGIC):
        return _unreadable(prefix, size, f"The index has the old format of fairseq (TNTIDX). {AGAIN}")
    if not head.startswith(MAGIC):
        return _unreadable(prefix, size, f"The .idx is not an index of Megatron-LM. {AGAIN}")
    if len(head) < HEADER.size:
        return _unreadable(prefix, size, f"The .idx ends within its header. {AGAIN}")
    _, version, code, sequences, entries = HEADER.unpack(head)
    if version != 1 or code not in DTYPES:
        return _unreadable(
            prefix, size, f"The .idx has version {version} and dtype code {code}, which are unknown here."
        )
    dtype, width = DTYPES[code]
    documents = max(0, entries - 1)
    reason = _incomplete(file, index_size, size, sequences, entries, width)
    tokens = None if size is None else size // width
    return IndexedDataset(str(prefix), documents, sequences, tokens, dtype, size, reason)


def _incomplete(
    file: BinaryIO, index_size: int, size: int | None, sequences: int, entries: int, width: int
) -> str | None:
    """Why the pair of files is incomplete, or None."""
    expected = HEADER.size + 12 * sequences + 8 * entries
    if index_size not in (expected, expected + sequences):
        return f"The .idx has {index_size:,} bytes where its header announces {expected:,}. {AGAIN}"
    if entries == 0:
        return f"The .idx has an empty document index. {AGAIN}"
    if size is None:
        return f"The .bin is missing. {AGAIN}"
    last_entry = _number(file, "<q", expected - 8)
    if last_entry != sequences:
        return f"The last document ends at sequence {last_entry:,} of {sequences:,}. {AGAIN}"
    if sequences == 0:
        return f"The data set is empty. {AGAIN}"
    length = _number(file, "<i", HEADER.size + 4 * (sequences - 1))
    pointer = _number(file, "<q", HEADER.size + 12 * sequences - 8)
    if pointer + length * width != size:
        return f"The .bin has {size:,} bytes where the .idx announces {pointer + length * width:,}. {AGAIN}"
    return None


def _number(file: BinaryIO, layout: str, offset: int) -> int:
    file.seek(offset)
    content = file.read(struct.calcsize(layout))
    return struct.unpack(layout, content)[0]


def _beside(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(prefix.name + suffix)


def _unreadable(prefix: Path, size: int | None, reason: str) -> IndexedDataset:
    return IndexedDataset(str(prefix), None, None, None, None, size, reason)
