"""The tokens of an answer as a table: log-probability, probability and alternatives."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from backends.inference.history import Turn
from backends.inference.request import Token

WIDTH = 18  # cells for a token


def token_table(turns: Sequence[Turn]) -> str:
    """Plain text, for a window whose content can be copied."""
    return "\n\n".join("\n".join(_rows(turn)) for turn in turns)


def _rows(turn: Turn) -> list[str]:
    head = turn.answered_by or turn.server
    tokens = turn.answer_tokens
    if not any(token.logprob is not None for token in tokens):
        return [head, "", "This server returned no log-probabilities."]
    alternatives = "  likelier or next" if any(token.alternatives for token in tokens) else ""
    return [head, "", f"{'token':<{WIDTH}}  {'log p':>7}  {'p':>7}{alternatives}", *map(_row, tokens)]


def _row(token: Token) -> str:
    number, share = _numbers(token.logprob)
    others = "  ".join(
        f"{_shown(text)} {_numbers(logprob)[1].strip()}"
        for text, logprob in token.alternatives
        if text != token.text
    )
    return f"{_fit(_shown(token.text))}  {number}  {share}{'  ' + others if others else ''}"


def _numbers(logprob: float | None) -> tuple[str, str]:
    if logprob is None or math.isnan(logprob):
        return f"{'':>7}", f"{'':>7}"
    return f"{logprob:7.2f}", f"{100 * math.exp(min(logprob, 0.0)):6.2f}%"


def _shown(text: str) -> str:
    """In quotes if it begins or ends with a blank, or contains a newline."""
    return repr(text) if text != text.strip() or "\n" in text or not text else text


def _fit(text: str) -> str:
    return set_cell_size(text, WIDTH) if cell_len(text) != WIDTH else text
