"""Inconsistent layouts are reported with the field, a sentence and a remedy, and the arguments of the remedy solve the problem."""

from __future__ import annotations

import shlex

import pytest

from backends.models.configuration import read_configuration
from backends.models.layout import Resources, apply_fix, check, suggest, words_of

GIB = 2**30
H100 = Resources(gpus=8, gpu_memory=80 * GIB)
RECIPE = shlex.split(
    "--num-layers 30 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
    "--swiglu --untie-embeddings-and-output-weights --micro-batch-size 2 --global-batch-size 1024 --fp16 "
    "--use-distributed-optimizer --train-iters 500000 --save-interval 10000 --lr 6.0e-5 --min-lr 6.0e-6"
)


def test_the_recipe_has_no_problem() -> None:
    assert check(RECIPE, H100) == []


@pytest.mark.parametrize(
    ("words", "gpus", "field"),
    [
        ("--num-layers", 8, "--num-layers"),
        ("--tensor-model-parallel-size 16", 8, "--tensor-model-parallel-size"),
        ("--pipeline-model-parallel-size 15", 8, "--pipeline-model-parallel-size"),
        ("--tensor-model-parallel-size 4", 6, "gpus"),
        ("--tensor-model-parallel-size 3", 6, "--tensor-model-parallel-size"),
        ("--group-query-attention --num-query-groups 2 --tensor-model-parallel-size 4", 8, "--tensor-model-parallel-size"),
        ("--pipeline-model-parallel-size 4", 8, "--pipeline-model-parallel-size"),
        ("--global-batch-size 1000", 64, "--global-batch-size"),
        ("--num-attention-heads 24", 8, "--num-attention-heads"),
        ("--group-query-attention --num-query-groups 5", 8, "--num-query-groups"),
        ("--seq-length 8192", 8, "--max-position-embeddings"),
        ("--context-parallel-size 2 --use-legacy-models", 8, "--context-parallel-size"),
        ("--context-parallel-size 8 --seq-length 4088", 8, "--context-parallel-size"),
        ("--rampup-batch-size 16 16 5859375", 8, "--rampup-batch-size"),
        ("--train-samples 100", 8, "--train-iters"),
        ("--min-lr 1", 8, "--min-lr"),
        ("--bf16", 8, "--bf16"),
        ("--fp8-format hybrid --transformer-impl local", 8, "--fp8-format"),
        ("--tokenizer-type Llama2Tokenizer", 8, "--tokenizer-model"),
        ("--overlap-param-gather", 8, "--overlap-param-gather"),
        ("--num-layers-per-virtual-pipeline-stage 5", 8, "--num-layers-per-virtual-pipeline-stage"),
        ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4", 8, "--num-layers-per-virtual-pipeline-stage"),
    ],
)  # fmt: skip
def test_a_layout_that_megatron_would_refuse_is_an_error(words: str, gpus: int, field: str) -> None:
    arguments = [*RECIPE, *shlex.split(words)]
    problems = check(arguments, Resources(gpus))
    assert problems and problems[0].severity == "error"
    assert field in {problem.field for problem in problems}
    for problem in problems:
        assert problem.message and problem.remedy
    for problem in problems:
        if problem.field == field and problem.fix:
            fewer = problem.fix.get("gpus") or (str(gpus),)
            mended = check(apply_fix(arguments, problem.fix), Resources(int(fewer[0])))
            assert problem.message not in {left.message for left in mended}


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("--sequence-parallel", "--sequence-parallel"),
        ("--num-query-groups 4", "--num-query-groups"),
        ("--pipeline-model-parallel-size 2 --global-batch-size 8", "--global-batch-size"),
        ("--make-vocab-size-divisible-by 40000", "--make-vocab-size-divisible-by"),
    ],
)
def test_a_wasteful_layout_is_a_warning(words: str, field: str) -> None:
    problems = check([*RECIPE, *shlex.split(words)], H100)
    assert [(problem.severity, problem.field) for problem in problems] == [("warning", field)]


def test_data_is_held_against_iterations_and_tokenizer() -> None:
    small = Resources(gpus=8, data_tokens=10**9, data_dtype="uint16")
    (epochs,) = check([*RECIPE, "--split", "949,50,1"], small)
    assert (epochs.severity, epochs.field) == ("warning", "--train-iters")
    assert "2,209.9 times" in epochs.message
    (tokenizer,) = check(
        [*RECIPE, "--tokenizer-type", "Llama3Tokenizer", "--tokenizer-model", "t"],
        Resources(gpus=8, data_dtype="uint16"),
    )
    assert (tokenizer.severity, tokenizer.field) == ("error", "--data-path")
    assert check(RECIPE, Resources(gpus=8, data_dtype="int32"))[0].field == "--data-path"


def test_a_model_that_does_not_fit_gets_a_layout_that_does() -> None:
    large = shlex.split(
        "--num-layers 84 --hidden-size 8192 --num-attention-heads 64 --seq-length 1024 --micro-batch-size 1 --bf16 "
        "--global-batch-size 1024 --train-iters 10 --use-distributed-optimizer"
    )
    resources = Resources(gpus=32, gpu_memory=80 * GIB)
    (problem,) = check(large, resources)
    assert (problem.severity, problem.field) == ("error", "gpus")
    assert problem.fix and "--tensor-model-parallel-size" in problem.remedy
    assert check(apply_fix(large, problem.fix), resources) == []


def test_recomputation_comes_before_splitting() -> None:
    found = suggest(read_configuration(RECIPE, 8), Resources(gpus=8, gpu_memory=64 * GIB))
    assert found and words_of(found.fix) == ["--micro-batch-size", "1"]
    found = suggest(read_configuration(RECIPE, 8), Resources(gpus=8, gpu_memory=56 * GIB))
    assert found and "full" in words_of(found.fix)
    assert suggest(read_configuration(RECIPE, 1), Resources(gpus=1, gpu_memory=8 * GIB)) is None


def test_a_fix_replaces_adds_and_takes_away() -> None:
    arguments = ("--a", "1", "--b=2", "--c", "3", "4", "--d")
    fixed = apply_fix(arguments, {"--a": ("5", "6"), "--b": None, "--c": None, "--e": (), "--d": ()})
    assert fixed == ("--a", "5", "6", "--d", "--e")


@pytest.mark.parametrize("number", ["0", "-1", "9" * 15, "9" * 5000, "", "1e3", "٣", "ten"])
@pytest.mark.parametrize(
    "flag", ["--tensor-model-parallel-size", "--num-layers", "--micro-batch-size", "--num-query-groups"]
)
def test_any_number_is_answered_at_once(flag: str, number: str) -> None:
    assert check([*RECIPE, "--group-query-attention", flag, number], H100)
