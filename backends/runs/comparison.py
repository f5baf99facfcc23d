"""Compares the arguments stored in a checkpoint with those of the run that is to load it, and judges each difference.

The rules follow megatron/training of core_r0.8.0: `check_checkpoint_args` and `load_checkpoint` in checkpointing.py, the
strict loading of weights by name and shape, and `OptimizerParamScheduler.load_state_dict`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from backends.models.problem import Fix
from backends.runs.argument_values import flag_of, given_values, planned_values
from backends.runs.difference import Difference, Verdict, differing, pairs, shown
from backends.runs.plan import RunPlan
from backends.runs.schedule_comparison import INPUTS, OVERRIDE, USE_CHECKPOINT, schedule_changes
from backends.runs.stored_values import Stored

# What check_checkpoint_args asserts; the second group only where there is a vocabulary file.
ASSERTED = ("num_layers", "hidden_size", "num_attention_heads", "add_position_embedding")
ASSERTED_WITH_VOCABULARY = ("max_position_embeddings", "make_vocab_size_divisible_by", "tokenizer_type")
# Arguments that determine the names and shapes of the weights, which are loaded strictly.
SHAPES = ("ffn_hidden_size", "kv_channels", "num_query_groups", "swiglu", "add_bias_linear", "add_qkv_bias",
          "untie_embeddings_and_output_weights", "normalization", "position_embedding_type", "qk_layernorm",
          "num_experts", "use_legacy_models", "vocab_size")  # fmt: skip
# Arguments that keep names and shapes but change what is computed with the weights.
MEANINGS = ("rotary_base", "rotary_percent", "rotary_interleaved", "rotary_seq_len_interpolation_factor", "squared_relu",
            "apply_layernorm_1p", "apply_residual_connection_post_layernorm", "norm_epsilon")  # fmt: skip
LAYOUT = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size",
          "num_layers_per_virtual_pipeline_stage")  # fmt: skip
ORDER = "From here on the data come in another order; the count of consumed samples goes on."
HARMLESS = {
    "seq_length": ORDER,
    "seed": ORDER,
    "data_path": "Other data: as many samples as were consumed are skipped in it.",
    "split": ORDER,
    "micro_batch_size": "The batches stay the same; they are split differently.",
    "context_parallel_size": "Weights are not split by it.",
    "sequence_parallel": "Weights are not split by it.",
}
# Arguments that Megatron-LM derives from others if they are not given.
DERIVED = ("ffn_hidden_size", "kv_channels", "lr_decay_iters", "lr_decay_samples")
# Bookkeeping that differs from run to run.
IGNORED = frozenset({"save", "load", "tensorboard_dir", "exit_signal_handler", "finetune", "no_load_optim", "no_load_rng",
                     "override_opt_param_scheduler", "use_checkpoint_opt_param_scheduler", "use_dist_ckpt",
                     "auto_detect_ckpt_format", "dist_ckpt_format", "vocab_file", "merge_file", "fp16", "bf16",
                     "use_rotary_position_embeddings", "group_query_attention", "weight_decay_incr_style"})  # fmt: skip
CONVERT = "tools/checkpoint/convert.py of Megatron-LM rewrites it for another layout"


def compare(stored: Stored, plan: RunPlan) -> tuple[Difference, ...]:
    """The differences between `stored` and what `plan` would train with, the most serious first."""
    planned = planned_values(plan.arguments, plan.trainer, plan.processes)
    found = [*_model(stored, planned), *_load_flags(stored, planned), *_optimizer(stored, planned)]
    found = _without_consequences([*found, *_schedule(stored, planned)], given_values(plan.arguments))
    said = {difference.flag for difference in found}
    found += [d for d in _rest(stored, given_values(plan.arguments)) if d.flag not in said]
    order: tuple[Verdict, ...] = ("refused", "changes", "flag", "harmless")
    return tuple(sorted(found, key=lambda difference: order.index(difference.verdict)))


def _without_consequences(found: Sequence[Difference], given: Mapping[str, Any]) -> list[Difference]:
    """Drops differences that follow from another one, as --ffn-hidden-size does from --hidden-size."""
    kept: list[Difference] = []
    for difference in found:
        follows = difference.flag in map(flag_of, DERIVED) and not any(
            flag_of(n) == difference.flag for n in given
        )
        alike = [d for d in found if d is not difference and d.verdict == difference.verdict]
        if not (follows and alike):
            kept.append(difference)
    return kept


def needed_flags(differences: Iterable[Difference]) -> dict[str, tuple[str, ...]]:
    """The flags without which the differences would be refused, each with its values."""
    flags: dict[str, tuple[str, ...]] = {}
    for difference in differences:
        if difference.verdict == "flag":
            flags |= {flag: words for flag, words in (difference.fix or {}).items() if words is not None}
    return flags


def _model(stored: Stored, planned: Mapping[str, Any]) -> Iterator[Difference]:
    vocabulary = planned.get("vocab_file") is not None or planned.get("tokenizer_type") in (
        "GPT2BPETokenizer",
        None,
    )
    learned = planned.get("position_embedding_type", "learned_absolute") == "learned_absolute"
    asserted = [*ASSERTED, *(ASSERTED_WITH_VOCABULARY if vocabulary else ())]
    shapes = [*SHAPES, *(() if vocabulary else ("tokenizer_type",))]
    if learned and not vocabulary:
        shapes.append("max_position_embeddings")
    if not planned.get("finetune"):
        for name, old, new in pairs(stored.values, planned, asserted):
            yield differing(name, old, new, "refused", "Megatron-LM compares the two and stops.")
    else:
        shapes += asserted
    for name, old, new in pairs(stored.values, planned, shapes):
        if name != "num_query_groups" or _groups(stored.values) != _groups(planned):
            yield differing(name, old, new, "refused", "The weights have other names or shapes.")
    for name, old, new in pairs(stored.values, planned, MEANINGS):
        yield differing(name, old, new, "changes", "It loads, but the model then computes something else.")
    yield from _layout(stored, planned)
    if not stored.distributed:
        for name, old, new in pairs(stored.values, planned, ["transformer_impl"]):
            if not planned.get("use_legacy_models"):
                yield differing(name, old, new, "refused", "The weights have other names in torch format.")


def _groups(values: Mapping[str, Any]) -> Any:
    return values.get("num_query_groups") if values.get("group_query_attention") else None


def _layout(stored: Stored, planned: Mapping[str, Any]) -> Iterator[Difference]:
    """How the weights are split over ranks."""
    for name, old, new in pairs(stored.values, planned, LAYOUT):
        if not stored.distributed:
            remedy = f"Give {flag_of(name)} {shown(old)}, or convert the checkpoint: {CONVERT}."
            if old is None:
                remedy = f"Take {flag_of(name)} away, or convert the checkpoint: {CONVERT}."
            yield differing(
                name, old, new, "refused", "In torch format each rank can only load its own shard.", remedy
            )
        elif stored.values.get("use_distributed_optimizer") and not stored.values.get(
            "ckpt_fully_parallel_save", True
        ):
            message = "The state of the distributed optimizer was saved in a form that cannot be split again."
            yield differing(
                name, old, new, "refused", message, f"Give {flag_of(name)} {shown(old)}, or --no-load-optim."
            )
        else:
            yield differing(
                name,
                old,
                new,
                "harmless",
                "It is split again for the new layout; the state of the random generators is not loaded.",
                "",
            )


def _load_flags(stored: Stored, planned: Mapping[str, Any]) -> Iterator[Difference]:
    """Flags that this checkpoint needs to be loaded."""
    if stored.distributed and not (planned.get("use_dist_ckpt") or planned.get("auto_detect_ckpt_format")):
        message = "Megatron-LM reads a distributed checkpoint only with this flag and stops without it."
        yield _flag("--auto-detect-ckpt-format", "torch_dist", "torch", message)
    if planned.get("finetune"):
        return
    for kept, flag in (("no_save_optim", "--no-load-optim"), ("no_save_rng", "--no-load-rng")):
        if stored.values.get(kept) and not planned.get(flag.removeprefix("--").replace("-", "_")):
            yield _flag(flag, "not saved", "wanted", "What was not saved cannot be loaded.")


def _flag(flag: str, old: str, new: str, message: str) -> Difference:
    return Difference(flag, old, new, "flag", message, f"{flag} is added.", {flag: ()})


def _optimizer(stored: Stored, planned: Mapping[str, Any]) -> Iterator[Difference]:
    precision = tuple(_precision(values) for values in (stored.values, planned))
    if None not in precision and precision[0] != precision[1]:
        half = "fp32" not in precision
        message = "The weights are converted." if half else "The optimizer's state has another shape."
        remedy = f"Give --{precision[0]}, as before." if precision[0] != "fp32" else "Take the flag away."
        verdict: Verdict = (
            "changes" if half or planned.get("no_load_optim") or planned.get("finetune") else "refused"
        )
        yield Difference("--fp16/--bf16", str(precision[0]), str(precision[1]), verdict, message, remedy)
    if planned.get("no_load_optim") or planned.get("finetune"):
        return
    for name, old, new in pairs(stored.values, planned, ["optimizer", "use_distributed_optimizer"]):
        if name == "use_distributed_optimizer" and stored.distributed:
            continue
        remedy = (
            f"Use what it was trained with ({shown(old)}), or drop the optimizer's state: --no-load-optim."
        )
        yield differing(name, old, new, "refused", "The optimizer's state is stored in another way.", remedy)


def _precision(values: Mapping[str, Any]) -> str | None:
    if "fp16" not in values and "bf16" not in values:
        return None
    return "bf16" if values.get("bf16") else "fp16" if values.get("fp16") else "fp32"


def _schedule(stored: Stored, planned: Mapping[str, Any]) -> Iterator[Difference]:
    """Differences of the learning-rate schedule. Megatron-LM refuses them without a flag that says which side counts."""
    rows = list(pairs(stored.values, planned, INPUTS))
    if any(name == "weight_decay" for name, *_ in rows):
        rows = [row for row in rows if row[0] not in ("start_weight_decay", "end_weight_decay")]
    if planned.get("finetune") or planned.get("no_load_optim"):
        yield from (differing(*row, "harmless", "The schedule starts again.", "") for row in rows)
        return
    changes = schedule_changes(stored.scheduler, stored.values, planned)
    if not changes:
        yield from (differing(*row, "harmless", "The schedule does not depend on it.", "") for row in rows)
        return
    what = "; ".join(f"{words} {shown(old)} → {shown(new)}" for words, old, new in changes)
    fix: Fix | None = None
    if planned.get("use_checkpoint_opt_param_scheduler"):
        verdict, message, remedy = "harmless", f"Not taken: the checkpoint's schedule counts ({what}).", ""
    elif planned.get("override_opt_param_scheduler"):
        verdict, message, remedy = "harmless", f"The new schedule counts ({what}).", ""
    else:
        verdict, message = "flag", f"The schedule changes: {what}."
        remedy = f"{OVERRIDE} is added, so the new values count. To keep the old ones, give {USE_CHECKPOINT}."
        fix = {OVERRIDE: ()}
        if not rows:  # the arguments are the same
            message = f"The stored schedule differs from the stored arguments: {what}."
            remedy, fix = (
                f"{USE_CHECKPOINT} is added, so the stored schedule goes on.",
                {USE_CHECKPOINT: ()},
            )
    if not rows:
        rows = [(words, old, new) for words, old, new in changes]
        yield from (
            Difference(words, shown(old), shown(new), verdict, message, remedy, fix)
            for words, old, new in rows
        )
        return
    for at, (name, old, new) in enumerate(rows):
        words = (message, remedy) if at == 0 else ("Part of the same schedule.", "")
        yield Difference(flag_of(name), shown(old), shown(new), verdict, *words, fix)


def _rest(stored: Stored, given: Mapping[str, Any]) -> Iterator[Difference]:
    """Other given arguments that differ; nothing in a checkpoint depends on them."""
    for name, old, new in pairs(stored.values, given, [name for name in given if name not in IGNORED]):
        yield differing(
            name, old, new, "harmless", HARMLESS.get(name, "Nothing in the checkpoint depends on it."), ""
        )
