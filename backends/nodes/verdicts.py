"""Compares the nodes with this machine and with each other: a verdict and a remedy for each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from backends.nodes.asking import Asked
from backends.nodes.report import NodeReport
from backends.setup.step import Finding, Verdict
from backends.setup.versions import mismatch
from backends.ticks import size_words

T = TypeVar("T")
GIB = 1 << 30
CLOCK_LIMIT = 2.0  # s; the probe itself is sure of about 0.2 s
FREE_LIMIT = {"/tmp": 1 * GIB, "/dev/shm": 1 * GIB}  # NCCL and data loaders share memory in /dev/shm
FREE_ELSEWHERE = 10 * GIB
USED_LIMIT = 1024  # MiB of a GPU that somebody uses already
ORDER: tuple[Verdict, ...] = ("failed", "warning", "pending", "running", "skipped", "ok")


@dataclass(frozen=True, slots=True)
class Expected:
    """What a launch needs of each node. `here`: this machine's answer. `slots` by node name; None: not given.

    `port`: where rank 0 will listen, on the node `first`.
    """

    image: str | None
    singularity: str | None
    paths: tuple[str, ...]
    token: str | None
    slots: dict[str, int | None]
    here: NodeReport | None
    first: str = ""
    port: int | None = None


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """`checks` are named image, paths, mpi, …; a node that did not answer has only the check "reached"."""

    name: str
    checks: tuple[Finding, ...]
    seconds: float
    gpus: int = 0  # their number
    port: int | None = None  # a free port, on the node where rank 0 will listen

    @property
    def reached(self) -> bool:
        return all(check.name != "reached" for check in self.checks)

    @property
    def finding(self) -> Finding:
        """The node in one line: the worst verdict, the evidence of bad checks (else of all), the first remedy."""
        verdicts: list[Verdict] = [check.verdict for check in self.checks]
        verdict = min(verdicts, key=ORDER.index)
        bad = [check for check in self.checks if check.verdict != "ok"]
        bad.sort(key=lambda check: ORDER.index(check.verdict))
        evidence = " · ".join(check.evidence for check in bad or self.checks if check.evidence)
        return Finding(
            self.name, verdict, evidence, next((check.remedy for check in bad if check.remedy), "")
        )

    def as_json(self) -> dict[str, Any]:
        checks = [check.as_json() for check in self.checks]
        return {**self.finding.as_json(), "checks": checks, "seconds": round(self.seconds, 3)}


def judge(asked: Sequence[Asked], expected: Expected) -> list[NodeVerdict]:
    """A verdict for each node, in the given order."""
    reports = [node.report for node in asked if node.report is not None]
    verdicts: list[NodeVerdict] = []
    for node in asked:
        if node.report is None:
            checks = (Finding("reached", "failed", node.failure, node.remedy),)
        else:
            checks = tuple(_checks(node, node.report, reports, expected))
        gpus = len(node.report.gpus or ()) if node.report else 0
        port = node.report.port if node.report and node.name == expected.first else None
        verdicts.append(NodeVerdict(node.name, checks, node.seconds, gpus, port))
    return verdicts


def _checks(
    node: Asked, report: NodeReport, reports: list[NodeReport], expected: Expected
) -> Iterator[Finding]:
    yield _gpus(node.name, report, reports, expected)
    yield from _driver(report, reports)
    yield from _image(report, reports, expected)
    yield from _singularity(report, expected)
    yield _mpi(report, reports, expected)
    yield _paths(report, expected)
    if node.name == expected.first and expected.port is not None and report.port is not None:
        yield _port(report.port, expected.port)
    yield _network(report, reports)
    yield _clock(node.ahead)
    yield _disk(report, expected)


def _gpus(name: str, report: NodeReport, reports: list[NodeReport], expected: Expected) -> Finding:
    wanted = expected.slots.get(name)
    if report.gpus is None:
        if any(other.gpus for other in reports):
            return Finding(
                "gpus", "failed", "nvidia-smi does not answer", "Look at the driver there: nvidia-smi, dmesg."
            )
        return Finding("gpus", "ok", "no GPU")
    kinds = Counter(gpu.name for gpu in report.gpus)
    evidence = ", ".join(f"{count} × {kind}" for kind, count in kinds.items()) or "no GPU"
    if wanted and len(report.gpus) < wanted:
        remedy = (
            f"Write slots={len(report.gpus)} in the hostfile, or find out where the others are: nvidia-smi."
        )
        return Finding("gpus", "failed", f"{evidence}, but slots={wanted}", remedy)
    usual = _usual(
        tuple(sorted((gpu.name, gpu.total or 0) for gpu in other.gpus)) for other in reports if other.gpus
    )
    if usual and tuple(sorted((gpu.name, gpu.total or 0) for gpu in report.gpus)) != usual:
        return Finding(
            "gpus",
            "warning",
            f"{evidence}: other GPUs than the others have",
            "The slowest GPU sets the pace.",
        )
    busy = [f"GPU {at}: {gpu.used} MiB" for at, gpu in enumerate(report.gpus) if (gpu.used or 0) > USED_LIMIT]
    if busy:
        return Finding(
            "gpus", "warning", f"memory in use already, {', '.join(busy)}", "See whose it is: nvidia-smi."
        )
    memory = report.gpus[0].total if report.gpus else None
    return Finding("gpus", "ok", f"{evidence}, {memory / 1024:.0f} GiB" if memory else evidence)


def _driver(report: NodeReport, reports: list[NodeReport]) -> Iterator[Finding]:
    if not report.gpus:
        return
    driver = report.gpus[0].driver
    usual = _usual(other.gpus[0].driver for other in reports if other.gpus)
    if driver != usual:
        remedy = "NCCL between two drivers fails in odd ways: install the same one."
        yield Finding("driver", "warning", f"driver {driver}, the others {usual}", remedy)
    else:
        yield Finding("driver", "ok", f"driver {driver}")


def _image(report: NodeReport, reports: list[NodeReport], expected: Expected) -> Iterator[Finding]:
    if expected.image is None:
        return
    here = expected.here.image if expected.here else None
    usual = here or _usual(other.image for other in reports if other.image)
    copy = f"Put it on a file system that all nodes share, or copy it: rsync {expected.image} NODE:{expected.image}"
    if report.image is None:
        verdict: Verdict = "failed" if usual else "warning"
        yield Finding(
            "image",
            verdict,
            f"no image {expected.image}",
            copy if usual else "Build it: mdk-tui setup image.",
        )
    elif usual and report.image.size != usual.size:
        yield Finding(
            "image",
            "failed",
            f"another image: {size_words(report.image.size)} instead of {size_words(usual.size)}",
            copy,
        )
    elif usual and report.image.sample != usual.sample:
        yield Finding("image", "failed", "another image of the same size", copy)
    else:
        yield Finding("image", "ok", "same image (size and 16 samples)")


def _singularity(report: NodeReport, expected: Expected) -> Iterator[Finding]:
    if expected.image is None:
        return
    here = expected.here.singularity if expected.here else None
    if report.singularity is None:
        remedy = f"Install it there{f' as {here}' if here else ''}, or say where it is: image.singularity in mdk.toml."
        yield Finding("singularity", "failed", f"no {expected.singularity or 'singularity'}", remedy)
    elif here and report.singularity != here:
        remedy = "It works where it is found by name in PATH; a path in mdk.toml must hold on all nodes."
        yield Finding("singularity", "warning", f"singularity is {report.singularity}, here {here}", remedy)
    else:
        yield Finding("singularity", "ok", "")


def _mpi(report: NodeReport, reports: list[NodeReport], expected: Expected) -> Finding:
    usual = (expected.here.mpi if expected.here else None) or _usual(
        other.mpi for other in reports if other.mpi
    )
    if report.mpi is None:
        remedy = (
            "mpirun starts its daemon there by another way; if ranks fail to start, set PATH in ~/.bashrc."
        )
        return Finding("mpi", "warning", "no mpirun in PATH", remedy)
    if usual and report.mpi.numbers != usual.numbers:
        verdict: Verdict = "failed" if mismatch(usual, report.mpi) else "warning"
        return Finding(
            "mpi",
            verdict,
            f"Open MPI {report.mpi}, here {usual}",
            "Load the same Open MPI module on all nodes.",
        )
    return Finding("mpi", "ok", f"Open MPI {report.mpi}")


def _paths(report: NodeReport, expected: Expected) -> Finding:
    missing = [path for path in expected.paths if path not in report.paths]
    if missing:
        remedy = "Put the workspace on a file system that all nodes mount at the same path."
        return Finding("paths", "failed", f"does not see {', '.join(missing)}", remedy)
    if expected.token and expected.token not in report.tokens:
        remedy = (
            "A file written here is not seen there: put the workspace on a file system that all nodes share."
        )
        return Finding("paths", "failed", "has another folder at the workspace's path", remedy)
    closed = [path for path in expected.paths if path not in report.writable]
    here = expected.here.writable if expected.here else frozenset[str]()
    if closed and any(path in here for path in closed):
        return Finding(
            "paths", "failed", f"cannot write to {', '.join(closed)}", "Mount it there for writing."
        )
    return Finding("paths", "ok", "same folders" if expected.token else "")


def _port(free: int, wanted: int) -> Finding:
    if free == wanted:
        return Finding("port", "ok", "")
    remedy = f"Launch with --probe, which takes {free}, or write MASTER_PORT={free} into its command."
    return Finding("port", "warning", f"MASTER_PORT {wanted} is in use there", remedy)


def _network(report: NodeReport, reports: list[NodeReport]) -> Finding:
    names = {port.name for port in report.interfaces}
    evidence = (
        ", ".join(f"{port.name} {port.address}" for port in report.interfaces[:3]) or "no network interface"
    )
    if len(report.interfaces) > 3:
        evidence += f" and {len(report.interfaces) - 3} more"
    active = [name for name, works in report.infiniband if works]
    if down := [name for name, works in report.infiniband if not works]:
        remedy = "Look at the cable and the switch: ibstat. NCCL_IB_HCA names those to use."
        return Finding("network", "warning", f"InfiniBand without link: {', '.join(down)}", remedy)
    if not active and any(works for other in reports for _, works in other.infiniband):
        return Finding(
            "network", "warning", "no InfiniBand, the others have it", "NCCL will fall back to sockets."
        )
    if len(reports) > 1 and not names & set[str].intersection(
        *({p.name for p in r.interfaces} for r in reports)
    ):
        remedy = "If NCCL does not find its way: -x NCCL_SOCKET_IFNAME=NAME, or a prefix that fits all."
        return Finding("network", "warning", f"no interface is named alike on all nodes: {evidence}", remedy)
    return Finding("network", "ok", f"{len(active)} × InfiniBand, {evidence}" if active else evidence)


def _clock(ahead: float | None) -> Finding:
    if ahead is None:
        return Finding("clock", "ok", "")
    if abs(ahead) > CLOCK_LIMIT:
        way = "fast" if ahead > 0 else "slow"
        return Finding(
            "clock", "warning", f"its clock is {abs(ahead):.1f} s {way}", "Start chrony or ntpd there."
        )
    return Finding("clock", "ok", "")


def _disk(report: NodeReport, expected: Expected) -> Finding:
    scarce = [
        f"{size_words(size)} in {path}"
        for path, size in report.free.items()
        if size < FREE_LIMIT.get(path, FREE_ELSEWHERE)
    ]
    if scarce:
        return Finding(
            "disk", "warning", f"only {', '.join(scarce)} free", "Make room before a checkpoint needs it."
        )
    first = next((report.free[path] for path in expected.paths if path in report.free), None)
    return Finding("disk", "ok", f"{size_words(first)} free" if first is not None else "")


def _usual(values: Iterable[T]) -> T | None:
    """The most frequent value; the first of several."""
    return next((value for value, _ in Counter(values).most_common(1)), None)
