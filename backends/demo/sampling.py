"""Completions of the tiny GPT: greedy, top-k, top-p, temperature, as core_r0.8.0's text server samples."""

# pyright: standard, reportMissingTypeStubs=false, reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backends.demo import corpus, model


@dataclass(frozen=True, slots=True)
class Sampling:
    """`top_k` 1 is greedy; both `top_k` and `top_p` 0 is pure sampling. `stop_on_eol`: stop at a newline."""

    tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    seed: int | None = None
    stop_on_eol: bool = False
    stop_on_double_eol: bool = False


@dataclass(frozen=True, slots=True)
class Generated:
    """`tokens`: prompt and continuation; `logprobs`: of every token but the first."""

    tokens: list[int]
    logprobs: list[float]


def encode(text: str) -> list[int]:
    return list(text.encode("utf-8"))


def decode(tokens: list[int]) -> str:
    """Text of token ids; the end of a document shows as Megatron's `<|endoftext|>`."""
    return "<|endoftext|>".join(bytes(part).decode("utf-8", errors="replace") for part in _documents(tokens))


def _documents(tokens: list[int]) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    for token in tokens:
        if token == corpus.EOD:
            parts.append([])
        elif token < 256:
            parts[-1].append(token)
    return parts


def generate(weights: model.Weights, shape: model.Shape, prompt: list[int], how: Sampling) -> Generated:
    """Continue `prompt` (at least one token, prompt and tokens at most `shape.positions`)."""
    rng = np.random.default_rng(how.seed)
    tokens = list(prompt)
    for _ in range(how.tokens):
        following = model.log_probabilities(weights, np.array([tokens]), shape)[0, -1]
        tokens.append(choose(following[: corpus.VOCABULARY], how, rng))
        if tokens[-1] == corpus.EOD or (how.stop_on_eol and tokens[-1] == 10):
            break
        if how.stop_on_double_eol and tokens[-2:] == [10, 10]:
            break
    return Generated(tokens, score(weights, shape, tokens))


def score(weights: model.Weights, shape: model.Shape, tokens: list[int]) -> list[float]:
    """log p of every token but the first, given those before it."""
    if len(tokens) < 2:
        return []
    found = model.log_probabilities(weights, np.array([tokens[:-1]]), shape)[0]
    return [float(found[i, token]) for i, token in enumerate(tokens[1:])]


def choose(logprobs: np.ndarray, how: Sampling, rng: np.random.Generator) -> int:
    """One token id."""
    if how.top_k == 1:
        return int(np.argmax(logprobs))
    logits = logprobs / how.temperature
    if how.top_k > 1:
        logits = np.where(logits < np.sort(logits)[-min(how.top_k, len(logits))], -np.inf, logits)
    elif how.top_p > 0:
        order = np.argsort(-logits)
        share = np.cumsum(softmax(logits[order]))
        logits = logits.copy()
        logits[order[1:][share[:-1] > how.top_p]] = -np.inf  # the token that crosses the limit stays
    return int(rng.choice(len(logits), p=softmax(logits)))


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - np.max(logits))
    return powers / powers.sum()
