"""The demo really trains: its losses depend on data and rate, a resume is exact, what it logs can be recomputed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from demo_runs import (
    SMALL,
    arguments,
    events,
    losses,
    of_kind,
    printed,
    run,
    run_ranks,
    write_corpus,
)

from backends.demo import checkpoint, corpus, model
from backends.demo.arguments import ArgumentError, read_arguments
from backends.demo.checkpoint import CheckpointError
from backends.demo.collective import Alone, announced_ranks
from backends.demo.trainer import DivergedError, Trainer
from backends.models.presets import TINY

# What core_r0.8.0 does not print: our data set, our type of parameters.
OWN_LINES = ("> total number of", "using torch.float32")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ck"


def start(*words: str | Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "backends.demo.train", *SMALL, *map(str, words)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def status_and_error(*words: str | Path) -> tuple[int, str]:
    with start(*words) as process:
        _, error = process.communicate(timeout=300)
    return process.returncode, error


# Its words are Megatron-LM's


def form(line: str) -> str:
    """A line without its numbers, folders and widths."""
    return re.sub(r" +", " ", re.sub(r"[\d.]+(E[+-]\d+)?|-{9,}", "9", line)).strip()


def test_its_lines_have_the_form_of_a_real_log(
    text: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(text.parent)
    real = (logs / "h200-core_r0.8.0-train.log").read_text().replace("GPT2BPETokenizer", "BytePairTokenizer")
    folders = ("--data-path", text, "--save", "ck", "--load", "ck")
    args = arguments(*folders, "--log-throughput", "--save-interval", "4", "--lr-decay-style", "cosine")
    text_of_run = printed(args)
    forms = {form(line) for line in real.splitlines()}
    own = [line for line in text_of_run.splitlines() if not re.match(r"  \w+ \.+ ", line)]
    strange = [line for line in own if form(line) not in forms and not line.startswith(OWN_LINES)]
    assert strange == []


def test_the_argument_block_is_aligned_as_megatrons(text: Path) -> None:
    block = [
        line for line in printed(arguments("--data-path", text)).splitlines() if re.match(r"  \w+ \.+ ", line)
    ]
    assert {line.index(". ") for line in block} == {50}
    assert (
        block == sorted(block, key=str.lower)
        and "  lr .............................................. 0.01" in block
    )


def test_the_parser_finds_everything_in_its_log(text: Path, folder: Path) -> None:
    rows = run("--data-path", text, "--save", folder, "--save-interval", "4")
    assert [row["iteration"] for row in of_kind(rows, "iteration")] == [1, 2, 3, 4, 5, 6]
    saved = [(row["action"], row["iteration"]) for row in of_kind(rows, "checkpoint")]
    assert saved == [("saving", 4), ("saved", 4), ("saving", 6), ("saved", 6)]
    milestones = {row["name"] for row in of_kind(rows, "milestone")}
    assert milestones >= {"arguments", "distributed", "model", "data", "training", "done"}
    assert [row["set"] for row in of_kind(rows, "validation")] == [
        "validation",
        "validation",
        "validation",
        "test",
    ]
    assert of_kind(rows, "parameters") and of_kind(rows, "memory") and of_kind(rows, "timers")
    assert (folder / checkpoint.TRACKER).read_text() == "6"


# It learns


def test_the_loss_falls_and_without_a_rate_it_stays(text: Path) -> None:
    learning = losses(run("--data-path", text, "--train-iters", "60"))
    assert np.mean(learning[-5:]) < np.mean(learning[:5]) - 1
    still = run("--data-path", text, "--train-iters", "60", "--lr", "0")
    assert abs(np.mean(losses(still)[-20:]) - np.mean(losses(still)[:20])) < 0.1
    validations = [
        row["values"]["lm loss value"] for row in of_kind(still, "validation") if row["set"] == "validation"
    ]
    assert len(validations) > 10 and len(set(validations)) == 1


def test_another_corpus_gives_another_curve(text: Path, tmp_path: Path) -> None:
    other = write_corpus(tmp_path / "other.jsonl", ["0123456789", "9876543210", "5555", "13579"])
    ours, theirs = losses(run("--data-path", text)), losses(run("--data-path", other))
    assert len(ours) == len(theirs) and all(a != b for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("swiglu", [False, True])
def test_autograd_s_gradient_is_the_slope_of_the_loss(swiglu: bool) -> None:
    shape = model.Shape(2, 8, 16, 2, 6, 32, swiglu)
    weights = {name: array.astype(np.float64) for name, array in model.initial(shape, 1, 0.3).items()}
    sample = np.array([3, 1, 4, 1, 5, 9, 2])
    _, gradient = model.loss_and_gradient(weights, sample, shape)
    rng = np.random.default_rng(2)
    for name, array in weights.items():
        direction = rng.normal(size=array.shape)
        ahead, behind = ({**weights, name: array + step * direction} for step in (1e-5, -1e-5))
        slope = (model.loss(ahead, sample, shape) - model.loss(behind, sample, shape)) / 2e-5
        assert float(np.vdot(gradient[name], direction)) == pytest.approx(float(slope), rel=2e-3, abs=1e-7), (
            name
        )


def test_attention_never_looks_ahead() -> None:
    shape = model.Shape(2, 8, 16, 2, 6, 32)
    weights = model.initial(shape, 1, 0.3)
    before, after = (model.log_probabilities(weights, np.array([3, 1, 4, last]), shape) for last in (1, 2))
    assert np.array_equal(before[:3], after[:3]) and not np.array_equal(before[3], after[3])


def test_the_logged_validation_loss_is_that_of_the_checkpoint(text: Path, folder: Path) -> None:
    rows = run("--data-path", text, "--save", folder)
    *_, logged, _test = (row["values"]["lm loss value"] for row in of_kind(rows, "validation"))
    state = checkpoint.load(folder, 6)
    args = arguments("--data-path", text)
    tokens = corpus.tokenize(state.tokenizer(), corpus.read_corpus(str(text)).documents)
    _, held_out, _ = corpus.split_tokens(tokens, args.split)
    samples = [corpus.sample(held_out, 16, args.seed + 1, number) for number in range(8)]
    table = [model.log_probabilities(state.weights, one[:-1], state.shape) for one in samples]
    each = [-rows[i, t] for rows, one in zip(table, samples, strict=True) for i, t in enumerate(one[1:])]
    assert float(np.mean(each)) == pytest.approx(logged, rel=1e-5)


def test_skip_train_evaluates_a_checkpoint_again(text: Path, folder: Path) -> None:
    trained = of_kind(run("--data-path", text, "--save", folder), "validation")[-2:]
    again = of_kind(run("--data-path", text, "--load", folder, "--skip-train"), "validation")
    assert [row["values"] for row in again] == [row["values"] for row in trained]


# Resume


def test_a_resume_is_exact(text: Path, folder: Path) -> None:
    whole = run("--data-path", text)
    head = run("--data-path", text, "--save", folder, "--exit-interval", "3")
    tail = run("--data-path", text, "--save", folder, "--load", folder)
    assert ("loaded", 3) in [(row["action"], row["iteration"]) for row in of_kind(tail, "checkpoint")]
    assert losses(head) + losses(tail) == losses(whole)
    assert [row["values"]["grad norm"] for row in of_kind([*head, *tail], "iteration")] == [
        row["values"]["grad norm"] for row in of_kind(whole, "iteration")
    ]


def test_without_a_checkpoint_it_warns_and_starts_from_random_or_exits(text: Path, folder: Path) -> None:
    warned = printed(arguments("--data-path", text, "--load", folder))
    assert (
        f"WARNING: could not find the metadata file {folder}/latest_checkpointed_iteration.txt \n" in warned
    )
    assert "    will not load any checkpoints and will start from random\n" in warned
    assert losses(events(warned)) == losses(run("--data-path", text))
    with start("--data-path", text, "--load", folder, "--exit-on-missing-checkpoint") as process:
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert ">> '--exit-on-missing-checkpoint' set ... exiting. <<" in out and "training ..." not in out


def test_another_model_or_schedule_is_refused_in_megatrons_words(text: Path, folder: Path) -> None:
    common = ("--data-path", text, "--load", folder)
    run("--data-path", text, "--save", folder)
    with pytest.raises(
        CheckpointError, match=r"^num_layers value from checkpoint \(1\) is not equal to the input arg"
    ):
        run(*common, "--num-layers", "2")
    decay = "class input value 36 and checkpointvalue 24 for total number of iterations do not match"
    with pytest.raises(CheckpointError, match=f"^OptimizerParamScheduler: {decay}"):
        run(*common, "--train-iters", "9")
    for flag in ("--override-opt_param-scheduler", "--use-checkpoint-opt_param-scheduler"):
        assert len(losses(run(*common, "--train-iters", "9", flag))) == 3
    assert losses(run(*common, "--finetune", "--lr", "1e-3"))[0] < losses(run("--data-path", text))[0]


def test_status_and_stderr_name_the_mismatch(text: Path, folder: Path) -> None:
    run("--data-path", text, "--save", folder)
    status, error = status_and_error("--data-path", text, "--load", folder, "--hidden-size", "32")
    assert status == 1
    assert error == (
        "AssertionError: hidden_size value from checkpoint (16) is not equal to the input argument value (32).\n"
    )


# Checkpoints


def foreign_shape(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    first = next(name for name in members if name.startswith("model/"))
    second = next(name for name in members if name.startswith("model/") and name.endswith("fc1.weight.npy"))
    members[first] = members[second]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_a_damaged_checkpoint_is_one_sentence(text: Path, folder: Path) -> None:
    run("--data-path", text, "--save", folder)
    path = checkpoint.file_of(folder, 6)
    whole = path.read_bytes()
    for damage in (b"", b"PK\x03\x04 torn", bytes(1000), whole[:-30], whole.replace(b"NUMPY", b"MUNPY")):
        path.write_bytes(damage)
        with pytest.raises(CheckpointError, match=r"^could not load the checkpoint"):
            checkpoint.load(folder, 6)
    path.write_bytes(whole)
    foreign_shape(path)
    with pytest.raises(CheckpointError, match=r"^could not load the checkpoint .* not float32"):
        checkpoint.load(folder, 6)
    path.unlink()
    status, error = status_and_error("--data-path", text, "--load", folder)
    assert (status, error) == (1, f"could not load the checkpoint {path}: there is no such file\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "Invalid metadata file"),
        ("ten", "Invalid metadata file"),
        ("0", "error parsing metadata file"),
        ("-3", "error parsing"),
    ],
)
def test_a_damaged_tracker_is_one_sentence(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / checkpoint.TRACKER).write_text(content)
    with pytest.raises(CheckpointError, match=said):
        checkpoint.tracked_iteration(tmp_path)


def test_a_save_that_fails_leaves_the_old_one_tracked(text: Path, folder: Path) -> None:
    run("--data-path", text, "--save", folder)
    (folder / "iter_0000009").write_text("in the way")
    words = ("--data-path", text, "--load", folder, "--save", folder, "--train-iters", "9")
    with pytest.raises(CheckpointError, match=r"^could not save the checkpoint to"):
        run(*words, "--override-opt_param-scheduler")
    assert checkpoint.tracked_iteration(folder) == 6 and checkpoint.load(folder, 6).iteration == 6


def test_kills_leave_a_whole_checkpoint_under_the_tracker(text: Path, folder: Path) -> None:
    words = ("--data-path", text, "--save", folder, "--train-iters", "100000", "--save-interval", "1")
    for saves in range(1, 5):
        with start(*words) as process:
            assert process.stdout is not None
            for _ in range(saves):
                next(line for line in process.stdout if "saving checkpoint" in line)
            process.kill()
        iteration = checkpoint.tracked_iteration(folder)
        assert (iteration or 0) >= saves - 1
        assert iteration is None or checkpoint.load(folder, iteration).iteration == iteration
        shutil.rmtree(folder, ignore_errors=True)


# Ends


def first_iteration(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    next(line for line in process.stdout if " iteration " in line and "|" in line)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_exits_with_status_0_when_asked_to(text: Path, folder: Path, number: int) -> None:
    with start(
        "--data-path", text, "--save", folder, "--train-iters", "100000", "--exit-signal-handler"
    ) as process:
        first_iteration(process)
        os.kill(process.pid, number)
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert out.splitlines()[-1].startswith("[exiting program after receiving SIGTERM.] datetime: ")
    iteration = checkpoint.tracked_iteration(folder)
    assert iteration is not None and f"successfully saved checkpoint from iteration {iteration:7d}" in out
    assert checkpoint.load(folder, iteration).iteration == iteration


def test_without_the_handler_term_ends_it_at_once(text: Path, folder: Path) -> None:
    with start("--data-path", text, "--save", folder, "--train-iters", "100000") as process:
        first_iteration(process)
        process.terminate()
        process.communicate(timeout=300)
    assert process.returncode == -signal.SIGTERM and not folder.exists()


def test_it_exits_at_an_iteration_or_after_minutes_with_a_checkpoint(text: Path, folder: Path) -> None:
    out = printed(arguments("--data-path", text, "--save", folder, "--exit-interval", "2"))
    assert "[exiting program at iteration 2] datetime: " in out and checkpoint.tracked_iteration(folder) == 2
    long_ago = time.monotonic() - 61
    trainer = Trainer(arguments("--data-path", text, "--exit-duration-in-mins", "1"), Alone(), long_ago)
    trainer.run()
    assert trainer.iteration == 1


def test_a_loss_that_is_no_number_ends_it_in_megatrons_words(text: Path) -> None:
    with pytest.raises(DivergedError, match=r"^Rank 0: found NaN in local forward loss calculation"):
        run("--data-path", text, "--lr", "1e30", "--init-method-std", "1e10", "--clip-grad", "0")


# Ranks


def test_two_ranks_follow_the_losses_of_one(text: Path) -> None:
    words = ("--data-path", text, "--train-iters", "30", "--micro-batch-size", "1")
    alone, together = run(*words), run_ranks(2, *words)
    assert losses(together) == pytest.approx(losses(alone), rel=1e-6)
    assert [row["values"]["lm loss value"] for row in of_kind(together, "validation")] == pytest.approx(
        [row["values"]["lm loss value"] for row in of_kind(alone, "validation")], rel=1e-6
    )


def test_the_last_rank_prints_iterations_and_the_first_one_saves(text: Path, folder: Path) -> None:
    rows = run_ranks(2, "--data-path", text, "--save", folder)
    assert len(of_kind(rows, "iteration")) == 6
    assert [row["rank"] for row in of_kind(rows, "memory") if row["iteration"] == 1] == [0]
    assert [row["action"] for row in of_kind(rows, "checkpoint")] == ["saving", "saved"]
    assert checkpoint.load(folder, 6).arguments["world_size"] == 2


def test_ranks_are_announced_by_mpirun_or_by_srun_with_pmix() -> None:
    assert announced_ranks({}) == announced_ranks({"SLURM_STEP_NUM_TASKS": "4"}) == 1
    assert announced_ranks({"OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "1"}) == 2
    assert announced_ranks({"SLURM_STEP_NUM_TASKS": "4", "PMIX_RANK": "1"}) == 4


# Arguments


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--num-attention-heads", "3"],
            "hidden size (16) is not divisible by number of attention heads (3)",
        ),
        (
            ["--global-batch-size", "5"],
            "global batch size (5) is not divisible by micro batch size (2) times",
        ),
        (["--train-iters", "0"], "--train-iters 0 must be above 0"),
        (["--lr-decay-style", "steps"], "steps decay style is not supported."),
        (["--seq-length", "64", "--max-position-embeddings", "32"], "is below --seq-length 64"),
        (["--tensor-model-parallel-size", "2"], "tensor and pipeline model parallel size must be 1"),
        (["--vocab-size", "100"], "below the 256 bytes"),
    ],
)
def test_arguments_that_cannot_be_trained_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(said)):
        arguments(*words)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--no-such-flag"], 2, "unrecognized arguments: --no-such-flag"),
        (["--hidden-sise", "8"], 2, "did you mean --hidden-size?"),
        (["--lr", "fast"], 2, "argument --lr: invalid float value: 'fast'"),
        (
            ["--data-path", "/nonexistent.jsonl"],
            1,
            "--data-path /nonexistent.jsonl: No such file or directory",
        ),
    ],
)
def test_bad_arguments_are_one_sentence(words: list[str], status: int, said: str) -> None:
    found, error = status_and_error(*words)
    assert found == status and said in error and error.count("\n") == 1


def test_the_preset_tiny_trains_with_any_number_of_iterations_on_one_rank_or_two() -> None:
    for iterations in ("2", "20", "1000"):
        for ranks in (1, 2):
            args = [*TINY.arguments, "--train-iters", iterations]
            assert read_arguments(args, ranks).global_batch_size == 4


def test_the_demo_runs_without_the_rest_of_the_package(tmp_path: Path, text: Path) -> None:
    source = Path(model.__file__).parent
    shutil.copytree(source, tmp_path / "backends" / "demo")
    shutil.copy(source.parent / "__init__.py", tmp_path / "backends")
    program = "import backends.demo.train as t, backends.demo.http_server, sys; print(t.__file__); t.main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", program, *SMALL, "--data-path", str(text)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.startswith(str(tmp_path)) and "[after training is done]" in done.stdout
