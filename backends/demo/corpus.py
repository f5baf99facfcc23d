"""Text to train on, from Python's own help or from a .jsonl file; its splits and samples."""

from __future__ import annotations

import importlib.util
import json
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backends.demo.tokenizer import Tokenizer

KEY = "text"  # as tools/preprocess_data.py of Megatron-LM expects
READ_LIMIT = 32 * 2**20  # characters of a .jsonl; more does not help a tiny model
FEWEST = 2000  # characters of the help topics below which docstrings are used instead

Tokens = npt.NDArray[np.int64]


class CorpusError(Exception):
    """There is nothing to train on. The text is one sentence."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """The text to train on. `name` says where it comes from."""

    name: str
    documents: list[str]
    cut: bool = False  # whether the source holds more than was read


def read_corpus(data_path: str | None) -> Corpus:
    """The documents of a .jsonl file, or of Python's help. Raises CorpusError."""
    if data_path is not None:
        return _read_jsonl(Path(data_path))
    topics = help_topics()
    return Corpus("pydoc_data.topics", topics) if topics else Corpus("docstrings", standard_docstrings())


def _read_jsonl(path: Path) -> Corpus:
    documents: list[str] = []
    size = 0
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                documents.append(_document(path, number, line))
                size += len(documents[-1])
                if size > READ_LIMIT:
                    return Corpus(path.name, documents, cut=True)
    except OSError as error:
        raise CorpusError(f"--data-path {path}: {error.strerror}") from None
    if not size:
        raise CorpusError(f"--data-path {path} holds no text")
    return Corpus(path.name, documents)


def _document(path: Path, number: int, line: str) -> str:
    try:
        text = json.loads(line)[KEY]
    except (ValueError, KeyError, TypeError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise CorpusError(f'--data-path {path}: line {number} is not a JSON object like {{"{KEY}": "…"}}')
    return text


def help_topics() -> list[str]:
    """The language reference in pydoc (about 0.5 MB); empty if the distribution leaves it out."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return []
    texts = [str(topics[name]) for name in sorted(topics)]
    return texts if sum(map(len, texts)) >= FEWEST else []


def standard_docstrings() -> list[str]:
    """The docstrings of the standard library, read from its sources without importing them."""
    return [text for text in map(_docstrings, _standard_sources()) if len(text) > 200]


def _standard_sources() -> Iterator[Path]:
    folder = Path(json.__file__).parent.parent
    for module in sorted(pkgutil.iter_modules([str(folder)]), key=lambda module: module.name):
        spec = importlib.util.spec_from_file_location(module.name, folder / f"{module.name}.py")
        if spec and spec.origin and Path(spec.origin).is_file():
            yield Path(spec.origin)


def _docstrings(source: Path) -> str:
    import ast

    try:
        tree = ast.parse(source.read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError):
        return ""
    places = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, places)]
    return "\n\n".join(text for text in found if text)


def tokenize(tokenizer: Tokenizer, documents: Sequence[str]) -> Tokens:
    """All documents as one array of ids, each followed by `eod`."""
    return np.array([token for text in documents for token in [*tokenizer.tokenize(text), tokenizer.eod]])


def split_tokens(tokens: Tokens, split: str) -> tuple[Tokens, Tokens, Tokens]:
    """Train, validation and test, one after the other, by shares such as "949,50,1" (Megatron's `--split`)."""
    try:
        shares = np.array([float(part) for part in split.split(",")] + [0.0, 0.0])[:3]
    except ValueError:
        raise CorpusError(f"--split {split!r} is not a list of numbers such as 949,50,1") from None
    if not np.isfinite(shares).all() or (shares < 0).any() or shares[0] <= 0:
        raise CorpusError(f"--split {split!r} leaves nothing to train on")
    ends = np.round(np.cumsum(shares / shares.sum()) * len(tokens)).astype(int)
    return tokens[: ends[0]], tokens[ends[0] : ends[1]], tokens[ends[1] :]


def sample(tokens: Tokens, length: int, seed: int, number: int) -> Tokens:
    """Sample `number`: `length` + 1 ids from a place that depends only on seed and number.

    So all ranks, resumes and batch sizes draw the same samples in the same order, without any state.
    """
    start = int(np.random.default_rng([seed, number]).integers(0, len(tokens) - length))
    return tokens[start : start + length + 1]
