"""The workspace that prepare.sh made, ready for the launcher: settings, patches, a vocabulary and a data set."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backends.megatron.indexed_dataset import read_indexed_dataset
from backends.workspace import Workspace

BINDS = ("/usr", "/opt", "/tmp", "/etc")  # the image is an almost empty root
DOCUMENTS = 1800


@dataclass(frozen=True)
class Site:
    """A workspace on a machine with a GPU, and its command line."""

    workspace: Workspace
    image: Path
    data: Path

    def call(self, *words: str, limit: float = 120) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-c",
            "from tui.cli import main; main()",
            "-w",
            str(self.workspace.root),
            *words,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)

    def json(self, *words: str, limit: float = 120) -> Any:
        """The JSON output of a command that must succeed."""
        done = self.call(words[0], "--json", *words[1:], limit=limit)
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def site() -> Site:
    root, image = os.environ.get("MDK_GPU_WORKSPACE"), os.environ.get("MDK_GPU_IMAGE")
    if not (root and image and shutil.which("nvidia-smi")):
        pytest.skip("needs a GPU and Megatron-LM: tests/gpu/prepare.sh")
    workspace = Workspace(Path(root))
    bind = ", ".join(f'"{folder}"' for folder in BINDS)
    workspace.settings.write_text(f'[image]\npath = "{image}"\nbind = [{bind}]\n')
    found = Site(workspace, Path(image), workspace.megatron / "launcher_text_document")
    patched = found.call("setup", "patches", "--yes")
    assert (workspace.megatron / "examples/gpt3/train_gpt3_7b_mpi.sh").is_file(), (
        patched.stdout + patched.stderr
    )
    if not read_indexed_dataset(found.data).complete:
        _preprocess(found)
    return found


def _preprocess(site: Site) -> None:
    """Python's own sources, with a vocabulary made of them where the set-up would put GPT-2's."""
    from tokenizers import ByteLevelBPETokenizer  # pyright: ignore[reportMissingImports]

    sources = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))[:DOCUMENTS]
    texts = [path.read_text(errors="ignore") for path in sources]
    clone = site.workspace.megatron
    (clone / "launcher.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, vocab_size=8000, special_tokens=["<|endoftext|>"])
    (clone / "gpt2").mkdir(exist_ok=True)
    tokenizer.save_model(str(clone / "gpt2"))
    words = ["python", "tools/preprocess_data.py", "--input", "launcher.jsonl", "--output-prefix", "launcher",
             "--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", "gpt2/vocab.json",
             "--merge-file", "gpt2/merges.txt", "--workers", "8", "--append-eod"]  # fmt: skip
    inside = ["singularity", "exec", "-B", ",".join(BINDS), str(site.image), *words]
    done = subprocess.run(inside, cwd=clone, capture_output=True, text=True, check=False, timeout=240)
    data = read_indexed_dataset(site.data)
    assert data.complete and data.documents == len(texts), (
        f"{data.reason} {done.stdout[-2000:]} {done.stderr[-2000:]}"
    )
