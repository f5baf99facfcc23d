"""Iteration lines of every version and fork, alone and by the thousand."""

from __future__ import annotations

import json
import textwrap
from array import array
from pathlib import Path
from typing import Any

import pytest
from megatron_text import iteration_line, one, parse, rows

from backends.megatron.events import IterationBatch, Timers
from backends.megatron.line_reader import LineReader
from backends.megatron.parser import Parser

# The numbers of each line of wild.jsonl that is an iteration line: how many fields, and some of them.
WILD: dict[int, tuple[int, int, dict[str, Any]]] = {
    0: (10, 8, {"learning rate": 0.0, "loss scale": 8388608.0, "number of skipped iterations": 10}),
    1: (20, 10, {"lm loss": 10.64275, "grad norm": 47.021, "throughput per GPU (TFLOP/s/GPU)": 872.5}),
    15: (71, 12, {"load_balancing_loss": 1.013377, "num zeros": 0.0, "learning rate": 1.42e-05}),
    17: (30, 9, {"sop loss": 0.6911852, "learning rate": 1.111e-07, "number of skipped iterations": 1}),
    18: (122, 9, {"lm loss": 2.50422, "elapsed time per iteration (ms)": 86545.2}),
    19: (5426, 12, {"grad norm": "nan", "TFLOPs": 78.36, "consumed tokens": 88899584}),
    20: (6502, 11, {"grad norm": 3246.595, "lm loss": 3.876781}),
    21: (5, 14, {"tokens per gpu per second (tgs)": 142.612, "loss scale": 4294967296.0}),
    22: (3, 13, {"gloabl batch size": 256, "number of skipped iterations": 0, "TFLOPs": 107.09}),
    23: (70, 13, {"TFLOPs": 98.24, "samples per second": 67.175}),
    26: (100, 6, {"audio loss k0": 4.79, "audio loss mean": 5.0, "text loss": 8.42}),
    27: (1000, 9, {"lm loss": 5.360341, "global batch size": 512}),
}
OTHERS = {
    2: "memory", 3: "memory", 4: "milestone", 8: "milestone", 9: "checkpoint", 11: "memory", 13: "validation",
    14: "exit", 16: "timers", 25: "validation", 29: "argument", 30: "argument", 34: "alert", 35: "exit",
}  # fmt: skip


def wild(logs: Path) -> list[str]:
    return [json.loads(line)["line"] for line in (logs / "wild.jsonl").read_text().splitlines()]


def test_every_line_of_wild_jsonl_gives_the_right_events(logs: Path) -> None:
    for number, line in enumerate(wild(logs)):
        found = rows(parse(line))
        names = {row["event"] for row in found}
        if number in WILD:
            iteration, fields, some = WILD[number]
            (row,) = [row for row in found if row["event"] == "iteration"]
            assert (row["iteration"], len(row["values"])) == (iteration, fields), line
            assert {name: row["values"][name] for name in some} == some
        elif number in OTHERS:
            assert OTHERS[number] in names and "iteration" not in names, line
        else:
            assert not names, line


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("iteration 5/10 | lm loss: 1.5 |", {"lm loss": 1.5}),
        (" iteration 5/10 |lm loss: 1.5|loss scale:1.0", {"lm loss": 1.5, "loss scale": 1.0}),
        (" iteration 5/10 | lm loss: NAN | grad norm: inf |", {"lm loss": "nan", "grad norm": "inf"}),
        (" iteration 5/10 | lm loss: INF | x: -inf |", {"lm loss": "inf", "x": "-inf"}),
        (" iteration 5/10 | elapsed time per iteration (s): 1.5 |", {"elapsed time per iteration (ms)": 1500.0}),
        (" iteration 5/10 | consumed tokens: 1.258B |", {"consumed tokens": 1.258e9}),
        (" iteration 5/10 | throughput: 13100.0/13240.9 |", {"throughput": 13100.0}),
        (" iteration 5/10 | eta: 0:00:10 | lm loss: 1.0 |", {"eta": "0:00:10", "lm loss": 1.0}),
        (" iteration 5/10 | GPU utilization: 50.0MODEL_TFLOP/s/GPU |", {"GPU utilization": 50.0}),
        (" iteration 5/10 | packing_eff: 93.1% | toks/s: 12 |", {"packing_eff": 93.1, "toks/s": 12}),
        (" iteration=  5/ 10 | elapsed_time_per_iteration_ms=29.5 | lm loss=1.5 | grad_norm=nan | [DS]TFLOPs=26.1 |",
         {"elapsed time per iteration (ms)": 29.5, "lm loss": 1.5, "grad norm": "nan", "[DS]TFLOPs": 26.1}),
        (" iteration 5/10 | lm loss=1.5 | [LM]-TFLOPs=49.6 |", {"lm loss": 1.5, "[LM]-TFLOPs": 49.6}),
        (" iteration 5/10 | learning rate 3.000E-04 | total loss 1.200000E+00 | loss scale 1.0 |speed 12.5 samples/s",
         {"learning rate": 3e-4, "total loss": 1.2, "loss scale": 1.0}),
        (" iteration 5/10 | num zeros: 4294967296 |", {"num zeros": 4294967296}),
        (" iteration 5/10 | lm loss: 1.0 | mtp_1 loss: 2.0 | z_loss: 3.0 |", {"lm loss": 1.0, "mtp_1 loss": 2.0, "z_loss": 3.0}),
    ],
)  # fmt: skip
def test_values_of_every_form(line: str, values: dict[str, Any]) -> None:
    assert one(line + "\n", "iteration")["values"] == values
    many = rows(parse(f"{line}\n" * 50), "iteration")
    assert [row["values"] for row in many] == [values] * 50, "read as columns it is the same"


@pytest.mark.parametrize(
    ("stamp", "time"),
    [
        ("", None),
        ("[2024-09-03 15:56:55] ", "2024-09-03T15:56:55"),
        ("[2026-01-27 16:53:38.123456] ", "2026-01-27T16:53:38.123456"),
        ("[2025-10-21T16:18:53+08:00] ", "2025-10-21T16:18:53"),
        ("INFO [2026-06-22 19:28:40] >>  ", "2026-06-22T19:28:40"),
        ("[2026-04-30] ", None),
    ],
)
def test_time_stamps_of_every_version(stamp: str, time: str | None) -> None:
    row = one(f" {stamp}iteration        3/12345678 | consumed samples: 3 |", "iteration")
    assert (row["time"], row["iteration"], row["train_iters"]) == (time, 3, 12345678)
    text = "".join(f" {stamp}iteration {i}/50 | consumed samples: {i} |\n" for i in range(1, 51))
    assert {row["time"] for row in rows(parse(text))} == {time}, "read as columns it is the same"


@pytest.mark.parametrize(
    "line",
    [
        "Training epoch 0, iteration 0/9 | lr: 3e-05 | global_step: 0",
        "validation loss at iteration 10 | lm loss value: 1.0E+00 | lm loss PPL: 2.7E+00 |",
        "  eval_iteration ............ 10/20 | x: 1",
        "[Rank 0] rank=0 time (ms) | forward: 1.0",
        "ログの例: iteration 10/ 20 | lm loss: 1.0 |",
        "iteration 10 of 20 | lm loss: 1.0 |",
        "iteration 10/20",
        "micro_iteration 10/20 | lm loss: 1.0 |",
    ],
)
def test_similar_lines_are_not_iteration_lines(line: str) -> None:
    found = rows(parse(f"{line}\n" * 5))
    assert not [row for row in found if row["event"] in ("iteration", "timers")]


def test_glued_text_is_read_as_a_line_of_its_own() -> None:
    first = iteration_line(20).rstrip("\n")
    events = rows(parse(first + "Number of parameters in transformer block in billions:  0.44\n\n"))
    assert [row["event"] for row in events] == ["iteration", "parameters"]
    events = rows(
        parse(first + "[Rank 0] (after 20 iterations) memory (MB) | allocated: 4.5 | reserved: 8.0\n")
    )
    assert events[1]["values"] == {"allocated": 4.5, "reserved": 8.0} and events[1]["rank"] == 0
    events = rows(
        parse(
            " iteration 1/5 | GPU: 55.0MODEL_TFLOP/s/GPU[Rank 0] (after 1 iterations) memory (GB) | allocated: 2.0\n"
        )
    )
    assert events[0]["values"] == {"GPU": 55.0} and events[1]["values"] == {"allocated": 2048.0}
    events = rows(parse(first + iteration_line(30)), "iteration")
    assert [row["iteration"] for row in events] == [20, 30]
    events = rows(parse("saving checkpoint at iteration     100 to ck in torch format" + iteration_line(110)))
    assert [row["event"] for row in events] == ["checkpoint", "iteration"]


def test_a_line_that_was_wrapped_inside_a_name_is_joined() -> None:
    line = iteration_line(20).replace("skipped iterations", "skipped\niterations")
    row = one(line + "next\n", "iteration")
    assert row["values"]["number of skipped iterations"] == 0 and row["line"] == 1
    assert len(row["values"]) == 10


def test_a_line_wrapped_at_any_column_of_a_field_is_joined() -> None:
    line = iteration_line(1230).rstrip()
    whole = one(line, "iteration")
    for column in range(line.index("|") + 1, len(line)):
        assert one(f"{line[:column]}\n{line[column:]}\nnext\n", "iteration") == whole, line[:column]


@pytest.mark.parametrize("width", [52, 60, 80])
def test_a_line_wrapped_several_times_is_joined(width: int) -> None:
    line = iteration_line(1230).rstrip()
    text = "\n".join(textwrap.wrap(line, width, drop_whitespace=False, break_on_hyphens=False))
    assert one(text, "iteration") == one(line, "iteration")


def test_text_behind_the_last_bar_is_an_event_of_its_own() -> None:
    events = rows(parse(iteration_line(100).rstrip() + " loading checkpoint from ck at iteration 100\n"))
    assert [row["event"] for row in events] == ["iteration", "checkpoint"] and len(events[0]["values"]) == 10


def test_a_line_is_not_joined_with_pieces_for_ever() -> None:
    text = "iteration 1/9 | lm loss: 1.5 |\n" + "piece: 1 |\n" * 2000
    events = Parser().feed(text.encode())
    assert [type(event) for event in events] == [IterationBatch]


def test_only_the_first_line_without_a_last_field_waits_for_the_next() -> None:
    reader, line = LineReader(), b" iteration 1/9 | lm loss: 1.5 | TFLOPs: 9.5"
    assert reader.read(line, 1) == [] and len(reader.read(b"something else", 2)) == 1
    assert len(reader.read(line.replace(b"1/9", b"2/9"), 3)) == 1


def test_alike_lines_are_one_batch_of_columns() -> None:
    text = "".join(iteration_line(i, prefix="[1,15]<stdout>: ") for i in range(10, 50_000, 10))
    batches = [event for event in parse(text) if isinstance(event, IterationBatch)]
    assert sum(map(len, batches)) == 4999 and len(batches) < 20
    batch = batches[-1]
    assert batch.iterations[-1] == 49_990 and batch.ranks[0] == 15 and batch.train_iters[0] == 500_000
    assert isinstance(batch.columns["lm loss"], array) and batch.columns["global batch size"][0] == 1024
    assert [line for each in batches for line in each.lines] == list(range(1, 5000))
    assert batch.times[-1] == "2024-09-03T13:53:10" and batch.times[-2:][0] == "2024-09-03T13:53:00"


def test_only_dependent_events_end_a_batch() -> None:
    lines = [iteration_line(i) for i in range(1, 60)]
    lines[20] += "time (ms) | forward: 1.5 | backward: 2.5\n"
    lines[30] += "some words of a library\n"
    lines[35] += "saving checkpoint at iteration 36 to /ck\n"
    lines[40] += "[after training is done] datetime: 2024-09-03 15:56:55\n"
    events = parse("".join(lines))
    batches = [event for event in events if isinstance(event, IterationBatch)]
    last = [batch.iterations[-1] for batch in batches]
    assert 41 in last and not {21, 31, 36} & set(last)
    assert [event.line for event in events if isinstance(event, Timers)] == [22]
    assert [row["line"] for row in rows(events, "iteration")][-1] == 63


def test_a_new_attempt_begins_a_batch() -> None:
    text = "".join(iteration_line(i) for i in [*range(1, 40), *range(31, 60)])
    again = (
        text
        + "using world size: 2, data-parallel size: 2\n"
        + "".join(iteration_line(i) for i in range(60, 80))
    )
    batches = [event for event in parse(again) if isinstance(event, IterationBatch)]
    for batch in batches:
        assert list(batch.iterations) == sorted(set(batch.iterations))
    firsts = [batch.iterations[0] for batch in batches]
    assert 31 in firsts and 60 in firsts


def test_a_value_that_changes_its_form_keeps_every_line() -> None:
    lines = [iteration_line(i, grad="12345678901234567890123" if i == 700 else "0.5") for i in range(1, 1500)]
    lines[900] = lines[900].replace("global batch size:  1024", "global batch size:  2048")
    lines[1000] = lines[1000].replace("loss scale: 262144.0", "loss scale: 1.5x")
    found = rows(parse("".join(lines)), "iteration")
    assert [row["iteration"] for row in found] == list(range(1, 1500))
    assert found[900]["values"]["global batch size"] == 2048
    assert found[1000]["values"]["loss scale"] == 1.5
    assert found[699]["values"]["grad norm"] == 1.2345678901234568e22


def test_forms_that_alternate_are_all_read() -> None:
    lines = [
        iteration_line(i, loss=None if i % 3 else "2.5E+00", grad=None if i % 3 else "1.0", skipped=i % 2)
        for i in range(1, 3000)
    ]
    found = rows(parse("".join(lines)), "iteration")
    assert [row["iteration"] for row in found] == list(range(1, 3000))
    assert sum("lm loss" in row["values"] for row in found) == 999


def test_lines_behind_a_host_name_are_all_read() -> None:
    """pdsh, which DeepSpeed starts nodes with, puts it there; forks in bf16 print no loss scale."""
    lines = [
        f"worker-0:  iteration {i:8d}/ 1000 | consumed samples: {8 * i:12d} | lm loss: {9 - i / 100:.6E} |\n"
        for i in range(1, 300)
    ]
    found = rows(parse("".join(lines)), "iteration")
    assert [row["iteration"] for row in found] == list(range(1, 300))


@pytest.mark.parametrize(
    ("end", "values"),
    [
        (" lm loss: 1.06", {"learning rate": 2e-4}),
        (" lm loss: 1.064E+01 | grad norm: 0", {"learning rate": 2e-4, "lm loss": 10.64}),
        (" lm loss: 1.064E+01 |", {"learning rate": 2e-4, "lm loss": 10.64}),
    ],
)
def test_the_last_field_of_an_unfinished_line_is_ignored(end: str, values: dict[str, float]) -> None:
    assert one(" iteration 5/10 | learning rate: 2E-04 |" + end, "iteration")["values"] == values


@pytest.mark.parametrize(
    "text", [" iteration 5/10 | lm lo", " iteration 5/1", " validation loss at iteration 5 | lm"]
)
def test_an_iteration_line_without_a_whole_field_is_ignored(text: str) -> None:
    found = rows(parse(text))
    assert not any(row["event"] == "iteration" or row["values"] for row in found)
