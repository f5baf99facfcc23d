"""The parser beside one compiled regular expression, in one run, over the same bytes.

The expression reads six fields and sums them; the parser keeps every field, and the same six columns are summed. The sums
must be equal. CPU time, the best of some rounds that take turns. Noise is measured against the expression twice: over
the whole bytes, and line by line as a loop over a file would. Run: `python tests/bench/bench_parser.py [--iterations N]`.
"""

from __future__ import annotations

import argparse
import datetime
import math
import random
import re
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from backends.megatron.events import IterationBatch
from backends.megatron.parser import Parser

CHUNK = 2**20  # bytes
SIX = re.compile(
    rb"iteration +(\d+)/ *\d+ \| consumed samples: +(\d+) \| elapsed time per iteration \(ms\): ([\d.]+) \|"
    rb".*?learning rate: ([\d.E+-]+) \|.*?lm loss: ([\d.E+-]+) \|.*?grad norm: ([\d.]+) \|"
)
COLUMNS = ("consumed samples", "elapsed time per iteration (ms)", "learning rate", "lm loss", "grad norm")
NOISE = (
    "[INFO     | DotProductAttention]: Running with FusedAttention backend (sub-backend 1)",
    "INFO:megatron.core.datasets.indexed_dataset:Load the _IndexReader from /data/arxiv_text_document.idx",
    '  warnings.warn("torch.distributed.reduce_op is deprecated, please use "',
    "node1:4242:4312 [3] NCCL INFO Channel 00/0 : 3[3] -> 4[4] via P2P/CUMEM/read",
    "make: Nothing to be done for 'default'.",
)


@dataclass(frozen=True)
class Log:
    title: str
    data: bytes
    has_iterations: bool


def iteration_lines(count: int, prefix: str = "", scales: bool = False) -> Iterator[str]:
    """Lines as core_r0.8.0 prints them; with `scales` the loss scale changes and steps are skipped now and then."""
    r = random.Random(1)
    when, scale = datetime.datetime(2024, 9, 3, 15, 50), 262144.0
    for i in range(1, count + 1):
        when += datetime.timedelta(seconds=12)
        skipped = int(scales and i % 1000 == 0)
        scale = scale / 2 if skipped and i % 2000 else 2 * scale if skipped else scale
        yield (
            f"{prefix} [{when:%Y-%m-%d %H:%M:%S}] iteration {i:8d}/{1000000:8d} | consumed samples: {i * 1024:12d} | "
            f"elapsed time per iteration (ms): {12000 + r.random() * 300:.1f} | throughput per GPU (TFLOP/s/GPU): {860 + r.random() * 20:.1f} | "
            f"learning rate: {3e-4 * (1 - i / 2000000):.6E} | global batch size: {1024:5d} | "
            f"lm loss: {1 + 9 / (1 + i / 1000) + r.random() / 10:.6E} | loss scale: {scale:.1f} | grad norm: {r.random() * 3:.3f} | "
            f"number of skipped iterations: {skipped:3d} | number of nan iterations: {0:3d} |\n"
        )


def with_events(lines: Iterator[str], evaluations: int = 100, saves: int = 500) -> Iterator[str]:
    """An evaluation and a checkpoint after each so many lines; as it is, those of a real log with --log-interval 10."""
    for i, line in enumerate(lines, 1):
        yield line
        if i % evaluations == 0:
            yield f"(min, max) time across ranks (ms):\n    evaluate .......................................: ({800 + i % 97}.51, {801 + i % 97}.88)\n"
            yield "-" * 90 + "\n"
            yield f" validation loss at iteration {i} | lm loss value: {1 + 1 / i:.6E} | lm loss PPL: {3 + 1 / i:.6E} | \n"
            yield "-" * 90 + "\n"
        if i % saves == 0:
            yield f"saving checkpoint at iteration {i:7d} to ck in torch format\n"
            yield f"  successfully saved checkpoint from iteration {i:7d} to ck\n"


def with_memory(lines: Iterator[str]) -> Iterator[str]:
    """A memory line after every iteration line."""
    for i, line in enumerate(lines, 1):
        yield line
        yield f"[Rank 0] (after {i} iterations) memory (MB) | allocated: {1000 + i % 777}.34475 | max allocated: {2000 + i % 77}.56453 | reserved: 2860.0\n"


def of_two_ranks(lines: Iterator[str]) -> Iterator[str]:
    return (f"[1,{rank}]<stdout>: {line}" for line in lines for rank in (0, 1))


def with_timer_lines(lines: Iterator[str]) -> Iterator[str]:
    """v1.0 to v2.6 print a line of timers after every iteration line."""
    for line in lines:
        yield line
        yield "time (ms) | forward-compute: 58.16 | backward-compute: 42.66 | optimizer: 57.50 | batch-generator: 5.24\n"


def with_timer_blocks(lines: Iterator[str]) -> Iterator[str]:
    """0.4 and later with --timing-log-level: a block of timers after every iteration line."""
    names = ("forward-backward", "forward-compute", "backward-compute", "all-grads-sync", "optimizer")
    for i, line in enumerate(lines):
        yield line
        yield "(min, max) time across ranks (ms):\n"
        yield "".join(f"    {name} {'.' * (48 - len(name))}: ({i}.56, {i}.78)\n" for name in names)


def coloured(lines: Iterator[str]) -> Iterator[str]:
    return (f"\x1b[32m{line[:-1]}\x1b[0m\n" for line in lines)


def stamped(lines: Iterator[str]) -> Iterator[str]:
    """Below mpirun --output timestamp,tag."""
    for i, line in enumerate(lines):
        yield f"[Mon Nov 30 {i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d} 2026][1,15]<stdout>: {line}"


def numbered_noise(count: int) -> Iterator[str]:
    """Lines that never repeat, but differ in numbers and addresses only."""
    r = random.Random(3)
    for i in range(count):
        yield (
            f"node{r.randrange(64)}:{r.randrange(9999)} [{i % 8}] NCCL INFO Channel {i % 32:02d} : {i % 7} -> {i % 5} via P2P\n"
            if i % 2
            else f"node{r.randrange(64)}: comm 0x{r.getrandbits(48):012x} busId {r.getrandbits(20):05x} - Init COMPLETE\n"
        )


def wordy_noise(count: int) -> Iterator[str]:
    """Words in an order that never repeats."""
    r = random.Random(4)
    words = ["".join(r.choices("abcdefghiklmnoprstuvw", k=r.randrange(2, 10))) for _ in range(5000)]
    return (" ".join(r.choices(words, k=12)) + "\n" for _ in range(count))


def noise(count: int) -> Iterator[str]:
    r = random.Random(2)
    return (r.choice(NOISE) + "\n" for _ in range(count))


def logs(iterations: int) -> Iterator[Log]:
    def made(title: str, lines: Iterator[str], has_iterations: bool = True) -> Log:
        return Log(title, "".join(lines).encode(), has_iterations)

    yield made("iteration lines", iteration_lines(iterations))
    yield made("… below an mpirun prefix", iteration_lines(iterations, "[1,15]<stdout>: "))
    yield made("… with fp16's scale changing", iteration_lines(iterations, scales=True))
    yield made("… with evaluations, checkpoints", with_events(iteration_lines(iterations)))
    yield made("… with an evaluation each 10", with_events(iteration_lines(iterations), 10))
    yield made("… with a checkpoint each 10", with_events(iteration_lines(iterations), saves=10))
    yield made("… of two ranks in turns", of_two_ranks(iteration_lines(iterations // 2)))
    yield made("… with a memory line each", with_memory(iteration_lines(iterations // 4)))
    yield made("… with a timer line each", with_timer_lines(iteration_lines(iterations // 4)))
    yield made("… with a timer block each", with_timer_blocks(iteration_lines(iterations // 4)))
    yield made("… coloured", coloured(iteration_lines(iterations)))
    yield made("… below mpirun's time stamps", stamped(iteration_lines(iterations)))
    yield made("noise: one line flooding", (NOISE[0] + "\n" for _ in range(4 * iterations)), False)
    yield made("noise: five lines mixed", noise(4 * iterations), False)
    yield made("noise: numbers and addresses", numbered_noise(4 * iterations), False)
    yield made("noise: words, never the same", wordy_noise(iterations), False)


def by_expression(data: bytes) -> list[float]:
    sums = [array("d") for _ in range(6)]
    for match in SIX.finditer(data):
        for column, text in zip(sums, match.groups(), strict=True):
            column.append(float(text))
    return [math.fsum(column) for column in sums]


def by_expression_findall(data: bytes) -> list[float]:
    """The same expression, the quickest way to use it."""
    return [math.fsum(map(float, column)) for column in zip(*SIX.findall(data), strict=True)] or [0.0] * 6


def by_expression_in_lines(data: bytes) -> list[float]:
    for line in data.split(b"\n"):
        SIX.search(line)
    return [0.0] * 6


def by_parser(data: bytes) -> list[float]:
    parser, parts = Parser(), [list[float]() for _ in range(6)]
    for start in range(0, len(data), CHUNK):
        for event in parser.feed(data[start : start + CHUNK]):
            if isinstance(event, IterationBatch):
                parts[0].append(math.fsum(event.iterations))
                for part, name in zip(parts[1:], COLUMNS, strict=True):
                    part.append(math.fsum(event.columns[name]))  # type: ignore[arg-type]
    parser.finish()
    return [math.fsum(part) for part in parts]


def cpu(function: Callable[[bytes], list[float]], data: bytes) -> tuple[float, list[float]]:
    start = time.process_time()
    result = function(data)
    return time.process_time() - start, result


def compare(log: Log, ways: dict[str, Callable[[bytes], list[float]]], rounds: int) -> dict[str, float]:
    """Seconds of CPU, the best of `rounds` in turns; raises AssertionError when the sums differ."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        sums: list[list[float]] = []
        for name, way in ways.items():
            seconds, result = cpu(way, log.data)
            best[name] = min(seconds, best.get(name, seconds))
            sums.append(result)
        for other in sums[1:]:
            assert all(math.isclose(a, b, rel_tol=1e-12) for a, b in zip(sums[0], other, strict=True)), sums
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--iterations", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="status 1 when iteration lines are below 0.9")
    options = parser.parse_args()
    sys.stdout.write(
        f"{'':34}{'MB':>6}{'expression':>12}{'parser':>12}{'ratio':>8}   (MB/s of CPU; ratio of rates)\n"
    )
    worst = math.inf
    for log in logs(options.iterations):
        ways = {"finditer": by_expression, "findall": by_expression_findall}
        if not log.has_iterations:
            ways = {"whole": by_expression_findall, "line by line": by_expression_in_lines}
        best = compare(log, {**ways, "parser": by_parser}, options.rounds)
        size = len(log.data) / 1e6
        for name in ways:
            ratio = best[name] / best["parser"]
            worst = min(worst, ratio) if log.has_iterations else worst
            title = log.title if name == next(iter(ways)) else ""
            sys.stdout.write(
                f"{title:34}{size:6.0f}{size / best[name]:12.0f}{size / best['parser']:12.0f}{ratio:8.2f}   {name}\n"
            )
            sys.stdout.flush()
    if options.check and worst < 0.9:
        sys.exit(1)


if __name__ == "__main__":
    main()
