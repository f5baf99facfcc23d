"""The process that asks the NVIDIA driver, so that a driver that hangs blocks no other.

    python -m backends.telemetry.probe [--interval SECONDS]     one JSON object a line, until standard input ends
    python -m backends.telemetry.probe --once                   one snapshot of this node, GPUs and host, then exit

A line is {"gpus": [...]} as in `wire`, or {"note": "why there are none", "gone": true if asking again is useless}.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import sys
from dataclasses import asdict
from typing import Any, TextIO, cast

import psutil

from backends.telemetry.nvml import DriverSaysNo, GpuReader, Nvml
from backends.text import clean_line


def describe(pid: int) -> tuple[str | None, str | None]:
    """Name and user of a process; None for what is unknown, as for a process of another container."""
    name = user = None
    with contextlib.suppress(psutil.Error, OSError, KeyError):
        process = psutil.Process(pid)
        name = clean_line(process.name(), 100)
        user = clean_line(process.username(), 100)
    return name, user


def answers(reader: GpuReader, interval: float, out: TextIO, wait: Any) -> int:
    """Write a line at once and every `interval` s, until `wait(seconds)` returns True: the reader is gone."""
    try:
        reader.open()
        while True:
            _say(out, {"gpus": [asdict(gpu) for gpu in reader.read()]})
            if wait(interval):
                return 0
    except DriverSaysNo as refusal:
        _say(out, {"note": str(refusal), "gone": refusal.gone})
        return 1
    except BrokenPipeError:
        return 0


def _say(out: TextIO, value: dict[str, Any]) -> None:
    out.write(json.dumps(value) + "\n")
    out.flush()


def _reader_gone(seconds: float) -> bool:
    """Wait `seconds`; True as soon as standard input ends, because the reader closed it or died."""
    ready, _, _ = select.select([0], [], [], seconds)
    return bool(ready) and not os.read(0, 4096)


def _once() -> int:
    from backends.telemetry.collector import Collector
    from backends.telemetry.wire import encode

    collector = Collector()
    try:
        for snapshot in collector.snapshots():
            print(json.dumps(encode(snapshot)))  # noqa: T201 (the answer)
            break
    finally:
        collector.close()
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m backends.telemetry.probe", description="Ask the NVIDIA driver."
    )
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--once", action="store_true", help="one snapshot of GPUs and host, then exit")
    options = parser.parse_args(arguments)
    if options.once:
        return _once()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        import pynvml  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        _say(
            sys.stdout, {"note": "The Python module pynvml (package nvidia-ml-py) is missing.", "gone": True}
        )
        return 1
    return answers(GpuReader(cast("Nvml", pynvml), describe), options.interval, sys.stdout, _reader_gone)


if __name__ == "__main__":
    sys.exit(main())
