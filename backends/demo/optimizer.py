"""Adam with decoupled weight decay, clipping, and Megatron-LM's learning-rate schedule."""

# pyright: standard, reportMissingTypeStubs=false, reportMissingImports=false
from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from backends.demo.model import Weights


@dataclass(frozen=True, slots=True)
class Schedule:
    """Counts are samples, as in megatron/training/optimizer_param_scheduler.py."""

    lr: float
    min_lr: float
    warmup: int
    decay: int
    style: str

    def at(self, samples: int) -> float:
        if self.warmup > 0 and samples <= self.warmup:
            return self.lr * samples / self.warmup
        if self.style == "constant":
            return self.lr
        if samples > self.decay:
            return self.min_lr
        share = (samples - self.warmup) / max(1, self.decay - self.warmup)
        factor = (math.cos(math.pi * share) + 1) / 2 if self.style == "cosine" else 1 - share
        return self.min_lr + factor * (self.lr - self.min_lr)


@dataclass(slots=True)
class Adam:
    first: Weights
    second: Weights
    beta1: float
    beta2: float
    eps: float
    weight_decay: float

    def step(self, weights: Weights, gradient: Weights, lr: float, number: int) -> None:
        """Change `weights` in place. `number`: 1 for the first step ever. Only matrices decay, as in Megatron-LM."""
        for name, g in gradient.items():
            m, v = self.first[name], self.second[name]
            m += (1 - self.beta1) * (g - m)
            v += (1 - self.beta2) * (g * g - v)
            update = m / (1 - self.beta1**number) / (np.sqrt(v / (1 - self.beta2**number)) + self.eps)
            if weights[name].ndim > 1:
                update = update + self.weight_decay * weights[name]
            weights[name] -= lr * update


def clip(gradient: Weights, limit: float) -> float:
    """Scale `gradient` down to norm `limit` (0: leave it); its norm before."""
    norm = math.sqrt(sum(float(np.vdot(g, g)) for g in gradient.values()))
    if limit > 0 and norm > limit:
        for g in gradient.values():
            g *= limit / (norm + 1e-6)
    return norm
