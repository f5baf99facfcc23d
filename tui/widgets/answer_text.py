"""One answer as text: the prompt dim, the continuation bright, its tokens coloured or numbered by their probability."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, TypeAlias

from textual.content import Content

from backends.inference.history import Turn
from backends.inference.likelihood import likelihood, verdict
from backends.inference.likelihood import words as likelihood_words
from backends.inference.parameters import words
from backends.inference.spelling import pieces
from backends.text import clean
from tui.glyphs import Glyphs

View: TypeAlias = Literal["plain", "colours", "numbers"]
Piece: TypeAlias = "tuple[str, str]"
DIM = "$foreground 55%"
# Probability from which on, how it looks; colour is never alone.
BANDS = (
    (0.5, "$text-success"),
    (0.1, ""),
    (0.01, "$text-warning underline"),
    (0.0, "$text-error bold underline"),
)
# What the bands mean, as a row of a panel.
LEGEND = (
    ("   tokens with p ", "dim"),
    ("0.5 or more  ", "good"),
    ("0.1  ", "text"),
    ("0.01  ", "warning"),
    ("less", "error"),
)


def band(logprob: float | None) -> str:
    """How a token of this log-probability looks; "" where it is not known."""
    if logprob is None or math.isnan(logprob):
        return ""
    return next(style for least, style in BANDS if logprob >= (math.log(least) if least else -math.inf))


def answer_text(turn: Turn, sign: Glyphs, view: View = "plain", *, head: str = "", note: str = "") -> Content:
    """Whatever the answer looks like, it is text. `head`: a line above it; `note`: what to say beside its figures."""
    pieces: list[Piece] = [(f"{clean(head)}\n", "$text-primary")] if head else []
    if not turn.scored:
        pieces.append((clean(turn.prompt), DIM))
    pieces += _answer(turn, view)
    if turn.error:
        pieces.append((f"\n{sign.failed} {clean(turn.error)}", "$text-error"))
    below = f" {sign.dot} ".join(part for part in (*_figures(turn, sign, view), note) if part)
    return Content.assemble(*pieces, (f"\n{below}" if below else "", f"{DIM} italic"))


def side_by_side(turns: Sequence[Turn], sign: Glyphs, view: View = "plain") -> list[Content]:
    """The answers to one question. Of several each says who gave it; of two scores of a text, which is the better."""
    scores = [likelihood(turn.tokens) for turn in turns] if all(turn.scored for turn in turns) else []
    judged = verdict(scores) if not any(turn.error for turn in turns) else ""
    return [
        answer_text(turn, sign, view, head=turn.answered_by if len(turns) > 1 else "", note=judged)
        for turn in turns
    ]


def _answer(turn: Turn, view: View) -> Iterator[Piece]:
    tokens = turn.answer_tokens
    said = clean(turn.prompt if turn.scored else turn.continuation)
    if view != "plain" and any(token.logprob is not None for token in tokens):
        for piece in pieces(tokens, said):
            yield piece.text, band(piece.logprob)
            if view == "numbers" and piece.logprob is not None:
                yield f"({piece.logprob:.1f})", DIM
    elif not said.strip() and not turn.error:  # an answer that cannot be seen looks like none
        yield f"\n({len(said)} blanks, nothing else)", ""
    else:
        yield said, ""


def _figures(turn: Turn, sign: Glyphs, view: View) -> Iterator[str]:
    if turn.scored:
        yield likelihood_words(likelihood(turn.tokens, turn.prompt), sign.dot)
    elif not turn.error:
        yield f"{turn.seconds:.1f} s"
        if turn.tokens_per_second:
            yield f"{turn.tokens_per_second:.0f} tokens/s"
        yield words(turn.request, sign.dot)
        if view != "plain":
            yield likelihood_words(likelihood(turn.answer_tokens), sign.dot)
    if turn.parent is not None:
        yield f"from {datetime.fromtimestamp(turn.parent):%H:%M:%S}"
