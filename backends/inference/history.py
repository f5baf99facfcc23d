"""Prompts and answers, kept on disk: one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

KEPT = 500  # turns read back


@dataclass(frozen=True, slots=True)
class Turn:
    """`error` holds the sentence instead of an answer, where there was none. `at`: s since the epoch."""

    at: float
    server: str
    prompt: str
    continuation: str = ""
    error: str = ""
    seconds: float = 0.0
    tokens_per_second: float | None = None
    parameters: str = ""


def append(path: Path, turn: Turn) -> None:
    """Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(turn), ensure_ascii=False) + "\n")


def read(path: Path) -> list[Turn]:
    """The newest turns, oldest first; lines that are none are passed over, a missing file is an empty history."""
    try:
        lines = path.read_bytes().splitlines()[-KEPT:]
    except OSError:
        return []
    return [turn for line in lines if (turn := _turn(line)) is not None]


def _turn(line: bytes) -> Turn | None:
    try:
        value: Any = json.loads(line)
        known = {name: item for name, item in cast("dict[str, Any]", value).items() if name in Turn.__slots__}
        turn = Turn(**known)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    texts = (turn.server, turn.prompt, turn.continuation, turn.error, turn.parameters)
    numbers = (turn.at, turn.seconds, turn.tokens_per_second or 0.0)
    fine = all(isinstance(text, str) for text in texts) and all(isinstance(n, int | float) for n in numbers)  # pyright: ignore[reportUnnecessaryIsInstance]
    return turn if fine else None
