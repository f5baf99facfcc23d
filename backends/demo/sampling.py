"""Completions of the tiny GPT as core_r0.8.0's text server makes them: greedy, top-k, top-p, temperature, beam search.

Source: megatron/inference/text_generation/{generation,sampling,beam_utils}.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from backends.demo import model
from backends.demo.tokenizer import Tokenizer

Scores = npt.NDArray[np.float64]
Rated: TypeAlias = tuple[float, list[int]]  # score, tokens
NEWLINE = b"\n"


@dataclass(frozen=True, slots=True)
class Sampling:
    """`top_k` 1 is greedy; `top_k` 0 with `top_p` 0 is pure sampling. `seed` None: a different answer each time."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    top_p_decay: float = 0.0
    top_p_bound: float = 0.0
    seed: int | None = None
    stop_on_eol: bool = False
    stop_on_double_eol: bool = False
    prevent_newline_after_colon: bool = False


@dataclass(frozen=True, slots=True)
class Gpt:
    """A trained model with its tokenizer."""

    weights: model.Weights
    shape: model.Shape
    tokenizer: Tokenizer

    def log_probabilities(self, tokens: list[int]) -> Scores:
        """log p of the token after each of `tokens`: length × vocabulary."""
        found: Any = model.log_probabilities(self.weights, np.array(tokens), self.shape)
        return np.asarray(found, np.float64)

    def score(self, tokens: list[int]) -> list[float]:
        """log p of every token but the first, given those before it."""
        if len(tokens) < 2:
            return []
        found = self.log_probabilities(tokens[:-1])
        return [float(found[index, token]) for index, token in enumerate(tokens[1:])]


def generate(gpt: Gpt, prompt: list[int], length: int, how: Sampling) -> list[int]:
    """`prompt` (at least one token) continued to `length` tokens, or to a stop. Raises ValueError beyond the positions."""
    rng = np.random.default_rng(how.seed)
    tokens, top_p = list(prompt), how.top_p
    while len(tokens) < length:
        following = gpt.log_probabilities(tokens)[-1, : gpt.tokenizer.eod + 1]
        if how.prevent_newline_after_colon:
            following = _without_newline_after_colon(gpt.tokenizer, tokens[-1], following)
        tokens.append(choose(following, how, top_p, rng))
        if how.top_p_decay > 0:
            top_p = max(top_p * how.top_p_decay, how.top_p_bound)
        if _stops(gpt.tokenizer, tokens, how):
            break
    return tokens


def choose(scores: Scores, how: Sampling, top_p: float, rng: np.random.Generator) -> int:
    """One token id, from the log-probabilities of all."""
    if how.top_k == 1:
        return int(np.argmax(scores))
    scores = scores / how.temperature
    if how.top_k > 1:
        scores = np.where(scores < np.sort(scores)[-min(how.top_k, len(scores))], -np.inf, scores)
    elif top_p > 0:
        order = np.argsort(-scores, kind="stable")
        reached = np.cumsum(softmax(scores[order]))
        scores[order[1:][reached[:-1] > top_p]] = -np.inf  # the token that crosses the limit is kept
    return int(rng.choice(len(scores), p=softmax(scores)))


def softmax(scores: Scores) -> Scores:
    powers = np.exp(scores - np.max(scores))
    return powers / powers.sum()


def _stops(tokenizer: Tokenizer, tokens: list[int], how: Sampling) -> bool:
    """Whether to stop. Megatron-LM compares the ids of GPT-2's newlines; learnt tokens may contain newlines."""
    newest, before = tokenizer.piece(tokens[-1]), tokenizer.piece(tokens[-2])
    if how.stop_on_double_eol:
        return 2 * NEWLINE in newest or (before.endswith(NEWLINE) and newest.startswith(NEWLINE))
    if how.stop_on_eol:
        return NEWLINE in newest
    return tokens[-1] == tokenizer.eod


def _without_newline_after_colon(tokenizer: Tokenizer, newest: int, scores: Scores) -> Scores:
    if not tokenizer.piece(newest).endswith(b":"):
        return scores
    barred = [tokenizer.piece(token).startswith(NEWLINE) for token in range(len(scores))]
    return np.where(barred, -1e10, scores)


@dataclass(frozen=True, slots=True)
class Beam:
    """One candidate of a beam search, the prompt included."""

    tokens: list[int]
    total: float  # log p of the continuation


def beam_search(
    gpt: Gpt, prompt: list[int], length: int, width: int, stop: int, length_penalty: float
) -> list[Rated]:
    """The `width` best continuations of `prompt` to `length` tokens or to the token `stop`: (score, tokens), best first."""
    open_beams = [Beam(prompt, 0.0)]
    ended: list[Rated] = []

    def rated(beam: Beam) -> Rated:
        return beam.total / (len(beam.tokens) - len(prompt)) ** length_penalty, beam.tokens

    for _ in range(len(prompt), length):
        candidates = _extended(gpt, open_beams, 2 * width)
        ended += [rated(beam) for beam in candidates[:width] if beam.tokens[-1] == stop]
        ended = _best(ended, width)
        open_beams = [beam for beam in candidates if beam.tokens[-1] != stop][:width]
        hopeless = len(ended) == width and ended[-1][0] >= rated(candidates[0])[0]
        if hopeless or not open_beams:
            return ended
    return _best([*ended, *map(rated, open_beams)], width)


def _extended(gpt: Gpt, beams: list[Beam], count: int) -> list[Beam]:
    """The `count` best of all beams with one more token, best first."""
    size = gpt.tokenizer.eod + 1
    totals = np.concatenate([beam.total + gpt.log_probabilities(beam.tokens)[-1, :size] for beam in beams])
    order = np.argsort(-totals, kind="stable")[:count]
    places = [int(place) for place in order]
    return [Beam([*beams[at // size].tokens, at % size], float(totals[at])) for at in places]


def _best(rated: list[Rated], width: int) -> list[Rated]:
    return sorted(rated, key=lambda one: one[0], reverse=True)[:width]
