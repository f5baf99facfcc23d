"""What a training will need: parameters, memory, tokens, disk and time, known before anything is started.

Parameters and weight-and-optimizer memory follow core_r0.8.0's `megatron/training/theoretical_memory_usage.py`, so that
they equal what Megatron prints. Activations follow its formula too (Table 2 of arXiv:2205.05198) and go on where it
stops: without sequence parallelism, and with full or no recomputation. Memory is that of the fullest GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from backends.models.configuration import Configuration
from backends.models.throughput import Throughput, assumed_throughput

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts. `embedding` counts the output layer where it is untied."""

    transformer: int
    embedding: int
    total: int
    most_loaded_shard: int
    other_shards: int | None  # None: the pipeline has one stage


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB on the fullest GPU. `activation` is with the recomputation of the plan."""

    weight_and_optimizer: float
    activation: float
    activation_without_recomputation: float
    activation_with_full_recomputation: float

    @property
    def total(self) -> float:
        return self.weight_and_optimizer + self.activation


@dataclass(frozen=True, slots=True)
class Training:
    """What the iterations of a plan come to. None where the plan, or what is known of the data, does not say."""

    tokens_per_iteration: int
    tokens: int | None  # in all iterations
    epochs: float | None  # passes over the training split
    seconds_per_iteration: float
    seconds: float | None  # without evaluation and saving
    throughput: Throughput  # from which the time was computed
    checkpoint_bytes: int
    checkpoints: int | None
    disk_bytes: int | None  # all checkpoints of the run


@dataclass(frozen=True, slots=True)
class Estimate:
    """Everything that is computed for a training: parameters, memory, tokens and time."""

    parameters: Parameters
    memory: Memory
    training: Training

    def as_json(self) -> dict[str, Any]:
        """The contract of `mdk-tui estimate --json`."""
        p, m, t = self.parameters, self.memory, self.training
        return {
            "parameters": {
                "transformer": p.transformer,
                "embedding": p.embedding,
                "total": p.total,
                "most_loaded_shard": p.most_loaded_shard,
                "other_shards": p.other_shards,
            },
            "memory_mb": {
                "weight_and_optimizer": m.weight_and_optimizer,
                "activation": m.activation,
                "total": m.total,
                "activation_without_recomputation": m.activation_without_recomputation,
                "activation_with_full_recomputation": m.activation_with_full_recomputation,
            },
            "training": {
                "tokens_per_iteration": t.tokens_per_iteration,
                "tokens": t.tokens,
                "epochs": t.epochs,
                "seconds_per_iteration": t.seconds_per_iteration,
                "seconds": t.seconds,
                "throughput": t.throughput.value,
                "throughput_measured": t.throughput.measured,
                "throughput_source": t.throughput.source,
                "checkpoint_bytes": t.checkpoint_bytes,
                "checkpoints": t.checkpoints,
                "disk_bytes": t.disk_bytes,
            },
        }


def estimate(
    config: Configuration,
    *,
    data_tokens: int | None = None,
    train_split: float = 1.0,
    throughput: Throughput | None = None,
) -> Estimate:
    """All of it. `data_tokens` is the size of the data set, of which the share `train_split` is trained on."""
    counts = count_parameters(config)
    return Estimate(
        counts,
        estimate_memory(config, counts),
        estimate_training(
            config, counts, data_tokens=data_tokens, train_split=train_split, throughput=throughput
        ),
    )


def count_parameters(config: Configuration) -> Parameters:
    """Parameters by Megatron's formula: biases are not counted, layer norms with weight and bias."""
    hidden, layers = config.hidden_size, config.num_layers
    projection = config.kv_channels * config.num_attention_heads
    attention = 2 * hidden * projection * (1 + config.num_query_groups / config.num_attention_heads)
    mlp = (3 if config.swiglu else 2) * hidden * config.ffn_hidden_size * (config.num_experts or 1)
    norms = 4 * hidden
    transformer = layers * (attention + mlp + norms) + 2 * hidden
    table = hidden * config.padded_vocab_size
    tables = 2 if config.untie_embeddings_and_output_weights else 1
    stage = transformer / config.pipeline_model_parallel_size
    on_first_stage = tables if config.pipeline_model_parallel_size == 1 else 1
    tensor = config.tensor_model_parallel_size
    return Parameters(
        transformer=round(transformer),
        embedding=tables * table,
        total=round(transformer) + tables * table,
        most_loaded_shard=round((stage + on_first_stage * table) / tensor),
        other_shards=round(stage / tensor) if config.pipeline_model_parallel_size > 1 else None,
    )


def estimate_memory(config: Configuration, counts: Parameters) -> Memory:
    """MiB on the fullest GPU: 18 bytes a parameter, of which a distributed optimizer shares out 12."""
    per_parameter = 6 + 12 / config.data_parallel_size if config.use_distributed_optimizer else 18
    without = _activation(config, None)
    full = _activation(config, "full")
    chosen = config.recompute_granularity
    return Memory(
        weight_and_optimizer=counts.most_loaded_shard * per_parameter / MEBIBYTE,
        activation=without if chosen is None else full if chosen == "full" else _activation(config, chosen),
        activation_without_recomputation=without,
        activation_with_full_recomputation=full,
    )


def _activation(config: Configuration, granularity: str | None) -> float:
    """MiB of activations on the first pipeline stage, the fullest.

    The parts inside attention and MLP are split by tensor parallelism; norms, dropouts and residuals only with
    sequence parallelism. Context parallelism splits all of it, which Megatron's own print leaves out.
    """
    pipeline = config.pipeline_model_parallel_size
    tokens = config.seq_length * config.micro_batch_size
    state = tokens * config.hidden_size
    inside = state * (8 + 4 * config.ffn_hidden_size / config.hidden_size)
    if granularity is None and not config.fused_attention:
        inside += 5 * config.num_attention_heads * config.seq_length * tokens
    around = 10 * state
    if granularity == "full":  # the input of each layer is kept, and one layer at a time is there whole
        split, whole = inside, 2 * state * config.num_layers + around
    else:
        split, whole = inside * config.num_layers, around * config.num_layers
    whole += (8 * tokens + state) * pipeline
    in_flight = _in_flight(config)
    split, whole = split * in_flight, whole * in_flight
    if pipeline == 1:  # norm, output layer and loss
        split += 4 * tokens * config.padded_vocab_size
        whole += 4 * state
    tensor = config.tensor_model_parallel_size
    total = split / tensor + whole / (tensor if config.sequence_parallel else 1)
    return total / config.context_parallel_size / MEBIBYTE


def _in_flight(config: Configuration) -> float:
    """Micro-batches whose activations the first stage holds, as a share of the pipeline's depth."""
    pipeline, virtual = config.pipeline_model_parallel_size, config.virtual_pipeline_model_parallel_size
    if virtual is not None:
        return 1 + (pipeline - 1) / (pipeline * virtual)
    return min(1.0, config.num_microbatches / pipeline)


def flops_per_iteration(config: Configuration) -> float:
    """Floating-point operations of one global batch, as Megatron's throughput counts them (no recomputation)."""
    hidden, length = config.hidden_size, config.seq_length
    projection = config.kv_channels * config.num_attention_heads
    attention = (
        hidden * projection * (1 + config.num_query_groups / config.num_attention_heads) + length * projection
    )
    mlp = hidden * config.ffn_hidden_size * (1.5 if config.swiglu else 1.0) * (2 if config.num_experts else 1)
    logits = hidden * config.padded_vocab_size / 2
    return 12 * config.global_batch_size * length * (config.num_layers * (attention + mlp) + logits)


def checkpoint_bytes(config: Configuration, counts: Parameters) -> int:
    """Weights, and with half precision the optimizer's copy of them in full, and both moments."""
    return counts.total * (14 if config.half_precision else 12)


def estimate_training(
    config: Configuration,
    counts: Parameters,
    *,
    data_tokens: int | None = None,
    train_split: float = 1.0,
    throughput: Throughput | None = None,
) -> Training:
    """Tokens, epochs, time and disk of the planned iterations."""
    per_iteration = config.global_batch_size * config.seq_length
    iterations = config.train_iters
    tokens = per_iteration * iterations if iterations else None
    to_train_on = (data_tokens or 0) * train_split
    speed = throughput or assumed_throughput(config)
    seconds = flops_per_iteration(config) / (speed.value * 1e12 * config.world_size)
    size = checkpoint_bytes(config, counts)
    # Megatron saves after the last iteration as well.
    saves = math.ceil(iterations / config.save_interval) if iterations and config.save_interval else None
    return Training(
        tokens_per_iteration=per_iteration,
        tokens=tokens,
        epochs=tokens / to_train_on if tokens and to_train_on else None,
        seconds_per_iteration=seconds,
        seconds=seconds * iterations if iterations else None,
        throughput=speed,
        checkpoint_bytes=size,
        checkpoints=saves,
        disk_bytes=saves * size if saves is not None else None,
    )
