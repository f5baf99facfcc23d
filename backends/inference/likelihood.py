"""How likely a model finds a text: sums over the log-probabilities of its tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backends.inference.request import Token


@dataclass(frozen=True, slots=True)
class Likelihood:
    """`nats`: the sum of the natural log-probabilities of `tokens` tokens, negated. `size`: bytes of their text in UTF-8.

    Perplexity depends on the tokenizer; bits per byte do not, so only they compare models with different ones.
    """

    nats: float = 0.0
    tokens: int = 0
    size: int = 0

    def __add__(self, other: Likelihood) -> Likelihood:
        return Likelihood(self.nats + other.nats, self.tokens + other.tokens, self.size + other.size)

    @property
    def mean(self) -> float | None:
        """Mean log-probability of a token; None without tokens."""
        return -self.nats / self.tokens if self.tokens else None

    @property
    def perplexity(self) -> float | None:
        mean = self.mean
        if mean is None:
            return None
        return math.exp(-mean) if -mean < 700 else math.inf

    @property
    def bits_per_byte(self) -> float | None:
        return self.nats / math.log(2) / self.size if self.size else None


def likelihood(tokens: Iterable[Token], text: str = "") -> Likelihood:
    """The likelihood of the tokens that have a probability. The first has none if no mark begins the document.

    `text` is what all tokens spell; bits per byte need it.
    """
    known = list(tokens)
    told = [token.logprob for token in known if token.logprob is not None]
    silent = sum(_bytes(token.text) for token in known if token.logprob is None)
    return Likelihood(-sum(told), len(told), max(_bytes(text) - silent, 0))


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


def words(found: Likelihood, dot: str = "·") -> str:
    """ "45 tokens · log p −123.4 · perplexity 15.5 · 1.21 bits per byte"; what is not known is left out."""
    if found.mean is None:
        return "no log-probabilities"
    parts = [f"{found.tokens} tokens", f"log p {-found.nats:.1f}", f"perplexity {found.perplexity:.3g}"]
    parts += [f"{found.bits_per_byte:.2f} bits per byte"] if found.size else []
    return f" {dot} ".join(parts)


def verdict(scores: Sequence[Likelihood]) -> str:
    """Which of two models finds a text likelier, and by how much; "" if that is not known."""
    if len(scores) != 2 or not all(score.tokens for score in scores):
        return ""
    first, second = scores
    difference = second.nats - first.nats
    if abs(difference) < 0.05:
        return "both find it equally likely"
    return f"the {'first' if difference > 0 else 'second'} finds it likelier, by {abs(difference):.1f} nats"
