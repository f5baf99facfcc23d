"""Corpus, vocabulary, and the token files that preprocess_data.py makes of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from backends.errors import UserError
from backends.megatron.indexed_dataset import read_indexed_dataset
from backends.setup.jsonl import check_corpus
from backends.setup.step import Action, Finding, Site

CORPUS_URL = "https://data.together.xyz/redpajama-data-1T/v1.0.0/arxiv/arxiv_024de5df-1b7f-447c-8c3a-51407d8d6732.jsonl"
VOCABULARY_URL = "https://huggingface.co/openai-community/gpt2/resolve/main/{name}"
# OpenAI's GPT-2 files; the same bytes at every mirror.
VOCABULARY = {
    "vocab.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "merges.txt": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}


class DataStep:
    name = "data"
    title = "data"

    def look(self, site: Site) -> Finding:
        prefix = data_prefix(site)
        data = read_indexed_dataset(prefix)
        if data.complete:
            return Finding(
                self.name,
                "ok",
                f"{prefix.name} · {data.documents:,} documents · {data.tokens:,} tokens · {data.dtype}",
            )
        if data.size is not None:
            return Finding(
                self.name,
                "failed",
                data.reason or "",
                "Move the .bin (and .idx) away, then preprocess again.",
            )
        missing = [name for name in VOCABULARY if not (vocabulary_folder(site) / name).is_file()]
        corpus = corpus_path(site)
        if not corpus.is_file():
            return Finding(
                self.name,
                "pending",
                f"{corpus.name} is not there yet.",
                "Download it, or name a .jsonl of your own.",
            )
        found = check_corpus(corpus)
        if found.bad:
            bad = found.bad[0]
            return Finding(
                self.name,
                "failed",
                f"{corpus.name} line {bad.number} {bad.problem}.",
                "Mend or remove the line: preprocessing stops there.",
            )
        if found.documents == 0:
            return Finding(self.name, "failed", f"{corpus.name} holds no document.", "Name another .jsonl.")
        about = found.estimated_documents or 0
        todo = f"download {' and '.join(missing)}, then preprocess" if missing else "preprocess"
        return Finding(
            self.name,
            "pending",
            f"{corpus.name} · about {about:,} documents · {found.size / 1e9:.2f} GB",
            f"Next: {todo}.",
        )

    def actions(self, site: Site) -> Sequence[Action]:
        prefix, corpus, folder = data_prefix(site), corpus_path(site), site.workspace.megatron
        data = read_indexed_dataset(prefix)
        if data.complete:
            return []
        if data.size is not None:
            raise UserError(
                f"{prefix}.bin is there but not whole: {data.reason}",
                f"Move {prefix}.bin away first; nothing is overwritten.",
            )
        if not folder.is_dir():
            raise UserError(f"{folder} is not there yet.", "Do the step megatron first.")
        actions: list[Action] = []
        if not corpus.is_file():
            if site.choices.corpus is not None:
                raise UserError(f"There is no file {corpus}.", "Check the path of the corpus.")
            actions.append(fetch("download the RedPajama sample", CORPUS_URL, corpus, folder))
        for name, checksum in VOCABULARY.items():
            file = vocabulary_folder(site) / name
            if not file.is_file():
                actions.append(
                    fetch(
                        f"download GPT-2's {name}", VOCABULARY_URL.format(name=name), file, folder, checksum
                    )
                )
        actions.append(Action("preprocess", tuple(preprocess_command(site, corpus, prefix)), folder))
        return actions


def fetch(title: str, url: str, destination: Path, folder: Path, checksum: str = "") -> Action:
    argv = [
        sys.executable,
        "-m",
        "backends.setup.download",
        url,
        str(destination),
        *([checksum] if checksum else []),
    ]
    return Action(title, tuple(argv), folder)


def corpus_path(site: Site) -> Path:
    return (
        site.choices.corpus.expanduser().resolve()
        if site.choices.corpus
        else site.workspace.megatron / "arxiv.jsonl"
    )


def data_prefix(site: Site) -> Path:
    """The value of `--data-path`: the corpus' name with what preprocess_data.py appends."""
    return site.workspace.megatron / f"{corpus_path(site).stem}_text_document"


def vocabulary_folder(site: Site) -> Path:
    return site.workspace.megatron / "gpt2"


def preprocess_command(site: Site, corpus: Path, prefix: Path) -> list[str]:
    """`tools/preprocess_data.py` inside the image, with the tutorial's options."""
    if site.singularity is None:
        raise UserError("There is no singularity on this machine.", "Install Apptainer or SingularityCE.")
    workers = site.choices.workers or max(1, min(64, os.cpu_count() or 1))
    folder = vocabulary_folder(site)
    return [
        *(
            site.singularity,
            "exec",
            "--nv",
            "--bind",
            str(corpus.parent),
            "--bind",
            str(site.workspace.root),
            str(site.image),
        ),
        *("python", "tools/preprocess_data.py", "--input", str(corpus)),
        *(
            "--output-prefix",
            str(prefix).removesuffix("_text_document"),
            "--tokenizer-type",
            "GPT2BPETokenizer",
        ),
        *("--vocab-file", str(folder / "vocab.json"), "--merge-file", str(folder / "merges.txt")),
        *("--workers", str(workers), "--append-eod"),
    ]
