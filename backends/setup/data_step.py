"""The data: corpus, vocabulary, and the token files that preprocess_data.py writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from backends.errors import UserError
from backends.launch.image import container_words
from backends.megatron.indexed_dataset import IndexedDataset, read_indexed_dataset
from backends.models.presets import find
from backends.setup.jsonl import SAMPLE, Corpus, check_corpus
from backends.setup.step import Action, Finding, Site, StepFindings
from backends.ticks import GIB, size_words

REDPAJAMA = "https://data.together.xyz/redpajama-data-1T/v1.0.0"
CORPUS_URL = f"{REDPAJAMA}/arxiv/arxiv_024de5df-1b7f-447c-8c3a-51407d8d6732.jsonl"
CORPUS_CHECKSUMS = f"{REDPAJAMA}/sha256/arxiv_SHA256SUMS.txt"  # by its publisher
VOCABULARY_URL = "https://huggingface.co/openai-community/gpt2/resolve/main/{name}"
# OpenAI's GPT-2 files (encoder.json and vocab.bpe there; 1,042,301 and 456,318 bytes), by SHA-256. tiktoken pins these
# for OpenAI's own address, and several projects pin the same ones for the mirror above: the same bytes in both.
VOCABULARY = {
    "vocab.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "merges.txt": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
RECIPE = "gpt3-7b"  # epochs are counted for its iterations
MOST_WORKERS = 64


class DataStep(StepFindings):
    name = "data"
    title = "data"

    def look(self, site: Site) -> Finding:
        prefix = data_prefix(site)
        data = read_indexed_dataset(prefix)
        if data.complete:
            evidence = f"{prefix.name} · {data.documents:,} documents · {data.tokens:,} tokens · {data.dtype}"
            return self.ok(evidence, details=(str(prefix), *epochs(data)))
        if data.size is not None:
            remedy = "Move the .bin (and .idx) away, then preprocess again."
            return self.failed(data.reason or "", remedy)
        corpus = corpus_path(site)
        if not corpus.is_file():
            evidence = f"{corpus.name} is not there yet."
            return self.pending(evidence, "Download it, or name a .jsonl of your own.", downloading(site))
        found = read_corpus(site, corpus)
        if refusal := unusable(corpus, found):
            bad = tuple(line.words for line in found.bad)
            return self.failed(refusal.message, refusal.remedy, bad)
        return self._pending(site, corpus, found)

    def _pending(self, site: Site, corpus: Path, found: Corpus) -> Finding:
        missing = [name for name in VOCABULARY if not (vocabulary_folder(site) / name).is_file()]
        todo = f"download {' and '.join(missing)}, then preprocess" if missing else "preprocess"
        number = found.estimated_documents or 0
        documents = f"{number:,} documents" if found.whole else f"about {number:,} documents"
        return self.pending(
            f"{corpus.name} · {documents} · {size_words(found.size)}",
            f"Next: {todo}.",
            (*corpus_words(found), *downloading(site)),
        )

    def actions(self, site: Site) -> Sequence[Action]:
        prefix, corpus = data_prefix(site), corpus_path(site)
        data = read_indexed_dataset(prefix)
        if data.complete:
            return []
        if data.size is not None and (rest := last_move(site, prefix)):
            return rest
        if data.size is not None:
            raise UserError(
                f"{prefix}.bin is there but not whole: {data.reason}",
                f"Move {prefix}.bin away first; nothing is overwritten.",
            )
        folder = site.need_clone()
        actions: list[Action] = []
        if not corpus.is_file():
            if own_corpus(site) is not None:
                raise UserError(f"There is no file {corpus}.", "Check the path of the corpus.")
            weight = "The sample is about 1 GiB. A broken download goes on where it ended."
            title = "download the RedPajama sample"
            actions.append(fetch(title, CORPUS_URL, corpus, folder, CORPUS_CHECKSUMS, weight))
        for name, checksum in VOCABULARY.items():
            file = vocabulary_folder(site) / name
            if not file.is_file():
                url = VOCABULARY_URL.format(name=name)
                actions.append(fetch(f"download GPT-2's {name}", url, file, folder, checksum))
        return [*actions, *preprocessing(site, corpus, prefix)]


def fetch(
    title: str, url: str, destination: Path, folder: Path, checksum: str = "", weight: str = ""
) -> Action:
    """The command that downloads `url` to `destination`, run in `folder`."""
    argv = [sys.executable, "-m", "backends.setup.download", url, str(destination)]
    return Action(title, (*argv, *([checksum] if checksum else [])), folder, weight=weight)


def own_corpus(site: Site) -> Path | None:
    """The user's .jsonl; None if none is named."""
    chosen, named = site.choices.corpus, site.settings.data.corpus
    return site.located(chosen, named).resolve() if chosen or named else None


def corpus_path(site: Site) -> Path:
    """The corpus to preprocess: the user's own, else the sample of the tutorial."""
    return own_corpus(site) or site.workspace.megatron / "arxiv.jsonl"


def read_corpus(site: Site, corpus: Path) -> Corpus:
    """Read all of the corpus if the user chose that, else a sample. Raises UserError when it cannot be read."""
    try:
        return check_corpus(corpus, site.settings.data.key, None if site.choices.whole else SAMPLE)
    except OSError as error:
        raise UserError(
            f"{corpus} cannot be read: {error.strerror}.", "Check its permissions, or name another .jsonl."
        ) from None


def unusable(corpus: Path, found: Corpus) -> UserError | None:
    """Why the preprocessing of `corpus` would fail; None if the lines that were read are good."""
    if found.bad:
        more = f" ({found.bad_count} bad lines)" if found.bad_count > 1 else ""
        words = f"{corpus.name}: {found.bad[0].words}.{more}"
        cut = "Was its download interrupted? Fetch it again, or m" if found.bad[0].number is None else "M"
        return UserError(words, f"{cut}end or remove the line: preprocessing stops there.")
    if found.documents == 0:
        return UserError(f"{corpus.name} holds no document.", "Name another .jsonl.")
    return None


def data_prefix(site: Site) -> Path:
    """The value of `--data-path`: the corpus' name with what preprocess_data.py appends."""
    return site.workspace.megatron / f"{corpus_path(site).stem}_{site.settings.data.key}_document"


def vocabulary_folder(site: Site) -> Path:
    return site.workspace.megatron / "gpt2"


def epochs(data: IndexedDataset) -> tuple[str, ...]:
    """How often the tutorial's recipe reads these tokens."""
    arguments = list(find(RECIPE).arguments)
    iterations, batch, length = (
        int(arguments[arguments.index(flag) + 1])
        for flag in ("--train-iters", "--global-batch-size", "--seq-length")
    )
    if not data.tokens:
        return ()
    wanted = iterations * batch * length
    return (
        f"{RECIPE}: {iterations:,} iterations of {batch:,} × {length:,} tokens read it {wanted / data.tokens:,.1f} times",
    )


def corpus_words(found: Corpus) -> tuple[str, ...]:
    """What was read of a corpus, as details of a finding."""
    read = "all of it" if found.whole else f"a sample of {found.documents + found.bad_count:,} lines"
    mean = found.characters // max(found.documents, 1)
    empty = f", {found.empty:,} of them empty" if found.empty else ""
    return (f"read {read}: {found.documents:,} documents{empty}, {mean:,} characters each",)


def downloading(site: Site) -> tuple[str, ...]:
    """How much of each download has arrived."""
    parts = [corpus_path(site).with_name(corpus_path(site).name + ".part")]
    parts += [vocabulary_folder(site) / f"{name}.part" for name in VOCABULARY]
    return tuple(
        f"{part.name}: {size_words(part.stat().st_size)} have arrived; the download goes on from there"
        for part in parts
        if part.is_file()
    )


def preprocessing(site: Site, corpus: Path, prefix: Path) -> list[Action]:
    """`tools/preprocess_data.py` inside the image, with the tutorial's options, under a temporary name until it is complete.

    The .idx decides: preprocess_data.py of core_r0.8.0 ends with status 0 even when a worker crashed. Raises
    UserError for a corpus that it cannot take.
    """
    folder, key, part = site.workspace.megatron, site.settings.data.key, part_prefix(site)
    found = read_corpus(site, corpus) if corpus.is_file() else None
    if found is not None and (refusal := unusable(corpus, found)):
        raise refusal
    documents = (found.estimated_documents or 0) if found else 0
    small = found is not None and found.size < GIB // 10
    weight = "" if small else "Preprocessing takes minutes for each GiB, on all cores."
    tokenize = preprocess_command(site, corpus, folder / f"{corpus.stem}.part", key)
    whole = (sys.executable, "-m", "backends.setup.whole", str(part))
    return [
        Action("preprocess", tuple(tokenize), folder, weight=weight, documents=documents),
        Action("is it whole?", whole, folder),
        # The .idx goes last: a .bin without it is no data set.
        *(put_in_place(site, prefix, suffix) for suffix in (".bin", ".idx")),
    ]


def whole_check(site: Site) -> list[Action]:
    """Read every line of the corpus, with progress. Raises UserError when there is none."""
    corpus = corpus_path(site)
    if not corpus.is_file():
        raise UserError(f"{corpus} is not there.", "Download it, or name a .jsonl of your own.")
    argv = (sys.executable, "-m", "backends.setup.jsonl", str(corpus), site.settings.data.key)
    return [Action("check every line of the corpus", argv, corpus.parent)]


def part_prefix(site: Site) -> Path:
    """The prefix of the data set while it is being written; a step that runs again overwrites it."""
    return site.workspace.megatron / f"{corpus_path(site).stem}.part_{site.settings.data.key}_document"


def put_in_place(site: Site, prefix: Path, suffix: str) -> Action:
    """The command that gives a finished file of the data set its final name."""
    move = ("mv", "-n", "-T", f"{part_prefix(site)}{suffix}", f"{prefix}{suffix}")
    return Action(f"put the {suffix} in place", move, site.workspace.megatron)


def last_move(site: Site, prefix: Path) -> list[Action]:
    """The last command, if the step was interrupted just before it."""
    part = part_prefix(site)
    between = Path(f"{part}.idx").is_file() and not Path(f"{part}.bin").exists()
    if not between or Path(f"{prefix}.idx").exists():
        return []
    return [put_in_place(site, prefix, ".idx")]


def preprocess_command(site: Site, corpus: Path, output: Path, key: str) -> list[str]:
    workers = site.choices.workers or site.settings.data.workers
    workers = workers or max(1, min(MOST_WORKERS, os.cpu_count() or 1))
    vocabulary = vocabulary_folder(site)
    gpus = site.programs.find("nvidia-smi") is not None
    folders = [site.workspace.root, corpus.parent]
    image = str(site.image)
    return [
        *container_words(site.need_singularity(), image, site.settings.image, folders, gpus=gpus),
        *("python", "tools/preprocess_data.py", "--input", str(corpus), "--output-prefix", str(output)),
        *("--tokenizer-type", "GPT2BPETokenizer", "--json-keys", key),
        *("--vocab-file", str(vocabulary / "vocab.json"), "--merge-file", str(vocabulary / "merges.txt")),
        *("--workers", str(workers), "--append-eod"),
    ]
