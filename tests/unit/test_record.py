"""The contents of a log in bounded memory, the same however the log was read."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from log_lines import DONE, LOGS, WORLD, arguments, iteration, iterations

from backends.megatron.events import Error, IterationBatch
from backends.megatron.parser import Parser
from backends.megatron.record import ITERATION_MS, KEPT, NAMES, SEGMENTS, SLICE, Record


def record_of(log: bytes | str, chunk: int = 2**20) -> Record:
    data = log.encode() if isinstance(log, str) else log
    record, parser = Record(), Parser()
    for start in range(0, len(data), chunk):
        record.apply(parser.feed(data[start : start + chunk]))
    record.apply(parser.finish())
    return record


def losses(first: int, count: int) -> IterationBatch:
    """Iterations with a loss and nothing else."""
    iterations, nothing = range(first, first + count), [None] * count
    return IterationBatch(
        iterations, nothing, nothing, iterations, [10**7] * count, {"lm loss": [1 / i for i in iterations]}
    )


def contents(record: Record) -> dict[str, Any]:
    """All that a reader can see, for comparison."""
    return {
        "newest": (record.iteration, record.train_iters, repr(record.last), record.last_time),
        "events": repr(
            [
                record.validations,
                record.checkpoints,
                record.alerts,
                record.all_errors(),
                record.milestones,
                record.exits,
            ]
        ),
        "facts": repr(
            [record.arguments, record.parameters, record.memory, record.theoretical, record.timers]
        ),
        "metrics": record.metrics(),
        "segments": [
            (s.line, s.first, s.last, s.started, s.ended, s.clock.iterations, s.clock.times)
            for s in record.segments
        ],
        "rows": [
            (name, list(series.iterations), [repr(float(value)) for value in series.values])
            for segment in record.segments
            for name, series in segment.series.items()
        ],
    }


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda path: path.stem)
@pytest.mark.parametrize("chunk", [1, 997, 65536])
def test_a_log_read_in_any_pieces_gives_the_same_record(path: Path, chunk: int) -> None:
    log = path.read_bytes()
    pieces, whole = record_of(log, chunk), record_of(log)
    assert contents(pieces) == contents(whole)
    assert pieces.seconds_left() == pytest.approx(whole.seconds_left())


def test_a_real_training_run_is_kept_whole() -> None:
    record = record_of((LOGS / "h200-core_r0.8.0-train.log").read_bytes())
    assert (record.iteration, record.train_iters, len(record.segments)) == (200, 200, 1)
    assert record.last["lm loss"] == 3.661475
    assert record.last["grad norm"] == 0.877
    assert record.arguments["seq_length"] == "512"
    assert record.tokens == 6400 * 512
    assert record.validations[-1].set == "test"
    assert record.memory[0].values["max allocated"] > 0
    (curve,) = record.curves("lm loss")
    assert curve.xs[-1] == 200.0
    assert curve.means[-1] == 3.661475
    assert record.value_at("grad norm", 200) == 0.877
    assert record.value_at("grad norm", 201) is None


def test_an_iteration_that_goes_back_starts_a_segment_and_both_are_kept() -> None:
    record = record_of(iterations(1, 30) + iterations(21, 40))
    assert [(s.first, s.last, s.line) for s in record.segments] == [(1, 30, 1), (21, 40, 31)]
    first, second = record.curves("lm loss")
    assert (first.xs[0], first.xs[-1], second.xs[0], second.xs[-1]) == (1, 30, 21, 40)
    assert record.value_at("lm loss", 25) == pytest.approx(2 + 1 / 25)
    assert [curve.xs[0] for curve in record.curves("lm loss", start=31)] == [31]


def test_a_resume_at_the_next_iteration_starts_a_segment() -> None:
    record = record_of(WORLD + iterations(1, 30) + WORLD + iterations(31, 40))
    assert [(s.first, s.last) for s in record.segments] == [(1, 30), (31, 40)]


def test_a_line_printed_twice_is_no_restart() -> None:
    record = record_of("".join(iteration(number) * 2 for number in range(1, 10)))
    assert [(s.first, s.last) for s in record.segments] == [(1, 9)]


def test_a_loss_missing_from_the_last_line_is_not_shown() -> None:
    record = record_of(iteration(1, loss=2.0) + iteration(2, loss=None))
    assert "lm loss" not in record.last
    assert record.last["loss scale"] == 1.0
    assert record.value_at("lm loss", 1) == 2.0


def test_the_zero_of_an_all_skipped_window_is_no_loss() -> None:
    """0.17 and later print 0.000000E+00 there."""
    log = iteration(1) + iteration(2, loss=0.0, skipped=1) + iteration(3) + iteration(4, loss=0.0, skipped=1)
    record = record_of(log)
    (curve,) = record.curves("lm loss")
    assert curve.xs == [1.0, 3.0]
    assert "lm loss" not in record.last
    assert record.value_at("grad norm", 4) == 1.5


def test_curves_by_time_and_by_tokens() -> None:
    record = record_of(arguments(seq_length=128) + iterations(1, 300))
    (times,) = record.curves("lm loss", x="time", buckets=1000)
    assert len(times.xs) == 300
    assert times.xs == sorted(times.xs)
    assert times.xs[-1] - times.xs[0] == 299.0
    (tokens,) = record.curves("lm loss", x="tokens", buckets=1000)
    assert (tokens.xs[0], tokens.xs[-1]) == (32 * 128, 300 * 32 * 128)
    assert record_of("iteration 1/ 10 | lm loss: 1.0 |\n").curves("lm loss", x="time") == []


def test_time_left_counts_what_evaluations_cost_and_forgets_a_slow_start() -> None:
    """100 iterations of 2 s with a pause of 1 s an iteration on the clock, the first of 90 s."""
    lines = [
        iteration(
            n, ms=2000.0 if n > 1 else 90_000.0, time=f"2026-11-30 10:{3 * n // 60:02d}:{3 * n % 60:02d}"
        )
        for n in range(1, 101)
    ]
    record = record_of("".join(lines))
    assert record.seconds_left() == pytest.approx(900 * 3.0)
    assert record.iteration_ms == 2000.0


def test_a_suspended_job_does_not_spoil_the_estimate() -> None:
    log = iteration(1, time="2026-11-29 10:00:00") + iteration(2, time="2026-11-30 10:00:00")
    assert record_of(log).seconds_left() == 998 * 3.0


def test_after_a_restart_only_the_new_speed_counts() -> None:
    slow = "".join(iteration(n, ms=9000.0) for n in range(1, 40))
    assert record_of(slow + iteration(20, ms=1000.0)).iteration_ms == 1000.0


def test_huge_numbers_and_invalid_times_are_survived() -> None:
    record = Record()
    for n in (1, 2, 3):
        columns = {"lm loss": [10**400], "x": [n * 10**30], ITERATION_MS: [math.inf]}
        record.apply([IterationBatch([n], [None], ["2026-99-99T10:00:00"], [n], [10**400], columns)])
    assert record.iteration == 3
    assert record.value_at("x", 2) == 2e30
    assert record.curves("lm loss") == []
    assert record.segments[0].time_at(2) is None
    assert record.seconds_left() is None


def test_text_among_numbers_does_not_make_a_curve() -> None:
    batch = IterationBatch(
        [1, 2], [None, None], [None, None], [1, 2], [9, 9], {"eta": [5, "0:00:05"], "x": [1.5, 2.5]}
    )
    record = Record()
    record.apply([batch])
    assert record.metrics() == ["x"]
    assert record.last == {"eta": "0:00:05", "x": 2.5}


def test_a_hostile_log_stays_small() -> None:
    """A new field in each line, an iteration that goes back in each, an error in each."""
    record = Record()
    error = Error(1, None, "exception", "x" * 100, "", "")
    tracemalloc.start()
    for n in range(3 * NAMES):
        batch = IterationBatch([n], [None], [None], [n % 2], [9], {f"field {n}": [1.5]})
        record.apply([batch, *[error] * 4])
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(record.metrics()) == NAMES
    assert len(record.last) == NAMES
    assert len(record.segments) == SEGMENTS
    assert len(record.errors) == KEPT
    assert used < 8e6


def test_an_end_is_seen_only_in_the_newest_attempt() -> None:
    record = record_of(WORLD + iterations(1, 3) + DONE + WORLD)
    assert [m.name for m in record.milestones] == ["distributed", "done", "distributed"]


def test_the_extremes_of_a_long_run_are_in_its_curve() -> None:
    values = [math.sin(n) for n in range(100_000)]
    values[77_777], values[33_333] = 50.0, -50.0
    record = Record()
    record.apply(
        [
            IterationBatch(
                range(1, 100_001),
                [None] * 100_000,
                [None] * 100_000,
                range(1, 100_001),
                [10**6] * 100_000,
                {ITERATION_MS: values},
            )
        ]
    )
    (curve,) = record.curves(ITERATION_MS, buckets=100)
    assert (max(curve.highs), min(curve.lows)) == (50.0, -50.0)


def test_a_curve_is_prepared_in_slices() -> None:
    record, other = Record(), Record()
    rows = 5 * SLICE + 17
    for part in (record, other):
        part.apply([losses(1, rows)])
    slices = 1
    while record.prepare("lm loss"):
        slices += 1
        record.apply([losses(rows + slices, 1)])
        other.apply([losses(rows + slices, 1)])
    assert slices == 5
    assert record.curves("lm loss") == other.curves("lm loss")
    assert not record.prepare("lm loss")
    assert not record.prepare("no such metric")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 26304\nTotal number of parameters in billions: 0.00\n", 26304),
        ("Total number of parameters in billions: 6.44\n", 6440000000),
        (" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 5\n > number of parameters on (tensor, pipeline) model parallel rank (1, 0): 5\nTotal number of parameters in billions: 0.01\n", 10000000),
        ("Total number of parameters in billions: 0.00\n", None),
    ],
)  # fmt: skip
def test_parameters_are_counted_where_one_rank_holds_them_all(text: str, count: int | None) -> None:
    record = Record()
    record.apply(Parser().feed(text.encode()))
    assert record.parameter_count == count


@pytest.mark.parametrize("name", ["lm_loss", "lm-loss", "loss", "reduced_train_loss"])
def test_the_loss_of_a_fork_is_found_by_the_usual_name(name: str) -> None:
    record = Record()
    text = "".join(f" iteration {i}/10 | z_loss: 9.0 | {name}: {i}.5 | loss scale: 1.0 |\n" for i in (1, 2))
    record.apply(Parser().feed(text.encode()))
    (curve,) = record.curves("lm loss", buckets=10)
    assert list(curve.xs) == [1, 2] and curve.lows[0] == 1.5 and record.name_here("lm loss") == name
    assert not record.prepare("lm loss") and record.curves("grad norm", buckets=10) == []
