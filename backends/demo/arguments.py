"""The arguments of this trainer, by Megatron-LM's names: parsed, completed and checked."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator
from typing import Any, NoReturn

from backends.demo.tokenizer import BYTES

DECAY_STYLES = ("constant", "linear", "cosine", "inverse-square-root")

# name, type, default, help
VALUES: tuple[tuple[str, type, Any, str], ...] = (
    ("num-layers", int, 2, "transformer layers"),
    ("hidden-size", int, 96, "width of the residual stream"),
    ("ffn-hidden-size", int, None, "default: 4 x hidden size; with --swiglu 8/3 of it"),
    ("num-attention-heads", int, 4, "heads of each layer"),
    ("seq-length", int, 128, "tokens of a sample"),
    ("max-position-embeddings", int, None, "default: --seq-length"),
    ("init-method-std", float, 0.02, "spread of the random weights"),
    ("vocab-size", int, 511, "256 bytes and learnt merges, before the end of document and padding"),
    ("make-vocab-size-divisible-by", int, 128, "padding of the vocabulary"),
    ("micro-batch-size", int, 1, "samples of a rank in one forward and backward pass"),
    ("global-batch-size", int, None, "samples of an iteration; default: micro batch size x ranks"),
    ("train-iters", int, 200, "iterations in all, those before a resume included"),
    ("lr", float, 3e-3, "highest learning rate"),
    ("min-lr", float, 0.0, "lowest learning rate"),
    ("lr-decay-style", str, "linear", ", ".join(DECAY_STYLES)),
    ("lr-decay-iters", int, None, "default: --train-iters"),
    ("lr-warmup-iters", int, 0, "iterations of linear warm-up"),
    ("lr-warmup-fraction", float, None, "warm-up as a share of --lr-decay-iters"),
    ("weight-decay", float, 0.01, "of matrices; biases and norms do not decay"),
    ("clip-grad", float, 1.0, "largest gradient norm; 0: no clipping"),
    ("adam-beta1", float, 0.9, "of the first moment"),
    ("adam-beta2", float, 0.999, "of the second moment"),
    ("adam-eps", float, 1e-8, "of Adam's denominator"),
    ("seed", int, 1234, "of weights and samples"),
    ("data-path", str, None, 'a .jsonl of {"text": "…"} lines; default: the help topics of Python'),
    ("split", str, "949,50,1", "shares of training, validation and test"),
    ("save", str, None, "folder for checkpoints"),
    ("load", str, None, "folder of checkpoints to continue from"),
    ("save-interval", int, None, "iterations between checkpoints; default: one at the end"),
    ("log-interval", int, 100, "iterations between lines"),
    ("eval-interval", int, 1000, "iterations between evaluations"),
    ("eval-iters", int, 100, "global batches of an evaluation; 0: no evaluation"),
    ("exit-interval", int, None, "save and exit when the iteration is a multiple"),
    ("exit-duration-in-mins", int, None, "save and exit after so many minutes"),
    ("tensorboard-dir", str, None, "accepted, not used"),
    ("tensor-model-parallel-size", int, 1, "1: the model is not split"),
    ("pipeline-model-parallel-size", int, 1, "1: the model is not split"),
)
FLAGS: tuple[tuple[str, str], ...] = (
    ("swiglu", "SwiGLU in place of GELU"),
    ("skip-train", "only evaluate what --load holds"),
    ("log-throughput", "TFLOP/s in the iteration lines"),
    ("exit-signal-handler", "on TERM: finish the iteration, save, exit with status 0"),
    ("exit-on-missing-checkpoint", "exit when --load holds none, in place of random weights"),
    ("override-opt_param-scheduler", "take learning rates from these arguments, not from the checkpoint"),
    ("use-checkpoint-opt_param-scheduler", "take learning rates from the checkpoint"),
    ("finetune", "take only the weights of the checkpoint, begin at iteration 0"),
)
POSITIVE = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "seq_length", "micro_batch_size",
            "global_batch_size", "make_vocab_size_divisible_by", "log_interval", "train_iters", "eval_interval",
            "lr_decay_iters", "save_interval", "exit_interval", "exit_duration_in_mins")  # fmt: skip
NOT_NEGATIVE = (
    "lr_warmup_iters",
    "min_lr",
    "weight_decay",
    "clip_grad",
    "eval_iters",
    "seed",
    "init_method_std",
)


class ArgumentError(Exception):
    """These arguments cannot be used. The text is one sentence, Megatron-LM's own if it has one."""


class Parser(argparse.ArgumentParser):
    """Reports an error in one sentence, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments:"):
            word = message.split()[2]
            near = difflib.get_close_matches(word, self._option_string_actions, n=1)
            message += f"; did you mean {near[0]}?" if near else ", which the demo's trainer does not know"
        self.exit(2, f"{self.prog}: {message}. All it knows: {self.prog} --help\n")


def read_arguments(words: list[str], ranks: int = 1) -> argparse.Namespace:
    """The arguments, completed and checked for `ranks` ranks. Raises ArgumentError; SystemExit(2) if they cannot be parsed."""
    parser = Parser(
        prog="python -m backends.demo.train",
        description="Trains a tiny GPT on the CPU; prints and saves as Megatron-LM core_r0.8.0 does.",
        allow_abbrev=False,
    )
    for name, kind, default, text in VALUES:
        parser.add_argument(f"--{name}", type=kind, default=default, help=text)
    for name, text in FLAGS:
        parser.add_argument(f"--{name}", action="store_true", help=text)
    args = parser.parse_args(words)
    _complete(args, ranks)
    _check(args)
    return args


def _complete(args: argparse.Namespace, ranks: int) -> None:
    args.world_size = args.data_parallel_size = ranks
    args.consumed_train_samples = 0
    args.tokenizer_type = "BytePairTokenizer"
    args.params_dtype = "float32"
    args.add_position_embedding = True
    if args.global_batch_size is None:
        args.global_batch_size = args.micro_batch_size * ranks
    if args.max_position_embeddings is None:
        args.max_position_embeddings = args.seq_length
    if args.lr_decay_iters is None:
        args.lr_decay_iters = args.train_iters
    # megatron/training/arguments.py rounds SwiGLU's two thirds to multiples of 64.
    if args.ffn_hidden_size is None:
        two_thirds = int(4 * args.hidden_size * 2 / 3 / 64) * 64
        args.ffn_hidden_size = max(64, two_thirds) if args.swiglu else 4 * args.hidden_size
    multiple = max(1, args.make_vocab_size_divisible_by)
    args.padded_vocab_size = -(-(args.vocab_size + 1) // multiple) * multiple


def _check(args: argparse.Namespace) -> None:
    for name in (*POSITIVE, *NOT_NEGATIVE):
        value = getattr(args, name)
        if value is not None and not (value > 0 if name in POSITIVE else value >= 0):
            raise ArgumentError(
                f"--{_dashed(name)} {value} must be {'above' if name in POSITIVE else 'at least'} 0"
            )
    for refused, sentence in (*_size_refusals(args), *_schedule_refusals(args)):
        if refused:
            raise ArgumentError(sentence)


def _size_refusals(args: argparse.Namespace) -> Iterator[tuple[bool, str]]:
    """(whether it is wrong, what is wrong)."""
    hidden, heads = args.hidden_size, args.num_attention_heads
    yield (
        hidden % heads > 0,
        f"hidden size ({hidden}) is not divisible by number of attention heads ({heads})",
    )
    batch, micro, ranks = args.global_batch_size, args.micro_batch_size, args.world_size
    words = f"global batch size ({batch}) is not divisible by micro batch size ({micro}) times data parallel size ({ranks})"
    yield batch % (micro * ranks) > 0, words
    positions, length = args.max_position_embeddings, args.seq_length
    yield positions < length, f"--max-position-embeddings {positions} is below --seq-length {length}"
    size = args.vocab_size
    yield size < BYTES, f"--vocab-size {size} is below the {BYTES} bytes that all text is made of"
    split = args.tensor_model_parallel_size * args.pipeline_model_parallel_size != 1
    yield split, "the demo does not split its model: tensor and pipeline model parallel size must be 1"


def _schedule_refusals(args: argparse.Namespace) -> Iterator[tuple[bool, str]]:
    """(whether it is wrong, what is wrong)."""
    yield args.lr < args.min_lr, f"--min-lr {args.min_lr} is above --lr {args.lr}"
    style, share, warmup = args.lr_decay_style, args.lr_warmup_fraction, args.lr_warmup_iters
    yield style not in DECAY_STYLES, f"{style} decay style is not supported."
    outside = share is not None and not 0 <= share < 1
    yield outside, f"--lr-warmup-fraction {share} must be at least 0 and below 1"
    twice = share is not None and warmup > 0
    yield twice, "can only specify one of lr-warmup-fraction and lr-warmup-iters"
    decay = args.lr_decay_iters
    yield warmup >= decay, f"--lr-warmup-iters {warmup} is not below --lr-decay-iters {decay}"
    both = args.override_opt_param_scheduler and args.use_checkpoint_opt_param_scheduler
    yield both, "both override and use-checkpoint are set."


def _dashed(name: str) -> str:
    return name.replace("_", "-")
