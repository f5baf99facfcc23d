"""Whole real logs: their events, how many there are, and their numbers.

Golden files hold every event but the arguments: `mdk-tui parse LOG --json | grep -v '"event": "argument"'`.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from megatron_text import as_set, parse, parse_in_pieces, parse_line_by_line, printed, rows

DATA = Path(__file__).parent.parent / "data"
GOLDEN = DATA / "golden"

# log → lines, then how many of iteration, validation, checkpoint, error, alert, exit
COUNTS = {
    "h200-core_r0.8.0-train": (616, 20, 4, 5, 0, 3, 1),
    "h200-core_r0.8.0-resume-refused": (528, 0, 0, 1, 1, 0, 1),
    "h200-core_r0.8.0-serve": (417, 0, 0, 2, 0, 0, 0),
    "2xh200-batch-indivisible": (439, 0, 0, 0, 2, 0, 1),
    "2xh200-bf16-nan-unchecked": (587, 8, 2, 5, 0, 5, 2),
    "2xh200-mpirun-output-tag": (593, 8, 2, 5, 0, 3, 2),
    "2xh200-mpirun-output-timestamp-tag": (582, 4, 2, 3, 0, 3, 2),
    "2xh200-mpirun-terminated": (620, 40, 0, 21, 0, 3, 0),
    "2xh200-no-data": (576, 0, 0, 1, 2, 1, 3),
    "2xh200-oom-then-hangs": (724, 0, 0, 1, 1, 1, 0),
    "2xh200-rank-killed": (601, 32, 0, 16, 1, 3, 1),
    "2xh200-tp2-mpirun-output-rank": (596, 8, 2, 5, 0, 3, 2),
    "h200-mpirun-singularity-smoke": (630, 20, 4, 4, 0, 2, 1),
    "tutorial-1node": (17, 10, 0, 0, 0, 2, 0),
    "tutorial-2node": (17, 10, 0, 0, 0, 2, 0),
    "tutorial-preprocess": (14, 0, 0, 0, 0, 0, 0),
    "core_r0.8.0-preprocess": (30, 0, 0, 0, 0, 0, 0),
    "core_r0.8.0-preprocess-1848-documents": (31, 0, 0, 0, 0, 0, 0),
}
COUNTED = ("iteration", "validation", "checkpoint", "error", "alert", "exit")


@pytest.mark.parametrize("name", COUNTS)
def test_a_log_gives_the_expected_number_of_each_event(logs: Path, name: str) -> None:
    data = (logs / f"{name}.log").read_bytes()
    found = rows(parse(data))
    counts = Counter(row["event"] for row in found)
    assert (data.count(b"\n"), *(counts[event] for event in COUNTED)) == COUNTS[name]
    assert counts["argument"] in (0, 330, 331)


@pytest.mark.parametrize("path", sorted((DATA / "logs").glob("*.log")), ids=lambda path: path.stem)
def test_chunks_of_any_size_give_the_same_events(path: Path) -> None:
    data = path.read_bytes()
    expected = as_set(parse_line_by_line(data))
    for size in (1, 7, 1000, 4096, len(data)):
        assert as_set(parse_in_pieces(data, lambda size=size: size)) == expected


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.jsonl")), ids=lambda path: path.stem)
def test_golden(logs: Path, path: Path) -> None:
    found = printed((logs / f"{path.stem}.log").read_bytes())
    expected = [json.loads(line) for line in path.read_text().splitlines()]
    assert json.loads(json.dumps([row for row in found if row["event"] != "argument"])) == expected


def test_the_tutorials_own_numbers(logs: Path) -> None:
    found = rows(parse((logs / "tutorial-1node.log").read_bytes()))
    iterations = [row for row in found if row["event"] == "iteration"]
    assert [row["iteration"] for row in iterations] == list(range(10, 101, 10))
    assert (
        "lm loss" not in iterations[0]["values"]
        and iterations[0]["values"]["number of skipped iterations"] == 10
    )
    assert [row["values"]["lm loss"] for row in iterations[1:]] == [
        10.64275, 8.99542, 8.519848, 8.219823, 7.748981, 7.191251, 6.696725, 6.244888, 5.847192,
    ]  # fmt: skip
    assert iterations[-1]["time"] == "2024-09-03T16:13:01"
    assert iterations[-1]["values"]["throughput per GPU (TFLOP/s/GPU)"] == 875.0
    parameters = {k: v for row in found if row["event"] == "parameters" for k, v in row["values"].items()}
    assert parameters == {
        "transformer layers": 6_020_000_000, "embedding layers": 410_000_000,
        "total": 6_440_000_000, "most loaded shard": 6_436_700_000,
    }  # fmt: skip
    assert [row["kind"] for row in found if row["event"] == "alert"] == ["all-skipped", "some-skipped"]


def test_the_training_log_of_one_gpu(logs: Path) -> None:
    found = rows(parse((logs / "h200-core_r0.8.0-train.log").read_bytes()))
    validations = [
        (row["iteration"], row["set"], row["values"]["lm loss value"])
        for row in found
        if row["event"] == "validation"
    ]
    assert validations == [
        (100, "validation", 5.143087),
        (200, "validation", 4.88089),
        (200, "validation", 4.844343),
        (200, "test", 4.816455),
    ]
    saved = [row["iteration"] for row in found if row["event"] == "checkpoint" and row["action"] == "saved"]
    assert saved == [100, 200]
    milestones = [row["name"] for row in found if row["event"] == "milestone"]
    order = ["distributed", "arguments", "initialized", "model", "data", "training", "done"]
    assert [name for name in milestones if name in order] == order
    arguments = {row["name"]: row["value"] for row in found if row["event"] == "argument"}
    assert arguments["train_iters"] == "200" and arguments["data_path"].startswith("[")


def test_the_prefixed_logs_name_the_last_rank(logs: Path) -> None:
    for name in ("tp2-mpirun-output-rank", "mpirun-output-tag", "mpirun-output-timestamp-tag"):
        found = rows(parse((logs / f"2xh200-{name}.log").read_bytes()))
        assert {row["rank"] for row in found if row["event"] in ("iteration", "validation")} == {1}
        assert {row["rank"] for row in found if row["event"] in ("argument", "checkpoint")} == {0}


@pytest.mark.parametrize(
    ("name", "kind", "ranks", "first"),
    [
        ("2xh200-oom-then-hangs", "out-of-memory", 2, 0),
        ("2xh200-no-data", "no-data", 2, 1),
        ("2xh200-batch-indivisible", "batch-arithmetic", 2, 1),
        ("2xh200-rank-killed", "rank-killed", 1, 0),
        ("h200-core_r0.8.0-resume-refused", "scheduler-mismatch", 1, 0),
    ],
)
def test_the_first_error_and_its_ranks(logs: Path, name: str, kind: str, ranks: int, first: int) -> None:
    errors = rows(parse((logs / f"{name}.log").read_bytes()), "error")
    assert (errors[0]["kind"], errors[0]["ranks"], errors[0]["first_rank"]) == (kind, ranks, first)


def test_nan_without_a_counter_is_seen_at_once(logs: Path) -> None:
    found = rows(parse((logs / "2xh200-bf16-nan-unchecked.log").read_bytes()))
    alerts = [(row["kind"], row["iteration"], row["severity"]) for row in found if row["event"] == "alert"]
    assert ("nan-loss", 5, "critical") in alerts and ("nan-loss-ended", 40, "info") in alerts
    assert [a for a in alerts if a[0] == "nan-validation"] == [("nan-validation", 40, "error")] * 2
