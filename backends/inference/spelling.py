"""Tokens as pieces of the text that they spell.

A token may be less than a letter: byte-level tokenizers cut Japanese so, and a server then sends U+FFFD for each part.
Such tokens are taken together, up to the next one that stands in the text as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backends.inference.request import Token

HALF = "\ufffd"  # part of a letter


@dataclass(frozen=True, slots=True)
class Piece:
    """`text` is what `tokens` spell; there are none where nothing is known of it."""

    text: str
    tokens: tuple[Token, ...] = ()

    @property
    def logprob(self) -> float | None:
        """Of its tokens, on the average; None where it is not told."""
        told = [token.logprob for token in self.tokens if token.logprob is not None]
        return math.fsum(told) / len(told) if told else None


def pieces(tokens: Sequence[Token], text: str) -> Iterator[Piece]:
    """`text`, all of it, with the tokens of each piece; those beyond its end (cut away at a stop text) are left out."""
    at, parts, spelled = 0, list[Token](), 0  # `parts` spell what follows `at`, in at most so many characters
    for token in tokens:
        if at >= len(text):
            break
        halves = any(HALF in part.text for part in parts)
        found = -1
        if token.text and HALF not in token.text:
            found = text.find(token.text, at + halves, at + spelled + len(token.text))
        if found < 0:
            parts.append(token)
            spelled += len(token.text)
            continue
        if parts:
            yield Piece(text[at:found], tuple(parts))
        yield Piece(token.text, (token,))
        at, parts, spelled = found + len(token.text), [], 0
    if at < len(text):
        yield Piece(text[at:], tuple(parts))


def tokens_before(tokens: Sequence[Token], text: str, length: int, guess: int) -> int:
    """How many tokens spell the first `length` characters of `text`; `guess` decides between those of one piece."""
    at = count = 0
    for piece in pieces(tokens, text):
        if at == length or at + len(piece.text) > length:
            inside = len(piece.tokens) if at < length or not piece.text else 0
            return min(max(guess, count), count + inside)
        at, count = at + len(piece.text), count + len(piece.tokens)
    return count
