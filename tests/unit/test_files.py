"""Small files that others read while they are written, and locks that hold where the file system knows none."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backends.files import hold_lock, read_json, real

HOLDER = """
import fcntl, sys
from pathlib import Path
from backends import files
def refused(*_):
    raise OSError(int(sys.argv[2]), "no locks")
if int(sys.argv[2]):
    fcntl.flock = refused
print(files.hold_lock(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("refusal", [0, errno.ENOLCK, errno.ENOSYS])
def test_a_lock_belongs_to_one_process_until_it_ends(
    tmp_path: Path, refusal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on Lustre, whose mounts often refuse flock: an errno stands in for one."""
    words = [sys.executable, "-c", HOLDER, str(tmp_path / "lock"), str(refusal)]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline() == b"True\n"
    if refusal:

        def refused(*_: object) -> None:
            raise OSError(refusal, os.strerror(refusal))

        monkeypatch.setattr(fcntl, "flock", refused)
    (tmp_path / "other").symlink_to(tmp_path)
    assert not hold_lock(tmp_path / "lock") and not hold_lock(tmp_path / "other/lock")
    holder.communicate()
    assert hold_lock(tmp_path / "lock")


def test_read_json_gives_none_for_anything_but_an_object(tmp_path: Path) -> None:
    for content in (b"", b"[]", b'{"a": ', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000):
        (tmp_path / "x").write_bytes(content)
        assert read_json(tmp_path / "x") is None
    assert read_json(tmp_path) is None and read_json(tmp_path / "none") is None


def test_links_in_a_circle_raise_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert real(tmp_path / "a").parent == tmp_path
