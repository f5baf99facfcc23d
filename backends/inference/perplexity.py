"""Perplexity of documents, from the log-probabilities that a text server returns.

A document is cut into windows. Each is scored as the beginning of a document (core_r0.8.0: add_BOS), so every token counts
once and the first of a window has no context. The figure is therefore higher than with a sliding window, but comparable
between checkpoints measured with the same windows. Only bits per byte compare models with different tokenizers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from backends.errors import UserError
from backends.inference.likelihood import Likelihood, likelihood
from backends.inference.request import TextClient, TooLongError

WINDOW = 2000  # characters; about 500 tokens of English
SMALLEST = 16  # characters; if a model refuses these, its length is not the reason


@dataclass(frozen=True, slots=True)
class Progress:
    """`scores`: one for each client, so far. `window`: the largest number of characters that all models took."""

    documents: int
    windows: int
    window: int
    scores: tuple[Likelihood, ...]


def measure(
    clients: Sequence[TextClient], documents: Sequence[str], window: int = WINDOW
) -> Iterator[Progress]:
    """The progress after each window. All clients score the same windows at the same time. Raises UserError.

    If a window is too long for one of them, it is cut in halves for all, and later windows are as short.
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
    """`text` in pieces of at most `size` characters, cut before white space if possible.

    White space at a cut belongs to the next piece, as in the tokens of GPT-2's tokenizer.
    """
    pieces: list[str] = []
    while len(text) > size:
        blanks = (at for at in range(size, size // 2, -1) if text[at].isspace())
        cut = next(blanks, size)
        pieces.append(text[:cut])
        text = text[cut:]
    return [*pieces, text] if text else pieces
