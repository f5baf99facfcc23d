"""Perplexity of documents, through what a text server says of the probability of each token.

A document is cut into windows that are scored one by one, each as the beginning of a document (core_r0.8.0: add_BOS), so
that every token counts once and the first of a window has no context. With short windows the figure is therefore higher
than that of a sliding window; between checkpoints that are measured with the same windows it compares well. Only bits
per byte compare models with different tokenizers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from backends.errors import UserError
from backends.inference.likelihood import Likelihood, likelihood
from backends.inference.request import TextClient, TooLongError

WINDOW = 2000  # characters; about 500 tokens of English
SMALLEST = 16  # characters: a model that does not take these has another trouble


@dataclass(frozen=True, slots=True)
class Progress:
    """`scores`: of each client, so far. `window`: characters at most, after a model took no more."""

    documents: int
    windows: int
    window: int
    scores: tuple[Likelihood, ...]


def measure(
    clients: Sequence[TextClient], documents: Sequence[str], window: int = WINDOW
) -> Iterator[Progress]:
    """After each window how far it has come. All clients see the same windows, at the same time. Raises UserError.

    Where one of them finds a window too long, it is cut in halves for all, and later ones are shorter from the start.
    """
    scores = tuple(Likelihood() for _ in clients)
    done = 0
    with ThreadPoolExecutor(max_workers=max(len(clients), 1)) as pool:
        for number, document in enumerate(documents, 1):
            waiting = windows(document, window)
            while waiting:
                piece = waiting.pop(0)
                if len(piece) > window:
                    waiting = [*windows(piece, window), *waiting]
                    continue
                try:
                    found = list(pool.map(_scorer(piece), clients))
                except TooLongError:
                    if len(piece) <= SMALLEST:
                        raise
                    window = max(len(piece) // 2, SMALLEST)
                    waiting.insert(0, piece)
                    continue
                done += 1
                scores = tuple(before + now for before, now in zip(scores, found, strict=True))
                yield Progress(number, done, window, scores)
    if not any(score.tokens for score in scores):
        raise UserError("There is no text to measure.", "Give a file that is not empty.", status=2)


def _scorer(piece: str) -> Callable[[TextClient], Likelihood]:
    return lambda client: likelihood(client.score(piece), piece)


def windows(text: str, size: int) -> list[str]:
    """`text` in pieces of at most `size` characters that together are `text`, cut before white space where there is some.

    White space at a cut stays with what follows, as tokenizers of GPT-2's kind have it.
    """
    pieces: list[str] = []
    while len(text) > size:
        blanks = (at for at in range(size, size // 2, -1) if text[at].isspace())
        cut = next(blanks, size)
        pieces.append(text[:cut])
        text = text[cut:]
    return [*pieces, text] if text else pieces
