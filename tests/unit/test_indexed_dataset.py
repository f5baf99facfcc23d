"""The .idx header tells what a data set holds, and whether the preprocessing finished."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.megatron.indexed_dataset import find_prefix, read_indexed_dataset

LENGTHS = [5, 0, 7]


def write(prefix: Path, lengths: list[int] = LENGTHS, code: int = 8, width: int = 2) -> None:
    """One document a sequence, as preprocess_data.py writes them."""
    pointers, offset = [], 0
    for length in lengths:
        pointers.append(offset)
        offset += length * width
    index = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, code, len(lengths), len(lengths) + 1)
    index += struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(lengths)}q", *pointers)
    index += struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1))
    prefix.with_name(prefix.name + ".idx").write_bytes(index)
    prefix.with_name(prefix.name + ".bin").write_bytes(bytes(offset))


def test_a_whole_data_set_is_described(tmp_path: Path) -> None:
    write(tmp_path / "arxiv_text_document")
    found = read_indexed_dataset(tmp_path / "arxiv_text_document")
    assert (found.documents, found.sequences, found.tokens, found.dtype) == (3, 3, 12, "uint16")
    assert found.complete


@pytest.mark.parametrize(
    "typed", ["arxiv", "arxiv_text_document", "arxiv_text_document.bin", "arxiv_text_document.idx"]
)
def test_the_prefix_is_found_however_it_was_typed(tmp_path: Path, typed: str) -> None:
    write(tmp_path / "arxiv_text_document")
    assert find_prefix(tmp_path / typed) == tmp_path / "arxiv_text_document"


def test_a_bin_without_its_index_is_unfinished(tmp_path: Path) -> None:
    write(tmp_path / "x")
    (tmp_path / "x.idx").unlink()
    assert "still runs or has crashed" in (read_indexed_dataset(tmp_path / "x").reason or "")


def test_an_index_without_its_bin(tmp_path: Path) -> None:
    write(tmp_path / "x")
    (tmp_path / "x.bin").unlink()
    assert ".bin is missing" in (read_indexed_dataset(tmp_path / "x").reason or "")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not an index"),
        (b"hello world, this is text", "not an index"),
        (b"MMIDIDX\0\0\1", "ends within its header"),
        (b"TNTIDX\0\0" + bytes(40), "old format"),
        (struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 2, 8, 0, 1), "version 2"),
        (struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 99, 0, 1), "dtype code 99"),
        (struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 2**62, 2**62), "announces"),
        (struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 0, 0), "empty document index"),
        (struct.pack("<9sQBQQq", b"MMIDIDX\0\0", 1, 8, 0, 1, 0), "is empty"),
    ],
)
def test_a_file_that_is_no_index_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x.idx").write_bytes(content)
    (tmp_path / "x.bin").write_bytes(b"")
    assert words in (read_indexed_dataset(tmp_path / "x").reason or "")


@given(cut=st.integers(min_value=0, max_value=33 + 12 * 3 + 8 * 4))
def test_every_truncation_of_the_index_is_noticed(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("cut")
    write(folder / "x")
    index = folder / "x.idx"
    index.write_bytes(index.read_bytes()[:cut])
    assert not read_indexed_dataset(folder / "x").complete


def test_a_short_bin_is_noticed(tmp_path: Path) -> None:
    write(tmp_path / "x")
    (tmp_path / "x.bin").write_bytes(bytes(10))
    assert "announces 24" in (read_indexed_dataset(tmp_path / "x").reason or "")
