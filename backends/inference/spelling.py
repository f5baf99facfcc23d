"""Assigns tokens to the pieces of text that they spell.

A token may be part of a character: byte-level tokenizers cut Japanese this way, and the server sends U+FFFD for each part.
Such tokens form one piece, up to the next token that occurs in the text as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backends.inference.request import Token

HALF = "\ufffd"  # part of a character


@dataclass(frozen=True, slots=True)
class Piece:
    """`text` is what `tokens` spell; they are empty if unknown."""

    text: str
    tokens: tuple[Token, ...] = ()

    @property
    def logprob(self) -> float | None:
        """The mean over its tokens; None if unknown."""
        told = [token.logprob for token in self.tokens if token.logprob is not None]
        return math.fsum(told) / len(told) if told else None


def pieces(tokens: Sequence[Token], text: str) -> Iterator[Piece]:
    """All of `text` in pieces with their tokens. Tokens beyond its end (after a stop text) are left out."""
    at, parts, spelled = 0, list[Token](), 0  # `parts` spell at most `spelled` characters after `at`
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
    """How many tokens spell the first `length` characters of `text`; within one piece `guess` decides."""
    at = count = 0
    for piece in pieces(tokens, text):
        if at == length or at + len(piece.text) > length:
            inside = len(piece.tokens) if at < length or not piece.text else 0
            return min(max(guess, count), count + inside)
        at, count = at + len(piece.text), count + len(piece.tokens)
    return count
