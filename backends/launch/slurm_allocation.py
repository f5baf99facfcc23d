"""The nodes of the Slurm allocation that this process runs in, as a hostfile."""

from __future__ import annotations

import re
from collections.abc import Mapping

NODELIST = re.compile(r"([^\[\],]+)(?:\[([^\]]*)\])?([^\[\],]*)")
REPEATED = re.compile(r"(\d+)(?:\(x(\d+)\))?")
MAX_NODES = 4096


def allocation_text(environment: Mapping[str, str]) -> str:
    """The hostfile; "" outside of an allocation."""
    names = expand_nodelist(environment.get("SLURM_JOB_NODELIST", ""))
    gpus = environment.get("SLURM_GPUS_ON_NODE", "")
    slots = (
        [int(gpus)] * len(names)
        if gpus.isdigit()
        else expand_counts(environment.get("SLURM_TASKS_PER_NODE", ""))
    )
    slots += [1] * (len(names) - len(slots))
    return "".join(f"{name} slots={max(1, count)}\n" for name, count in zip(names, slots, strict=False))


def expand_nodelist(text: str) -> list[str]:
    """`n[01-03,7],x` → n01 n02 n03 n7 x, as `scontrol show hostnames` does for one pair of brackets a name."""
    names: list[str] = []
    for prefix, ranges, suffix in NODELIST.findall(text):
        for part in ranges.split(",") if ranges else [""]:
            low, dash, high = part.partition("-")
            if dash and low.isdigit() and high.isdigit():
                numbers = range(int(low), min(int(high), int(low) + MAX_NODES) + 1)
                names += [f"{prefix}{number:0{len(low)}d}{suffix}" for number in numbers]
            else:
                names.append(f"{prefix}{part}{suffix}")
    return names[:MAX_NODES]


def expand_counts(text: str) -> list[int]:
    """`8(x2),4` → 8 8 4, as in SLURM_TASKS_PER_NODE."""
    return [
        int(count) for count, times in REPEATED.findall(text) for _ in range(min(int(times or 1), MAX_NODES))
    ]
