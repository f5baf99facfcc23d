"""Does a plan go together: batch, parallel sizes, model, data and GPUs? And which layout would?

Each check is a function of a `Case`, so that a form can run them all at every key. What core_r0.8.0 would refuse, or
silently change, is an error; what wastes memory, time or data is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from backends.models.arguments import merge_arguments, without
from backends.models.configuration import ArgumentError, Arguments, Configuration, read_configuration
from backends.models.estimate import MEBIBYTE, count_parameters, estimate_memory
from backends.models.flag_checks import (
    check_data,
    check_iterations,
    check_names,
    check_optimizer,
    check_precision,
    check_recomputation,
    check_split,
    check_tokenizer,
    unknown_flags,
)
from backends.models.layout_checks import (
    LARGEST_SIZE,
    MICRO,
    PIPELINE,
    TENSOR,
    VIRTUAL,
    Case,
    Resources,
    check_batch,
    check_context,
    check_model,
    check_pipeline,
    check_tensor,
    check_world,
)
from backends.models.problem import Fix, Problem

__all__ = ["Resources", "Suggestion", "apply_fix", "check", "suggest", "words_of"]

# Context of CUDA, NCCL's buffers and what the allocator cannot use, on top of Megatron's formula.
OVERHEAD_MIB = 3072


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A layout that fits: what to set, and the MiB that the fullest GPU will then need."""

    fix: Fix
    memory_mb: float


def check(arguments: Sequence[str], resources: Resources) -> list[Problem]:
    """All that speaks against these arguments, errors first."""
    given = Arguments(arguments)
    try:
        config = read_configuration(arguments, resources.gpus, resources.vocab_size)
    except ArgumentError as error:
        missing = Problem("error", error.field, error.message, error.remedy)
        return [missing, *unknown_flags(given, resources.known_flags)]
    case = Case(given, config, resources)
    found = [problem for look in CHECKS for problem in look(case)]
    return sorted(found, key=lambda problem: problem.severity == "warning")


def apply_fix(arguments: Sequence[str], fix: Fix) -> tuple[str, ...]:
    """`arguments` with the flags of `fix` set, in place or at the end, or taken away. What is no flag is left to others."""
    flags = {flag: words for flag, words in fix.items() if flag.startswith("--")}
    kept = without(arguments, *(flag for flag, words in flags.items() if words is None))
    return merge_arguments(kept, words_of(flags))


def _memory(case: Case) -> Iterator[Problem]:
    available = case.resources.gpu_memory
    if available is None:
        return
    needed, present = _needed(case.config), available / MEBIBYTE
    if needed <= present:
        return
    found = suggest(case.config, case.resources)
    # Activations are an estimate, weights are not.
    certain = estimate_memory(case.config, count_parameters(case.config)).weight_and_optimizer
    yield Problem(
        "error" if certain > present else "warning",
        "gpus",
        f"The fullest GPU needs about {needed / 1024:.0f} GiB, of {present / 1024:.0f} GiB.",
        f"Fits with {' '.join(words_of(found.fix))} ({found.memory_mb / 1024:.0f} GiB)."
        if found
        else "Take more GPUs, a smaller model or a shorter sequence.",
        found.fix if found else None,
    )


def _needed(config: Configuration) -> float:
    """MiB that the fullest GPU should have."""
    return estimate_memory(config, count_parameters(config)).total + OVERHEAD_MIB


CHECKS: tuple[Callable[[Case], Iterator[Problem]], ...] = (
    check_world, check_tensor, check_pipeline, check_context, check_model, check_batch,
    check_iterations, check_precision, check_recomputation, check_tokenizer, check_optimizer, check_data, check_split,
    check_names, _memory,
)  # fmt: skip


def suggest(config: Configuration, resources: Resources) -> Suggestion | None:
    """The layout that fits with the least splitting: first smaller micro batches and recomputation cost speed, then
    tensor parallelism inside a node, then pipeline stages. None when none does, or the memory is not known."""
    if resources.gpu_memory is None:
        return None
    available = resources.gpu_memory / MEBIBYTE
    for candidate in _candidates(config, resources):
        needed = _needed(candidate)
        if needed <= available:
            return Suggestion(_difference(config, candidate), needed)
    return None


def words_of(fix: Fix) -> list[str]:
    """A fix as it would be typed."""
    return [word for flag, words in fix.items() if words is not None for word in (flag, *words)]


def _candidates(config: Configuration, resources: Resources) -> Iterator[Configuration]:
    """Layouts that Megatron accepts, in the order of what they cost."""
    tensors = [n for n in (1, 2, 4, 8, 16) if n <= min(resources.gpus_per_node, config.world_size)]
    deepest = min(config.num_layers, config.world_size, LARGEST_SIZE)
    pipelines = [n for n in range(1, deepest + 1) if config.num_layers % n == 0]
    micro_batches = [
        n
        for n in range(min(config.micro_batch_size, LARGEST_SIZE), 0, -1)
        if config.micro_batch_size % n == 0
    ]
    splits = sorted(
        ((tensor, pipeline) for pipeline in pipelines for tensor in tensors),
        key=lambda sizes: (sizes[0] * sizes[1], sizes[1]),
    )
    for tensor, pipeline in splits:
        for recompute in dict.fromkeys((config.recompute_granularity, "selective", "full")):
            for micro in micro_batches:
                candidate = replace(
                    config,
                    tensor_model_parallel_size=tensor,
                    pipeline_model_parallel_size=pipeline,
                    num_layers_per_virtual_pipeline_stage=None,
                    sequence_parallel=tensor > 1,
                    recompute_granularity=recompute,
                    micro_batch_size=micro,
                )
                if _accepted(candidate):
                    yield candidate


def _accepted(config: Configuration) -> bool:
    case = Case(Arguments(()), config, Resources(config.world_size))
    checks = (check_world, check_tensor, check_pipeline, check_batch)
    return not any(problem.severity == "error" for look in checks for problem in look(case))


def _difference(old: Configuration, new: Configuration) -> Fix:
    fix: dict[str, tuple[str, ...] | None] = {}
    for flag, before, after in (
        (TENSOR, old.tensor_model_parallel_size, new.tensor_model_parallel_size),
        (PIPELINE, old.pipeline_model_parallel_size, new.pipeline_model_parallel_size),
        (MICRO, old.micro_batch_size, new.micro_batch_size),
    ):
        if before != after:
            fix[flag] = (str(after),)
    if new.sequence_parallel != old.sequence_parallel:
        fix["--sequence-parallel"] = () if new.sequence_parallel else None
    if old.num_layers_per_virtual_pipeline_stage is not None:
        fix[VIRTUAL] = None
    if new.recompute_granularity != old.recompute_granularity:
        fix["--recompute-granularity"] = (new.recompute_granularity or "selective",)
        if new.recompute_granularity == "full":
            fix |= {
                "--recompute-activations": None,
                "--recompute-method": ("uniform",),
                "--recompute-num-layers": ("1",),
            }
    return fix
