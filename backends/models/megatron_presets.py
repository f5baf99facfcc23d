"""The models that Megatron-LM trains out of the box: for each name a title and Megatron's arguments, data of this project.

`gpt3-7b` is the tutorial's recipe, the same flags as the patched training script has for itself. Sizes of the other
`gpt3-…` are the users' table; its names are kept although the first two do not fit their layers (the estimate shows the
computed count). Paths (data, vocabulary, tokenizer model, checkpoints) are no part of a preset.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

DEFAULT = "gpt3-7b"

_ADAM = "--weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --clip-grad 1.0"
_SAVE_AND_LOG = (
    "--log-interval 10 --log-throughput --save-interval 10000 --eval-interval 1000 --eval-iters 10"
)
_RECIPE = f"""
    --num-layers 30 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096
    --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --use-legacy-models
    --micro-batch-size 2 --global-batch-size 1024 --train-iters 500000 {_ADAM} --init-method-std 0.006
    --attention-dropout 0 --hidden-dropout 0 --fp16 --fp8-format hybrid --use-distributed-optimizer
    --lr 6.0e-5 --lr-decay-style cosine --min-lr 6.0e-6 --lr-warmup-fraction .001 --lr-decay-iters 430000
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 {_SAVE_AND_LOG}
"""
_LLAMA = f"""
    --normalization RMSNorm --norm-epsilon 1e-5 --position-embedding-type rope --swiglu --disable-bias-linear
    --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 --init-method-std 0.02
    --micro-batch-size 1 --global-batch-size 1024 --train-iters 500000 {_ADAM} --bf16 --use-distributed-optimizer
    --lr-decay-style cosine --lr-warmup-iters 2000 {_SAVE_AND_LOG}
"""
# Without Transformer Engine and Apex; the flags and figures are those of the log of an H200 in tests/data/logs.
_SMOKE = f"""
    --num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 512 --max-position-embeddings 512
    --micro-batch-size 8 --global-batch-size 32 --train-iters 200 {_ADAM} --init-method-std 0.006 --fp16
    --lr 6.0e-4 --lr-decay-style cosine --min-lr 6.0e-5 --lr-warmup-fraction .05 --lr-decay-iters 400
    --transformer-impl local --no-persist-layer-norm --no-gradient-accumulation-fusion --no-masked-softmax-fusion
    --log-interval 10 --log-throughput --save-interval 100 --eval-interval 100 --eval-iters 5
"""


def _sizes(layers: int, hidden: int, heads: int, sequence: int, tensor: int = 1, pipeline: int = 1) -> str:
    return (
        f"--num-layers {layers} --hidden-size {hidden} --num-attention-heads {heads} --seq-length {sequence} "
        f"--max-position-embeddings {sequence} --tensor-model-parallel-size {tensor} "
        f"--pipeline-model-parallel-size {pipeline} {'--sequence-parallel' if tensor > 1 else ''} "
    )


def _gpt(sizes: str, micro: int, rate: float) -> str:
    """GPT-3 as published: learned positions, GELU, biases, tied embeddings."""
    return f"""{sizes} --micro-batch-size {micro} --global-batch-size 1024 --train-iters 500000 {_ADAM}
        --init-method-std 0.006 --bf16 --use-distributed-optimizer --lr {rate:g} --lr-decay-style cosine
        --min-lr {rate / 10:g} --lr-warmup-fraction .001 --lr-decay-iters 430000 {_SAVE_AND_LOG}"""


def _llama(rate: float) -> str:
    """As published: arXiv:2307.09288 for Llama 2, arXiv:2407.21783 for Llama 3, whose 70B learns at half the rate."""
    return f"{_LLAMA} --lr {rate:g} --min-lr {rate / 10:g}"


_TEXTS: Mapping[str, tuple[str, str]] = {
    "gpt3-7b": ("GPT-3 7B, the tutorial's recipe", _RECIPE),
    "gpt3-345m": ("GPT-3 345M of the users' table", _gpt(_sizes(12, 512, 8, 1024), 8, 3e-4)),
    "gpt3-857m": ("GPT-3 857M of the users' table", _gpt(_sizes(24, 1024, 16, 2048), 4, 2.5e-4)),
    "gpt3-1.7b": ("GPT-3 1.7B of the users' table", _gpt(_sizes(24, 2048, 16, 2048), 4, 2e-4)),
    "gpt3-7.1b": ("GPT-3 7.1B of the users' table", _gpt(_sizes(30, 4096, 32, 2048, 2), 2, 1.2e-4)),
    "gpt3-16b": ("GPT-3 16B of the users' table", _gpt(_sizes(32, 6144, 48, 2048, 4), 2, 1e-4)),
    "gpt3-32b": ("GPT-3 32B of the users' table", _gpt(_sizes(48, 7168, 56, 2048, 8), 1, 8e-5)),
    "gpt3-70b": ("GPT-3 70B of the users' table", _gpt(_sizes(84, 8192, 64, 1024, 8, 2), 1, 6e-5)),
    "gpt2-medium": ("GPT-2 Medium 355M", _gpt(_sizes(24, 1024, 16, 1024), 8, 3e-4)),
    "llama2-7b": (
        "Llama 2 7B",
        f"{_sizes(32, 4096, 32, 4096)} --ffn-hidden-size 11008 --tokenizer-type Llama2Tokenizer {_llama(3e-4)}",
    ),
    "llama3-8b": (
        "Llama 3 8B",
        f"{_sizes(32, 4096, 32, 8192, 2)} --ffn-hidden-size 14336 --group-query-attention --num-query-groups 8 "
        f"--rotary-base 500000 --tokenizer-type HuggingFaceTokenizer {_llama(3e-4)}",
    ),
    "llama3-70b": (
        "Llama 3 70B, on two or more nodes",
        f"{_sizes(80, 8192, 64, 8192, 8, 2)} --ffn-hidden-size 28672 --group-query-attention --num-query-groups 8 "
        f"--rotary-base 500000 --tokenizer-type HuggingFaceTokenizer {_llama(1.5e-4)}",
    ),
    "smoke": ("A minute on one GPU, without Transformer Engine", _SMOKE),
}

MEGATRON_PRESETS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    name: (title, tuple(shlex.split(text))) for name, (title, text) in _TEXTS.items()
}
# Where all GPUs of a machine would be too many for the batch.
GPUS: Mapping[str, int] = {"smoke": 1}
# TFLOP/s a GPU, as measured: so small a model is far from any share of a GPU's peak (one H200, the log named above).
THROUGHPUTS: Mapping[str, float] = {"smoke": 17.0}
