"""Data sets as preprocess_data.py writes them, made in a moment."""

from __future__ import annotations

from pathlib import Path

from backends.megatron.indexed_dataset import HEADER, MAGIC


def write_dataset(prefix: Path, documents: int, tokens_each: int = 10) -> Path:
    """`documents` of `tokens_each` 16-bit tokens at `prefix`, which is returned."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    lengths = tokens_each.to_bytes(4, "little") * documents
    pointers = b"".join((2 * tokens_each * at).to_bytes(8, "little") for at in range(documents))
    index = b"".join(at.to_bytes(8, "little") for at in range(documents + 1))
    head = HEADER.pack(MAGIC, 1, 8, documents, documents + 1)
    prefix.with_name(f"{prefix.name}.idx").write_bytes(head + lengths + pointers + index)
    prefix.with_name(f"{prefix.name}.bin").write_bytes(b"\0\0" * tokens_each * documents)
    return prefix
