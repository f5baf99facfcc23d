"""`mdk-tui watch` and `attach` refuse what cannot be watched, with a sentence and a remedy."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.errors import UserError
from backends.megatron.summary import read_log
from tui.commands.watch import readable_log


def refusal(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        readable_log(path)
    return caught.value


def test_a_log_is_accepted(logs: Path):
    assert readable_log(logs / "tutorial-1node.log") == logs / "tutorial-1node.log"


def test_an_empty_log_is_accepted_because_it_may_grow(tmp_path: Path):
    (tmp_path / "train.log").touch()
    assert readable_log(tmp_path / "train.log")


def test_a_missing_log_names_those_beside_it(tmp_path: Path):
    (tmp_path / "train.log").write_text("x")
    error = refusal(tmp_path / "trian.log")
    assert "There is no log" in error.message and "train.log" in error.remedy and error.status == 2


def test_a_folder_names_its_logs(tmp_path: Path):
    (tmp_path / "train.log").write_text("x")
    error = refusal(tmp_path)
    assert "is a folder" in error.message and "train.log" in error.remedy


def test_a_binary_file_is_refused(tmp_path: Path):
    path = tmp_path / "model.pt"
    path.write_bytes(b"PK\x03\x04\0\0\0")
    assert "is not a text file" in refusal(path).message


def test_a_pipe_in_the_file_system_is_not_opened(tmp_path: Path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    assert "watch -" in refusal(path).remedy


def test_a_null_character_in_the_name(tmp_path: Path):
    assert refusal(Path("a\0b")).status == 2


@pytest.mark.parametrize(
    "start", [b"\xff\xfei\0t\0e\0r\0", b"\0" * 100 + b" iteration", "学習\n".encode(), b"\0" * 9]
)
def test_a_log_in_utf_16_or_with_holes_is_accepted(tmp_path: Path, start: bytes):
    (tmp_path / "train.log").write_bytes(start)
    assert readable_log(tmp_path / "train.log")


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress, lzma.compress])
def test_a_compressed_log_is_refused_with_the_command_that_reads_it(
    tmp_path: Path, pack: Callable[[bytes], bytes]
):
    path = tmp_path / "train.log.packed"
    path.write_bytes(pack(b"iteration"))
    error = refusal(path)
    assert "is compressed" in error.message and f"cat {path} | mdk-tui summary -" in error.remedy
    with pytest.raises(UserError, match="is compressed"):
        read_log(path)


def test_a_device_is_no_log():
    assert "is no file" in refusal(Path("/dev/zero")).message
