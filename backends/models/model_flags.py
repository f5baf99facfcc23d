"""The flags that a text server needs: what the model is, told by a run's arguments or by those inside a checkpoint.

Names and defaults are those of megatron/training/arguments.py of core_r0.8.0. How the training went is left out: a
server has no data-parallel ranks, no optimizer and no sequence that could be split among ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from backends.errors import UserError
from backends.models.arguments import group_arguments, value_of, without

INTERLEAVED = "--num-layers-per-virtual-pipeline-stage"
EXPERT_PARALLEL = "--expert-model-parallel-size"
# Flags that say how a training run goes, not what the model is.
TRAINING_ONLY = ("--train-iters", "--train-samples", "--save-interval", "--exit-signal-handler", "--exit-interval",
                 "--exit-duration-in-mins", "--eval-iters", "--eval-interval", "--lr", "--min-lr", "--lr-decay-iters",
                 "--lr-decay-samples", "--lr-decay-style", "--lr-warmup-iters", "--lr-warmup-fraction",
                 "--lr-warmup-samples", "--weight-decay", "--clip-grad", "--adam-beta1", "--adam-beta2", "--adam-eps",
                 "--log-interval", "--log-throughput", "--tensorboard-dir", "--data-path", "--data-cache-path",
                 "--mock-data", "--split", "--num-workers", "--global-batch-size", "--rampup-batch-size",
                 "--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather", "--sequence-parallel",
                 "--context-parallel-size", "--recompute-granularity", "--recompute-method", "--recompute-num-layers",
                 "--recompute-activations", "--override-opt_param-scheduler", "--use-checkpoint-opt_param-scheduler",
                 "--finetune", "--initial-loss-scale", "--loss-scale", "--check-weight-hash-across-dp-replicas-interval",
                 "--ckpt-step", EXPERT_PARALLEL)  # fmt: skip

# name inside a checkpoint → flag with a value
VALUES = {
    "num_layers": "--num-layers",
    "hidden_size": "--hidden-size",
    "ffn_hidden_size": "--ffn-hidden-size",
    "num_attention_heads": "--num-attention-heads",
    "kv_channels": "--kv-channels",
    "seq_length": "--seq-length",
    "max_position_embeddings": "--max-position-embeddings",
    "position_embedding_type": "--position-embedding-type",
    "rotary_percent": "--rotary-percent",
    "rotary_seq_len_interpolation_factor": "--rotary-seq-len-interpolation-factor",
    "make_vocab_size_divisible_by": "--make-vocab-size-divisible-by",
    "normalization": "--normalization",
    "norm_epsilon": "--norm-epsilon",
    "num_experts": "--num-experts",
    "moe_router_topk": "--moe-router-topk",
    "transformer_impl": "--transformer-impl",
    "tokenizer_type": "--tokenizer-type",
    "tokenizer_model": "--tokenizer-model",
    "vocab_file": "--vocab-file",
    "merge_file": "--merge-file",
    "vocab_size": "--vocab-size",
    "tensor_model_parallel_size": "--tensor-model-parallel-size",
    "pipeline_model_parallel_size": "--pipeline-model-parallel-size",
    "micro_batch_size": "--micro-batch-size",
}
WITH_EXPERTS = ("moe_router_topk",)
# name → flag that makes it true
SWITCHES = {
    "swiglu": "--swiglu",
    "squared_relu": "--squared-relu",
    "openai_gelu": "--openai-gelu",
    "add_qkv_bias": "--add-qkv-bias",
    "qk_layernorm": "--qk-layernorm",
    "rotary_interleaved": "--rotary-interleaved",
    "apply_layernorm_1p": "--apply-layernorm-1p",
    "apply_residual_connection_post_layernorm": "--apply-residual-connection-post-layernorm",
    "untie_embeddings_and_output_weights": "--untie-embeddings-and-output-weights",
    "apply_query_key_layer_scaling": "--apply-query-key-layer-scaling",
    "attention_softmax_in_fp32": "--attention-softmax-in-fp32",
    "no_persist_layer_norm": "--no-persist-layer-norm",
    "moe_grouped_gemm": "--moe-grouped-gemm",
    "use_legacy_models": "--use-legacy-models",
    "use_flash_attn": "--use-flash-attn",
    "use_dist_ckpt": "--use-dist-ckpt",
    "fp16": "--fp16",
    "bf16": "--bf16",
}
# name → flag that makes it false
OFF_SWITCHES = {
    "add_bias_linear": "--disable-bias-linear",
    "masked_softmax_fusion": "--no-masked-softmax-fusion",
    "bias_gelu_fusion": "--no-bias-gelu-fusion",
    "bias_swiglu_fusion": "--no-bias-swiglu-fusion",
    "bias_dropout_fusion": "--no-bias-dropout-fusion",
    "apply_rope_fusion": "--no-rope-fusion",
    "gradient_accumulation_fusion": "--no-gradient-accumulation-fusion",
}


def of_run(arguments: Sequence[str]) -> tuple[str, ...]:
    """The model's flags among those of a training run. Raises UserError for a model that no server can load."""
    if value_of(arguments, INTERLEAVED):
        raise _interleaved()
    if (
        value_of(arguments, EXPERT_PARALLEL) not in (None, "1")
        and value_of(arguments, "--use-dist-ckpt") is None
    ):
        raise _spread_experts()
    kept = without(arguments, *TRAINING_ONLY)
    return tuple(
        word for flag, values in group_arguments(kept) if not flag.startswith(("--log-", "--wandb-"))
        for word in (flag, *values)
    )  # fmt: skip


def of_checkpoint(stored: Mapping[str, Any]) -> tuple[str, ...]:
    """The model's flags from the arguments that Megatron-LM stored. Raises UserError."""
    if stored.get("num_layers_per_virtual_pipeline_stage"):
        raise _interleaved()
    if stored.get("expert_model_parallel_size") not in (None, 1) and not stored.get("use_dist_ckpt"):
        raise _spread_experts()
    if not isinstance(stored.get("num_layers"), int) or not isinstance(stored.get("hidden_size"), int):
        raise UserError(
            "The arguments inside the checkpoint do not say what the model is.",
            "Give the model's flags: mdk-tui serve CHECKPOINT -- --num-layers N …",
        )
    return tuple(model_words(stored))


def is_demo(stored: Mapping[str, Any]) -> bool:
    """Whether the arguments inside a checkpoint are those of the demo's trainer, which has one kind of layer."""
    return "padded_vocab_size" not in stored or "transformer_impl" not in stored


def words_of_value(flag: str, value: Any) -> tuple[str, ...]:
    """A flag with its value or values."""
    if isinstance(value, list | tuple):
        return (flag, *map(str, cast("list[Any]", value)))
    return (flag, str(value))


def model_words(stored: Mapping[str, Any]) -> Iterator[str]:
    """The flags that say what the model is, and how it is split over ranks."""
    for name, flag in VALUES.items():
        value = stored.get(name)
        if value is not None and not (name in WITH_EXPERTS and not stored.get("num_experts")):
            yield from words_of_value(flag, value)
    if stored.get("group_query_attention"):
        yield from ("--group-query-attention", "--num-query-groups", str(stored.get("num_query_groups", 1)))
    if stored.get("position_embedding_type") == "rope" and stored.get("rotary_base"):
        yield from ("--rotary-base", str(stored["rotary_base"]))
    if stored.get("use_dist_ckpt") and stored.get("dist_ckpt_format"):
        yield from ("--dist-ckpt-format", str(stored["dist_ckpt_format"]))
    yield from (flag for name, flag in SWITCHES.items() if stored.get(name) is True)
    yield from (flag for name, flag in OFF_SWITCHES.items() if stored.get(name) is False)


def _interleaved() -> UserError:
    return UserError(
        f"The layers of this model are interleaved ({INTERLEAVED}), and the text server of core_r0.8.0 leaves at once.",
        "Convert the checkpoint to plain pipeline stages: tools/checkpoint/convert.py.",
    )


def _spread_experts() -> UserError:
    return UserError(
        f"The experts of this model are split over files of several ranks ({EXPERT_PARALLEL}); the text server of core_r0.8.0 "
        "reads all experts from one file.",
        "A distributed checkpoint loads with any layout: mdk-tui resume DIR -- --use-dist-ckpt, and serve what that saves next.",
    )
