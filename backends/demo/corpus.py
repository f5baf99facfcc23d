"""Text to train on: what every Python carries, or a user's .jsonl; bytes are the tokens."""

# pyright: standard, reportMissingTypeStubs=false, reportMissingImports=false
from __future__ import annotations

import json
import pkgutil
import pydoc
from pathlib import Path

import numpy as np

EOD = 256  # end of document, after the 256 bytes
VOCABULARY = 257


def documents(data_path: str | None, key: str = "text") -> list[str]:
    """The documents of a .jsonl, or the topics of Python's own help. Raises ValueError with a sentence."""
    if data_path is None:
        return _help_topics()
    found: list[str] = []
    for number, line in enumerate(
        Path(data_path).read_text(encoding="utf-8", errors="replace").splitlines(), 1
    ):
        if not line.strip():
            continue
        try:
            text = json.loads(line)[key]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{data_path} line {number} is no JSON object with a {key!r}") from None
        found.append(str(text))
    if not found:
        raise ValueError(f"{data_path} holds no document")
    return found


def _help_topics() -> list[str]:
    """The language reference that pydoc carries; some distributions leave it out, then the docstrings of the library."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        names = [module.name for module in pkgutil.iter_modules() if not module.name.startswith("_")]
        return [
            text for name in names[:200] if (text := pydoc.splitdoc(str(pydoc.locate(name).__doc__ or ""))[1])
        ]
    return [str(topics[name]) for name in sorted(topics)]


def tokenize(texts: list[str]) -> np.ndarray:
    """One array of token ids (int16), each document followed by `EOD`."""
    parts = [np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int16) for text in texts]
    end = np.array([EOD], np.int16)
    return np.concatenate([piece for part in parts for piece in (part, end)])


def split_tokens(tokens: np.ndarray, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Train, validation and test, by shares such as "949,50,1" (Megatron's `--split`)."""
    shares = np.array([float(part) for part in split.split(",")] + [0, 0])[:3]
    if shares[0] <= 0:
        raise ValueError(f"--split {split} leaves nothing to train on")
    ends = np.round(np.cumsum(shares / shares.sum()) * len(tokens)).astype(int)
    return tokens[: ends[0]], tokens[ends[0] : ends[1]], tokens[ends[1] :]


def batch(tokens: np.ndarray, length: int, size: int, seed: int, number: int) -> np.ndarray:
    """Batch `number` (size × (length + 1) ids): the same for every rank and after every resume, without any state."""
    starts = np.random.default_rng([seed, number]).integers(0, len(tokens) - length, size)
    return np.stack([tokens[start : start + length + 1] for start in starts]).astype(np.int64)
