"""Bytes become clean lines, and the prefixes of launchers give the rank."""

from __future__ import annotations

import json

import pytest
from megatron_text import iteration_line, one, parse, rows

from backends.megatron.lines import CLIPPED, LINE_LIMIT, LineSplitter, decode, strip_prefixes, unwrapped

PREFIXES = [
    ("[1,15]<stdout>:", 15),
    ("[1,15]<stdout>: ", 15),
    ("[1,3]<stderr>: ", 3),
    ("[prterun-node1-4242@1,15][node1:4300]<stdout>:", 15),
    ("[prterun-node1-4242@1,7]<stdout>:", 7),
    ("[Mon Nov 30 03:29:07 2026][1,15]<stdout>: ", 15),
    ("[15]<stdout>: ", 15),
    ("15:", 15),
    ("[default3]:", 3),
    ("[rank12]: ", 12),
    ("15: ", 15),
    ("  3: ", 3),
    ("[1,15]<stdout>: [rank15]: ", 15),
    ("2026-05-18T12:51:27.12Z stdout F ", None),
    ("2026-05-18T12:51:27.12+09:00 stderr F [1,2]<stdout>: ", 2),
    ("INFO:megatron.core.num_microbatches_calculator:", None),
    ("[1,4]<stdout>: WARNING:megatron.core.utils:", 4),
    ("[gpu0137:3]:", 3),
    ("(MegatronActor pid=41203, ip=10.9.8.7) ", None),
    ("[20251121 12:10:29][rank-31/32][INFO ] [--------trainer.py:2488] : ", 31),
    ("[2025-02-11 04:17:01,123] [INFO] [training.py:96:log] [Rank 7] ", 7),
    ("[Rank 3 | Local Rank 3] 2025-02-11 04:17:01 INFO [megatron.train_engine:48] => ", 3),
    ("[2025-02-11 04:17:01.287338][INFO][training_log:661] - ", None),
    ("[NeMo I 2025-02-11 04:17:01 nemo_logging:393] ", None),
    ("[pod/llm-worker-3/pytorch] ", None),
    ("pretrain_8b/0 ", None),
    ("trainer-1  | ", None),
    ("node07: ", None),
    ("10.0.0.3: ", None),
    ("Nov 30 11:12:13 ", None),
    ("Feb 11 04:17:01 gpu07 train.sh[4711]: ", None),
    ("1732965133.123456 ", None),
    ("2025-02-11T04:17:01.123456789Z ", None),
    ("2025-02-11 04:17:01,123 - INFO - ", None),
    ("2025-02-11 04:17:01,123 INFO training: ", None),
    ("2025-02-11 04:17:01.123 | INFO     | trainer:log:88 - ", None),
]
JOB = f"""using world size: 32, data-parallel size: 32
{"-" * 24} arguments {"-" * 24}
  seq_length ...................................... 4096
{"-" * 20} end of arguments {"-" * 21}
{iteration_line(20)}saving checkpoint at iteration      20 to /ckpt/a in torch_dist format
  successfully saved checkpoint from iteration      20 to /ckpt/a [ t 1/1, p 1/1 ]
(min, max) time across ranks (ms):
    save-checkpoint ................................: (1234.50, 1250.00)
 validation loss at iteration 20 | lm loss value: 3.000000E+00 | lm loss PPL: 2.008554E+01 |
Traceback (most recent call last):
  File "/w/pretrain_gpt.py", line 300, in <module>
    raise ValueError(x)
ValueError: x
"""


@pytest.mark.parametrize(("prefix", "rank"), PREFIXES)
def test_a_prefix_is_removed_and_gives_the_rank(prefix: str, rank: int | None) -> None:
    text, found = strip_prefixes(prefix + "successfully done")
    assert (text.strip(), found) == ("successfully done", rank)


@pytest.mark.parametrize(("prefix", "rank"), PREFIXES)
def test_an_iteration_line_is_read_behind_every_prefix(prefix: str, rank: int | None) -> None:
    row = one(iteration_line(20, prefix=prefix), "iteration")
    assert (row["rank"], row["iteration"], row["values"]["lm loss"]) == (rank, 20, 3.212345)


@pytest.mark.parametrize("prefix", [*(prefix for prefix, _ in PREFIXES), "> ", "   123\t", "704.7s\t1461\t"])
def test_a_whole_job_is_read_behind_every_prefix(prefix: str) -> None:
    plain = [(row["event"], row["line"]) for row in rows(parse(JOB))]
    found = rows(parse("".join(prefix + line + "\n" for line in JOB.splitlines())))
    assert [(row["event"], row["line"]) for row in found] == plain
    assert {row["name"]: row["value"] for row in found if row["event"] == "argument"} == {
        "seq_length": "4096"
    }


@pytest.mark.parametrize("key", ["log", "message"])
def test_json_of_log_collectors_is_unwrapped(key: str) -> None:
    text = "".join(
        json.dumps({key: line + "\n", "stream": "stdout", "time": f"2025-02-11T04:17:0{n % 9}Z"}) + "\n"
        for n, line in enumerate(JOB.splitlines())
    )
    assert rows(parse(text)) == rows(parse(JOB))


@pytest.mark.parametrize("text", ['{"loss": 3}', '{"log": 3}', '{"log": "x', '{"a":' + "[" * 9000])
def test_other_json_is_left_alone(text: str) -> None:
    assert unwrapped(text.encode()) == text.encode()


@pytest.mark.parametrize(
    "text",
    [
        "[INFO     | DotProductAttention]: x",
        "12 dogs",
        "[2024] x",
        "3:4",
        " iteration",
        "> building GPT2BPETokenizer tokenizer ...",
        "[Rank 4] Watchdog caught",
        "[gpu01:04711] *** Process",
        "[Rank 0] (after 10 iterations) memory (MB) | a: 1",
        "ERROR: Invalid metadata file",
        "job7.sh: line 3: x",
    ],
)
def test_text_that_only_resembles_a_prefix_stays(text: str) -> None:
    assert strip_prefixes(text) == (text, None)


def test_torchs_own_warnings_keep_their_rank_prefix() -> None:
    text, _ = strip_prefixes("[rank1]:[W1019 08:16:22.418489772 ProcessGroupNCCL.cpp:1477] Warning: x")
    assert text.startswith("[rank1]:[W1019")


def test_colours_progress_bars_and_broken_text_are_cleaned() -> None:
    assert decode(b"\x1b[31m\x1b[1mred\x1b[0m \x1b]0;title\x07end") == "red end"
    assert decode(b" 10%|#\r 20%|##\r done\r") == " done"
    assert decode(b"\xef\xbb\xbffirst") == "first"
    assert decode(b"caf\xc3\xa9 \xff\xfe") == "café ��"


def test_a_long_progress_bar_does_not_hide_the_next_line() -> None:
    bar = b"".join(b"\r%d%%|####" % i for i in range(50_000))
    row = one(bar + b"\r" + iteration_line(20).encode(), "iteration")
    assert row["iteration"] == 20 and row["line"] == 1


def test_a_long_line_is_clipped_whether_it_comes_whole_or_in_pieces() -> None:
    line = b"x" * (3 * LINE_LIMIT)
    splitter, seen = LineSplitter(), b""
    for start in range(0, len(line), 10_000):
        seen += splitter.feed(line[start : start + 10_000])
    (end,) = [splitter.feed(b"\nnext\n")]
    assert decode((seen + end).split(b"\n")[0]) == decode(line) == "x" * LINE_LIMIT + CLIPPED
    assert (seen + end).endswith(b"\nnext\n")


def test_windows_line_ends_are_line_ends() -> None:
    text = "".join(iteration_line(i) for i in range(1, 40)).replace("\n", "\r\n")
    assert [row["iteration"] for row in rows(parse(text), "iteration")] == list(range(1, 40))


def test_a_last_line_without_a_newline_is_read() -> None:
    assert one(iteration_line(7).rstrip("\n"), "iteration")["iteration"] == 7
