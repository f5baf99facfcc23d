"""Whether a run that crashed is resumed by itself, when, and how often: decided here, carried out by its supervisor.

At most so many times in a row as [resume] automatic of mdk.toml says (0, the default: never), each time after a longer
pause, and never where the same end is certain or nobody saw it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backends.runs.checkpoints import Iteration
from backends.runs.plan import RunPlan
from backends.runs.signs import Signs

LONGEST_PAUSE = 30 * 60.0  # s
LATE = 10 * 60.0  # s after its time in which it has come, or never will
# Errors that come again with the same command, by their kinds in backends/megatron/known_errors.py.
REPEATING = frozenset({
    "out-of-memory", "duplicate-gpu", "no-master-address", "not-enough-slots", "local-rank", "invalid-device", "no-gpu",
    "no-data", "bad-index", "truncated-data", "no-tokenizer-file", "token-out-of-range", "vocabulary-mismatch",
    "checkpoint-mismatch", "scheduler-mismatch", "state-mismatch", "batch-arithmetic", "parallel-arithmetic", "rampup",
    "training-length", "nan", "missing-script", "dataset-helper", "max-connections", "no-save-interval",
    "checkpoint-not-empty", "bad-tracker", "checkpoint-unreadable", "no-checkpoint", "loss-scale-minimum", "disk-full",
    "container", "no-executable",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Again:
    """An automatic resume: the `attempt`-th of `limit`, due `at` (s since the epoch).

    Of `run`, the run that it became, and `dropped`, why it does not take place, one is set once that is known.
    """

    attempt: int
    limit: int
    at: float = 0.0
    run: str | None = None
    dropped: str | None = None

    @property
    def due(self) -> bool:
        """Whether it is still to come."""
        return self.run is None and self.dropped is None

    def expected(self, now: float) -> bool:
        """Whether somebody on another machine may still carry it out."""
        return self.due and now < self.at + LATE

    def words(self) -> str:
        """In one sentence; the time is local."""
        count = f"{self.attempt} of {self.limit}"
        if self.run is not None:
            return f"Resumed by itself as {self.run} ({count})."
        if self.dropped is not None:
            return f"Not resumed by itself: {self.dropped}"
        return f"Resumes by itself at {time.strftime('%H:%M:%S', time.localtime(self.at))} ({count})."

    @classmethod
    def from_json(cls, value: object) -> Again | None:
        """What dataclasses.asdict made; anything else is none."""
        if not isinstance(value, Mapping):
            return None
        taken: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            item: Any = value.get(field.name)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            kinds = {"attempt": int, "limit": int, "at": (int, float)}.get(field.name, (str, type(None)))
            if not isinstance(item, kinds) or isinstance(item, bool):
                return None
            taken[field.name] = item
        return cls(**taken)


def automatic_resume(
    plan: RunPlan, signs: Signs, tracked: Iteration | None, *, limit: int, pause: float, now: float
) -> Again | None:
    """What comes after a crash of a run that its supervisor saw end, and that nobody stopped. None: not wanted at all.

    `tracked` is what the tracker of its save folder names now; `pause` s are waited before the first attempt, twice as
    long before each further one.
    """
    if limit <= 0 or plan.kind != "train":
        return None
    attempt = plan.attempt + 1
    if why := _why_not(plan, signs, tracked, limit):
        return Again(min(attempt, limit), limit, dropped=why)
    return Again(attempt, limit, at=now + min(pause * 2 ** (attempt - 1), LONGEST_PAUSE))


def _why_not(plan: RunPlan, signs: Signs, tracked: Iteration | None, limit: int) -> str | None:
    if plan.attempt >= limit:
        return f"it was, {plan.attempt} times already."
    if signs.interrupted:
        return "somebody interrupted or cancelled it."
    if signs.error_kind in REPEATING:
        return f"this would come again ({signs.error_kind})."
    if plan.save is None or not isinstance(tracked, int):
        return "there is no checkpoint that its tracker file names."
    if signs.iteration is None:
        return "it ended before its first iteration, and would again."
    if plan.train_iters is not None and tracked >= plan.train_iters:
        return "its last checkpoint is of the last iteration."
    return None
