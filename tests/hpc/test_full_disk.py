"""Real programs on a full disk and on one with a quota: each step says which it is, and continues once there is room."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from backends.setup.download import main as download

MIB = 2**20
ROOM = 8 * MIB
LARGE = os.urandom(20 * MIB)
EMPTY = """\
Bootstrap: scratch

%setup
    head -c 20000000 /dev/urandom > "${APPTAINER_ROOTFS:-$SINGULARITY_ROOTFS}/noise"
"""
# The little of preprocess_data.py that is needed: it writes as much as it reads.
PREPROCESS = """\
import sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
with open(f"{words['--output-prefix']}_{words['--json-keys']}_document.bin", "wb") as data:
    for line in open(words["--input"], "rb"):
        data.write(line)
        data.flush()
"""


def said(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (words, done.stderr)


@dataclass(frozen=True)
class Small:
    """A folder that takes ROOM bytes; `words` are what a refusal says, `more` makes room."""

    folder: Path
    words: str
    more: tuple[str, ...]


@pytest.fixture(params=["full", "quota"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Small]:
    mount = tmp_path / "small"
    mount.mkdir()
    if request.param == "full":
        said("mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(mount))
        found = Small(mount, "The disk is full.", ("mount", "-o", "remount,size=500m", str(mount)))
    else:
        disk, folder = tmp_path / "disk", mount / "mine"
        disk.touch()
        os.truncate(disk, 400 * MIB)
        said("mkfs.btrfs", "-q", str(disk))
        said("mount", "-o", "loop", str(disk), str(mount))
        said("btrfs", "quota", "enable", str(mount))
        said("btrfs", "subvolume", "create", str(folder))
        said("btrfs", "qgroup", "limit", str(ROOM), str(folder))
        found = Small(
            folder, "Your quota on that disk is used up.", ("btrfs", "qgroup", "limit", "none", str(folder))
        )
    yield found
    said("umount", "--lazy", str(mount))


def mdk(root: Path, environment: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from tui.cli import main; main()", "-w", str(root), *words],
        env=dict(environment), capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def refused(done: subprocess.CompletedProcess[str], small: Small) -> None:
    """Checks that the refusal is one sentence with a remedy."""
    assert done.returncode == 1 and 'Traceback (most recent call last):\n  File "<string>"' not in done.stderr
    sentence, hint = done.stderr.strip().splitlines()[-2:]
    assert sentence.startswith("mdk-tui: ") and small.words in sentence, done.stderr[-2000:]
    assert hint.startswith("hint: ") and hint.endswith("Then run the step again.")


def test_a_clone(small: Small, tmp_path: Path, hpc_environment: dict[str, str]) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / "pretrain_gpt.py").touch()
    (mirror / "large").write_bytes(LARGE)
    own = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q", "-b", "core_r0.8.0"), ("add", "."), ("commit", "-qm", "all")):
        said("git", "-C", str(mirror), *own, *words)
    (small.folder / "outputs").mkdir()
    clone = ("setup", "megatron", "--yes", "--repository", f"file://{mirror}")
    refused(mdk(small.folder, hpc_environment, *clone), small)
    said(*small.more)
    done = mdk(small.folder, hpc_environment, *clone, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)[0]["verdict"] != "failed", done.stderr[-2000:]


def test_an_image(small: Small, hpc_environment: dict[str, str]) -> None:
    (small.folder / "outputs").mkdir()
    (small.folder / "mine.def").write_text(EMPTY)
    image = small.folder / "new.sif"
    (small.folder / "mdk.toml").write_text('[image]\npath = "new.sif"\ndefinition = "mine.def"\n')
    refused(mdk(small.folder, hpc_environment, "setup", "image", "--yes"), small)
    assert not image.exists()
    said(*small.more)
    done = mdk(small.folder, hpc_environment, "setup", "image", "--yes")
    assert done.returncode == 0 and image.is_file(), done.stderr[-2000:]


def test_a_preprocessing(
    small: Small, tmp_path: Path, cpu_image: Path, hpc_environment: dict[str, str]
) -> None:
    tools = small.folder / "outputs/Megatron-LM/tools"
    tools.mkdir(parents=True)
    (tools / "preprocess_data.py").write_text(PREPROCESS)
    vocabulary = tools.parent / "gpt2"
    vocabulary.mkdir()
    for name in ("vocab.json", "merges.txt"):
        (vocabulary / name).touch()
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": "word " * 2000}) + "\n" for _ in range(2000)))
    (small.folder / "mdk.toml").write_text(
        f'[image]\npath = "{cpu_image}"\n[data]\ncorpus = "{corpus}"\nworkers = 1\n'
    )
    refused(mdk(small.folder, hpc_environment, "setup", "data", "--yes"), small)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)  # without a length: nobody can say beforehand that it will not fit
        self.end_headers()
        for at in range(0, len(LARGE), MIB):
            try:
                self.wfile.write(LARGE[at : at + MIB])
            except ConnectionError:
                return

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_download(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    address, target = f"http://127.0.0.1:{server.server_port}/corpus", small.folder / "corpus.jsonl"
    try:
        assert download([address, str(target)]) == 1
        error = capsys.readouterr().err
        why = "No space left on device" if "full" in small.words else "Disk quota exceeded"
        assert f"corpus.jsonl.part could not be written: {why}." in error and "Make room" in error
        assert not target.exists()
        said(*small.more)
        assert download([address, str(target)]) == 0 and target.read_bytes() == LARGE
    finally:
        server.shutdown()
        server.server_close()
