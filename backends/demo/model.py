"""A tiny but complete GPT: learned positions, causal self-attention, layer norm, GELU or SwiGLU, differentiated by autograd.

It takes one sample at a time: on a CPU its arrays stay in the cache, and results do not depend on the number of ranks.
"""

# pyright: reportUnknownMemberType=false, reportMissingTypeStubs=false
from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

# Autograd creates the functions of its numpy at import, where type checkers cannot see them.
anp: Any = importlib.import_module("autograd.numpy")
autograd: Any = importlib.import_module("autograd")
getval: Any = importlib.import_module("autograd.tracer").getval

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Tokens: TypeAlias = npt.NDArray[np.int64]
Weights: TypeAlias = dict[str, Array]  # Megatron-LM's names; matrices are input × output
DTYPE = np.float32
EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of the model, by the names of Megatron's arguments."""

    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    num_attention_heads: int
    max_position_embeddings: int
    padded_vocab_size: int
    swiglu: bool = False

    @staticmethod
    def of(arguments: Mapping[str, Any]) -> Shape:
        """From a run's arguments, as a checkpoint stores them. Raises KeyError when one is missing."""
        return Shape(**{name: arguments[name] for name in Shape.__slots__})


def weight_shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Name → shape of every weight, in the order of initialization and flattening."""
    hidden, wide = shape.hidden_size, shape.ffn_hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "embedding.word_embeddings.weight": (shape.padded_vocab_size, hidden),
        "embedding.position_embeddings.weight": (shape.max_position_embeddings, hidden),
    }
    for layer in range(shape.num_layers):
        name = f"decoder.layers.{layer}."
        for part, rows, columns in (
            ("input_layernorm", 0, hidden),
            ("self_attention.linear_qkv", hidden, 3 * hidden),
            ("self_attention.linear_proj", hidden, hidden),
            ("pre_mlp_layernorm", 0, hidden),
            ("mlp.linear_fc1", hidden, 2 * wide if shape.swiglu else wide),
            ("mlp.linear_fc2", wide, hidden),
        ):
            shapes[f"{name}{part}.weight"] = (rows, columns) if rows else (columns,)
            shapes[f"{name}{part}.bias"] = (columns,)
    shapes["decoder.final_layernorm.weight"] = shapes["decoder.final_layernorm.bias"] = (hidden,)
    return shapes


def initial(shape: Shape, seed: int, std: float) -> Weights:
    """Random weights: normal with `std`, divided by sqrt(2 × layers) at the end of a residual branch, as in Megatron."""
    rng = np.random.default_rng(seed)
    scaled = std / math.sqrt(2 * shape.num_layers)
    weights: Weights = {}
    for name, size in weight_shapes(shape).items():
        if len(size) > 1:
            spread = scaled if name.endswith(("linear_proj.weight", "linear_fc2.weight")) else std
            weights[name] = rng.normal(0, spread, size).astype(DTYPE)
        else:
            weights[name] = np.full(size, name.endswith("norm.weight"), DTYPE)
    return weights


def _norm(x: Any, weights: Any, name: str) -> Any:
    centred = x - anp.mean(x, axis=-1, keepdims=True)
    variance = anp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / anp.sqrt(variance + EPSILON) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _linear(x: Any, weights: Any, name: str) -> Any:
    return anp.dot(x, weights[f"{name}.weight"]) + weights[f"{name}.bias"]


def _attention(x: Any, weights: Any, name: str, heads: int) -> Any:
    length, hidden = x.shape
    width = hidden // heads
    query, key, value = (
        anp.transpose(anp.reshape(part, (length, heads, width)), (1, 0, 2))
        for part in anp.split(_linear(x, weights, f"{name}.linear_qkv"), 3, axis=1)
    )
    scores = anp.matmul(query * (1 / math.sqrt(width)), anp.transpose(key, (0, 2, 1)))
    scores = scores + np.triu(np.full((length, length), -1e9, DTYPE), 1)
    scores = anp.exp(scores - np.max(getval(scores), axis=-1, keepdims=True))  # a shift changes no gradient
    mixed = anp.matmul(scores / anp.sum(scores, axis=-1, keepdims=True), value)
    mixed = anp.reshape(anp.transpose(mixed, (1, 0, 2)), (length, hidden))
    return _linear(mixed, weights, f"{name}.linear_proj")


def _mlp(x: Any, weights: Any, name: str, swiglu: bool) -> Any:
    wide = _linear(x, weights, f"{name}.linear_fc1")
    if swiglu:
        gate, wide = anp.split(wide, 2, axis=1)
        wide = gate / (1 + anp.exp(-gate)) * wide
    else:  # GELU, in the approximation of Megatron's bias_gelu
        wide = wide * (0.5 + 0.5 * anp.tanh(0.79788456 * wide * (1 + 0.044715 * wide * wide)))
    return _linear(wide, weights, f"{name}.linear_fc2")


def log_probabilities(weights: Any, tokens: Tokens, shape: Shape) -> Any:
    """log p of each next token, given the `tokens` (length) before it: length × vocabulary."""
    embedding = weights["embedding.word_embeddings.weight"]
    x = embedding[tokens] + weights["embedding.position_embeddings.weight"][: len(tokens)]
    for layer in range(shape.num_layers):
        name = f"decoder.layers.{layer}."
        normed = _norm(x, weights, f"{name}input_layernorm")
        x = x + _attention(normed, weights, f"{name}self_attention", shape.num_attention_heads)
        x = x + _mlp(_norm(x, weights, f"{name}pre_mlp_layernorm"), weights, f"{name}mlp", shape.swiglu)
    logits = anp.dot(_norm(x, weights, "decoder.final_layernorm"), anp.transpose(embedding))
    logits = logits - np.max(getval(logits), axis=-1, keepdims=True)
    return logits - anp.log(anp.sum(anp.exp(logits), axis=-1, keepdims=True))


def loss(weights: Any, sample: Tokens, shape: Shape) -> Any:
    """Mean over the sample (length + 1 ids) of -log p(next token)."""
    found = log_probabilities(weights, sample[:-1], shape)
    return -anp.mean(found[np.arange(len(sample) - 1), sample[1:]])


loss_and_gradient: Any = autograd.value_and_grad(loss)  # (weights, sample, shape) → (loss, weights' gradient)
