"""The words at the right of the launch form: problems, estimate, effects."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from textual.content import Content

from backends.text import clean
from backends.ticks import GIB, count_words, duration, size_words
from tui.glyphs import Glyphs

if TYPE_CHECKING:
    from backends.launch.preview import Preview
    from backends.models.acceleration import Effect
    from backends.models.estimate import Estimate
    from backends.models.problem import Problem

LABEL = 11
FAR = timedelta(days=3000)  # a date farther away means nothing


def problem_text(problems: Sequence[Problem], sign: Glyphs) -> Content:
    """The problems with their remedies; "(^t)" marks those that a key applies."""
    parts: list[tuple[str, str] | str] = []
    for problem in problems:
        error = problem.severity == "error"
        parts.append(
            (
                f"{sign.failed if error else '!'} {clean(problem.message)}\n",
                "$text-error" if error else "$text-warning",
            )
        )
        parts.append(f"  {clean(problem.remedy)}")
        parts.append(("  (^t)\n" if problem.fix else "\n", "$text-primary"))
    if not problems:
        parts.append((f"{sign.good} No problems found.\n", "$text-success"))
    return Content.assemble(*parts)


def gist(problems: Sequence[Problem], preview: Preview | None, sign: Glyphs) -> Content:
    """One line: the number of problems, the memory, the time."""
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    parts = [
        (f"{sign.failed} {errors}", "$text-error") if errors else None,
        (f"! {warnings}", "$text-warning") if warnings else None,
        None if problems else (f"{sign.good} ready", "$text-success"),
    ]
    if preview is not None and (found := preview.estimate) is not None:
        parts.append((f"{found.memory.total / 1024:.1f} GiB a GPU", ""))
        parts.append((duration(found.training.seconds), "") if found.training.seconds else None)
    return Content(f" {sign.dot} ").join(Content.styled(text, style) for text, style in filter(None, parts))


def estimate_text(preview: Preview, now: datetime) -> Content:
    """Rows of a name and its numbers, without unknown facts."""
    rows = [*_data_rows(preview), *(_rows(preview, preview.estimate, now) if preview.estimate else [])]
    parts: list[tuple[str, str] | str] = []
    for name, text in rows:
        parts += [(f"{name:<{LABEL}}", "$foreground 55%"), f"{text}\n"]
    return Content.assemble(*parts)


def _data_rows(preview: Preview) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    facts, plan = preview.facts, preview.plan
    if facts.gpus:
        name = facts.gpus[0].name or "GPU"
        used = (
            f"{plan.processes} of {len(facts.gpus)}"
            if not plan.hosts
            else f"{plan.processes} on {len(plan.hosts)} nodes"
        )
        rows.append(("GPUs", f"{used} {clean(name)}"))
    elif plan.trainer == "megatron":
        rows.append(("GPUs", f"{plan.processes}" + (f" on {len(plan.hosts)} nodes" if plan.hosts else "")))
    whole = [data for data in facts.datasets if data.reason is None and data.tokens is not None]
    if whole:
        documents = sum(data.documents or 0 for data in whole)
        tokens = sum(data.tokens or 0 for data in whole)
        rows.append(("data", f"{documents:,} documents, {count_words(tokens)} tokens"))
    return rows


def _rows(preview: Preview, found: Estimate, now: datetime) -> list[tuple[str, str]]:
    counts, memory, training, facts = found.parameters, found.memory, found.training, preview.facts
    chosen = [gpu.memory_total for gpu in facts.chosen(preview.plan) if gpu.memory_total]
    against = f" of {min(chosen) / GIB:.0f}" if chosen else ""
    rows = [
        ("parameters", f"{count_words(counts.total)}: {count_words(counts.transformer)} layers, {count_words(counts.embedding)} embedding"),
        ("memory", f"{memory.total / 1024:.1f}{against} GiB a GPU: weights and optimizer "
                   f"{memory.weight_and_optimizer / 1024:.1f}, activations {memory.activation / 1024:.1f}"),
        ("tokens", f"{count_words(training.tokens_per_iteration)} an iteration"
                   + (f", {count_words(training.tokens)} in all" if training.tokens else "")),
    ]  # fmt: skip
    if training.epochs is not None:
        rows.append(("epochs", f"{training.epochs:,.2f}"))
    disk = size_words(training.checkpoint_bytes)
    if training.disk_bytes is not None:
        disk += f"; {training.checkpoints} take {size_words(training.disk_bytes)}"
        disk += f" of {size_words(facts.disk_free)} free" if facts.disk_free is not None else ""
    rows.append(("checkpoint", disk))
    rows.append(
        ("speed", f"{training.seconds_per_iteration:.2f} s an iteration at {training.throughput.words}")
    )
    if training.seconds is not None:
        left = timedelta(seconds=min(training.seconds, FAR.total_seconds()))
        end = f" ({now + left:%Y-%m-%d %H:%M})" if left < FAR else ""
        rows.append(("finished", f"in {duration(training.seconds)}{end}"))
    return rows


def effect_text(effect: Effect | None, minus: str) -> str:
    """ "−12.3 GiB, time ×0.50"; "" where the estimate stays as it is."""
    if effect is None:
        return ""
    parts: list[str] = []
    gib = effect.memory_mb / 1024
    if abs(gib) >= 0.05:
        parts.append(f"{'+' if gib > 0 else minus}{abs(gib):.1f} GiB")
    if abs(effect.time - 1) >= 0.005:
        parts.append(f"time x{effect.time:.2f}")
    return ", ".join(parts)
