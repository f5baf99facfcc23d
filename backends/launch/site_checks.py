"""Checks a plan against this machine: missing or busy GPUs, incomplete data, too little disk space."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from backends.files import existing_parent
from backends.launch.facts import Facts
from backends.models.arguments import int_of, value_of
from backends.models.configuration import ArgumentError, read_configuration
from backends.models.estimate import Estimate, estimate
from backends.models.flag_checks import split_shares
from backends.models.problem import Problem
from backends.models.throughput import PEAKS, assumed_throughput, kind_of
from backends.runs.plan import RunPlan
from backends.telemetry.readings import GpuReading

MIB, GIB = 2**20, 2**30
IN_USE = GIB  # bytes of a GPU; a context alone takes less
ELSEWHERE = "Choose another --save BASE."


def estimate_of(plan: RunPlan, facts: Facts) -> Estimate | None:
    """The estimate of `plan`; None for the demo and for incomplete arguments."""
    if plan.trainer != "megatron":
        return None
    resources = facts.resources(plan)
    try:
        config = read_configuration(plan.arguments, plan.processes, facts.vocab_size)
    except ArgumentError:
        return None
    return estimate(
        config,
        data_tokens=resources.data_tokens,
        train_split=split_shares(value_of(plan.arguments, "--split"))[0],
        throughput=facts.measured or assumed_throughput(config, facts.gpu_name(plan)),
    )


def check_site(plan: RunPlan, facts: Facts) -> Iterator[Problem]:
    """All problems that the known `facts` show."""
    for data in facts.datasets:
        if data.reason is not None:
            remedy = f"See: mdk-tui data {data.prefix}"
            yield Problem("error", "--data-path", f"{data.prefix}: {data.reason}", remedy)
    yield from _check_save(plan)
    if (result := estimate_of(plan, facts)) is not None:
        yield from _check_disk(plan, facts, result)
    if facts.gpus is not None and not plan.hosts and plan.launcher == "mpirun":
        yield from _check_gpus(plan, facts, facts.gpus)


def _check_save(plan: RunPlan) -> Iterator[Problem]:
    if plan.save is None:
        return
    place = existing_parent(Path(plan.save))
    if not place.is_dir():
        yield Problem("error", "save", f"{plan.save} cannot be made: {place} is no folder.", ELSEWHERE)
    elif not os.access(place, os.W_OK | os.X_OK):
        yield Problem(
            "error", "save", f"{plan.save} cannot be made: {place} may not be written to.", ELSEWHERE
        )


def _check_disk(plan: RunPlan, facts: Facts, result: Estimate) -> Iterator[Problem]:
    wanted, one, free = result.training.disk_bytes, result.training.checkpoint_bytes, facts.disk_free
    if wanted is None or free is None or wanted <= free:
        return
    iterations = int_of(plan.arguments, "--train-iters") or 1
    fits = free // one
    fix = {"--save-interval": (str(-(-iterations // fits)),)} if fits else None
    yield Problem(
        "warning" if fits else "error",
        "save",
        f"{result.training.checkpoints} checkpoints take {wanted / GIB:,.0f} GiB; {free / GIB:,.0f} GiB are free.",
        f"Save every {fix['--save-interval'][0]} iterations, save elsewhere, or prune on the way."
        if fix
        else f"Not one of {one / GIB:,.0f} GiB fits: save elsewhere.",
        fix,
    )


def _check_gpus(plan: RunPlan, facts: Facts, here: Sequence[GpuReading]) -> Iterator[Problem]:
    there = [gpu.index for gpu in here]
    if not there:
        remedy = "Launch on a node with GPUs, or name such nodes in a hostfile."
        yield Problem("warning", "gpus", "This machine has no NVIDIA GPU.", remedy)
        return
    missing = [str(index) for index in plan.gpus or () if index not in there]
    if missing or plan.processes > len(there):
        said = (
            f"There is no GPU {', '.join(missing)}"
            if missing
            else f"{plan.processes} processes need as many GPUs"
        )
        fix = {"gpus": (_listed(there[: plan.processes]),)}
        yield Problem(
            "error", "gpus", f"{said}; this machine has {len(there)}.", f"Take {_listed(there)}.", fix
        )
        return
    yield from _check_precision(plan, facts)
    yield from _check_in_use(plan, facts, here)


def _check_precision(plan: RunPlan, facts: Facts) -> Iterator[Problem]:
    kind = kind_of(facts.gpu_name(plan))
    if kind is not None and PEAKS[kind].fp8 is None and value_of(plan.arguments, "--fp8-format") is not None:
        message = f"{kind} has no FP8: Transformer Engine refuses to start."
        yield Problem("error", "--fp8-format", message, "Leave FP8 out.", {"--fp8-format": None})


def _check_in_use(plan: RunPlan, facts: Facts, here: Sequence[GpuReading]) -> Iterator[Problem]:
    busy = [gpu for gpu in facts.chosen(plan) if (gpu.memory_used or 0) >= IN_USE]
    if not busy:
        return
    idle = [gpu.index for gpu in here if (gpu.memory_used or 0) < IN_USE]
    fits = len(idle) >= plan.processes
    who = sorted({_owner(gpu) for gpu in busy})
    fullest = max(busy, key=lambda gpu: gpu.memory_used or 0)
    used, total = fullest.memory_used or 0, fullest.memory_total
    room = (
        ""
        if not total
        else f", {(total - used) / GIB:.0f} of {total / GIB:.0f} GiB free on GPU {fullest.index}"
    )
    yield Problem(
        "error" if total and _needed(plan, facts) > (total - used) / MIB else "warning",
        "gpus",
        f"In use: GPU {_listed([gpu.index for gpu in busy])} ({'; '.join(who)}){room}.",
        f"Take {_listed(idle[: plan.processes])}, which are idle." if fits else "Wait, or ask their owner.",
        {"gpus": (_listed(idle[: plan.processes]),)} if fits else None,
    )


def _needed(plan: RunPlan, facts: Facts) -> float:
    """MiB that the fullest GPU certainly needs; 0 for incomplete arguments."""
    result = estimate_of(plan, facts)
    return result.memory.weight_and_optimizer if result else 0.0


def _owner(gpu: GpuReading) -> str:
    largest = max(gpu.processes or (), key=lambda process: process.memory or 0, default=None)
    if largest is None or largest.name is None:
        return "by whom is not known"
    return f"{largest.name} of {largest.user or 'somebody'}"


def _listed(indices: Sequence[int]) -> str:
    return ",".join(map(str, indices))
