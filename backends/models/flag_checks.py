"""Flags that exclude or need each other, and data that does not go with the iterations or the tokenizer."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Sequence

from backends.models.configuration import Arguments
from backends.models.estimate import count_parameters, estimate_training
from backends.models.layout_checks import Case
from backends.models.problem import Problem

# More passes over the same text than this teach little.
USEFUL_EPOCHS = 4
# preprocess_data.py stores 16-bit tokens for vocabularies below this.
SMALL_VOCABULARY = 65500
# What the training script says when the plan does not.
DEFAULT_SPLIT = "949,50,1"
SETS = ("training", "validation", "test")
NEED_NO_MODEL = {"GPT2BPETokenizer", "NullTokenizer", "BertWordPieceLowerCase", "BertWordPieceCase"}


def check_iterations(case: Case) -> Iterator[Problem]:
    """Problems of the length of the training and of its schedule."""
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
            "error",
            "--min-lr",
            f"The minimum learning rate {least:g} is above {rate:g}.",
            f"Take {rate / 10:g}.",
            {"--min-lr": (f"{rate / 10:g}",)},
        )


def check_precision(case: Case) -> Iterator[Problem]:
    """Problems of fp16, bf16 and FP8."""
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
    legacy = "--use-legacy-models" in given and given.text("--transformer-impl") == "local"
    if "--use-flash-attn" in given and not legacy:
        yield Problem(
            "warning",
            "--use-flash-attn",
            "Only legacy models with --transformer-impl local heed --use-flash-attn; Transformer Engine chooses by itself.",
            "Leave it out.",
            {"--use-flash-attn": None},
        )
    if "--use-distributed-optimizer" in given and not case.config.half_precision:
        yield Problem(
            "warning",
            "--use-distributed-optimizer",
            "The distributed optimizer is made for fp16 or bf16.",
            "Add --bf16.",
            {"--bf16": ()},
        )


def check_recomputation(case: Case) -> Iterator[Problem]:
    """Problems of the options of recomputation."""
    given = case.given
    kind = "selective" if "--recompute-activations" in given else given.text("--recompute-granularity")
    if kind == "selective" and "--recompute-method" in given:
        yield Problem(
            "error",
            "--recompute-method",
            "Selective recomputation knows no --recompute-method.",
            "Leave it out.",
            {"--recompute-method": None},
        )
    if kind == "full" and "--recompute-method" not in given:
        yield Problem(
            "error",
            "--recompute-granularity",
            "Full recomputation needs --recompute-method.",
            "Add --recompute-method uniform --recompute-num-layers 1.",
            {"--recompute-method": ("uniform",), "--recompute-num-layers": ("1",)},
        )
    if kind not in (None, "selective", "full"):
        yield Problem(
            "error",
            "--recompute-granularity",
            f"There is no recomputation {kind!r}.",
            "Take selective or full.",
            {"--recompute-granularity": ("selective",)},
        )


def check_names(case: Case) -> Iterator[Problem]:
    """Problems of flags that Megatron-LM does not have."""
    yield from unknown_flags(case.given, case.resources.known_flags)


def unknown_flags(given: Arguments, known: frozenset[str]) -> Iterator[Problem]:
    """Flags that the clone does not know: Megatron-LM would refuse them half a minute after the start."""
    for flag in given.flags if known else ():
        if flag not in known:
            near = difflib.get_close_matches(flag, known, n=1, cutoff=0.7)
            yield Problem(
                "warning",
                flag,
                f"This Megatron-LM does not know {flag}.",
                f"Did you mean {near[0]}?" if near else "Leave it out.",
                {flag: None, **({near[0]: given.words(flag)} if near else {})},
            )


def check_tokenizer(case: Case) -> Iterator[Problem]:
    """A problem if the tokenizer needs a model that is not given."""
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
    """Problems of --overlap-param-gather, which needs other flags."""
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
    """Problems of the data set: the type of its tokens, and how often they are read."""
    config, resources = case.config, case.resources
    if resources.data_dtype is not None:
        small = config.vocab_size < SMALL_VOCABULARY
        if small != (resources.data_dtype == "uint16"):
            yield Problem(
                "error",
                "--data-path",
                f"The data holds {resources.data_dtype} tokens, which a vocabulary of {config.vocab_size} does not give: it was"
                " made with another tokenizer.",
                "Preprocess it with this tokenizer, or take the tokenizer it was made with.",
            )
    if not resources.data_tokens:
        return
    training = estimate_training(
        config,
        count_parameters(config),
        data_tokens=resources.data_tokens,
        train_split=split_shares(case.given.text("--split"))[0],
    )
    if training.epochs is not None and training.epochs > USEFUL_EPOCHS:
        enough = max(1, int((config.train_iters or 0) * USEFUL_EPOCHS / training.epochs))
        yield Problem(
            "warning",
            "--train-iters",
            f"{config.train_iters} iterations read the data {training.epochs:,.1f} times.",
            f"Take more data, or {enough} iterations.",
            {"--train-iters": (str(enough),)},
        )


def check_split(case: Case) -> Iterator[Problem]:
    """A set without a document: core_r0.8.0 then adds epochs of nothing for ever (gpt_dataset.py, `_get_num_epochs`)."""
    documents, text = case.resources.fewest_documents, case.given.text("--split")
    if documents is None:
        return
    shares = split_shares(text)
    empty = [name for name, share, count in zip(SETS, shares, split_counts(shares, documents), strict=True)
             if share > 0 and not count]  # fmt: skip
    if empty:
        better = f"{documents - 2},1,1" if documents > 2 else "1,0,0"
        yield Problem(
            "error",
            "--split",
            f"The split {text or DEFAULT_SPLIT} of {documents:,} documents leaves no {' and no '.join(empty)} set: "
            "Megatron-LM would build its indices for ever.",
            f"Take --split {better}.",
            {"--split": (better,)},
        )


def split_shares(text: str | None) -> tuple[float, float, float]:
    """The parts of training, validation and test set, as core_r0.8.0 reads `--split`; they add up to 1."""
    words = (text or DEFAULT_SPLIT).replace("/", ",").split(",")
    numbers = [float(word) if _is_number(word) else 0.0 for word in words]
    first, second, third, *_ = [*numbers, 0.0, 0.0, 0.0]
    total = first + second + third
    return (first / total, second / total, third / total) if total > 0 else (1.0, 0.0, 0.0)


def split_counts(shares: Sequence[float], documents: int) -> list[int]:
    """Documents of each set, rounded as core_r0.8.0 does (`_build_megatron_dataset_splits`)."""
    ends, so_far = [0], 0.0
    for share in shares:
        so_far += share
        ends.append(round(so_far * documents))
    return [after - before for before, after in itertools.pairwise(ends)]


def _is_number(word: str) -> bool:
    return word.strip().replace(".", "", 1).isdigit()
