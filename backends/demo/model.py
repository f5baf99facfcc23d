"""A GPT, tiny but whole: learned positions, causal self-attention, squared ReLU, layer norm. Gradients come from autograd."""

# pyright: standard, reportMissingTypeStubs=false, reportMissingImports=false
from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from autograd import value_and_grad
from autograd.tracer import getval

anp: Any = importlib.import_module(
    "autograd.numpy"
)  # its functions are made at import: no checker can see them

Weights: TypeAlias = dict[str, Any]  # name → array (float64)


@dataclass(frozen=True, slots=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    positions: int
    vocabulary: int  # padded

    @property
    def in_layers(self) -> int:
        """Parameters in the transformer layers, the final norm included."""
        return self.layers * (12 * self.hidden**2 + 13 * self.hidden) + 2 * self.hidden

    @property
    def in_embeddings(self) -> int:
        return (self.vocabulary + self.positions) * self.hidden


def initial(shape: Shape, seed: int, std: float = 0.02) -> Weights:
    """Random weights: normal with `std`, divided by sqrt(2 × layers) where a residual ends, as Megatron does."""
    rng = np.random.default_rng(seed)
    h, scaled = shape.hidden, std / math.sqrt(2 * shape.layers)
    weights: Weights = {
        "embedding.word_embeddings": rng.normal(0, std, (shape.vocabulary, h)),
        "embedding.position_embeddings": rng.normal(0, std, (shape.positions, h)),
        "decoder.final_layernorm.weight": np.ones(h),
        "decoder.final_layernorm.bias": np.zeros(h),
    }
    for i in range(shape.layers):
        name = f"decoder.layers.{i}."
        weights |= {
            name + "input_layernorm.weight": np.ones(h),
            name + "input_layernorm.bias": np.zeros(h),
            name + "linear_qkv.weight": rng.normal(0, std, (h, 3 * h)),
            name + "linear_qkv.bias": np.zeros(3 * h),
            name + "linear_proj.weight": rng.normal(0, scaled, (h, h)),
            name + "linear_proj.bias": np.zeros(h),
            name + "pre_mlp_layernorm.weight": np.ones(h),
            name + "pre_mlp_layernorm.bias": np.zeros(h),
            name + "linear_fc1.weight": rng.normal(0, std, (h, 4 * h)),
            name + "linear_fc1.bias": np.zeros(4 * h),
            name + "linear_fc2.weight": rng.normal(0, scaled, (4 * h, h)),
            name + "linear_fc2.bias": np.zeros(h),
        }
    return weights


def _norm(x: Any, weight: Any, bias: Any) -> Any:
    centred = x - anp.mean(x, axis=-1, keepdims=True)
    return centred / anp.sqrt(anp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * weight + bias


def _squared_relu(x: Any) -> Any:
    positive = anp.maximum(x, 0.0)
    return positive * positive


def _attention(x: Any, weights: Weights, name: str, heads: int) -> Any:
    size, length, hidden = x.shape
    qkv = anp.dot(x, weights[name + "linear_qkv.weight"]) + weights[name + "linear_qkv.bias"]
    qkv = anp.transpose(anp.reshape(qkv, (size, length, 3, heads, hidden // heads)), (2, 0, 3, 1, 4))
    scores = anp.matmul(qkv[0], anp.swapaxes(qkv[1], -1, -2)) / math.sqrt(hidden // heads)
    scores = scores + np.triu(np.full((length, length), -1e9), 1)
    scores = anp.exp(scores - np.max(getval(scores), axis=-1, keepdims=True))
    mixed = anp.matmul(scores / anp.sum(scores, axis=-1, keepdims=True), qkv[2])
    mixed = anp.reshape(anp.transpose(mixed, (0, 2, 1, 3)), (size, length, hidden))
    return anp.dot(mixed, weights[name + "linear_proj.weight"]) + weights[name + "linear_proj.bias"]


def log_probabilities(weights: Weights, tokens: np.ndarray, shape: Shape) -> Any:
    """Of each next token: `tokens` size × length → size × length × vocabulary."""
    x = (
        weights["embedding.word_embeddings"][tokens]
        + weights["embedding.position_embeddings"][: tokens.shape[1]]
    )
    for i in range(shape.layers):
        name = f"decoder.layers.{i}."
        x = x + _attention(
            _norm(x, weights[name + "input_layernorm.weight"], weights[name + "input_layernorm.bias"]),
            weights,
            name,
            shape.heads,
        )
        y = _norm(x, weights[name + "pre_mlp_layernorm.weight"], weights[name + "pre_mlp_layernorm.bias"])
        y = _squared_relu(anp.dot(y, weights[name + "linear_fc1.weight"]) + weights[name + "linear_fc1.bias"])
        x = x + anp.dot(y, weights[name + "linear_fc2.weight"]) + weights[name + "linear_fc2.bias"]
    x = _norm(x, weights["decoder.final_layernorm.weight"], weights["decoder.final_layernorm.bias"])
    logits = anp.dot(x, anp.transpose(weights["embedding.word_embeddings"]))
    logits = logits - np.max(getval(logits), axis=-1, keepdims=True)  # a constant shift changes no gradient
    return logits - anp.log(anp.sum(anp.exp(logits), axis=-1, keepdims=True))


def loss(weights: Weights, batch: np.ndarray, shape: Shape) -> Any:
    """Mean over all tokens of -log p(next token). `batch`: size × (length + 1)."""
    found = log_probabilities(weights, batch[:, :-1], shape)
    size, length = batch[:, 1:].shape
    return -anp.mean(found[np.arange(size)[:, None], np.arange(length), batch[:, 1:]])


loss_and_gradient: Any = value_and_grad(loss)  # pyright: ignore[reportCallIssue]
