"""The lines that core_r0.8.0 prints, character by character: pure functions from values to text.

Formats: megatron/training/training.py, megatron/core/timers.py, megatron/training/theoretical_memory_usage.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backends.demo.model import Shape

# Weight, gradient and two moments in float32. Megatron-LM's 18 are for half precision.
BYTES_PER_PARAMETER = 16


@dataclass(frozen=True, slots=True)
class Window:
    """The iterations since the last line: means of time and loss, the newest values of the rest."""

    iteration: int
    train_iters: int
    consumed_samples: int
    ms: float  # of an iteration
    tflops: float | None  # per second and rank
    learning_rate: float
    global_batch_size: int
    loss: float
    grad_norm: float


def start_up(args: Mapping[str, Any], seconds: float) -> str:
    """From the world size to the end of initialization, which took `seconds`."""
    ranks, size, padded = args["world_size"], args["vocab_size"] + 1, args["padded_vocab_size"]
    micro_batches = args["global_batch_size"] // (args["micro_batch_size"] * ranks)
    return "\n".join(
        [
            f"using world size: {ranks}, data-parallel size: {ranks}, context-parallel size: 1 "
            "tensor-model-parallel size: 1, pipeline-model-parallel size: 1 ",
            "using torch.float32 for parameters ...",
            argument_block(args),
            "INFO:megatron.core.num_microbatches_calculator:"
            f"setting number of micro-batches to constant {micro_batches}",
            f"> building {args['tokenizer_type']} tokenizer ...",
            f" > padded vocab (size: {size}) with {padded - size} dummy tokens (new size: {padded})",
            "> initializing torch distributed ...",
            "> initialized tensor model parallel with size 1",
            "> initialized pipeline model parallel with size 1",
            f"> setting random seeds to {args['seed']} ...",
            f"time to initialize megatron (seconds): {seconds:.3f}",
        ]
    )


def argument_block(values: Mapping[str, Any]) -> str:
    """core_r0.8.0's: `name`, dots up to column 48, value; sorted without regard to case."""
    body = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in values.items()]
    first = "------------------------ arguments ------------------------"
    last = "-------------------- end of arguments ---------------------"
    return "\n".join([first, *sorted(body, key=str.lower), last])


def iteration_line(window: Window, time: datetime) -> str:
    """One line of the training log, of the iterations in `window`."""
    fields = [
        f" [{time:%Y-%m-%d %H:%M:%S}] iteration {window.iteration:8d}/{window.train_iters:8d}",
        f"consumed samples: {window.consumed_samples:12d}",
        f"elapsed time per iteration (ms): {window.ms:.1f}",
    ]
    if window.tflops is not None:
        fields.append(f"throughput per GPU (TFLOP/s/GPU): {window.tflops:.1f}")
    fields += [
        f"learning rate: {window.learning_rate:.6E}",
        f"global batch size: {window.global_batch_size:5d}",
    ]
    if window.loss > 0:
        fields.append(f"lm loss: {window.loss:.6E}")
    fields += ["loss scale: 1.0", f"grad norm: {window.grad_norm:.3f}"]
    fields += [f"number of skipped iterations: {0:3d}", f"number of nan iterations: {0:3d}"]
    return " | ".join(fields) + " |"


def validation_block(place: str, loss: float) -> str:
    """`place`: "iteration 100", "iteration 200 on test set". The perplexity is cut at exp(20), as Megatron-LM's."""
    line = f" validation loss at {place} | lm loss value: {loss:.6E} | lm loss PPL: {math.exp(min(20, loss)):.6E} | "
    dashes = "-" * (len(line) + 1)
    return f"{dashes}\n{line}\n{dashes}"


def timers_block(times: Mapping[str, tuple[float, float]]) -> str:
    """Name → shortest and longest time over the ranks, in ms."""
    rows = [
        f"    {(name + ' ').ljust(48, '.')}: ({low:.2f}, {high:.2f})" for name, (low, high) in times.items()
    ]
    return "\n".join(["(min, max) time across ranks (ms):", *rows])


def datetime_line(words: str, time: datetime) -> str:
    return f"[{words}] datetime: {time:%Y-%m-%d %H:%M:%S} "


def parameters_block(shape: Shape) -> str:
    """Megatron-LM's theoretical counts (no biases, no positions), in billions; then the memory they take."""
    hidden, layers = shape.hidden_size, shape.num_layers
    gated = 1.5 if shape.swiglu else 1.0
    per_layer = 2 + shape.ffn_hidden_size / hidden * gated + 2 / hidden + 1 / (layers * hidden)
    in_layers = 2 * layers * hidden**2 * per_layer
    embedding = hidden * shape.padded_vocab_size
    total = in_layers + embedding
    return "\n".join(
        [
            f"Number of parameters in transformer layers in billions: {in_layers / 10**9: .2f}",
            f"Number of parameters in embedding layers in billions: {embedding / 10**9:.2f}",
            f"Total number of parameters in billions: {total / 10**9:.2f}",
            f"Number of parameters in most loaded shard in billions: {total / 10**9:.4f}",
            f"Theoretical memory footprints: weight and optimizer={total * BYTES_PER_PARAMETER / 2**20:.2f} MB",
        ]
    )


def memory_line(rank: int, iteration: int, now: float, most: float) -> str:
    """The memory of the process in MiB, in the line that Megatron-LM prints for a GPU."""
    return (
        f"[Rank {rank}] (after {iteration} iterations) memory (MB) | allocated: {now} | max allocated: {most}"
        f" | reserved: {now} | max reserved: {most}"
    )


def floating_point_operations(shape: Shape, seq_length: int, samples: int) -> float:
    """Of a forward and a backward pass over `samples` samples, by Megatron-LM's formula."""
    hidden, layers = shape.hidden_size, shape.num_layers
    gated = 1.5 if shape.swiglu else 1.0
    attention, mlp = 2 + seq_length / hidden, shape.ffn_hidden_size / hidden * gated
    logits = shape.padded_vocab_size / (2 * layers * hidden)
    return 12 * samples * seq_length * layers * hidden**2 * (attention + mlp + logits)
