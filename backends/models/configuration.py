"""What of a run's Megatron arguments decides its size, its memory and its arithmetic.

Names, defaults and derived values are core_r0.8.0's (`megatron/training/arguments.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backends.errors import UserError
from backends.models.arguments import group_arguments

# Known vocabularies, for arguments that only name their tokenizer. A vocabulary file, where given, knows better.
VOCABULARIES = {
    "GPT2BPETokenizer": 50257,
    "Llama2Tokenizer": 32000,
    "Llama3Tokenizer": 128256,
    "MistralTokenizer": 32768,
}
# Llama 3's and the biggest vocabularies in use: an estimate for HuggingFaceTokenizer should rather be too large.
UNKNOWN_VOCABULARY = 128256


class ArgumentError(UserError):
    """One argument is missing or no number; `field` is its flag."""

    def __init__(self, field: str, message: str, remedy: str) -> None:
        super().__init__(message, remedy, status=2)
        self.field = field


@dataclass(frozen=True, slots=True)
class Configuration:
    """A model and how it is spread over `world_size` GPUs. Sizes as Megatron uses them, not as they were given."""

    world_size: int
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    seq_length: int
    max_position_embeddings: int
    ffn_hidden_size: int
    kv_channels: int
    num_query_groups: int
    vocab_size: int  # before padding
    make_vocab_size_divisible_by: int
    micro_batch_size: int
    global_batch_size: int
    tensor_model_parallel_size: int
    pipeline_model_parallel_size: int
    context_parallel_size: int
    num_layers_per_virtual_pipeline_stage: int | None
    num_experts: int | None
    recompute_granularity: str | None  # selective, full
    sequence_parallel: bool
    swiglu: bool
    untie_embeddings_and_output_weights: bool
    use_distributed_optimizer: bool
    half_precision: bool  # fp16 or bf16
    fp8: bool
    fused_attention: bool  # does not store the attention scores
    train_iters: int | None
    save_interval: int | None

    @property
    def model_parallel_size(self) -> int:
        """GPUs that hold one copy of the model and work on one sequence."""
        return (
            self.tensor_model_parallel_size * self.pipeline_model_parallel_size * self.context_parallel_size
        )

    @property
    def data_parallel_size(self) -> int:
        """Copies of the model; 1 where the GPUs do not even hold one."""
        return max(1, self.world_size // self.model_parallel_size)

    @property
    def padded_vocab_size(self) -> int:
        multiple = self.make_vocab_size_divisible_by * self.tensor_model_parallel_size
        return -(-self.vocab_size // multiple) * multiple

    @property
    def num_microbatches(self) -> int:
        return max(1, self.global_batch_size // (self.micro_batch_size * self.data_parallel_size))

    @property
    def virtual_pipeline_model_parallel_size(self) -> int | None:
        if self.num_layers_per_virtual_pipeline_stage is None:
            return None
        layers_per_stage = self.num_layers // self.pipeline_model_parallel_size
        return max(1, layers_per_stage // self.num_layers_per_virtual_pipeline_stage)


class Arguments:
    """Megatron's command line, the last of equal flags winning, as argparse has it."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._values = {flag: words for flag, words in group_arguments(arguments) if flag}

    def __contains__(self, flag: str) -> bool:
        return flag in self._values

    def words(self, flag: str) -> tuple[str, ...]:
        return self._values.get(flag, ())

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(self._values)

    def text(self, flag: str) -> str | None:
        words = self.words(flag)
        return words[0] if words else None

    def count(self, flag: str) -> int | None:
        """A positive whole number, or None when the flag is not given. Raises ArgumentError."""
        if flag not in self:
            return None
        text = self.text(flag) or ""
        if not text.isascii() or not text.isdigit() or len(text) > 15 or int(text) == 0:
            raise ArgumentError(
                flag, f"{flag} is {text or 'empty'!r}, not a whole number above 0.", f"Give {flag} a number."
            )
        return int(text)

    def number(self, flag: str) -> float | None:
        """Raises ArgumentError when what is given is no number."""
        if flag not in self:
            return None
        text = self.text(flag) or ""
        try:
            return float(text)
        except ValueError:
            raise ArgumentError(
                flag, f"{flag} is {text!r}, not a number.", f"Give {flag} a number."
            ) from None

    def required(self, flag: str) -> int:
        value = self.count(flag)
        if value is None:
            raise ArgumentError(flag, f"{flag} is missing.", f"Give {flag} or choose a preset.")
        return value


def read_configuration(
    arguments: Sequence[str], world_size: int, vocab_size: int | None = None
) -> Configuration:
    """The configuration that `arguments` describe on `world_size` GPUs.

    `vocab_size` is the tokenizer's own count where it is known. Raises ArgumentError for a missing or unreadable number.
    """
    given = Arguments(arguments)
    hidden, heads = given.required("--hidden-size"), given.required("--num-attention-heads")
    seq_length = given.required("--seq-length")
    swiglu = "--swiglu" in given
    tensor = given.count("--tensor-model-parallel-size") or 1
    pipeline = given.count("--pipeline-model-parallel-size") or 1
    context = given.count("--context-parallel-size") or 1
    micro = given.count("--micro-batch-size") or 1
    copies = max(1, world_size // (tensor * pipeline * context))
    grouped = "--group-query-attention" in given
    local = given.text("--transformer-impl") == "local"
    return Configuration(
        world_size=world_size,
        num_layers=given.required("--num-layers"),
        hidden_size=hidden,
        num_attention_heads=heads,
        seq_length=seq_length,
        max_position_embeddings=given.count("--max-position-embeddings") or seq_length,
        ffn_hidden_size=given.count("--ffn-hidden-size")
        or (int(4 * hidden * 2 / 3 / 64) * 64 if swiglu else 4 * hidden),
        kv_channels=given.count("--kv-channels") or hidden // heads,
        num_query_groups=(given.count("--num-query-groups") or 1) if grouped else heads,
        vocab_size=vocab_size or _vocabulary(given),
        make_vocab_size_divisible_by=given.count("--make-vocab-size-divisible-by") or 128,
        micro_batch_size=micro,
        global_batch_size=given.count("--global-batch-size") or micro * copies,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        context_parallel_size=context,
        num_layers_per_virtual_pipeline_stage=given.count("--num-layers-per-virtual-pipeline-stage"),
        num_experts=given.count("--num-experts"),
        recompute_granularity="selective"
        if "--recompute-activations" in given
        else given.text("--recompute-granularity"),
        sequence_parallel="--sequence-parallel" in given and tensor > 1,
        swiglu=swiglu,
        untie_embeddings_and_output_weights="--untie-embeddings-and-output-weights" in given,
        use_distributed_optimizer="--use-distributed-optimizer" in given,
        half_precision="--fp16" in given or "--bf16" in given,
        fp8="--fp8-format" in given,
        fused_attention=not local or ("--use-flash-attn" in given and "--use-legacy-models" in given),
        train_iters=given.count("--train-iters"),
        save_interval=given.count("--save-interval"),
    )


def _vocabulary(given: Arguments) -> int:
    tokenizer = given.text("--tokenizer-type") or "GPT2BPETokenizer"
    if tokenizer == "NullTokenizer":
        return given.required("--vocab-size") + 1  # and the end of a document
    return VOCABULARIES.get(tokenizer) or given.count("--vocab-size") or UNKNOWN_VOCABULARY
