"""Tokenizes and splits the text of a run, and prints what Megatron-LM prints about it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from backends.demo import corpus
from backends.demo.tokenizer import BYTES, Pair, Tokenizer, learn_merges


@dataclass(frozen=True, slots=True)
class DataSets:
    """The tokens of each set ("train", "validation", "test") and the merges of their tokenizer."""

    tokens: dict[str, corpus.Tokens]
    merges: list[Pair]


def read_data_sets(
    args: argparse.Namespace, merges: list[Pair] | None, say: Callable[[str], None]
) -> DataSets:
    """`merges`: of a checkpoint; None: they are learnt from the text. Raises CorpusError."""
    batch = args.global_batch_size
    evaluations = (args.train_iters // args.eval_interval + 1) * args.eval_iters
    say("> building train, validation, and test datasets ...")
    say(" > datasets target sizes (minimum size):")
    say(f"    train:      {args.train_iters * batch}")
    say(f"    validation: {evaluations * batch}")
    say(f"    test:       {args.eval_iters * batch}")
    say("> building train, validation, and test datasets for GPT ...")
    text = corpus.read_corpus(args.data_path)
    if text.cut:
        say(f"WARNING: {text.name} is large; only its first {corpus.READ_LIMIT >> 20} MiB are read")
    if merges is None:
        merges = learn_merges(text.documents, args.vocab_size - BYTES)
    tokens = corpus.tokenize(Tokenizer(merges, args.vocab_size), text.documents)
    train, validation, test = corpus.split_tokens(tokens, args.split)
    if len(train) <= args.seq_length:
        raise corpus.CorpusError(
            f"{text.name} has {len(train)} tokens to train on, too few for --seq-length {args.seq_length}"
        )
    say(f"> total number of documents: {len(text.documents)}")
    say(f"> total number of tokens: {len(tokens)}")
    say("> finished creating GPT datasets ...")
    return DataSets({"train": train, "validation": validation, "test": test}, merges)
