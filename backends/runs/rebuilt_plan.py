"""Makes the plan of a run that this workspace does not know from the arguments stored in its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backends.errors import UserError
from backends.models import training_flags
from backends.models.model_flags import is_demo
from backends.runs.plan import RunPlan
from backends.runs.stored_values import read_stored

SPLIT = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


def rebuilt_plan(checkpoint: Path) -> RunPlan:
    """The plan that wrote `checkpoint`, an `iter_*` folder, with as many ranks but no nodes or image. Raises UserError."""
    stored = read_stored(checkpoint, None)
    values: dict[str, Any] = dict(stored.values) if stored else {}
    if not isinstance(values.get("num_layers"), int) or not isinstance(values.get("hidden_size"), int):
        raise UserError(
            f"No run of this workspace wrote {checkpoint}, and its arguments cannot be read from inside it.",
            "Name the workspace that it belongs to (-w DIR), or the model: mdk-tui launch --preset P --load DIR",
        )
    ranks = 1
    for name in SPLIT:
        ranks *= values.get(name) or 1
    processes = values.get("world_size") or ranks
    demo = is_demo(values)
    return RunPlan(
        kind="train",
        trainer="demo" if demo else "megatron",
        launcher="local" if demo and processes == 1 else "mpirun",
        title=f"what saved {checkpoint.parent.name}",
        arguments=training_flags.of_checkpoint(values),
        processes=processes,
    )
