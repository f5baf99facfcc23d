"""Models by name. A preset is Megatron's own arguments, nothing else; paths and the number of processes are not part of it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from backends.errors import UserError
from backends.models.megatron_presets import MEGATRON_PRESETS


@dataclass(frozen=True, slots=True)
class Preset:
    name: str
    title: str
    trainer: Literal["demo", "megatron"]
    arguments: tuple[str, ...]


TINY = Preset(
    "tiny",
    "a tiny GPT on the CPU: Python's own help, letter by letter",
    "demo",
    (
        "--num-layers",
        "2",
        "--hidden-size",
        "64",
        "--num-attention-heads",
        "4",
        "--seq-length",
        "128",
        "--max-position-embeddings",
        "128",
        "--micro-batch-size",
        "4",
        "--global-batch-size",
        "4",
        "--train-iters",
        "1000",
        "--lr",
        "5e-3",
        "--min-lr",
        "5e-4",
        "--lr-decay-style",
        "cosine",
        "--lr-warmup-iters",
        "20",
        "--make-vocab-size-divisible-by",
        "1",
        "--log-interval",
        "5",
        "--save-interval",
        "50",
        "--eval-interval",
        "100",
        "--eval-iters",
        "4",
        "--exit-signal-handler",
    ),
)
PRESETS: dict[str, Preset] = {
    TINY.name: TINY,
    **{
        name: Preset(name, title, "megatron", arguments)
        for name, (title, arguments) in MEGATRON_PRESETS.items()
    },
}


def find(name: str) -> Preset:
    """The preset called `name`. Raises UserError naming the nearest."""
    if name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(name, PRESETS, n=1)
    known = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(PRESETS)}."
    raise UserError(f"There is no preset {name!r}.", known, status=2)
