"""Compares learning-rate schedules as OptimizerParamScheduler of core_r0.8.0 does on loading.

Megatron-LM converts iterations into samples (`get_optimizer_param_scheduler` in training.py), so the global batch size
matters too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OVERRIDE, USE_CHECKPOINT = "--override-opt_param-scheduler", "--use-checkpoint-opt_param-scheduler"
# The arguments that determine the schedule.
INPUTS = ("train_iters", "train_samples", "lr", "min_lr", "lr_decay_style", "lr_decay_iters", "lr_decay_samples",
          "lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction", "weight_decay", "start_weight_decay",
          "end_weight_decay", "global_batch_size")  # fmt: skip
# The names of the state in the order in which Megatron-LM compares them → the words that it prints.
COMPARED = {
    "max_lr": "learning rate",
    "min_lr": "minimum learning rate",
    "lr_warmup_steps": "warmup iterations",
    "lr_decay_steps": "total number of iterations",
    "lr_decay_style": "learning rate decay style",
    "start_wd": "start weight decay",
    "end_wd": "end weight decay",
    "wd_incr_steps": "total number of weight decay iterations",
    "wd_incr_style": "weight decay incr style",
}


def schedule_changes(
    state: Mapping[str, Any] | None, stored: Mapping[str, Any], planned: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    """(Megatron-LM's words, stored, planned) of what it would refuse. `state` None: computed from `stored`."""
    old, new = state if state is not None else schedule_state(stored), schedule_state(planned)
    return [
        (words, old[name], new[name])
        for name, words in COMPARED.items()
        if name in old and name in new and None not in (old[name], new[name]) and old[name] != new[name]
    ]


def schedule_state(values: Mapping[str, Any]) -> dict[str, Any]:
    """The initial state of a scheduler with these arguments, without what cannot be computed."""
    state = {
        "max_lr": values.get("lr"),
        "min_lr": values.get("min_lr"),
        "lr_decay_style": values.get("lr_decay_style"),
        "start_wd": values.get("start_weight_decay"),
        "end_wd": values.get("end_weight_decay"),
        "wd_incr_style": values.get("weight_decay_incr_style"),
    }
    # Megatron-LM sets train_iters for sample-based training too, so samples are looked at first.
    samples = _number(values.get("train_samples"))
    if samples:
        decay, length = _number(values.get("lr_decay_samples")) or samples, samples
        warmup = _number(values.get("lr_warmup_samples")) or 0
    else:
        batch, length = _number(values.get("global_batch_size")), _number(values.get("train_iters"))
        if not batch or not length:
            return {name: value for name, value in state.items() if value is not None}
        decay = (_number(values.get("lr_decay_iters")) or length) * batch
        warmup = (_number(values.get("lr_warmup_iters")) or 0) * batch
        length *= batch
    fraction = _number(values.get("lr_warmup_fraction"))
    state |= {"lr_decay_steps": decay, "wd_incr_steps": length}
    state["lr_warmup_steps"] = fraction * decay if fraction is not None else warmup
    return {name: value for name, value in state.items() if value is not None}


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
