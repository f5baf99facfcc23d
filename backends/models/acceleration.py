"""The choices that make a training faster or smaller: which flags they are, what each needs, what each does to the estimate.

Names and conditions are core_r0.8.0's (`megatron/training/arguments.py`, `megatron/legacy/model/transformer.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from backends.errors import UserError
from backends.models.configuration import Arguments, read_configuration
from backends.models.estimate import count_parameters, estimate_memory, estimate_training
from backends.models.layout import apply_fix
from backends.models.problem import Fix


@dataclass(frozen=True, slots=True)
class Acceleration:
    """One choice that is on or off. `flags` with their words are what it is; `note` is one line."""

    name: str
    label: str
    flags: Fix
    note: str

    def is_on(self, given: Arguments) -> bool:
        return all(flag in given for flag in self.flags)

    def fix(self, on: bool) -> Fix:
        return self.flags if on else dict.fromkeys(self.flags)


ACCELERATIONS = (
    Acceleration("fp8", "FP8", {"--fp8-format": ("hybrid",)},
                 "needs Transformer Engine and H100 or newer; about twice the speed of half precision"),
    Acceleration("distributed-optimizer", "distributed optimizer", {"--use-distributed-optimizer": ()},
                 "needs fp16 or bf16; shares 12 of 18 bytes a parameter among the copies of the model"),
    Acceleration("overlap-grad-reduce", "overlap grad reduce", {"--overlap-grad-reduce": ()},
                 "needs several copies of the model; hides communication, which the estimate does not count"),
    Acceleration("overlap-param-gather", "overlap param gather", {"--overlap-param-gather": ()},
                 "needs distributed optimizer, overlap grad reduce, no legacy models; hides communication"),
    Acceleration("sequence-parallel", "sequence parallel", {"--sequence-parallel": ()},
                 "needs tensor parallel 2 or more; splits the activations of norms and dropouts as well"),
    Acceleration("flash-attention", "flash attention", {"--use-flash-attn": ()},
                 "needs flash-attn, legacy models, --transformer-impl local; Transformer Engine has its own"),
)  # fmt: skip
RECOMPUTATION_FLAGS = (
    "--recompute-granularity", "--recompute-activations", "--recompute-method", "--recompute-num-layers",
    "--distribute-saved-activations",
)  # fmt: skip
RECOMPUTATIONS = {
    "none": "keeps all activations: the most memory, the least time",
    "selective": "computes attention again: little time, much memory where attention is not fused",
    "full": "keeps the input of each layer alone: the least memory, about a third more time",
}


def recomputation(given: Arguments) -> str:
    """One of RECOMPUTATIONS, or what else was written."""
    if "--recompute-activations" in given:
        return "selective"
    return given.text("--recompute-granularity") or "none"


def recomputation_fix(kind: str) -> Fix:
    """The flags that make `recomputation` say `kind`."""
    fix: dict[str, tuple[str, ...] | None] = dict.fromkeys(RECOMPUTATION_FLAGS)
    if kind != "none":
        fix["--recompute-granularity"] = (kind,)
    if kind == "full":
        fix |= {"--recompute-method": ("uniform",), "--recompute-num-layers": ("1",)}
    return fix


def accelerated(
    arguments: Sequence[str],
    wanted: Collection[str] = (),
    unwanted: Collection[str] = (),
    recompute: str | None = None,
) -> tuple[str, ...]:
    """`arguments` with the choices named `wanted` on and those `unwanted` off. What they are already stays as written.

    Raises UserError for one that is both.
    """
    if both := sorted(set(wanted) & set(unwanted)):
        raise UserError(f"{both[0]} is both wanted and not.", "Say one of them.", status=2)
    given = Arguments(arguments)
    for choice in ACCELERATIONS:
        if choice.name in wanted and not choice.is_on(given):
            arguments = apply_fix(arguments, choice.fix(on=True))
        elif choice.name in unwanted:
            arguments = apply_fix(arguments, choice.fix(on=False))
    if recompute is not None and recompute != recomputation(given):
        arguments = apply_fix(arguments, recomputation_fix(recompute))
    return tuple(arguments)


@dataclass(frozen=True, slots=True)
class Effect:
    """What one choice changes: MiB on the fullest GPU, and time an iteration as a factor (at assumed throughput)."""

    memory_mb: float
    time: float


def effect(before: Sequence[str], after: Sequence[str], gpus: int, vocab_size: int | None) -> Effect:
    """Raises ArgumentError when one of them cannot be read."""
    (old_memory, old_time), (new_memory, new_time) = (_cost(a, gpus, vocab_size) for a in (before, after))
    return Effect(new_memory - old_memory, new_time / old_time)


def _cost(arguments: Sequence[str], gpus: int, vocab_size: int | None) -> tuple[float, float]:
    config = read_configuration(arguments, gpus, vocab_size)
    counts = count_parameters(config)
    return estimate_memory(config, counts).total, estimate_training(config, counts).seconds_per_iteration
