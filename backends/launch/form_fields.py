"""The fields of the launch form: their flags, their placeholders, and the field beside which each problem is shown."""

from __future__ import annotations

from collections.abc import Mapping

from backends.models.acceleration import ACCELERATIONS, RECOMPUTATION_FLAGS
from backends.models.flag_checks import DEFAULT_SPLIT

# Fields that stand for one flag of Megatron's.
FLAGS: Mapping[str, str] = {
    "tensor": "--tensor-model-parallel-size",
    "pipeline": "--pipeline-model-parallel-size",
    "context": "--context-parallel-size",
    "micro": "--micro-batch-size",
    "batch": "--global-batch-size",
    "sequence": "--seq-length",
    "iterations": "--train-iters",
    "interval": "--save-interval",
    "data": "--data-path",
    "split": "--split",
    "tokenizer": "--tokenizer-type",
    "tokenizer_model": "--tokenizer-model",
}
# The demo has one tokenizer, and is too small to be split.
MEGATRON_ONLY = frozenset({"tensor", "pipeline", "context", "split", "tokenizer", "tokenizer_model", "hosts"})
FIELD_OF = {flag: name for name, flag in FLAGS.items()}
# What else a problem may be about, and the field beside which it is shown.
BESIDE: Mapping[str, str] = {
    "gpus": "gpus", "processes": "gpus", "launcher": "launcher", "trainer": "preset", "image": "image",
    "save": "save", "load": "load", "hosts": "hosts", "--vocab-file": "tokenizer", "--merge-file": "tokenizer",
    "--mock-data": "data", "--max-position-embeddings": "sequence",
    **{flag: choice.name for choice in ACCELERATIONS for flag in choice.flags},
    **dict.fromkeys(RECOMPUTATION_FLAGS, "recompute"),
    **FIELD_OF,
}  # fmt: skip
DEFAULTS: Mapping[str, str] = {
    "tensor": "1", "pipeline": "1", "context": "1", "split": DEFAULT_SPLIT, "tokenizer": "GPT2BPETokenizer",
    "hosts": "none", "image": "the workspace's", "save": "outputs/checkpoints", "load": "none: a new start",
    "data": "PREFIX, or WEIGHT PREFIX ...", "more": "--flag value ...", "less": "--flag ...", "gpus": "all, or 4, or 0,1",
    "mlflow": "as set; off: not tracked",
}  # fmt: skip
DEMO_DEFAULTS: Mapping[str, str] = {"image": "none", "gpus": "1 process", "data": "the help of Python"}


def field_of(problem_field: str) -> str:
    """The field beside which a problem is shown."""
    return BESIDE.get(problem_field, "more" if problem_field.startswith("--") else problem_field)
