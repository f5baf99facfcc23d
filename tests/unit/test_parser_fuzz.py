"""No bytes make the parser raise, and neither chunks nor fast paths change the events."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from megatron_text import as_set, iteration_line, parse, parse_in_pieces, parse_line_by_line, troubled_log

from backends.megatron.event_json import in_order, json_lines
from backends.megatron.events import IterationBatch
from backends.megatron.known_errors import KNOWN_ERRORS
from backends.megatron.parser import Parser
from backends.megatron.plain_events import RULES
from backends.megatron.triggers import may_mean_something

FRAGMENTS = [
    b"\n", b"\r", b"\r\n", b"\x1b[31m", b"\x1b]0;t", b"\xff\xfe", b"\0", b" | ", b"|", b": ", b"[1,3]<stdout>: ", b"[rank0]: ",
    b" iteration       10/  500000 |", b" iteration 99999999999999999999/ 5 | x: 1 |", b" lm loss: NAN |", b" lm loss: 1_0 |",
    b" x: 99999999999999999999999999 |", b" y: 1e999 |", b" grad norm: -inf |", b" t (s): 1.5 |", b" t (s): x |", b" u: 1/0 |",
    b" number of skipped\niterations: 0 |", b" number of nan iterations:   0 |", b"[2024-09-03 15:56:55] ", b"[2024-99-99 99:99:99] ",
    b"Traceback (most recent call last):", b"  File \"x\", line 1\n", b"ValueError: x\n", b"AssertionError\n", b"KeyboardInterrupt\n",
    b"During handling of the above exception, another exception occurred:\n", b"using world size: 8, \n", b"Process name: [x@1,3]\n",
    b"(min, max) time across ranks (ms):\n", b"    forward ....: (1.0, 2.0)\n", b"    forward ....: (1..0, 2.0)\n", b"time (ms) | a: 1 | b: x\n",
    b"------------------------ arguments ------------------------\n", b"  load ......... ck\n", b"  name  value\n",
    b" validation loss at iteration 5 | lm loss value: 4.8E+99 | lm loss PPL: x |\n", b"saving checkpoint at iteration 5 to \xff\n",
    b"[Rank 0] (after 5 iterations) memory (GB) | allocated: 1.5.5 | x\n", b"Total number of parameters in billions: 1.2.3\n",
    b"Exit code:    1\n", b"signal 9 (Killed).\n", b"will not load any checkpoints and will start from random\n",
    *(b"%s\n" % " ".join(row.phrases[0]).encode() for row in KNOWN_ERRORS),
    *(iteration_line(i, skipped=i % 2).encode() for i in (1, 2, 3, 4, 2)),
]  # fmt: skip


@given(st.binary(max_size=3000))
def test_random_bytes_never_raise(data: bytes) -> None:
    assert as_set(parse(data)) == as_set(parse_line_by_line(data.replace(b"\r\n", b"\n")))


@given(st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=20), max_size=60), st.integers(0, 2**32))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_scrambled_logs_never_raise_and_chunks_do_not_matter(parts: list[bytes], seed: int) -> None:
    data, r = b"".join(parts), random.Random(seed)
    whole = as_set(parse(data))
    assert as_set(parse_in_pieces(data, lambda: r.randrange(1, 40))) == whole
    assert as_set(parse_line_by_line(data.replace(b"\r\n", b"\n"))) == whole


def test_a_cut_at_any_position_gives_the_same_events() -> None:
    data = b"".join(
        [
            *(iteration_line(i).encode() for i in range(1, 3)),
            b"50%|\xe2\x96\x88\r\x1b[32m 100%|\r\n",
            b"(min, max) time across ranks (ms):\r\n    evaluate ....: (1.0, 2.0)\r\n",
            iteration_line(6)[:-1].encode() + b"Number of parameters in embedding layers in billions: 0.41\n",
            b"[rank0]: Traceback (most recent call last):\n[rank0]: ValueError: caf\xc3\xa9\n",
        ]
    )
    expected = as_set(parse(data))
    assert len(expected) == 6
    for at in range(1, len(data)):
        sizes = iter((at, len(data)))
        assert as_set(parse_in_pieces(data, lambda sizes=sizes: next(sizes))) == expected, at


@pytest.mark.parametrize("seed", range(6))
def test_troubled_logs_read_as_columns_give_the_events_of_their_lines(seed: int) -> None:
    data, r = troubled_log(seed), random.Random(seed)
    expected = as_set(parse_line_by_line(data.replace(b"\r\n", b"\n")))
    assert as_set(parse(data)) == expected
    assert as_set(parse_in_pieces(data, lambda: r.randrange(1, 5000))) == expected


def test_an_endless_line_takes_bounded_memory() -> None:
    data = bytes(random.Random(1).randrange(256) for _ in range(70_000)).replace(b"\n", b"")
    assert parse(data * 3) == []


def test_timer_lines_between_iteration_lines_give_the_events_of_their_lines() -> None:
    parts: list[str] = []
    for i in range(1, 2000):
        parts += [
            iteration_line(i),
            f"time (ms) | forward: {i}.{i % 90:02d} | backward-params: {i / 7:.2f} | x: {i}\n",
        ]
        if i % 100 == 0:
            parts.append(f"time (ms) | forward: {i}.0 | other: nan | x: {i}\n" if i % 200 else "Bus error\n")
    data = "".join(parts).encode()
    expected = as_set(parse_line_by_line(data))
    assert as_set(parse(data)) == expected
    assert as_set(parse_in_pieces(data, lambda: 5000)) == expected


@pytest.mark.parametrize("digits", [18, 19, 400, 5000])
def test_numbers_of_any_length_never_raise(logs: Path, digits: int) -> None:
    """Python refuses to read integers of more than 4300 digits."""
    lines = [json.loads(line)["line"] for line in (logs / "wild.jsonl").read_text().splitlines()]
    lines += (logs / "2xh200-no-data.log").read_text().splitlines()[-12:]
    lines += [
        "[1,5]<stdout>: x",
        "[x@1,5][n]<stdout>: x",
        "[rank5]: x",
        "5: x",
        "  exitcode  : -5 (pid: 5)",
        "Process name: [x@1,5]",
    ]
    for line in lines:
        for number in set(re.findall(r"\d+", line)):
            hostile = re.sub(rf"\b{number}\b", "9" * digits, line).encode()
            assert as_set(parse((hostile + b"\n") * 6)) == as_set(parse_line_by_line((hostile + b"\n") * 6))


@pytest.mark.parametrize(
    "prefix", ["", "[1,15]<stdout>: ", "[rank3]: ", "[Mon Nov 30 03:29:{:02d} 2026][1,3]<stdout>: "]
)
def test_timer_blocks_behind_prefixes_give_the_events_of_their_lines(prefix: str) -> None:
    parts: list[str] = []
    for i in range(1, 500):
        block = [
            iteration_line(i).rstrip("\n"),
            "(min, max) time across ranks (ms):",
            f"    forward-backward ...............................: ({i}.56, {i}.78)",
            f"    optimizer ......................................: (45.{i % 90:02d}, 46.00)",
        ]
        if i % 50 == 0:
            block.append("    optimizer ......................................: (broken)")
        parts += [f"{prefix.format(i % 60)}{line}\n" for line in block]
    data = "".join(parts).encode()
    expected = as_set(parse_line_by_line(data))
    assert len(expected) == 2 * 499
    assert as_set(parse(data)) == expected
    assert as_set(parse_in_pieces(data, lambda: 4000)) == expected


def test_a_timer_block_that_is_cut_after_its_first_rows_is_read_whole() -> None:
    block = (
        "(min, max) time across ranks (ms):\n    forward ....: (1.0, 2.0)\n    backward ....: (3.0, 4.0)\n"
    )
    data = "".join(iteration_line(i) + block for i in range(1, 60)).encode()
    expected = as_set(parse_line_by_line(data))
    for size in range(300, 600, 7):
        assert as_set(parse_in_pieces(data, lambda size=size: size)) == expected, size


def test_colours_do_not_slow_or_change_what_lines_say() -> None:
    lines = [iteration_line(i).rstrip("\n") for i in range(1, 400)]
    coloured = "".join(f"\x1b[32m{line}\x1b[0m\n" for line in lines).encode()
    plain = "".join(f"{line}\n" for line in lines).encode()
    assert as_set(parse(coloured)) == as_set(parse(plain)) == as_set(parse_line_by_line(coloured))
    longest = max(len(event) for event in parse(coloured) if isinstance(event, IterationBatch))
    assert longest > 300


def test_every_known_error_and_rule_has_a_trigger_word() -> None:
    for row in (row for row in KNOWN_ERRORS if not row.raised):
        for pieces in row.phrases:
            assert may_mean_something(" x ".join(pieces).encode()), pieces
    for words, _, _ in RULES:
        assert may_mean_something(words.encode()), words
    assert not may_mean_something(b"node1:42:43 [3] NCCL INFO Channel 00/0 : 3[3] -> 4[4] via P2P/CUMEM/read")


def test_noise_is_recognised_whatever_its_numbers_and_addresses() -> None:
    """Also that nothing meaningful hides behind such a form."""
    noise = b"".join(b"node1:%d comm 0x%06x nranks 64 - Init\n" % (i, 977 * i) for i in range(1000))
    tail = b"Exit code:    1\nBus error\n"
    events = parse(noise + tail)
    assert [type(event).__name__ for event in events] == ["Exit", "Error"]
    assert [event.line for event in events] == [1001, 1002]


AGAIN = [
    "-----\n validation loss at iteration # | lm loss value: #.#E+00 | lm loss PPL: #.#E+01 | \n-----\n",
    "(min, max) time across ranks (ms):\n    evaluate ....: (#.#, #.#)\n validation loss at iteration # | x: #.# |\n",
    "validation loss at iteration # | lm loss value: NAN | lm loss PPL: 4.851652E+08 | \n",
    "saving checkpoint at iteration # to ck/# in torch format\n  successfully saved checkpoint from iteration # to ck/#\n",
    "[Rank #] (after # iterations) memory (MB) | allocated: #.# | max allocated: #.#\n",
    "time (ms) | forward: #.# | backward: #.#\n    optimizer ....: (#.#, #.#)\n",
    "validation loss at iteration #/# | x: # |\n",
    "[after training is done] datetime: ##-#-# 15:56:55\n",
    "a word # or two\nExit code: #\n",
    "WARNING: could not load the checkpoint #\nReducing dynamic loss scale from # to #\n",
]


@pytest.mark.parametrize("prefix", ["", "[1,#]<stdout>: "])
@pytest.mark.parametrize("seed", range(3))
def test_repeated_gaps_give_the_events_of_their_lines(seed: int, prefix: str) -> None:
    """Only its numbers differ, in their values and lengths."""
    r = random.Random(seed)
    numbers = ["0", "1", "7", "42", "2024", "09", "16777216", "9" * 17, "9" * 18, "9" * 19]
    parts: list[str] = []
    for i in range(1, 1200):
        text = iteration_line(i if r.random() < 0.99 else r.randrange(1200))
        text += r.choice(AGAIN) if r.random() < 0.3 else ""
        lines = [prefix + line for line in text.splitlines(keepends=True)]
        parts.append(re.sub("#", lambda _: r.choice(numbers), "".join(lines)))
    data = "".join(parts).encode()
    expected = as_set(parse_line_by_line(data))
    assert as_set(parse(data)) == expected
    assert as_set(parse_in_pieces(data, lambda: r.randrange(1, 9000))) == expected


def test_lines_of_alternating_ranks_share_batches() -> None:
    """Only an iteration that the same rank prints again, or that falls, begins another attempt."""
    order = [(i, rank) for i in range(1, 400) for rank in (0, 1, 15)]
    order += [(i, rank) for i in (399, *range(350, 380)) for rank in (15, 0)]
    data = "".join(iteration_line(i, prefix=f"[1,{rank}]<stdout>: ") for i, rank in order).encode()
    batches = [event for event in parse(data) if isinstance(event, IterationBatch)]
    assert as_set(batches) == as_set(parse_line_by_line(data))
    assert [
        (i, rank) for batch in batches for i, rank in zip(batch.iterations, batch.ranks, strict=True)
    ] == order
    assert max(map(len, batches)) > 1000


def test_json_lines_are_the_objects_of_the_events() -> None:
    for seed in range(3):
        data = troubled_log(seed)
        parser = Parser()
        events = [*parser.feed(data), *parser.finish()]
        assert [json.loads(line) for line in json_lines(events)] == json.loads(json.dumps(in_order(events)))


@pytest.mark.parametrize(
    "odd", ["007.5", "-00.5", "+1.5", ".5", "5.", "1_0.5", "1e5", "1E999", "nan", "-inf", "-0.0", "12345678901234567890.5"]
)  # fmt: skip
def test_numbers_that_are_no_json_are_rewritten(odd: str) -> None:
    for some in ("0.765", "47.021", "10.5"):
        data = "".join(iteration_line(i, grad=odd if i % 100 == 0 else some) for i in range(1, 400)).encode()
        events = parse(data)
        assert [json.loads(line) for line in json_lines(events)] == json.loads(json.dumps(in_order(events)))
        assert as_set(events) == as_set(parse_line_by_line(data))


@pytest.mark.parametrize("prefix", ["", "[Mon Nov 30 03:29:{:02d} 2026][1,3]<stdout>: "])
@pytest.mark.parametrize(
    "timers",
    [
        "(min, max) time across ranks (ms):\n    layer-2 ....: ({0}.5, {0}.75)\n    optimizer ....: (7, 8.0)",
        "max time across ranks (ms):\n    forward ....: {0}.50",
        "times across ranks (ms):\n  forward:\n     rank  0: 12.34\n     rank  1: {0}.34",
        "time (ms) | forward: {0} | x-1: 0.50 | 100%: 2.0",
        "time (ms) | forward: {0} | forward: 9.5",
        "time (ms) | forward: 00{0} | other: 123456789012345678.0",
    ],
)
def test_json_lines_of_timers_are_the_objects_of_the_timers(timers: str, prefix: str) -> None:
    parts = [iteration_line(i) + timers.format(i) + "\n" for i in range(1, 60)]
    lines = [prefix.format(i % 60) + line for i, line in enumerate("".join(parts).splitlines(keepends=True))]
    events = parse("".join(lines))
    found = [json.loads(line) for line in json_lines(events)]
    assert found == json.loads(json.dumps(in_order(events)))
    assert [row["event"] for row in found] == ["iteration", "timers"] * 59
