"""Lines and whole logs as Megatron prints them, for tests of the parser."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from typing import Any

from backends.megatron.event_json import in_order, unroll
from backends.megatron.events import Event
from backends.megatron.line_reader import LineReader
from backends.megatron.parser import Parser


def parse(data: bytes | str) -> list[Event]:
    """The events of a whole log."""
    parser = Parser()
    return [*parser.feed(data.encode() if isinstance(data, str) else data), *parser.finish()]


def parse_in_pieces(data: bytes, size: Callable[[], int]) -> list[Event]:
    """The events of a log that comes in pieces of `size()` bytes."""
    parser, events, at = Parser(), list[Event](), 0
    while at < len(data):
        step = size()
        events += parser.feed(data[at : at + step])
        at += step
    return [*events, *parser.finish()]


def parse_line_by_line(data: bytes) -> list[Event]:
    """The events of a log by the reference reader alone, without what makes the parser quick."""
    reader, events = LineReader(), list[Event]()
    lines = data.split(b"\n")
    for number, line in enumerate(lines if lines[-1] else lines[:-1], 1):
        events += reader.read(line, number)
    return [*events, *reader.finish()]


def printed(data: bytes) -> list[dict[str, Any]]:
    """What `mdk-tui parse` prints of a log that is read in one piece."""
    parser = Parser()
    return [*in_order(parser.feed(data)), *in_order(parser.finish())]


def rows(events: Iterable[Event], *names: str) -> list[dict[str, Any]]:
    """The JSON objects of `events`, of all or of those `names`."""
    return [row for event in events for row in unroll(event) if not names or row["event"] in names]


def as_set(events: Iterable[Event]) -> list[str]:
    """The events as a set, without their order."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows(events))


def one(text: bytes | str, name: str) -> dict[str, Any]:
    """The only event of that name in `text`."""
    (row,) = rows(parse(text), name)
    return row


def iteration_line(
    iteration: int,
    *,
    loss: str | None = "3.212345E+00",
    scale: str = "262144.0",
    grad: str | None = "0.765",
    skipped: int = 0,
    nans: int = 0,
    prefix: str = "",
    train_iters: int = 500000,
) -> str:
    """A line of core_r0.8.0 with --log-throughput, its newline included."""
    fields = [
        f"consumed samples: {iteration * 1024:12d}",
        f"elapsed time per iteration (ms): {12000 + iteration % 97:.1f}",
        f"throughput per GPU (TFLOP/s/GPU): {870 + iteration % 7:.1f}",
        f"learning rate: {3e-4 / iteration:.6E}",
        "global batch size:  1024",
        *([f"lm loss: {loss}"] if loss else []),
        f"loss scale: {scale}",
        *([f"grad norm: {grad}"] if grad else []),
        f"number of skipped iterations: {skipped:3d}",
        f"number of nan iterations: {nans:3d}",
    ]
    stamp = f"2024-09-03 {iteration // 3600 % 24:02d}:{iteration // 60 % 60:02d}:{iteration % 60:02d}"
    return f"{prefix} [{stamp}] iteration {iteration:8d}/{train_iters:8d} | {' | '.join(fields)} |\n"


def troubled_log(seed: int, lines: int = 1500) -> bytes:
    """Iteration lines with everything in between and wrong with them that the wild has shown."""
    r = random.Random(seed)
    between = [
        "x noise {}\n",
        "(min, max) time across ranks (ms):\n    evaluate .....................: (1.5, 2.{})\n",
        " validation loss at iteration {} | lm loss value: 4.123456E+00 | lm loss PPL: 6.177000E+01 | \n",
        "[1,15]<stdout>: hello {}\n",
        "garbage {} ",
        "\n",
        "Traceback (most recent call last):\n  File {}\nValueError: x\n",
        "time (ms) | forward: 1.{} | backward: 2.0\n",
    ]
    parts: list[str] = []
    for i in range(1, lines):
        line = iteration_line(i, loss=f"{1 + 9 / i:.6E}", grad=f"{r.random() * 3:.3f}")
        if r.random() < 0.03:
            parts.append(r.choice(between).format(r.randrange(9)))
        if r.random() < 0.01:
            line = line.replace("skipped iterations:   0", "skipped iterations:   1")
        if r.random() < 0.005:
            line = line.replace(" lm loss: ", " sop loss: ")
        if r.random() < 0.005:
            line = line.replace("grad norm: 0.", "grad norm: nan0.")
        if r.random() < 0.005:
            line = line.replace("grad norm: 1.", "grad norm: 1_")
        if r.random() < 0.005:
            line = line[:-1] + "Number of parameters in embedding layers in billions: 0.41\n"
        if r.random() < 0.005:
            line = "\r50%|███\r" + line
        if r.random() < 0.005:
            line = line.replace(" |", "|")
        if r.random() < 0.003:
            line = "using world size: 2, data\n" + line
        if r.random() < 0.003:
            line = line.replace("\n", "\r\n")
        parts.append(line)
    return "".join(parts).encode()
