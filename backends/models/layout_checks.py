"""Do the parallel sizes, the model and the batch go together? What core_r0.8.0 would refuse or silently change is an error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from backends.models.configuration import Arguments, Configuration
from backends.models.problem import Problem

TENSOR, PIPELINE = "--tensor-model-parallel-size", "--pipeline-model-parallel-size"
CONTEXT, VIRTUAL = "--context-parallel-size", "--num-layers-per-virtual-pipeline-stage"
# No cluster splits a model further; a mistyped number must not be searched through.
LARGEST_SIZE = 4096
MICRO, GLOBAL = "--micro-batch-size", "--global-batch-size"


@dataclass(frozen=True, slots=True)
class Resources:
    """What a plan meets. None: not known, so not checked."""

    gpus: int  # GPUs of the run, on all nodes
    gpu_memory: int | None = None  # bytes of the smallest
    gpus_per_node: int = 8
    data_tokens: int | None = None  # of all data sets together
    data_dtype: str | None = None  # of the .idx: uint16, int32
    fewest_documents: int | None = None  # of the smallest data set
    vocab_size: int | None = None  # the tokenizer's own count
    known_flags: frozenset[str] = frozenset()  # of the clone that will run; empty: not known


@dataclass(frozen=True, slots=True)
class Case:
    """What the checks look at: the arguments, their meaning with defaults, and the machine."""

    given: Arguments
    config: Configuration
    resources: Resources


def check_world(case: Case) -> Iterator[Problem]:
    """Problems of the number of GPUs and its division into parallel groups."""
    config, gpus = case.config, case.config.world_size
    sizes = (
        config.tensor_model_parallel_size,
        config.pipeline_model_parallel_size,
        config.context_parallel_size,
    )
    if config.model_parallel_size > gpus:
        yield Problem(
            "error",
            TENSOR if sizes[0] > gpus else PIPELINE if sizes[1] > 1 else CONTEXT,
            f"Tensor {sizes[0]} × pipeline {sizes[1]} × context {sizes[2]} parallel needs {config.model_parallel_size} GPUs,"
            f" {gpus} take part; core_r0.8.0 would shrink the sizes without a word.",
            "Take more GPUs or smaller parallel sizes.",
        )
    elif gpus % config.model_parallel_size:
        yield Problem(
            "error",
            "gpus",
            f"{gpus} GPUs cannot be divided into copies of the model on {config.model_parallel_size} GPUs each.",
            f"Take {(whole := gpus // config.model_parallel_size * config.model_parallel_size)} GPUs, or other parallel sizes.",
            {"gpus": (str(whole),)},
        )


def _divisible(size: int, flag: str, name: str, parts: dict[str, int]) -> Iterator[Problem]:
    for what, count in parts.items():
        if count % size:
            smaller = range(min(size - 1, LARGEST_SIZE), 0, -1)
            good = next(n for n in smaller if all(c % n == 0 for c in parts.values()))
            yield Problem(
                "error",
                flag,
                f"{count} {what} cannot be divided among {name} size {size}.",
                f"Take {good}, which divides them.",
                {flag: (str(good),)},
            )
            return


def _divisor(number: int, near: int) -> int:
    """The largest divisor of `number` that is at most `near`."""
    return next(n for n in range(min(near, number, LARGEST_SIZE), 0, -1) if number % n == 0)


def check_tensor(case: Case) -> Iterator[Problem]:
    """Problems of tensor and sequence parallelism."""
    config, size = case.config, case.config.tensor_model_parallel_size
    parts = {
        "attention heads": config.num_attention_heads,
        "query groups": config.num_query_groups,
        "rows of the MLP": config.ffn_hidden_size,
    }
    yield from _divisible(size, TENSOR, "tensor parallel", parts)
    if size > case.resources.gpus_per_node:
        yield Problem(
            "warning",
            TENSOR,
            f"Tensor parallel size {size} reaches beyond a node of {case.resources.gpus_per_node} GPUs: each layer waits for"
            " the network.",
            "Keep tensor parallelism inside a node; use pipeline parallelism between nodes.",
        )
    if "--sequence-parallel" in case.given and size == 1:
        yield Problem(
            "warning",
            "--sequence-parallel",
            "Sequence parallelism does nothing with tensor parallel size 1; Megatron turns it off.",
            "Leave it out.",
            {"--sequence-parallel": None},
        )
    if config.sequence_parallel and config.seq_length % size:
        yield Problem(
            "error",
            "--seq-length",
            f"Sequence length {config.seq_length} cannot be divided among tensor parallel size {size}, as sequence"
            " parallelism does.",
            f"Take {(near := max(1, config.seq_length // size) * size)}, a multiple of {size}.",
            {"--seq-length": (str(near),)},
        )


def check_pipeline(case: Case) -> Iterator[Problem]:
    """Problems of pipeline parallelism, interleaved or not."""
    config, size = case.config, case.config.pipeline_model_parallel_size
    yield from _divisible(size, PIPELINE, "pipeline parallel", {"layers": config.num_layers})
    virtual = config.num_layers_per_virtual_pipeline_stage
    if virtual is not None:
        if size <= 2 and not (size == 2 and "--no-overlap-p2p-communication" not in case.given):
            yield Problem(
                "error",
                VIRTUAL,
                f"An interleaved schedule needs more pipeline stages than {size}.",
                "Leave it out.",
                {VIRTUAL: None},
            )
        elif config.num_layers % size == 0 and config.num_layers // size % virtual:
            yield Problem(
                "error",
                VIRTUAL,
                f"{config.num_layers // size} layers of a stage cannot be divided into virtual stages of {virtual}.",
                f"Take {(near := _divisor(config.num_layers // size, virtual))}, a divisor of {config.num_layers // size}.",
                {VIRTUAL: (str(near),)},
            )
        elif config.num_microbatches % size:
            yield Problem(
                "error",
                VIRTUAL,
                f"An interleaved schedule needs a multiple of {size} micro-batches; there are {config.num_microbatches}.",
                f"Change {GLOBAL} or {MICRO}.",
            )
    if size > 1 and config.num_microbatches < size:
        yield Problem(
            "warning",
            GLOBAL,
            f"{config.num_microbatches} micro-batches cannot fill a pipeline of {size} stages: GPUs wait.",
            "Take a larger global batch or fewer stages.",
        )


def check_context(case: Case) -> Iterator[Problem]:
    """Problems of context parallelism."""
    config, size = case.config, case.config.context_parallel_size
    if size == 1:
        return
    if config.seq_length % (2 * size):
        yield Problem(
            "error",
            CONTEXT,
            f"Sequence length {config.seq_length} is no multiple of {2 * size}, twice the context parallel size.",
            "Change one of them.",
        )
    if "--use-legacy-models" in case.given:
        yield Problem(
            "error",
            CONTEXT,
            "Legacy model classes know no context parallelism.",
            "Leave one of them out.",
            {CONTEXT: None},
        )


def check_model(case: Case) -> Iterator[Problem]:
    """Problems of the sizes of the model."""
    config, given = case.config, case.given
    if "--kv-channels" not in given and config.hidden_size % config.num_attention_heads:
        yield Problem(
            "error",
            "--num-attention-heads",
            f"Hidden size {config.hidden_size} cannot be divided among {config.num_attention_heads} attention heads.",
            "Change one of them, or give --kv-channels.",
        )
    if config.num_attention_heads % config.num_query_groups:
        yield Problem(
            "error",
            "--num-query-groups",
            f"{config.num_attention_heads} attention heads cannot be divided among {config.num_query_groups} query groups.",
            f"Take {(near := _divisor(config.num_attention_heads, config.num_query_groups))}, a divisor.",
            {"--num-query-groups": (str(near),)},
        )
    if "--num-query-groups" in given and "--group-query-attention" not in given:
        yield Problem(
            "warning",
            "--num-query-groups",
            "Query groups without --group-query-attention are ignored.",
            "Add --group-query-attention.",
            {"--group-query-attention": ()},
        )
    if config.max_position_embeddings < config.seq_length:
        yield Problem(
            "error",
            "--max-position-embeddings",
            f"There are {config.max_position_embeddings} positions for a sequence of {config.seq_length}.",
            f"Take {config.seq_length} or more.",
            {"--max-position-embeddings": (str(config.seq_length),)},
        )
    dummies = config.padded_vocab_size - config.vocab_size
    if dummies > config.vocab_size / 20:
        yield Problem(
            "warning",
            "--make-vocab-size-divisible-by",
            f"The vocabulary of {config.vocab_size} is padded by {dummies} entries that are never used.",
            f"Make it divisible by less; Megatron multiplies the number by {config.tensor_model_parallel_size}.",
        )


def check_batch(case: Case) -> Iterator[Problem]:
    """Problems of micro and global batch size."""
    config = case.config
    step = config.micro_batch_size * config.data_parallel_size
    if config.global_batch_size % step:
        near = max(step, round(config.global_batch_size / step) * step)
        yield Problem(
            "error",
            GLOBAL,
            f"Global batch size {config.global_batch_size} is no multiple of micro batch size {config.micro_batch_size} ×"
            f" data parallel size {config.data_parallel_size}.",
            f"Take {near}.",
            {GLOBAL: (str(near),)},
        )
