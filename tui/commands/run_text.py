"""The state of runs as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from backends.runs.catalog import RunInfo
from backends.text import clean_line


def table(infos: Sequence[RunInfo]) -> str:
    rows = [("RUN", "PHASE", "KIND", "ITERATION", "WHAT")]
    rows += [(i.run, i.phase, i.kind or "?", progress(i), i.title) for i in infos]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)), row[4]]
        ).rstrip()
        for row in rows
    )


def progress(info: RunInfo) -> str:
    if info.iteration is None:
        return "-"
    return f"{info.iteration}/{info.train_iters}" if info.train_iters else str(info.iteration)


def details(info: RunInfo, *, mlflow: str | None = None) -> str:
    """One run on several lines, without unknown facts. `mlflow`: how far it is tracked."""
    ended = info.ended and (
        f"{info.ended}  status {info.exit_code}" if info.exit_code is not None else info.ended
    )
    lines = {
        "phase": info.phase,
        "what": f"{info.kind or '?'}  {info.title}",
        "iteration": progress(info) if info.iteration is not None else None,
        "process": f"{info.pid} on {info.host}" if info.pid and not info.over else None,
        "slurm": f"job {info.slurm_job}" if info.slurm_job else None,
        "started": info.started,
        "ended": ended,
        "address": info.address,
        "loads": info.load,
        "saves": info.save,
        "reason": info.reason,
        "again": info.again,
        "stop": info.stopping,
        "note": info.note,
        "mlflow": mlflow,
        "folder": clean_line(str(info.path)),
    }
    return "\n".join([info.run, *(f"  {name:<10}{value}" for name, value in lines.items() if value)])
