"""Megatron-LM's own names for what this trainer and server support, parsed and printed as Megatron-LM does."""

# pyright: standard, reportMissingTypeStubs=false, reportMissingImports=false
from __future__ import annotations

import argparse
from typing import Any

from backends.demo.corpus import VOCABULARY

SERVING = ("port", "host", "wait_for_checkpoint", "follow_checkpoints")


def parser(description: str) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=description, allow_abbrev=False)
    for name, kind, default, text in (
        ("num-layers", int, 2, "transformer layers"),
        ("hidden-size", int, 64, ""),
        ("num-attention-heads", int, 4, ""),
        ("seq-length", int, 64, "tokens in a sample"),
        ("max-position-embeddings", int, None, "default: --seq-length"),
        ("micro-batch-size", int, 8, "samples of one step of a rank"),
        ("global-batch-size", int, None, "samples of an iteration; default: micro batch size × ranks"),
        ("train-iters", int, 200, ""),
        ("lr", float, 3e-3, ""),
        ("min-lr", float, 0.0, ""),
        ("lr-decay-iters", int, None, "default: --train-iters"),
        ("lr-warmup-iters", int, 0, ""),
        ("lr-warmup-fraction", float, None, "of --lr-decay-iters"),
        ("weight-decay", float, 0.01, ""),
        ("clip-grad", float, 1.0, "0: no clipping"),
        ("adam-beta1", float, 0.9, ""),
        ("adam-beta2", float, 0.999, ""),
        ("adam-eps", float, 1e-8, ""),
        ("init-method-std", float, 0.02, ""),
        ("seed", int, 1234, ""),
        ("log-interval", int, 100, ""),
        ("save-interval", int, None, ""),
        ("eval-interval", int, 1000, ""),
        ("eval-iters", int, 100, ""),
        ("exit-interval", int, None, ""),
        ("exit-duration-in-mins", int, None, ""),
        ("make-vocab-size-divisible-by", int, 128, ""),
        ("data-path", str, None, "a .jsonl; default: the help topics of Python"),
        ("split", str, "949,50,1", ""),
        ("save", str, None, ""),
        ("load", str, None, ""),
        ("tensorboard-dir", str, None, "accepted, not used"),
        ("lr-decay-style", str, "linear", "constant, linear or cosine"),
    ):
        p.add_argument(f"--{name}", type=kind, default=default, help=text or None)
    for name in (
        "exit-signal-handler", "exit-on-missing-checkpoint", "log-throughput", "override-opt_param-scheduler",
        "use-checkpoint-opt_param-scheduler", "no-load-optim", "finetune",
    ):  # fmt: skip
        p.add_argument(f"--{name}", action="store_true", dest=name.replace("-", "_"))
    return p


def complete(args: argparse.Namespace, ranks: int) -> str | None:
    """Fill in what follows from the rest; the sentence that forbids to start, in Megatron-LM's words, or None."""
    args.world_size = args.data_parallel_size = ranks
    args.tensor_model_parallel_size = args.pipeline_model_parallel_size = 1
    args.global_batch_size = args.global_batch_size or args.micro_batch_size * ranks
    args.max_position_embeddings = args.max_position_embeddings or args.seq_length
    args.lr_decay_iters = args.lr_decay_iters or args.train_iters
    if args.lr_warmup_fraction is not None:
        args.lr_warmup_iters = int(args.lr_warmup_fraction * args.lr_decay_iters)
    multiple = args.make_vocab_size_divisible_by
    args.padded_vocab_size = -(-VOCABULARY // multiple) * multiple if multiple > 0 else VOCABULARY
    args.tokenizer_type = "ByteTokenizer"
    counts = (
        "num_layers",
        "hidden_size",
        "num_attention_heads",
        "seq_length",
        "micro_batch_size",
        "global_batch_size",
        "log_interval",
        "train_iters",
        "eval_interval",
    )
    for name in counts:
        if getattr(args, name) <= 0:
            return f"AssertionError: --{name.replace('_', '-')} must be positive"
    if args.hidden_size % args.num_attention_heads:
        return f"AssertionError: hidden size ({args.hidden_size}) is not divisible by number of attention heads ({args.num_attention_heads})"
    if args.global_batch_size % (args.micro_batch_size * ranks):
        return (
            f"AssertionError: global batch size ({args.global_batch_size}) is not divisible by micro batch size "
            f"({args.micro_batch_size}) times data parallel size ({ranks})"
        )
    if args.seq_length > args.max_position_embeddings:
        return "AssertionError: --seq-length is larger than --max-position-embeddings"
    if args.lr_decay_style not in ("constant", "linear", "cosine"):
        return f"Exception: {args.lr_decay_style} decay style is not supported."
    return None


def lines(values: dict[str, Any]) -> list[str]:
    """The argument block of core_r0.8.0: `name`, dots up to column 48, value; sorted without regard to case."""
    body = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in values.items()]
    return [
        "------------------------ arguments ------------------------",
        *sorted(body, key=str.lower),
        "-------------------- end of arguments ---------------------",
    ]
