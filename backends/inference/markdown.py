"""Prompts and answers as Markdown, for a report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from backends.inference.history import Turn
from backends.inference.parameters import words

FENCES = re.compile(r"`{3,}")


def as_markdown(turns: Sequence[Turn]) -> str:
    """Prompt and answer of each turn as code blocks, so that nothing in them is read as Markdown."""
    return "# Prompts and answers\n" + "".join(part for turn in turns for part in _parts(turn))


def _parts(turn: Turn) -> Iterator[str]:
    moment = datetime.fromtimestamp(turn.at).astimezone()
    yield f"\n## {moment:%Y-%m-%d %H:%M:%S}\n\n"
    yield f"{_code(turn.answered_by or turn.server)}, {words(turn.request)}\n\nPrompt:\n\n{_block(turn.prompt)}\n"
    if turn.continuation:
        yield f"Continuation:\n\n{_block(turn.continuation)}\n"
    if turn.error:
        yield f"Error: {_code(turn.error)}\n"


def _block(text: str) -> str:
    fence = "`" * (1 + max([2, *(len(run) for run in FENCES.findall(text))]))
    return f"{fence}text\n{text}\n{fence}\n"


def _code(text: str) -> str:
    """One line as code, so that nothing in it is read as Markdown."""
    return f"`{' '.join(text.split()).replace('`', chr(39))}`"
