"""The answer of a node, parsed. A value of the wrong type counts as missing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from backends.setup.versions import MpiVersion, read_mpi_version
from backends.text import clean_line

# mpirun may prefix each line: `[1,0]<stdout>: mdk-node {…}`.
ANSWER = re.compile(r"mdk-node (\{.*\})\s*$")
SAID = re.compile(r"mdk-say (\S+) ?(.*?)\s*$")
CLOCK = re.compile(r"mdk-clock (\d+(?:\.\d+)?)\s*$")


@dataclass(frozen=True, slots=True)
class ImageSample:
    """`sample`: SHA-256 over 16 blocks of 64 KiB, spread from the first to the last. Differences between them are not seen."""

    size: int  # bytes
    sample: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of a node, from nvidia-smi."""

    name: str
    total: int | None  # MiB
    used: int | None  # MiB
    driver: str


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface of a node that is up, with its IPv4 address."""

    name: str
    address: str
    speed: int | None = None  # Mb/s


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A process of one rank of a run. `state` as in /proc/PID/stat; `cpu`: cores used, mean of a second."""

    rank: int
    pid: int
    state: str
    cpu: float


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a node said. None: it did not say, or does not have it.

    `port` is the first free port from the one asked about on. `free` is in bytes. `paths`, `writable` and `tokens` hold
    those of the paths asked about that are seen there.
    """

    host: str
    image: ImageSample | None = None
    paths: frozenset[str] = frozenset()
    writable: frozenset[str] = frozenset()
    tokens: frozenset[str] = frozenset()
    free: Mapping[str, int] = field(default_factory=dict[str, int])
    mpi: MpiVersion | None = None
    singularity: str | None = None
    gpus: tuple[Gpu, ...] | None = None
    interfaces: tuple[Interface, ...] = ()
    infiniband: tuple[tuple[str, bool], ...] = ()  # (device, its port is active)
    port: int | None = None
    ranks: tuple[RankProcess, ...] | None = None


def read_report(lines: Iterable[str]) -> NodeReport | None:
    """The report in a node's output; None if it is missing or incomplete."""
    said: list[tuple[str, str]] = []
    for line in lines:
        if found := ANSWER.search(line):
            try:
                value = json.loads(found[1])
            except (ValueError, RecursionError):
                continue
            return from_json(cast("dict[str, Any]", value))
        if found := SAID.search(line):
            said.append((found[1], found[2]))
            if found[1] == "end":
                return _from_words(said)
    return None


def from_json(value: Mapping[str, Any]) -> NodeReport:
    """The report in the JSON object of the node program. Values of the wrong type count as missing."""
    image = _mapping(value.get("image"))
    size, sample, port = image.get("size"), image.get("sample"), value.get("port")
    gpus: object = value.get("gpus")
    return NodeReport(
        host=_text(value.get("host")) or "?",
        image=ImageSample(size, sample) if isinstance(size, int) and isinstance(sample, str) else None,
        paths=_true(value.get("paths")),
        writable=_true(value.get("writable")),
        tokens=_true(value.get("tokens")),
        free={path: size for path, size in _mapping(value.get("free")).items() if isinstance(size, int)},
        mpi=read_mpi_version(_text(value.get("mpirun")) or ""),
        singularity=_text(value.get("singularity")),
        gpus=None if gpus is None else tuple(_gpu(row) for row in _rows(gpus)),
        interfaces=tuple(
            Interface(name, address, speed if isinstance(speed := row.get("speed"), int) else None)
            for row in _rows(value.get("interfaces"))
            if (name := _text(row.get("name"))) and (address := _text(row.get("address")))
        ),
        infiniband=tuple(
            (_text(row.get("name")) or "?", "ACTIVE" in (_text(row.get("state")) or ""))
            for row in _rows(value.get("infiniband"))
        ),
        port=port if isinstance(port, int) else None,
        ranks=None
        if value.get("ranks") is None
        else tuple(
            RankProcess(rank, pid, _text(row.get("state")) or "?", float(cpu))
            for row in _rows(value.get("ranks"))
            if isinstance(rank := row.get("rank"), int)
            and isinstance(pid := row.get("pid"), int)
            and isinstance(cpu := row.get("cpu"), int | float)
        ),
    )


def _from_words(said: Iterable[tuple[str, str]]) -> NodeReport:
    """The report of the sh script, which does not look for InfiniBand and ranks, and treats a token like any path."""
    values: dict[str, list[str]] = {}
    for key, value in said:
        values.setdefault(key, []).append(value)

    def one(key: str) -> str:
        return clean_line(values.get(key, [""])[0], 500)

    size, _, sample = one("image").partition(" ")
    free = [line.partition(" ") for line in values.get("free", [])]
    rows = [
        [word.strip() for word in line.split(",")] for line in values.get("gpu", []) if line.count(",") >= 4
    ]
    gpus = [
        Gpu(clean_line(",".join(row[1:-3]), 80), _int(row[-3]), _int(row[-2]), clean_line(row[-1], 40))
        for row in rows
    ]
    paths = frozenset(values.get("path", []))
    return NodeReport(
        host=one("host") or "?",
        image=ImageSample(int(size), sample) if size.isdigit() and sample else None,
        paths=paths,
        writable=frozenset(values.get("writable", [])),
        tokens=paths,
        free={path: int(blocks) * 1024 for blocks, _, path in free if blocks.isdigit()},
        mpi=read_mpi_version(one("mpirun")),
        singularity=one("singularity") or None,
        gpus=tuple(gpus) or None,
        interfaces=tuple(
            Interface(name, address)
            for name, _, address in (
                clean_line(line, 200).partition(" ") for line in values.get("interface", [])
            )
        ),
    )


def _gpu(row: Mapping[str, Any]) -> Gpu:
    total, used = row.get("total"), row.get("used")
    return Gpu(
        _text(row.get("name")) or "?",
        total if isinstance(total, int) else None,
        used if isinstance(used, int) else None,
        _text(row.get("driver")) or "?",
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _rows(value: object) -> list[Mapping[str, Any]]:
    return [_mapping(row) for row in cast("list[object]", value)] if isinstance(value, list) else []


def _true(value: object) -> frozenset[str]:
    return frozenset(path for path, holds in _mapping(value).items() if holds is True)


def _text(value: object) -> str | None:
    return clean_line(value, 500) if isinstance(value, str) else None


def _int(text: str) -> int | None:
    return int(text) if text.isdigit() else None
