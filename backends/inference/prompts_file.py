"""Prompts from a file: one a line, or JSON lines with a "prompt" or "text"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from backends.errors import UserError
from backends.ticks import size_words

KEYS = ("prompt", "text")
SIZE_LIMIT = 256 * 2**20  # bytes


def read_prompts(path: Path) -> list[str]:
    """Raises UserError. Empty lines are skipped; bytes that are not UTF-8 are replaced."""
    texts = read_texts(path) if path.suffix in (".jsonl", ".json") else lines(read_text(path))
    prompts = [text for text in texts if text.strip()]
    if not prompts:
        raise UserError(
            f"{path} holds no prompt.", 'Write one a line, or JSON lines with a "prompt".', status=2
        )
    return prompts


def read_texts(path: Path) -> list[str]:
    """The text of each line of a .jsonl file, as Megatron-LM's preprocessing takes them. Raises UserError naming the line."""
    texts: list[str] = []
    for number, line in enumerate(lines(read_text(path)), 1):
        if not line.strip():
            continue
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        known = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        text = next((known[key] for key in KEYS if isinstance(known.get(key), str)), None)
        if text is None:
            raise UserError(
                f"{path}, line {number}: there is no {' or '.join(KEYS)} in it.",
                'A line looks like {"text": "…"}.',
                status=2,
            )
        texts.append(text)
    return texts


def lines(text: str) -> list[str]:
    """Split at newlines only: a JSON text may contain the other line separators of Unicode."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def read_text(path: Path) -> str:
    """Raises UserError for a file that cannot be read, or that is too large."""
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise UserError(
                f"{path} is larger than {size_words(SIZE_LIMIT)}.", "Take a sample of it.", status=2
            )
        return path.read_bytes().decode(errors="replace")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", "Check the path.", status=2) from None
