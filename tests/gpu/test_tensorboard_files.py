"""The real trainer writes the same numbers to TensorBoard as to its log. It uses the files of test_real_megatron.py."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import pytest

from backends.megatron.record import Record
from backends.megatron.summary import read_log
from backends.tracking.event_files import EventReader
from backends.tracking.event_paths import event_files
from backends.tracking.event_record import Translation

CLONE = Path(os.environ.get("MDK_GPU_WORKSPACE") or "/nonexistent") / "outputs" / "Megatron-LM"
LOG = CLONE.parent / "smoke.log"  # of the first training run there, whose event file is the first
pytestmark = pytest.mark.skipif(
    not (LOG.is_file() and (CLONE / "tensorboard").is_dir() and event_files(CLONE / "tensorboard")),
    reason="needs what test_real_megatron.py leaves, with tensorboard installed where it trains",
)


def record_of(path: Path) -> Record:
    reader, translation, found = EventReader(verify=True), Translation(), Record()
    reader.feed(path.read_bytes())
    reader.finish()
    assert reader.torn == []
    found.apply(translation.add(*reader.take()))
    found.apply(translation.settle())
    return found


def test_losses_and_arguments_are_those_of_the_log() -> None:
    told, printed = record_of(event_files(CLONE / "tensorboard")[0]), read_log(LOG)
    assert told.iteration == printed.iteration
    assert told.arguments["hidden_size"] == printed.arguments["hidden_size"]
    interval = int(printed.arguments["log_interval"])
    lines = [
        step
        for step in range(1, (printed.iteration or 0) + 1)
        if printed.value_at("lm loss", step) is not None
    ]
    assert len(lines) >= 10
    for line in lines:  # the log prints the mean over an interval, TensorBoard gets every iteration
        losses = [told.value_at("lm loss", step) for step in range(line - interval + 1, line + 1)]
        known = [loss for loss in losses if loss is not None]
        assert len(known) == interval
        assert statistics.mean(known) == pytest.approx(printed.value_at("lm loss", line), rel=1e-3)
