"""Validation, checkpoints, milestones, arguments, parameters, memory, timers and exits, in the wording of every version."""

from __future__ import annotations

from typing import Any

import pytest
from megatron_text import one, parse, rows


@pytest.mark.parametrize(
    ("line", "iteration", "kind", "loss"),
    [
        (" validation loss at iteration 1000 | lm loss value: 4.123456E+00 | lm loss PPL: 6.177000E+01 | ", 1000, "validation", 4.123456),
        (" validation loss at iteration 40 on validation set | lm loss value: 4.0E+00 | lm loss PPL: 5.4E+01 | ", 40, "validation", 4.0),
        (" validation loss at iteration 40 on test set | lm loss value: 4.0E+00 | lm loss PPL: 5.4E+01 | ", 40, "test", 4.0),
        (" validation loss at the end of training for val data | lm loss value: 4.0E+00 | lm loss PPL: 5.4E+01 | ", None, "validation", 4.0),
        (" validation loss at the end of training for test data | lm loss value: 4.0E+00 | lm loss PPL: 5.4E+01 | ", None, "test", 4.0),
        (" validation-0 loss at iteration 10 | lm loss value: 4.0E+00 | lm loss PPL: 5.4E+01 | ", 10, "0", 4.0),
        (" validation-wiki loss at iteration 10 | lm loss value: 4.0E+00 | lm loss PPL: 5.4E+01 | ", 10, "wiki", 4.0),
        ("validation loss at iteration 12 [wiki] | lm loss value: 4.0 |", 12, "wiki", 4.0),
        ("[1,15]<stdout>:  validation loss at iteration 7 | lm loss value: 4.0E+00 | lm loss PPL: 5.4E+01 | ", 7, "validation", 4.0),
    ],
)  # fmt: skip
def test_validation(line: str, iteration: int | None, kind: str, loss: float) -> None:
    row = one(line, "validation")
    assert (row["iteration"], row["set"], row["values"]["lm loss value"]) == (iteration, kind, loss)


def test_a_nan_validation_loss_is_an_alert_and_its_perplexity_is_ignored() -> None:
    found = rows(
        parse(" validation loss at iteration 40 | lm loss value: NAN | lm loss PPL: 4.851652E+08 | ")
    )
    assert found[0]["values"] == {"lm loss value": "nan", "lm loss PPL": 4.851652e08}
    assert (found[1]["kind"], found[1]["severity"]) == ("nan-validation", "error")
    found = rows(
        parse(" validation loss at iteration 40 | lm loss value: 2.5E+01 | lm loss PPL: 4.851652E+08 | ")
    )
    assert [row.get("kind") for row in found] == [None, "perplexity-ceiling"]


@pytest.mark.parametrize(
    ("line", "action", "iteration", "path"),
    [
        ("saving checkpoint at iteration     100 to ck/a b in torch format", "saving", 100, "ck/a b"),
        ("saving checkpoint at iteration     100 to ck", "saving", 100, "ck"),
        ("[2026-01-27 16:53:38.123456] saving checkpoint at iteration     100 to ck in torch_dist format", "saving", 100, "ck"),
        ("global rank 3 is saving checkpoint at iteration     100 to ck/iter_0000100/mp_rank_00", "saving", 100, "ck/iter_0000100/mp_rank_00"),
        ("  successfully saved checkpoint at iteration     100 to ck", "saved", 100, "ck"),
        ("  successfully saved checkpoint from iteration     100 to ck", "saved", 100, "ck"),
        ("  successfully saved checkpoint from iteration     100 to ck [ t 1/2, p 1/1 ]", "saved", 100, "ck"),
        ("  [2026-01-27 16:53:38.12] successfully saved checkpoint from iteration     100 to ck [ t 1/2, gtp_remat 1/1, p 1/1 ]", "saved", 100, "ck"),
        ("  successfully saved checkpoint from iteration     100 to ck [ t 1/1, p 1/1 ] (min, max) time across ranks (ms): x ..: (1.0, 1.0)", "saved", 100, "ck"),
        ("  successfully saved local checkpoint from iteration     100", "saved", 100, ""),
        ("  successfully saved ck/iter_0000100/mp_rank_00/model_optim_rng.pt", "saved", None, "ck/iter_0000100/mp_rank_00/model_optim_rng.pt"),
        ("  scheduled an async checkpoint save at iteration     100 to ck", "queued", 100, "ck"),
        (" loading checkpoint from ck at iteration 100", "loading", 100, "ck"),
        (" loading distributed checkpoint from ck at iteration 100", "loading", 100, "ck"),
        (" loading release checkpoint from ck", "loading", None, "ck"),
        ("  successfully loaded checkpoint from ck [ t 0, p 0 ] at iteration 100", "loaded", 100, "ck"),
        ("  successfully loaded checkpoint from ck [ t 1/2, p 1/1 ] at iteration 100", "loaded", 100, "ck"),
        ("  successfully loaded checkpoint from ck at iteration 100", "loaded", 100, "ck"),
        ("WARNING: could not find the metadata file ck/latest_checkpointed_iteration.txt ", "missing", None, "ck/latest_checkpointed_iteration.txt"),
        ("could not load the checkpoint", "failed", None, "could not load the checkpoint"),
        ("ERROR: Invalid metadata file ck/x. Exiting", "failed", None, "ERROR: Invalid metadata file ck/x. Exiting"),
    ],
)  # fmt: skip
def test_checkpoints_of_every_version(line: str, action: str, iteration: int | None, path: str) -> None:
    row = one(line, "checkpoint")
    assert (row["action"], row["iteration"], row["path"]) == (action, iteration, path)


BLOCK = """\
using world size: 16, data-parallel size: 16
------------------------ arguments ------------------------
  adam_beta1 ...................................... 0.9
  load ............................................ {load}
  save ............................................ ck
  a_name_that_is_longer_than_forty_eight_characters_is  [1, 2]
  eval_iters ...................................... 10
-------------------- end of arguments ---------------------
  this_is ......................................... no argument of Megatron's: {load}
"""


def test_the_argument_block() -> None:
    found = rows(parse(BLOCK.format(load="None")), "argument")
    values = {row["name"]: row["value"] for row in found}
    assert values["adam_beta1"] == "0.9" and values["load"] == "None"
    assert values["a_name_that_is_longer_than_forty_eight_characters_is"] == "[1, 2]"


def test_gpt_neox_arguments_lose_the_word_default_or_updated() -> None:
    text = "  model_parallel_size ............. 1...........................default\n  optimizer ....................... {'type': 'Adam'}updated\n"
    assert [row["value"] for row in rows(parse(text), "argument")] == ["1", "{'type': 'Adam'}"]


@pytest.mark.parametrize(("load", "severity"), [("ck", "warning"), ("None", "warning"), ("other", "error")])
def test_a_resume_that_starts_from_random_weights_is_an_alert(load: str, severity: str) -> None:
    missing = (
        "WARNING: could not find the metadata file other/latest_checkpointed_iteration.txt \n"
        "    will not load any checkpoints and will start from random\n"
    )
    found = rows(parse(BLOCK.format(load=load) + missing), "checkpoint", "alert")
    assert [row.get("action") or row["kind"] for row in found] == ["missing", "random-weights"]
    assert found[1]["severity"] == severity and "--load" in found[1]["remedy"]


@pytest.mark.parametrize(
    ("line", "name", "time"),
    [
        ("using world size: 16, data-parallel-size: 16, tensor-model-parallel size: 1", "distributed", None),
        ("------------------------ arguments ------------------------", "arguments", None),
        ("> building GPT2BPETokenizer tokenizer ...", "tokenizer", None),
        ("> initializing torch distributed ...", "torch distributed", None),
        ("[after megatron is initialized] datetime: 2024-09-03 15:50:00 ", "initialized", "2024-09-03T15:50:00"),
        ("[after megatron is initialized] datetime: 2026-01-27 15:50:00.123456 ", "initialized", "2026-01-27T15:50:00.123456"),
        ("building GPT model ...", "model", None),
        ("> building train, validation, and test datasets ...", "datasets", None),
        ("[after dataloaders are built] datetime: 2024-09-03 15:52:40", "data", "2024-09-03T15:52:40"),
        ("[before the start of training step] datetime: 2024-09-03 15:52:43", "training", "2024-09-03T15:52:43"),
        ("[after training is done] datetime: 2024-09-03 15:52:43", "done", "2024-09-03T15:52:43"),
        (" * Serving Flask app 'megatron.inference.text_generation_server'", "server", None),
        (" * Running on http://127.0.0.1:8028", "ready", None),
    ],
)  # fmt: skip
def test_milestones(line: str, name: str, time: str | None) -> None:
    row = one(line, "milestone")
    assert (row["name"], row["time"]) == (name, time)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("Number of parameters in transformer layers in billions:  6.02", {"transformer layers": 6_020_000_000}),
        ("Number of parameters in transformer block in billions:  0.44", {"transformer block": 440_000_000}),
        ("Number of parameters in most loaded shard in billions: 6.4367", {"most loaded shard": 6_436_700_000}),
        ("Total number of parameters in billions: 6.44", {"total": 6_440_000_000}),
        (" > number of parameters on (tensor, pipeline) model parallel rank (0, 1): 6436700160", {"model parallel rank (0, 1)": 6_436_700_160}),
        (" > number of parameters on model parallel rank 0: 345", {"model parallel rank 0": 345}),
    ],
)  # fmt: skip
def test_parameters_are_counts(line: str, values: dict[str, int]) -> None:
    assert one(line, "parameters")["values"] == values


@pytest.mark.parametrize(
    ("line", "rank", "iteration", "values"),
    [
        ("[Rank 8] (after 20 iterations) memory (MB) | allocated: 48465.275390625 | max allocated: 5.5", 8, 20, {"allocated": 48465.275390625, "max allocated": 5.5}),
        ("[Rank 0] (after 2 iterations) memory (MB) | allocated: 1.25 | total device memory used: 2.50", 0, 2, {"allocated": 1.25, "total device memory used": 2.5}),
        ("after 100 iterations memory (MB) | allocated: 1.5 | cached: 3.0 | max cached: 4.0", None, 100, {"allocated": 1.5, "cached": 3.0, "max cached": 4.0}),
        ("[Rank 1] (after 5 iterations) memory (GB) | allocated: 1.5", 1, 5, {"allocated": 1536.0}),
        ("[Rank 0] (after 1 iterations) memory (GB) | mem-max-allocated-gigabytes: 1.5 | mem-alloc-retires: 0", 0, 1, {"max allocated": 1536.0}),
        ("6: [Rank 6] (after 2 iterations) memory (MB) | **max allocated: 5.5** | reserved: 7.0", 6, 2, {"max allocated": 5.5, "reserved": 7.0}),
        ("Theoretical memory footprints: weight and optimizer=46038.57 MB", None, None, {"weight and optimizer": 46038.57}),
        ("Theoretical memory footprints: weight and optimizer=2.00 GB, activation=0.50 MB, total=7.0 MB", None, None, {"weight and optimizer": 2048.0, "activation": 0.5, "total": 7.0}),
        ("Activation memory footprint per transformer layer: 153.5 MB", None, None, {"activation per transformer layer": 153.5}),
    ],
)  # fmt: skip
def test_memory_is_mebibytes(
    line: str, rank: int | None, iteration: int | None, values: dict[str, Any]
) -> None:
    row = one(line + "\n", "memory")
    assert (row["rank"], row["iteration"], row["values"]) == (rank, iteration, values)


def test_memory_reports_of_two_ranks_in_one_line() -> None:
    one_rank = "[Rank {0}] (after 1 iterations) memory (MB) | allocated: {0}.5 | max reserved: 4.0"
    found = rows(parse((one_rank.format(1) + one_rank.format(6) + "\n") * 3), "memory")
    assert [(row["rank"], row["values"]["allocated"]) for row in found] == [(1, 1.5), (6, 6.5)] * 3


def test_timers_of_every_version() -> None:
    text = (
        "(min, max) time across ranks (ms):\n"
        "    forward-backward ...............................: (1234.56, 1250.00)\n"
        "    train/valid/test-data-iterators-setup ..........: (45.67, 46.00)\n"
        "max time across ranks (ms):\n"
        "    optimizer ......................................: 45.67\n"
        "times across ranks (ms):\n"
        "  forward:\n"
        "     rank  0: 12.34\n"
        "     rank  1: 14.34\n"
        " time (ms) | forward: 1.23 | backward: 4.56\n"
    )
    assert [(row["line"], row["values"]) for row in rows(parse(text), "timers")] == [
        (1, {"forward-backward": [1234.56, 1250.0], "train/valid/test-data-iterators-setup": [45.67, 46.0]}),
        (4, {"optimizer": [45.67, 45.67]}),
        (6, {"forward": [12.34, 14.34]}),
        (10, {"forward": [1.23, 1.23], "backward": [4.56, 4.56]}),
    ]


def test_timers_below_a_prefix_on_each_line() -> None:
    text = "[1,1]<stdout>: (min, max) time across ranks (ms):\n[1,1]<stdout>:     evaluate ...: (5.0, 6.0)\n"
    row = one(text, "timers")
    assert (row["rank"], row["values"]) == (1, {"evaluate": [5.0, 6.0]})


@pytest.mark.parametrize(
    ("text", "reason", "status", "signal", "rank"),
    [
        ("[exiting program at iteration 500] datetime: 2024-09-03 15:52:43", "at iteration 500", None, None, None),
        ("[exiting program after 119.97 minutes] datetime: 2024-09-03 15:52:43", "after 119.97 minutes", None, None, None),
        ("[exiting program after receiving SIGTERM.] datetime: 2024-09-03 15:52:43", "after receiving SIGTERM", None, None, None),
        ("rank: 0 | time: 2020 | exiting the program at iteration 77", "exiting the program at iteration 77", None, None, None),
        (">>> training terminated. Returning", ">>> training terminated. Returning", None, None, None),
        ("prterun noticed that process rank 0 with PID 0 on node vm exited on\nsignal 9 (Killed).\n", "signal 9 (Killed).", None, 9, 0),
        ("   Process name: [prterun-vm-2635@1,1]\n   Exit code:    7\n", "Exit code:    7", 7, None, 1),
        ("  exitcode  : -9 (pid: 4242)", "exitcode  : -9 (pid: 4242)", None, 9, None),
        ("Killed", "Killed", None, 9, None),
        ("Aborted (core dumped)", "Aborted (core dumped)", None, 6, None),
        ("  exitcode  : 1 (pid: 4242)", "exitcode  : 1 (pid: 4242)", 1, None, None),
    ],
)  # fmt: skip
def test_exits(text: str, reason: str, status: int | None, signal: int | None, rank: int | None) -> None:
    row = one(text, "exit")
    assert (row["reason"], row["status"], row["signal"], row["rank"]) == (reason, status, signal, rank)


def test_a_log_of_rank_0_alone_says_where_the_iteration_lines_are() -> None:
    text = (
        "using world size: 16, data-parallel size: 16\n"
        "[before the start of training step] datetime: 2024-09-03 15:52:43\n"
        "[Rank 0] (after 20 iterations) memory (MB) | allocated: 1.5\n"
        "saving checkpoint at iteration     100 to ck in torch format\n"
    )
    row = one(text, "alert")
    assert row["kind"] == "no-iteration-lines" and "last node" in row["remedy"]
    started = text.splitlines()[:2]
    assert not rows(parse("\n".join(started)), "alert"), "a run that has only started has none yet"


def test_deepspeed_reports_a_minimal_loss_scale() -> None:
    text = "[2021-01-26 22:05:35,108] [INFO] [fused_optimizer.py:316:_update_scale] Reducing dynamic loss scale from {} to {}\n"
    lines = [text.format(a, b) for a, b in ((4, 2), (2, 1), (1, 1), (1, 1))]
    assert [row["line"] for row in rows(parse("".join(lines)), "alert")] == [3], (
        "it is repeated at every step"
    )
