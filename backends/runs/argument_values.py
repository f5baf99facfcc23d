"""Turns argument words into the values that a trainer gets: parsed, with defaults and derived values.

Defaults and derivations are those of megatron/training/arguments.py of core_r0.8.0 and of the demo's parser. Only
arguments that matter for a resume have a default here; others are taken only if they are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backends.models.arguments import group_arguments
from backends.runs.plan import Trainer

# Switches that turn something off: flag → the argument whose value becomes False.
NEGATIVE = {"--disable-bias-linear": "add_bias_linear", "--no-position-embedding": "add_position_embedding",
            "--no-ckpt-fully-parallel-save": "ckpt_fully_parallel_save"}  # fmt: skip
SWITCHES = ("swiglu", "squared_relu", "group_query_attention", "untie_embeddings_and_output_weights", "add_qkv_bias",
            "qk_layernorm", "apply_layernorm_1p", "apply_residual_connection_post_layernorm", "rotary_interleaved",
            "apply_query_key_layer_scaling", "use_legacy_models", "use_distributed_optimizer", "fp16", "bf16",
            "data_parallel_random_init", "use_dist_ckpt", "auto_detect_ckpt_format", "finetune", "override_opt_param_scheduler", "use_checkpoint_opt_param_scheduler")  # fmt: skip
MEGATRON_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(SWITCHES, False),
    **dict.fromkeys(NEGATIVE.values(), True),
    "no_load_optim": None,
    "no_load_rng": None,
    "position_embedding_type": "learned_absolute",
    "make_vocab_size_divisible_by": 128,
    "tokenizer_type": "GPT2BPETokenizer",  # pretrain_gpt.py's, where none is named
    "normalization": "LayerNorm",
    "norm_epsilon": 1e-5,
    "rotary_base": 10000,
    "rotary_percent": 1.0,
    "rotary_seq_len_interpolation_factor": None,
    "num_query_groups": 1,
    "num_experts": None,
    "transformer_impl": "transformer_engine",
    "optimizer": "adam",
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "expert_model_parallel_size": 1,
    "context_parallel_size": 1,
    "num_layers_per_virtual_pipeline_stage": None,
    "dist_ckpt_format": "torch_dist",
    "min_lr": 0.0,
    "lr_decay_style": "linear",
    "lr_warmup_fraction": None,
    "lr_warmup_iters": 0,
    "lr_warmup_samples": 0,
    "weight_decay": 0.01,
    "weight_decay_incr_style": "constant",
    "train_iters": None,
    "train_samples": None,
    "seed": 1234,
}
DEMO_DEFAULTS: Mapping[str, Any] = {
    "num_layers": 2,
    "hidden_size": 96,
    "num_attention_heads": 4,
    "seq_length": 128,
    "vocab_size": 511,
    "make_vocab_size_divisible_by": 128,
    "swiglu": False,
    "finetune": False,
    "override_opt_param_scheduler": False,
    "use_checkpoint_opt_param_scheduler": False,
    "micro_batch_size": 1,
    "train_iters": 200,
    "lr": 3e-3,
    "min_lr": 0.0,
    "lr_decay_style": "linear",
    "lr_warmup_fraction": None,
    "lr_warmup_iters": 0,
    "weight_decay": 0.01,
    "weight_decay_incr_style": "constant",
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "seed": 1234,
    "data_path": None,
}


def given_values(arguments: Iterable[str]) -> dict[str, Any]:
    """name → value of `arguments` by argparse's names. A flag without a value is True, several values are a list."""
    found: dict[str, Any] = {}
    for flag, words in group_arguments(arguments):
        if flag in NEGATIVE and not words:
            found[NEGATIVE[flag]] = False
        elif flag:
            found[name_of(flag)] = _value(words)
    return found


def planned_values(arguments: Sequence[str], trainer: Trainer, processes: int = 1) -> dict[str, Any]:
    """The values that `trainer` gets from `arguments`, as far as they matter for a resume. `processes`: the number of ranks."""
    defaults = DEMO_DEFAULTS if trainer == "demo" else MEGATRON_DEFAULTS
    values = {**defaults, **given_values(arguments)}
    _complete_model(values)
    _complete_schedule(values, processes)
    if trainer == "demo" and values.get("max_position_embeddings") is None:
        values["max_position_embeddings"] = values["seq_length"]
    return values


def printed_values(printed: Mapping[str, str]) -> dict[str, Any]:
    """The argument block of a log as values."""
    return {name: parsed(text) for name, text in printed.items()}


def name_of(flag: str) -> str:
    """The name that argparse gives to the value of `flag`."""
    return flag.removeprefix("--").replace("-", "_")


def flag_of(name: str) -> str:
    """The flag that sets the argument `name`, or that turns it off if it can only be turned off."""
    negative = {argument: flag for flag, argument in NEGATIVE.items()}
    if name in ("override_opt_param_scheduler", "use_checkpoint_opt_param_scheduler"):
        return f"--{name.removesuffix('_opt_param_scheduler').replace('_', '-')}-opt_param-scheduler"
    return negative.get(name) or f"--{name.replace('_', '-')}"


def parsed(text: str) -> Any:
    """`text` as a number, True, False or None if Python would print that so; anything else stays text."""
    words: dict[str, Any] = {"None": None, "True": True, "False": False}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _value(words: Sequence[str]) -> Any:
    if not words:
        return True
    return parsed(words[0]) if len(words) == 1 else [parsed(word) for word in words]


def _complete_model(values: dict[str, Any]) -> None:
    hidden, heads = _count(values, "hidden_size"), _count(values, "num_attention_heads")
    if values.get("use_rotary_position_embeddings"):
        values["position_embedding_type"] = "rope"
    if values.get("ffn_hidden_size") is None and hidden:
        wide = int(4 * hidden * 2 / 3 / 64) * 64
        values["ffn_hidden_size"] = max(64, wide) if values.get("swiglu") else 4 * hidden
    if values.get("kv_channels") is None and hidden and heads:
        values["kv_channels"] = hidden // heads


def _complete_schedule(values: dict[str, Any], processes: int) -> None:
    if values.get("lr_decay_iters") is None and values.get("train_iters") is not None:
        values["lr_decay_iters"] = values["train_iters"]
    if values.get("lr_decay_samples") is None and values.get("train_samples") is not None:
        values["lr_decay_samples"] = values["train_samples"]
    for end in ("start_weight_decay", "end_weight_decay"):
        if values.get("weight_decay_incr_style") == "constant":
            values[end] = values.get("weight_decay")
    micro = _count(values, "micro_batch_size")
    if values.get("global_batch_size") is None and micro:
        sizes = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
        split = 1
        for name in sizes:
            split *= _count(values, name) or 1
        values["global_batch_size"] = micro * max(1, processes // split)


def _count(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    return value if type(value) is int and value > 0 else None
