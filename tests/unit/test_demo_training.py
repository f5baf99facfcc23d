"""The demo really trains: its losses depend on data and rate, a resume is exact, what it logs can be recomputed."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from backends.demo import arguments, checkpoint, corpus, model, sampling, train
from backends.demo.collective import Alone, Collective
from backends.megatron.event_json import unroll
from backends.megatron.parser import Parser

SMALL = [
    "--split",
    "80,10,10",
    "--num-layers",
    "1",
    "--hidden-size",
    "16",
    "--num-attention-heads",
    "2",
    "--seq-length",
    "16",
    "--micro-batch-size",
    "2",
    "--global-batch-size",
    "4",
    "--log-interval",
    "1",
    "--eval-interval",
    "3",
    "--eval-iters",
    "2",
    "--lr",
    "1e-2",
    "--train-iters",
    "6",
]
WORDS = ["the cat sat on the mat", "a dog ran over the hill", "rain fell on the roof", "ships sail at dawn"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus.jsonl", WORDS)


def write_corpus(path: Path, words: list[str]) -> Path:
    path.write_text(
        "".join(json.dumps({"text": f"{word} {i}. " * 8}) + "\n" for i in range(10) for word in words)
    )
    return path


def parsed(*words: str | Path) -> argparse.Namespace:
    args = arguments.parser("").parse_args([*SMALL, *map(str, words)])
    assert arguments.complete(args, 1) is None
    return args


def run(args: argparse.Namespace, ranks: Collective | None = None) -> list[dict]:
    """The events of a whole run in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        train.Trainer(args, ranks or Alone()).run()
    log = Parser()
    return [row for event in [*log.feed(out.getvalue().encode()), *log.finish()] for row in unroll(event)]


def losses(rows: list[dict]) -> list[float]:
    return [row["values"]["lm loss"] for row in rows if row["event"] == "iteration"]


def test_the_log_reads_as_megatrons(text: Path, tmp_path: Path) -> None:
    rows = run(parsed("--data-path", text, "--save", tmp_path / "ck", "--save-interval", "3"))
    kinds = {row["event"] for row in rows}
    assert {
        "milestone",
        "argument",
        "iteration",
        "parameters",
        "memory",
        "timers",
        "validation",
        "checkpoint",
    } <= kinds
    assert [row["iteration"] for row in rows if row["event"] == "iteration"] == [1, 2, 3, 4, 5, 6]
    assert [(row["action"], row["iteration"]) for row in rows if row["event"] == "checkpoint"] == [
        ("saving", 3),
        ("saved", 3),
        ("saving", 6),
        ("saved", 6),
    ]
    assert {row["name"] for row in rows if row["event"] == "milestone"} >= {
        "arguments",
        "distributed",
        "model",
        "data",
        "training",
        "done",
    }
    assert [row["set"] for row in rows if row["event"] == "validation"] == [
        "validation",
        "validation",
        "test",
    ]


def test_the_loss_falls_and_without_a_rate_it_stays(text: Path) -> None:
    learning = losses(run(parsed("--data-path", text, "--train-iters", "40")))
    assert np.mean(learning[-5:]) < np.mean(learning[:5]) - 0.5
    trainer = train.Trainer(parsed("--data-path", text, "--lr", "0"), Alone())
    with contextlib.redirect_stdout(io.StringIO()):
        before = {name: array.copy() for name, array in trainer.weights.items()}
        trainer.run()
    assert all(np.array_equal(trainer.weights[name], array) for name, array in before.items())


def test_another_corpus_gives_another_curve(text: Path, tmp_path: Path) -> None:
    other = write_corpus(tmp_path / "other.jsonl", ["0123456789", "9876543210", "5555", "13579"])
    assert losses(run(parsed("--data-path", text))) != losses(run(parsed("--data-path", other)))


def test_a_resume_is_exact(text: Path, tmp_path: Path) -> None:
    whole = losses(run(parsed("--data-path", text)))
    first = parsed("--data-path", text, "--save", tmp_path / "ck", "--exit-interval", "3")
    head = losses(run(first))
    rows = run(parsed("--data-path", text, "--save", tmp_path / "ck", "--load", tmp_path / "ck"))
    assert any(
        row["event"] == "checkpoint" and row["action"] == "loaded" and row["iteration"] == 3 for row in rows
    )
    assert head + losses(rows) == whole


def test_the_logged_validation_loss_is_that_of_the_checkpoint(text: Path, tmp_path: Path) -> None:
    args = parsed("--data-path", text, "--save", tmp_path / "ck", "--save-interval", "6")
    logged = [row for row in run(args) if row["event"] == "validation"][1]["values"]["lm loss value"]
    state = checkpoint.load(tmp_path / "ck", 6)
    _, tokens, _ = corpus.split_tokens(corpus.tokenize(corpus.documents(str(text))), args.split)
    shape = model.Shape(1, 16, 2, 16, args.padded_vocab_size)
    assert train.evaluation_loss(state.weights, shape, tokens, "validation", args) == pytest.approx(
        logged, rel=1e-6
    )


class Two:
    """Two ranks as two threads."""

    def __init__(self, rank: int, barrier: threading.Barrier, table: list[np.ndarray]) -> None:
        self.rank, self.size = rank, 2
        self._barrier, self._table = barrier, table

    def mean(self, values: np.ndarray) -> np.ndarray:
        self._table[self.rank] = values
        self._barrier.wait(20)
        total = (self._table[0] + self._table[1]) / 2
        self._barrier.wait(20)
        return total

    def any(self, flag: bool) -> bool:
        return bool(self.mean(np.array([float(flag)]))[0] > 0)

    def barrier(self) -> None:
        self._barrier.wait(20)


def test_two_ranks_follow_the_losses_of_one(text: Path) -> None:
    alone = losses(run(parsed("--data-path", text)))
    barrier, table = threading.Barrier(2), [np.zeros(0), np.zeros(0)]
    trainers = []
    for rank in range(2):
        args = arguments.parser("").parse_args([*SMALL, "--data-path", str(text)])
        assert arguments.complete(args, 2) is None
        trainers.append(train.Trainer(args, Two(rank, barrier, table)))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        threads = [threading.Thread(target=trainer.run) for trainer in trainers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    found = [
        float(line.split("lm loss: ")[1].split()[0])
        for line in out.getvalue().splitlines()
        if "lm loss: " in line and "iteration " in line
    ]
    assert found == pytest.approx(alone, rel=1e-6)


def test_another_shape_or_schedule_is_refused_in_megatrons_words(text: Path, tmp_path: Path) -> None:
    run(parsed("--data-path", text, "--save", tmp_path / "ck"))
    with pytest.raises(
        checkpoint.CheckpointError, match=r"num_layers value from checkpoint \(1\) is not equal"
    ):
        run(parsed("--data-path", text, "--load", tmp_path / "ck", "--num-layers", "2"))
    with pytest.raises(checkpoint.CheckpointError, match="OptimizerParamScheduler: class input value"):
        run(parsed("--data-path", text, "--load", tmp_path / "ck", "--train-iters", "9"))
    assert (
        len(
            losses(
                run(
                    parsed(
                        "--data-path",
                        text,
                        "--load",
                        tmp_path / "ck",
                        "--train-iters",
                        "9",
                        "--override-opt_param-scheduler",
                    )
                )
            )
        )
        == 3
    )


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 torn", bytes(1000)])
def test_a_damaged_checkpoint_is_a_sentence(text: Path, tmp_path: Path, damage: bytes) -> None:
    run(parsed("--data-path", text, "--save", tmp_path / "ck"))
    checkpoint.file_of(tmp_path / "ck", 6).write_bytes(damage)
    with pytest.raises(checkpoint.CheckpointError, match="could not load the checkpoint"):
        checkpoint.load(tmp_path / "ck", 6)
    (tmp_path / "ck" / checkpoint.TRACKER).write_text("")
    with pytest.raises(checkpoint.CheckpointError, match="error parsing metadata file"):
        checkpoint.tracked_iteration(tmp_path / "ck")


def test_greedy_answers_and_logprobs_are_those_of_the_weights(text: Path, tmp_path: Path) -> None:
    run(parsed("--data-path", text, "--save", tmp_path / "ck", "--save-interval", "3"))
    shape = model.Shape(1, 16, 2, 16, 384)
    answers = []
    for iteration in (3, 6):
        weights = checkpoint.load(tmp_path / "ck", iteration).weights
        found = sampling.generate(weights, shape, sampling.encode("the "), sampling.Sampling(8, top_k=1))
        table = np.asarray(model.log_probabilities(weights, np.array([found.tokens[:-1]]), shape))[0]
        assert found.tokens[4:] == [int(np.argmax(row[: corpus.VOCABULARY])) for row in table[3:]]
        assert found.logprobs == pytest.approx([table[i, token] for i, token in enumerate(found.tokens[1:])])
        answers.append(found.logprobs)
    assert answers[0] != answers[1]  # two checkpoints answer differently


def test_term_saves_and_exits_with_status_0(text: Path, tmp_path: Path) -> None:
    words = [
        *SMALL,
        "--train-iters",
        "100000",
        "--data-path",
        str(text),
        "--save",
        str(tmp_path / "ck"),
        "--exit-signal-handler",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "backends.demo.train", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if " iteration " in line)
        os.kill(process.pid, signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(30) == 0
    assert "[exiting program after receiving SIGTERM.] datetime:" in rest
    iteration = checkpoint.tracked_iteration(tmp_path / "ck")
    assert iteration is not None and checkpoint.load(tmp_path / "ck", iteration).iteration == iteration


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--num-attention-heads", "3"], 1, "is not divisible by number of attention heads (3)"),
        (["--global-batch-size", "5"], 1, "global batch size (5) is not divisible by micro batch size (2)"),
        (["--no-such-flag"], 2, "unrecognized arguments: --no-such-flag"),
        (["--data-path", "/nonexistent.jsonl"], 1, "No such file"),
    ],
)
def test_bad_arguments_are_sentences(words: list[str], status: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "backends.demo.train", *SMALL, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert said in done.stderr and "Traceback" not in done.stderr
