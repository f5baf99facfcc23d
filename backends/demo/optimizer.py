"""Adam with decoupled weight decay, gradient clipping, and Megatron-LM's learning rate schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from backends.demo.model import Weights


@dataclass(frozen=True, slots=True)
class Schedule:
    """Counts are samples, as in megatron/training/optimizer_param_scheduler.py."""

    max_lr: float
    min_lr: float
    lr_warmup_steps: float
    lr_decay_steps: int
    lr_decay_style: str
    start_wd: float
    end_wd: float
    wd_incr_steps: int

    @staticmethod
    def of(args: Any) -> Schedule:
        batch = args.global_batch_size
        decay = args.lr_decay_iters * batch
        warmup = args.lr_warmup_iters * batch
        if args.lr_warmup_fraction is not None:
            warmup = args.lr_warmup_fraction * decay
        style, wd, end = args.lr_decay_style, args.weight_decay, args.train_iters * batch
        return Schedule(args.lr, args.min_lr, warmup, decay, style, wd, wd, end)

    def at(self, samples: int) -> float:
        """The learning rate after `samples` samples."""
        if self.lr_warmup_steps > 0 and samples <= self.lr_warmup_steps:
            return self.max_lr * samples / self.lr_warmup_steps
        if self.lr_decay_style == "constant":
            return self.max_lr
        if samples > self.lr_decay_steps:
            return self.min_lr
        if self.lr_decay_style == "inverse-square-root":
            return max(self.min_lr, self.max_lr * math.sqrt(max(self.lr_warmup_steps, 1) / max(samples, 1)))
        share = (samples - self.lr_warmup_steps) / (self.lr_decay_steps - self.lr_warmup_steps)
        factor = (math.cos(math.pi * share) + 1) / 2 if self.lr_decay_style == "cosine" else 1 - share
        return self.min_lr + factor * (self.max_lr - self.min_lr)


# In the order in which Megatron-LM compares them, by the names that it prints.
COMPARED = (
    ("max_lr", "learning rate"),
    ("min_lr", "minimum learning rate"),
    ("lr_warmup_steps", "warmup iterations"),
    ("lr_decay_steps", "total number of iterations"),
    ("lr_decay_style", "learning rate decay style"),
    ("start_wd", "start weight decay"),
    ("end_wd", "end weight decay"),
    ("wd_incr_steps", "total number of weight decay iterations"),
)


def resume_schedule(
    schedule: Schedule,
    stored: dict[str, Any],
    *,
    override: bool,
    use_checkpoint: bool,
    say: Callable[[str], None],
) -> Schedule:
    """The schedule after a resume. Raises ValueError in Megatron-LM's words if the two differ and no flag decides."""
    for name, words in COMPARED:
        ours, theirs = getattr(schedule, name), stored[name]
        if override:
            say(f" > overriding {words} value to {ours}")
            continue
        if not use_checkpoint and ours != theirs:
            raise ValueError(
                f"OptimizerParamScheduler: class input value {ours} and checkpointvalue {theirs} for {words} do not match"
            )
        say(f" > using checkpoint value {theirs} for {words}")
        schedule = replace(schedule, **{name: theirs})
    return schedule


@dataclass(slots=True)
class Adam:
    """AdamW with decoupled weight decay: `first` and `second` are the moments of the gradient, by name of the weight."""

    first: Weights
    second: Weights
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    steps: int = 0  # done so far

    @staticmethod
    def of(args: Any, weights: Weights) -> Adam:
        first, second = ({name: np.zeros_like(array) for name, array in weights.items()} for _ in range(2))
        return Adam(first, second, args.adam_beta1, args.adam_beta2, args.adam_eps, args.weight_decay)

    def step(self, weights: Weights, gradient: Weights, lr: float) -> None:
        """Change `weights` in place. Only matrices decay, as in Megatron-LM."""
        self.steps += 1
        first_left, second_left = 1 - self.beta1**self.steps, 1 - self.beta2**self.steps
        for name, slope in gradient.items():
            first, second = self.first[name], self.second[name]
            first += (1 - self.beta1) * (slope - first)
            second += (1 - self.beta2) * (slope * slope - second)
            update = first / first_left / (np.sqrt(second / second_left) + self.eps)
            if slope.ndim > 1:
                update += self.weight_decay * weights[name]
            weights[name] -= lr * update


def clip(gradient: Weights, limit: float) -> float:
    """Scale `gradient` down to norm `limit` (0: no clipping). Returns its norm before."""
    norm = math.sqrt(sum(float(np.vdot(slope, slope)) for slope in gradient.values()))
    if limit > 0 and norm > limit:
        for slope in gradient.values():
            slope *= limit / (norm + 1e-6)
    return norm
