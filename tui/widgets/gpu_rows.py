"""What the GPU panel shows, as rows of spans: pure functions of the readings and the room."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backends.megatron.events import Memory
from backends.telemetry.readings import GpuProcess, GpuReading, HostReading, Snapshot
from backends.ticks import MIB, size_words
from tui.glyphs import Glyphs
from tui.widgets.panel import Row, Span

GIB = 1 << 30
HOT = 85  # °C; the H100 and H200 lower their clocks from 87 to 90
SHORTEST_BAR = 6  # cells; rather than a narrower bar, columns of numbers are left out


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU and its name on the screen: "3", or "b3" with several nodes."""

    label: str
    reading: GpuReading

    @property
    def state(self) -> Span | None:
        """What is wrong with the GPU, in words."""
        gpu = self.reading
        if gpu.note:
            return gpu.note, "error"
        if gpu.ecc_errors:
            return f"{gpu.ecc_errors} memory errors (ECC)", "error"
        # A power cap is normal at full load.
        reasons = sorted(
            {reason.partition(" (")[0] for reason in gpu.throttling or () if reason != "power cap"}
        )
        if reasons:
            return f"throttles: {', '.join(reasons)}", "warning"
        if gpu.temperature is not None and gpu.temperature >= HOT:
            return "hot", "warning"
        return None


def body(
    snapshots: Sequence[Snapshot],
    width: int,
    height: int,
    glyphs: Glyphs,
    *,
    processes: bool,
    user: str | None,
) -> list[Row]:
    """The rows for `height` × `width` cells; with `processes`, those on each GPU (of `user` and of others)."""
    if not snapshots:
        return [(("asking the driver", "dim"),)]
    gpus = _named(snapshots)
    notes: list[Row] = [
        ((line, "text"),)
        for snapshot in snapshots
        if snapshot.gpu_note
        for line in textwrap.wrap(_host_prefix(snapshot, snapshots) + snapshot.gpu_note, max(width, 20))
    ]
    if not gpus:
        return _without_gpus(snapshots, notes, width, height, glyphs)
    if processes:
        rows = [
            row
            for gpu, row in zip(gpus, _bars(gpus, width, glyphs), strict=True)
            for row in (row, *_processes(gpu, user))
        ]
        return _shortened([*rows, *notes], height)
    room = height - len(notes)
    if len(gpus) > room:
        troubled = [((f"{gpu.label} ", "dim"), gpu.state) for gpu in gpus if gpu.state]
        return [folded(gpus, glyphs), *notes, *troubled, *(_host(s, glyphs) for s in snapshots)][:height]
    return [*_bars(gpus, width, glyphs), *notes, *(_host(snapshot, glyphs) for snapshot in snapshots)][
        :height
    ]


def megatron_line(memory: Mapping[int | None, Memory] | None) -> str:
    """What Megatron itself reports of memory, for the rank that needs most; "" while it has reported nothing."""
    best = ("", -1.0)
    for rank, event in (memory or {}).items():
        where = "" if rank is None else f" (rank {rank})"
        for name, words in (
            ("max allocated", "max allocated"),
            ("allocated", "allocated"),
            ("total", "expects"),
        ):
            value = event.values.get(name)
            if value is not None and value > best[1]:
                best = (f"Megatron: {words} {size_words(value * MIB)}{where}", value)
                break
    return best[0]


def _named(snapshots: Sequence[Snapshot]) -> list[_Gpu]:
    several = len(snapshots) > 1
    named = [
        (f"{chr(ord('a') + node % 26) if several else ''}{gpu.index}", gpu)
        for node, snapshot in enumerate(snapshots)
        for gpu in snapshot.gpus
    ]
    widest = max((len(label) for label, _ in named), default=0)
    return [_Gpu(label.rjust(widest), gpu) for label, gpu in named]


def _host_prefix(snapshot: Snapshot, snapshots: Sequence[Snapshot]) -> str:
    return f"{snapshot.host.host}: " if len(snapshots) > 1 else ""


def bar(fraction: float | None, width: int, glyphs: Glyphs, style: str = "good") -> Row:
    """`width` cells, `fraction` of them full; an empty bar if the fraction is unknown."""
    if fraction is None:
        return ((glyphs.track * width, "frame"),)
    full = round(min(max(fraction, 0.0), 1.0) * width)
    return (glyphs.bar * full, style), (glyphs.track * (width - full), "frame")


def _bars(gpus: Sequence[_Gpu], width: int, glyphs: Glyphs) -> list[Row]:
    """One row for each GPU. A column has the same width in all rows; columns without room are left out."""
    columns = [
        [_memory(gpu.reading.memory_used, gpu.reading.memory_total, glyphs) for gpu in gpus],
        [_number(gpu.reading.utilization, " %", 3, glyphs) for gpu in gpus],
        [_number(gpu.reading.temperature, glyphs.degrees, 3, glyphs) for gpu in gpus],
        [_number(gpu.reading.power, " W", 4, glyphs) for gpu in gpus],
    ]
    states = [gpu.state or ("", "text") for gpu in gpus]
    state_width = min(max(len(text) for text, _ in states), max(width // 3, 0))
    room = width - len(gpus[0].label) - 1 - (state_width + 1 if state_width else 0) - SHORTEST_BAR
    kept: list[list[str]] = []
    for column in columns:
        size = max(map(len, column)) + 1
        if size <= room:
            kept.append([text.rjust(size) for text in column])
            room -= size
    if len(kept) == 4:  # in reading order the power comes before the temperature
        kept[2], kept[3] = kept[3], kept[2]
    rows: list[Row] = []
    for number, (gpu, state) in enumerate(zip(gpus, states, strict=True)):
        style = state[1] if gpu.state else "good"
        numbers: Row = tuple((column[number], "text") for column in kept)
        words: Row = ((" " + state[0][:state_width], state[1]),) if state_width else ()
        share = _share(gpu.reading.memory_used, gpu.reading.memory_total)
        rows.append(
            (
                (f"{gpu.label} ", "dim"),
                *bar(share, max(room, 0) + SHORTEST_BAR, glyphs, style),
                *numbers,
                *words,
            )
        )
    return rows


def folded(gpus: Sequence[_Gpu], glyphs: Glyphs) -> Row:
    """All GPUs in one line: "8 GPUs  75.1/79.6 GiB  99 %  5,480 W  61–89 °C"; the memory is that of the fullest GPU."""
    readings = [gpu.reading for gpu in gpus]
    fullest = max(readings, key=lambda gpu: gpu.memory_used or 0)
    powers = [gpu.power for gpu in readings if gpu.power is not None]
    parts = [
        f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''}",
        _memory(fullest.memory_used, fullest.memory_total, glyphs),
        _range([gpu.utilization for gpu in readings], " %", glyphs),
        f"{sum(powers):,.0f} W" if powers else f"{glyphs.missing} W",
        _range([gpu.temperature for gpu in readings], glyphs.degrees, glyphs),
    ]
    worst = next((gpu for gpu in gpus if gpu.state), None)
    style = worst.state[1] if worst and worst.state else "text"
    words: Row = ((f"  {worst.label.strip()} {worst.state[0]}", style),) if worst and worst.state else ()
    return ((parts[0], "title"), ("  " + "  ".join(parts[1:]), "text"), *words)


def _without_gpus(
    snapshots: Sequence[Snapshot], notes: Sequence[Row], width: int, height: int, glyphs: Glyphs
) -> list[Row]:
    if height <= len(notes) + 1:
        reason = (snapshots[0].gpu_note or "").partition(" (")[0]
        return [(*_host(snapshots[0], glyphs), (f"  {reason}", "dim")), *notes][: max(height, 0)]
    rows = list(notes)
    for snapshot in snapshots:
        rows += _host_bars(snapshot.host, width, glyphs)
    return rows[:height]


def _host(snapshot: Snapshot, glyphs: Glyphs) -> Row:
    """The host in one line."""
    host = snapshot.host
    memory = _memory(host.memory_used, host.memory_total, glyphs).lstrip()
    cpu = _number(host.cpu_percent, " %", 3, glyphs)
    return (("host ", "dim"), (f"{host.host}  memory {memory}  CPU {cpu}", "text"))


def _host_bars(host: HostReading, width: int, glyphs: Glyphs) -> list[Row]:
    cores = f" of {host.cores} cores" if host.cores else ""
    lines = [
        ("CPU    ", _share(host.cpu_percent, 100), _number(host.cpu_percent, " %", 3, glyphs) + cores),
        (
            "memory ",
            _share(host.memory_used, host.memory_total),
            _memory(host.memory_used, host.memory_total, glyphs),
        ),
    ]
    words = max(len(text) for *_, text in lines)
    size = max(width - 7 - words - 1, 0)
    return [
        ((name, "dim"), *bar(share, size, glyphs), (" " + text.ljust(words), "text"))
        for name, share, text in lines
    ]


def _processes(gpu: _Gpu, user: str | None) -> list[Row]:
    found = gpu.reading.processes
    if found is None:
        return [(("   the driver does not say which processes", "dim"),)]
    return [_process(entry, user) for entry in sorted(found, key=lambda entry: -(entry.memory or 0))]


def _process(entry: GpuProcess, user: str | None) -> Row:
    memory = f"{entry.memory / GIB:6.1f} GiB" if entry.memory is not None else ""
    whose = entry.user or "user unknown"
    style = "text" if entry.user == user else "warning"
    return (
        ("   pid ", "dim"),
        (f"{entry.pid:<8}{memory:>10}  ", "text"),
        (f"{whose}  ", style),
        (entry.name or "", "text"),
    )


def _shortened(rows: list[Row], height: int) -> list[Row]:
    if len(rows) <= height or height < 1:
        return rows[:height]
    return [*rows[: height - 1], ((f"{len(rows) - height + 1} more lines", "dim"),)]


def _memory(used: int | None, total: int | None, glyphs: Glyphs) -> str:
    whole = glyphs.missing if total is None else f"{total / GIB:.1f}"
    part = glyphs.missing if used is None else f"{used / GIB:.1f}"
    return f"{part.rjust(len(whole))}/{whole} GiB"


def _number(value: float | None, unit: str, width: int, glyphs: Glyphs) -> str:
    return (glyphs.missing if value is None else f"{value:.0f}").rjust(width) + unit


def _range(values: Sequence[float | None], unit: str, glyphs: Glyphs) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return glyphs.missing + unit
    low, high = f"{min(known):.0f}", f"{max(known):.0f}"
    return (low if low == high else f"{low}{glyphs.to}{high}") + unit


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
