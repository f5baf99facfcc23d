"""Flags that exclude or need each other, and data that does not go with the iterations or the tokenizer."""

from __future__ import annotations

from collections.abc import Iterator

from backends.models.estimate import count_parameters, estimate_training
from backends.models.layout_checks import Case
from backends.models.problem import Problem

# More passes over the same text than this teach little.
USEFUL_EPOCHS = 4
# preprocess_data.py stores 16-bit tokens for vocabularies below this.
SMALL_VOCABULARY = 65500
NEED_NO_MODEL = {"GPT2BPETokenizer", "NullTokenizer", "BertWordPieceLowerCase", "BertWordPieceCase"}


def check_iterations(case: Case) -> Iterator[Problem]:
    given = case.given
    by_iterations, by_samples = "--train-iters" in given, "--train-samples" in given
    if by_iterations == by_samples:
        yield Problem(
            "error",
            "--train-iters",
            "Both --train-iters and --train-samples are given."
            if by_samples
            else "There is no --train-iters.",
            "Give --train-iters alone.",
            {"--train-samples": None} if by_samples else None,
        )
    if by_iterations and "--rampup-batch-size" in given:
        yield Problem(
            "error",
            "--rampup-batch-size",
            "A batch size that ramps up goes with --train-samples, not with --train-iters.",
            "Leave the ramp-up out.",
            {"--rampup-batch-size": None},
        )
    if "--lr-warmup-fraction" in given and "--lr-warmup-iters" in given:
        yield Problem(
            "error",
            "--lr-warmup-iters",
            "Only one of --lr-warmup-fraction and --lr-warmup-iters can be given.",
            "Leave one out.",
            {"--lr-warmup-iters": None},
        )
    rate, least = given.number("--lr"), given.number("--min-lr")
    if rate is not None and least is not None and least > rate:
        yield Problem(
            "error", "--min-lr", f"The minimum learning rate {least:g} is above {rate:g}.", "Take less."
        )


def check_precision(case: Case) -> Iterator[Problem]:
    given = case.given
    if "--fp16" in given and "--bf16" in given:
        yield Problem(
            "error",
            "--bf16",
            "Only one of --fp16 and --bf16 can be given.",
            "Leave one out.",
            {"--fp16": None},
        )
    if "--fp8-format" in given and given.text("--transformer-impl") == "local":
        yield Problem(
            "error",
            "--fp8-format",
            "FP8 needs Transformer Engine, which --transformer-impl local does without.",
            "Leave one out.",
            {"--fp8-format": None},
        )


def check_tokenizer(case: Case) -> Iterator[Problem]:
    tokenizer = case.given.text("--tokenizer-type") or "GPT2BPETokenizer"
    if tokenizer in NEED_NO_MODEL or "--tokenizer-model" in case.given:
        return
    yield Problem(
        "error",
        "--tokenizer-model",
        f"{tokenizer} needs a model, and there is no --tokenizer-model.",
        "Give the folder or the name of the tokenizer."
        if tokenizer == "HuggingFaceTokenizer"
        else "Give the tokenizer's file.",
    )


def check_optimizer(case: Case) -> Iterator[Problem]:
    given = case.given
    if "--overlap-param-gather" not in given:
        return
    needed = [flag for flag in ("--use-distributed-optimizer", "--overlap-grad-reduce") if flag not in given]
    if needed:
        yield Problem(
            "error",
            "--overlap-param-gather",
            f"Overlapping the gathering of parameters needs {' and '.join(needed)}.",
            "Add it." if len(needed) == 1 else "Add them.",
            dict.fromkeys(needed, ()),
        )
    if "--use-legacy-models" in given:
        yield Problem(
            "error",
            "--overlap-param-gather",
            "Legacy model classes cannot overlap the gathering of parameters.",
            "Leave one of them out.",
            {"--overlap-param-gather": None},
        )


def check_data(case: Case) -> Iterator[Problem]:
    config, resources = case.config, case.resources
    if resources.data_dtype is not None:
        small = config.vocab_size < SMALL_VOCABULARY
        if small != (resources.data_dtype == "uint16"):
            yield Problem(
                "error",
                "data",
                f"The data holds {resources.data_dtype} tokens, which a vocabulary of {config.vocab_size} does not give: it was"
                " made with another tokenizer.",
                "Preprocess it with this tokenizer, or take the tokenizer it was made with.",
            )
    if not resources.data_tokens:
        return
    shares = [float(word) for word in (case.given.text("--split") or "").split(",") if _is_number(word)]
    split = shares[0] / sum(shares) if sum(shares) > 0 else 1.0
    training = estimate_training(
        config, count_parameters(config), data_tokens=resources.data_tokens, train_split=split
    )
    if training.epochs is not None and training.epochs > USEFUL_EPOCHS:
        yield Problem(
            "warning",
            "--train-iters",
            f"{config.train_iters} iterations read the data {training.epochs:,.1f} times.",
            f"Take more data, or {max(1, int((config.train_iters or 0) * USEFUL_EPOCHS / training.epochs))} iterations.",
        )


def _is_number(word: str) -> bool:
    return word.strip().replace(".", "", 1).isdigit()
