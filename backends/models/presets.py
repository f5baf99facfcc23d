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


# About a minute on one core, the first checkpoint after some seconds; the batch can be shared by two ranks.
_TINY = """
    --num-layers 2 --hidden-size 96 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128
    --init-method-std 0.06 --micro-batch-size 2 --global-batch-size 4 --train-iters 1000
    --lr 3e-3 --min-lr 3e-4 --lr-decay-style cosine --lr-warmup-fraction 0.02 --weight-decay 0.1 --adam-beta2 0.98
    --log-interval 5 --save-interval 50 --eval-interval 100 --eval-iters 4 --exit-signal-handler
"""
TINY = Preset("tiny", "a tiny GPT on the CPU, trained on Python's own help", "demo", tuple(_TINY.split()))
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
