"""`samples.jsonl` of a run: the same prompts, completed from each checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backends.files import append_json_lines, read_json_lines

NAME = "samples.jsonl"


@dataclass(frozen=True, slots=True)
class Sample:
    """One prompt completed from the checkpoint of `iteration`. `at`: s since the epoch.

    `mean`: mean log-probability of the continuation's tokens. `skipped`: why there is no continuation.
    """

    at: float
    iteration: int
    prompt: str = ""
    continuation: str = ""
    mean: float | None = None
    skipped: str = ""


def append(run: Path, samples: Sequence[Sample]) -> None:
    """Raises OSError."""
    append_json_lines(run / NAME, map(asdict, samples))


def read(run: Path) -> list[Sample]:
    """In the order of the file; damaged lines are skipped."""
    return [sample for known in read_json_lines(run / NAME) if (sample := _sample(known)) is not None]


def prompts_of(samples: Sequence[Sample]) -> list[str]:
    """Each prompt once, in the order of the settings."""
    return list(dict.fromkeys(sample.prompt for sample in samples if not sample.skipped))


def of_prompt(samples: Sequence[Sample], prompt: str) -> list[Sample]:
    """The completions of `prompt` and the skipped samples, by iteration; the later one if there are two."""
    found = {sample.iteration: sample for sample in samples if sample.skipped or sample.prompt == prompt}
    return [found[iteration] for iteration in sorted(found)]


def _sample(known: Mapping[str, Any]) -> Sample | None:
    texts = {name: known.get(name, "") for name in ("prompt", "continuation", "skipped")}
    at, iteration, mean = (known.get(name) for name in ("at", "iteration", "mean"))
    if type(iteration) is not int or not isinstance(at, int | float) or not all(isinstance(t, str) for t in texts.values()):  # fmt: skip
        return None
    return Sample(at=float(at), iteration=iteration, mean=mean if isinstance(mean, float) else None, **texts)
