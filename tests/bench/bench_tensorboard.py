"""Event files: this reader against tensorboard's EventAccumulator on one file, then 2,000,000 scalars by this reader alone.

python tests/bench/bench_tensorboard.py [SCALARS]

The files are made here and removed. Times are CPU; the two readers take turns, so that a machine whose speed changes is
unjust to neither. The accumulator keeps all points, as the monitor does, and reads a twentieth of SCALARS: it is slow.
Each reading is a process of its own, which also tells the most memory that it took.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))

from event_file_text import event, file_of, record, simple, tensor
from terminal import table

ROUNDS = 3
LIMIT_S, LIMIT_MB, GOAL = 5.0, 200, 8
TAGS = ("lm loss", "learning-rate", "batch-size", "loss-scale", "grad-norm")
OWN = """
import json, resource, sys, time
from pathlib import Path
from backends.tracking.event_files import EventReader
begin = time.process_time()
reader = EventReader()
with next(Path(sys.argv[1]).iterdir()).open("rb") as file:
    while data := file.read(2**22):
        reader.feed(data)
reader.finish()
seconds = time.process_time() - begin
count = sum(map(len, reader.scalars.values()))
print(json.dumps([seconds, count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""
THEIRS = """
import json, resource, sys, time
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
begin = time.process_time()
accumulator = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0}).Reload()
seconds = time.process_time() - begin
tags = accumulator.Tags()
count = sum(len(accumulator.Scalars(tag)) for tag in tags["scalars"]) + sum(len(accumulator.Tensors(tag)) for tag in tags["tensors"])
print(json.dumps([seconds, count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def messages(count: int, form: str) -> Iterator[bytes]:
    """`count` scalars as Megatron-LM writes them: each over iterations, and again over samples."""
    make = simple if form == "simple_value" else tensor
    for iteration in range(1, count // (2 * len(TAGS)) + 1):
        for tag in TAGS:
            yield event(iteration, 1.7e9 + iteration, make(tag, 10 / iteration))
            yield event(256 * iteration, 1.7e9 + iteration, make(f"{tag} vs samples", 10 / iteration))


def write(folder: Path, count: int, form: str, checked: bool) -> None:
    folder.mkdir()
    with (folder / "events.out.tfevents.1700000000.node.1.0").open("wb") as file:
        file.write(file_of(()))
        for message in messages(count, form):
            file.write(record(message, checked))


def reading(program: str, folder: Path) -> tuple[float, int, float]:
    """(CPU s, scalars, most MB) of one process."""
    top = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        (sys.executable, "-c", program, str(folder)), cwd=top, capture_output=True, text=True, check=True
    )
    seconds, count, megabytes = json.loads(done.stdout.splitlines()[-1])
    return seconds, count, megabytes


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as place:
        for form in ("simple_value", "tensor"):
            few, many = Path(place) / f"{form}-few", Path(place) / f"{form}-many"
            write(few, count // 20, form, checked=True)
            # The checksums are not read, and computing them takes most of the time of writing.
            write(many, count, form, checked=False)
            turns = [(reading(THEIRS, few), reading(OWN, few)) for _ in range(ROUNDS)]
            (slow, number, _), (fast, same, _) = (min(times) for times in zip(*turns, strict=True))
            if number != same:
                raise SystemExit(f"{form}: EventAccumulator finds {number} scalars, this reader {same}")
            rows += [
                (f"{form}, {number:,}: EventAccumulator", f"{slow:.2f} s", ""),
                (f"{form}, {number:,}: this reader", f"{fast:.3f} s", ""),
                (f"{form}: times faster", f"{slow / fast:.1f}", f"goal >= {GOAL}"),
            ]
            seconds, number, megabytes = min(reading(OWN, many) for _ in range(ROUNDS))
            rows += [
                (f"{form}, {number:,}: this reader", f"{seconds:.2f} s", f"<= {LIMIT_S:.0f} s"),
                (f"{form}, {number:,}: most memory", f"{megabytes:.0f} MB", f"<= {LIMIT_MB} MB"),
            ]
    table("event files, CPU time", rows)


if __name__ == "__main__":
    main()
