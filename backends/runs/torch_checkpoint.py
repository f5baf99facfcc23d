"""Judges torch-format checkpoints: `mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt` of every rank must be there.

The names are those of `get_checkpoint_name` in megatron/training/checkpointing.py of core_r0.8.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from backends.runs.torch_archive import torn

SHARD = re.compile(r"mp_rank_(\d{2,})(?:_(\d{3,}))?(?:_(\d{3,}))?")
MODEL, OPTIMIZER = "model_optim_rng.pt", "distrib_optim.pt"
LARGEST = 10_000  # a larger stored size is not believed


@dataclass(frozen=True, slots=True)
class Layout:
    """Tensor, pipeline and expert parallel sizes: how the weights are split over ranks. None: not known."""

    tp: int | None = None
    pp: int | None = None
    ep: int | None = None

    def __str__(self) -> str:
        words = f"TP {self.tp or '?'} × PP {self.pp or '?'}"
        return f"{words} × EP {self.ep}" if self.ep and self.ep > 1 else words

    @classmethod
    def stored(cls, arguments: Mapping[str, Any]) -> Layout:
        names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")
        sizes = (arguments.get(name) for name in names)
        return cls(*(size if type(size) is int and 0 < size < LARGEST else None for size in sizes))

    @classmethod
    def named(cls, shards: list[str]) -> Layout:
        """From the names of the shards. The second of two numbers is taken for the pipeline rank."""
        matches = [match.groups() for name in shards if (match := SHARD.fullmatch(name))]
        return cls(*(max(int(match[at] or 0) for match in matches) + 1 for at in range(3)))

    def shard_names(self) -> list[str]:
        tp, pp, ep = self.tp or 1, self.pp or 1, self.ep or 1
        return [
            f"mp_rank_{t:02d}" + (f"_{p:03d}" if pp > 1 else "") + (f"_{e:03d}" if ep > 1 else "")
            for t, p, e in product(range(tp), range(pp), range(ep))
        ]


def torch_problem(folder: Path, shards: list[str], layout: Layout) -> str | None:
    """Why the checkpoint in `folder`, which holds the folders `shards`, is not complete, or None."""
    wanted = layout.shard_names()
    missing = sorted(set(wanted) - set(shards))
    if missing:
        are = "shard is" if len(wanted) == 1 else "shards are"
        return f"{len(missing)} of {len(wanted)} {are} missing ({layout}), the first is {missing[0]}."
    return next(_shard_problems(folder, wanted), None)


def _shard_problems(folder: Path, shards: list[str]) -> Iterator[str]:
    for name in shards:
        model = folder / name / MODEL
        if not model.is_file():
            yield f"{name}/{MODEL} is missing."
        elif problem := torn(model):
            yield f"{name}/{MODEL} {problem}."
    with_optimizer = [name for name in shards if (folder / name / OPTIMIZER).is_file()]
    if 0 < len(with_optimizer) < len(shards):
        lacking = next(name for name in shards if name not in with_optimizer)
        yield f"{lacking}/{OPTIMIZER} is missing, though other shards have one."
    for name in with_optimizer:
        if problem := torn(folder / name / OPTIMIZER):
            yield f"{name}/{OPTIMIZER} {problem}."
