"""The flags of a training run whose plan is not known, from the arguments stored in its checkpoint.

Names are those of megatron/training/arguments.py of core_r0.8.0, and the arguments that it derives are left out: it
refuses some of them when they are given. The folders to load from, save to and log to are not taken over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backends.models.model_flags import is_demo, model_words, words_of_value

VALUES = ("train_iters", "train_samples", "global_batch_size", "rampup_batch_size", "seed", "init_method_std",
          "attention_dropout", "hidden_dropout", "optimizer", "lr", "min_lr", "lr_decay_style", "lr_decay_iters",
          "lr_decay_samples", "lr_warmup_fraction", "lr_warmup_iters", "lr_warmup_samples", "weight_decay",
          "weight_decay_incr_style", "start_weight_decay", "end_weight_decay", "clip_grad", "adam_beta1", "adam_beta2",
          "adam_eps", "data_path", "split", "data_cache_path", "num_workers", "eval_iters", "eval_interval",
          "log_interval", "save_interval", "context_parallel_size", "expert_model_parallel_size",
          "num_layers_per_virtual_pipeline_stage", "recompute_granularity", "recompute_method", "recompute_num_layers",
          "distributed_timeout_minutes", "loss_scale", "initial_loss_scale", "min_loss_scale", "loss_scale_window",
          "hysteresis", "fp8_margin", "fp8_interval", "fp8_amax_history_len", "fp8_amax_compute_algo")  # fmt: skip
# These have no effect without `--fp8-format`.
OF_FP8 = ("fp8_margin", "fp8_interval", "fp8_amax_history_len", "fp8_amax_compute_algo")
SWITCHES = ("sequence_parallel", "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather",
            "distribute_saved_activations", "tp_comm_overlap", "accumulate_allreduce_grads_in_fp32", "mock_data",
            "log_throughput", "reset_position_ids", "reset_attention_mask", "eod_mask_loss", "no_save_optim",
            "no_save_rng", "deterministic_mode", "data_parallel_random_init", "init_method_xavier_uniform",
            "async_save", "manual_gc")  # fmt: skip
OFF_SWITCHES = {
    "check_for_nan_in_loss_and_grad": "--no-check-for-nan-in-loss-and-grad",
    "ckpt_fully_parallel_save": "--no-ckpt-fully-parallel-save",
    "create_attention_mask_in_dataloader": "--no-create-attention-mask-in-dataloader",
}
# What stands for "not given" beside None.
UNSET: Mapping[str, Any] = {"lr_warmup_iters": 0, "lr_warmup_samples": 0}
UNKNOWN_TO_THE_DEMO = ("--tokenizer-type",)


def of_checkpoint(stored: Mapping[str, Any]) -> tuple[str, ...]:
    """Everything that decides how the training goes on."""
    flags = (*model_words(stored), *_training_words(stored))
    if is_demo(stored):
        at = [place for place, word in enumerate(flags) if word in UNKNOWN_TO_THE_DEMO]
        flags = tuple(word for place, word in enumerate(flags) if place not in at and place - 1 not in at)
    return flags


def _training_words(stored: Mapping[str, Any]) -> Iterator[str]:
    filled_in = set(_filled_in(stored))
    for name in VALUES:
        value = stored.get(name)
        if value is not None and name not in filled_in and value != UNSET.get(name):
            yield from words_of_value(f"--{name.replace('_', '-')}", value)
    if stored.get("fp8"):  # --fp8-format is stored under another name
        yield from ("--fp8-format", str(stored["fp8"]))
    yield from (f"--{name.replace('_', '-')}" for name in SWITCHES if stored.get(name) is True)
    yield from (flag for name, flag in OFF_SWITCHES.items() if stored.get(name) is False)


def _filled_in(stored: Mapping[str, Any]) -> Iterator[str]:
    """Names whose values Megatron-LM made of others."""
    if stored.get("train_samples"):
        yield from ("train_iters", "lr_decay_iters", "lr_warmup_iters")
    for decay, length in (("lr_decay_iters", "train_iters"), ("lr_decay_samples", "train_samples")):
        if stored.get(decay) == stored.get(length):
            yield decay
    if stored.get("weight_decay_incr_style", "constant") == "constant":
        yield from ("weight_decay_incr_style", "start_weight_decay", "end_weight_decay")
    if not stored.get("fp8"):
        yield from OF_FP8
