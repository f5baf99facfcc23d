"""Tests an all-reduce over all nodes and GPUs in the image: whether it works, its bandwidth, and the slowest node."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from backends.errors import UserError
from backends.launch.image import exec_words
from backends.nodes import allreduce_program
from backends.nodes.asking import Question, converse, explain
from backends.nodes.survey import Nodes
from backends.nodes.verdicts import NodeVerdict
from backends.runs.plan import RunPlan
from backends.runs.ports import MASTER_PORT, is_free
from backends.setup.mpi_step import root_may_run
from backends.setup.step import Finding, Site
from backends.text import clean_line

LIMIT = 180.0  # s; the first start of an image is slow, and NCCL tries all its transports
SIZES = {True: (1 << 20, 64 << 20, 256 << 20), False: (1 << 16, 1 << 20)}  # bytes, on GPUs and without
REPEATS = 5
SLOW = 0.8  # of the median; a node or link below it is called slow
PORT = 29400
RANK = re.compile(r"mdk-rank (\{.*\})\s*$")
RESULT = re.compile(r"mdk-allreduce (\{.*\})\s*$")
ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*|.*NCCL WARN.*|.*FATAL:.*", re.M)
NO_MPI4PY = "No module named 'mpi4py'"


@dataclass(frozen=True, slots=True)
class Speed:
    """An all-reduce of `size` bytes among `ranks`. Bus bandwidth as in nccl-tests: 2 (n - 1) / n × size / time."""

    ranks: int
    size: int  # bytes
    seconds: float

    @property
    def bus(self) -> float:
        """Bytes per second."""
        return 2 * (self.ranks - 1) / self.ranks * self.size / self.seconds


@dataclass(frozen=True, slots=True)
class Result:
    """Bus bandwidths in bytes per second: `within` each node, and `between` each two neighbours."""

    ranks: int
    right: bool
    whole: tuple[Speed, ...]
    within: Mapping[str, float]
    between: tuple[tuple[str, str, float], ...]

    @property
    def nodes(self) -> list[str]:
        return list(dict.fromkeys([*self.within, *(name for pair in self.between for name in pair[:2])]))

    def slowest(self) -> tuple[str, float] | None:
        """(the slowest node, its share of the median), by its own GPUs and the better of its links: a slow node has two slow
        links, its neighbours have one."""
        shares: dict[str, list[float]] = {}
        if len(self.within) > 1:
            usual = statistics.median(self.within.values())
            for name, speed in self.within.items():
                shares.setdefault(name, []).append(speed / usual)
        if len(self.between) > 1:
            usual = statistics.median(speed for *_, speed in self.between)
            for name in self.nodes:
                links = [speed for one, other, speed in self.between if name in (one, other)]
                if links:
                    shares.setdefault(name, []).append(max(links) / usual)
        if not shares:
            return None
        return min(((name, min(values)) for name, values in shares.items()), key=lambda pair: pair[1])


def command(site: Site, nodes: Nodes, *, gpus: bool, port: int) -> Question:
    """The command: one process a slot, in the image if there is one."""
    slots = sum(host.slots or 1 for host in nodes.hosts)
    words = ["mpirun", "--np", str(slots), *site.settings.mpi.options]
    if nodes.found is not None:
        words += ["--host", ",".join(host.word for host in nodes.hosts)]
    if "--map-by" not in words:
        words += ["--map-by", "slot"]
    env = {**root_may_run(site), "MASTER_ADDR": _first(nodes), MASTER_PORT: str(port)}
    words += ["-x", "MASTER_ADDR", "-x", MASTER_PORT]
    if site.image.exists():
        if site.singularity is None:
            raise UserError("There is no singularity.", "Install Apptainer or SingularityCE.")
        plan = RunPlan("train", "megatron", image=str(site.image))
        words += exec_words(plan, site.workspace, site.settings.image, site.singularity, gpus=gpus)
    question = {"sizes": SIZES[gpus], "repeats": REPEATS, "gpus": gpus}
    program = Path(allreduce_program.__file__).read_text(encoding="utf-8")
    words += ["python3", "-c", program, json.dumps(question)]
    return Question("all-reduce", tuple(words), Path("/"), {**site.environment, **env})


def _first(nodes: Nodes) -> str:
    """The address of rank 0. For one machine alone it is localhost: its name need not resolve."""
    if nodes.found is None and len(nodes.hosts) < 2:
        return "localhost"
    return nodes.names[0].rpartition("@")[2]


def all_reduce(site: Site, nodes: Nodes, *, gpus: bool, limit: float = LIMIT) -> Finding:
    """Run the test and judge it. Raises UserError if there is no singularity."""
    port = next((port for port in range(PORT, PORT + 100) if is_free(port)), PORT)
    question = command(site, nodes, gpus=gpus, port=port)
    try:
        talk = converse(question, limit, lambda lines: any(map(RESULT.search, lines)))
    except OSError as error:
        return Finding(
            "all-reduce", "failed", f"mpirun cannot be run: {error.strerror or error}.", "Load its module."
        )
    lines = talk.output.splitlines()
    result = read_result(lines)
    if result is not None:
        return judge(result, gpus=gpus)
    return explain_failure(nodes, lines, talk.status, limit if talk.late else None)


def tried(site: Site, nodes: Nodes, verdicts: Sequence[NodeVerdict], limit: float = LIMIT) -> Finding:
    """Run the test after a probe: skipped if a node did not answer, with GPUs if all nodes have some."""
    if dead := [verdict.name for verdict in verdicts if not verdict.reached]:
        remedy = "Mend them first, or take them out of the hostfile."
        return Finding("all-reduce", "skipped", f"{', '.join(dead)} did not answer", remedy)
    return all_reduce(site, nodes, gpus=all(verdict.gpus for verdict in verdicts), limit=limit)


def read_result(lines: Sequence[str]) -> Result | None:
    """The result that rank 0 printed; None if it is missing or damaged."""
    found = next(filter(None, map(RESULT.search, lines)), None)
    try:
        value = cast("dict[str, Any]", json.loads(found[1])) if found else None
        return None if value is None else _result(value)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _result(value: Mapping[str, Any]) -> Result:
    ranks, last = int(value["ranks"]), int(value["sizes"][-1]["bytes"])
    within = {
        clean_line(node["name"], 100): Speed(int(node["ranks"]), last, node["seconds"]).bus
        for node in value["nodes"]
        if node["seconds"]
    }
    between = tuple(
        (*(clean_line(name, 100) for name in link["nodes"]), Speed(2, last, link["seconds"]).bus)
        for link in value["links"]
        if link["seconds"]
    )
    whole = tuple(Speed(ranks, int(row["bytes"]), float(row["seconds"])) for row in value["sizes"])
    return Result(
        ranks, value["right"] is True, whole, within, cast("tuple[tuple[str, str, float], ...]", between)
    )


def judge(result: Result, *, gpus: bool) -> Finding:
    """The verdict: a wrong sum is a failure, a slow node a warning that names it."""
    what = f"{result.ranks} {'GPU' if gpus else 'process'}{('s' if gpus else 'es') * (result.ranks != 1)}"
    if not result.right:
        remedy = "Do not train on this: update driver and NCCL, and look at dmesg on all nodes."
        return Finding("all-reduce", "failed", f"{what} added up wrongly", remedy)
    if result.ranks == 1:
        return Finding("all-reduce", "ok", "one process alone: nothing to add up")
    fastest = max(result.whole, key=lambda speed: speed.bus)
    evidence = f"{what}: {_speed(fastest.bus)} at {fastest.size >> 20 or fastest.size / (1 << 20):g} MiB"
    for name, speed in result.within.items():
        evidence += f" · {name} alone {_speed(speed)}"
    for one, other, speed in result.between:
        evidence += f" · {one} to {other} {_speed(speed)}"
    slowest = result.slowest()
    if slowest is None:
        return Finding("all-reduce", "ok", evidence)
    name, share = slowest
    evidence += f" · slowest {name}, {share:.0%} of the usual"
    if share >= SLOW:
        return Finding("all-reduce", "ok", evidence)
    remedy = f"Look at {name}: nvidia-smi topo -m, ibstat, the speed of its link; NCCL_DEBUG=INFO says which way NCCL takes."
    return Finding("all-reduce", "warning", evidence, remedy)


def _speed(bus: float) -> str:
    """In units of 1000, as nccl-tests and the makers of links count."""
    return f"{bus / 1e9:.1f} GB/s" if bus >= 1e8 else f"{bus / 1e6:.1f} MB/s"


def explain_failure(nodes: Nodes, lines: Sequence[str], status: int | None, limit: float | None) -> Finding:
    """Why there is no result. It names nodes on which no rank started, and ranks that did not join."""
    steps: dict[tuple[int, str], str] = {}
    for found in filter(None, map(RANK.search, lines)):
        try:
            value = json.loads(found[1])
            steps[int(value["rank"]), clean_line(str(value["host"]), 100)] = str(value["step"])
        except (ValueError, KeyError, TypeError):
            continue
    text = "\n".join(lines)
    hosts = {host for _, host in steps}
    silent = [name for name in nodes.names if steps and not _seen(name, hosts)]
    waiting = sorted({host for (_, host), step in steps.items() if step == "started"})
    over = f"within {limit:g} s" if limit is not None else f"mpirun ended with status {status}"
    if NO_MPI4PY in text:
        remedy = "Without GPUs it goes through mpi4py: build the image from singularity/cpu.def."
        return Finding("all-reduce", "failed", "this Python has no mpi4py", remedy)
    if silent:
        remedy = f"Ask it alone: mdk-tui probe. Then: ssh {silent[0]} nvidia-smi"
        return Finding("all-reduce", "failed", f"no process came up on {', '.join(silent)} ({over})", remedy)
    said = next((clean_line(match[0].strip(), 300) for match in ERROR.finditer(text)), "")
    if said:
        return Finding("all-reduce", "failed", said, "NCCL_DEBUG=INFO in the environment says more.")
    if steps and waiting:
        remedy = "A firewall, or a network interface that others cannot reach: set NCCL_SOCKET_IFNAME, NCCL_DEBUG=INFO."
        return Finding("all-reduce", "failed", f"the processes did not find each other ({over})", remedy)
    if steps:
        remedy = "One of them stopped answering: mdk-tui probe names it."
        return Finding("all-reduce", "failed", f"it got stuck between {len(hosts)} nodes ({over})", remedy)
    failure, remedy = explain("NODE", text, status, limit)
    return Finding("all-reduce", "failed", failure, remedy)


def _seen(name: str, hosts: set[str]) -> bool:
    short = name.rpartition("@")[2].partition(".")[0]
    return any(host.partition(".")[0] == short for host in hosts)
