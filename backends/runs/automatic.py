"""Decides whether and when a crashed run is resumed automatically. The run's supervisor carries it out.

`automatic` in section [resume] of mdk.toml limits the attempts in a row (default 0: never). The pause doubles with each
attempt. A run is not resumed if the same error would occur again, or if no supervisor saw it end.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

from backends.files import plain_fields
from backends.runs.checkpoints import Iteration
from backends.runs.plan import RunPlan
from backends.runs.signs import Signs

LONGEST_PAUSE = 30 * 60.0  # s
LATE = 10 * 60.0  # s after the due time; an automatic resume that has not happened by then never will
# Errors that the same command would meet again, by their kinds in backends/megatron/known_errors.py.
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

    Later either `run` (the run that it started) or `dropped` (why it does not take place) is set.
    """

    attempt: int
    limit: int
    at: float = 0.0
    run: str | None = None
    dropped: str | None = None

    @property
    def due(self) -> bool:
        """Whether it has neither happened nor been dropped."""
        return self.run is None and self.dropped is None

    def expected(self, now: float) -> bool:
        """Whether a supervisor on another machine may still carry it out."""
        return self.due and now < self.at + LATE

    def words(self) -> str:
        """One sentence, with the local time."""
        count = f"{self.attempt} of {self.limit}"
        if self.run is not None:
            return f"Resumed by itself as {self.run} ({count})."
        if self.dropped is not None:
            return f"Not resumed by itself: {self.dropped}"
        return f"Resumes by itself at {time.strftime('%H:%M:%S', time.localtime(self.at))} ({count})."

    @classmethod
    def from_json(cls, value: object) -> Again | None:
        """Reads what dataclasses.asdict wrote; None for anything else."""
        found = plain_fields(cls, value)
        return cls(**found) if len(found) == len(dataclasses.fields(cls)) else None


def automatic_resume(
    plan: RunPlan, signs: Signs, tracked: Iteration | None, *, limit: int, pause: float, now: float
) -> Again | None:
    """The automatic resume after a crash that the supervisor saw. None: automatic resumes are switched off.

    `tracked` is the iteration that the tracker of the save folder names now. The first attempt waits `pause` s, each
    further one twice as long.
    """
    if limit <= 0 or plan.kind != "train":
        return None
    attempt = plan.attempt + 1
    if why := _why_not(plan, signs, tracked, limit):
        return Again(min(attempt, limit), limit, dropped=why)
    return Again(attempt, limit, at=now + min(pause * 2 ** (attempt - 1), LONGEST_PAUSE))


def _why_not(plan: RunPlan, signs: Signs, tracked: Iteration | None, limit: int) -> str | None:
    if plan.attempt >= limit:
        return f"it has been resumed {plan.attempt} times already."
    if signs.interrupted:
        return "somebody interrupted or cancelled it."
    if signs.error_kind in REPEATING:
        return f"the same error would occur again ({signs.error_kind})."
    if plan.save is None or not isinstance(tracked, int):
        return "its tracker file names no checkpoint."
    if signs.iteration is None:
        return "it ended before its first iteration and would do so again."
    if plan.train_iters is not None and tracked >= plan.train_iters:
        return "its last checkpoint is of the last iteration."
    return None
