"""The estimate says what Megatron will print: the tutorial's numbers, and core_r0.8.0's own file where a clone is present."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import random
import re
import shlex
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from backends.models.configuration import ArgumentError, Configuration, read_configuration
from backends.models.estimate import count_parameters, estimate, flops_per_iteration
from backends.models.layout import apply_fix
from backends.models.throughput import Throughput, assumed_throughput

CLONE = Path(os.environ.get("MDK_MEGATRON") or Path(__file__).parents[2] / "third_party" / "Megatron-LM")
LOGS = Path(__file__).parents[1] / "data" / "logs"
RECIPE = shlex.split(
    "--num-layers 30 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
    "--swiglu --untie-embeddings-and-output-weights --micro-batch-size 2 --global-batch-size 1024 --fp16 "
    "--fp8-format hybrid --use-distributed-optimizer --train-iters 500000 --save-interval 10000"
)


def test_the_recipe_on_one_node() -> None:
    result = estimate(read_configuration(RECIPE, 8))
    billions = result.parameters
    assert f"{billions.transformer / 1e9:.2f}" == "6.02"
    assert f"{billions.embedding / 1e9:.2f}" == "0.41"
    assert f"{billions.total / 1e9:.2f}" == "6.44"
    assert f"{billions.most_loaded_shard / 1e9:.4f}" == "6.4367"
    assert f"{result.memory.weight_and_optimizer:.2f}" == "46038.57"


def test_the_recipe_on_two_nodes_shares_the_optimizer_further() -> None:
    assert f"{estimate(read_configuration(RECIPE, 16)).memory.weight_and_optimizer:.2f}" == "41434.72"


def test_recomputation_trades_memory_and_nothing_else() -> None:
    plain = estimate(read_configuration(RECIPE, 8))
    full = estimate(read_configuration([*RECIPE, "--recompute-granularity", "full"], 8))
    assert (
        full.memory.activation
        == plain.memory.activation_with_full_recomputation
        < plain.memory.activation / 4
    )
    assert full.memory.weight_and_optimizer == plain.memory.weight_and_optimizer
    assert full.parameters == plain.parameters


def test_attention_without_fused_kernels_keeps_its_scores() -> None:
    fused = estimate(read_configuration(RECIPE, 8)).memory.activation
    local = estimate(read_configuration([*RECIPE, "--transformer-impl", "local"], 8)).memory
    scores = 5 * 32 * 4096 * 4096 * 2 * 30 / 2**20
    assert local.activation == pytest.approx(fused + scores)
    selective = [*RECIPE, "--transformer-impl", "local", "--recompute-activations"]
    assert estimate(read_configuration(selective, 8)).memory.activation == pytest.approx(fused)


def test_context_parallelism_shares_out_the_activations() -> None:
    """Megatron's own print leaves it out, so the branch cannot tell."""
    alone = estimate(read_configuration(RECIPE, 8)).memory
    shared = estimate(read_configuration([*RECIPE, "--context-parallel-size", "2"], 8)).memory
    assert shared.activation == pytest.approx(alone.activation / 2)


def test_an_interleaved_pipeline_holds_more_micro_batches() -> None:
    """1 + (p - 1) / (p v) times the activations, for p stages in v pieces each (section 5 of arXiv:2205.05198)."""
    split = [*RECIPE, "--num-layers", "32", "--pipeline-model-parallel-size", "4"]
    plain = estimate(read_configuration(split, 8)).memory
    pieces = [*split, "--num-layers-per-virtual-pipeline-stage", "4"]
    assert estimate(read_configuration(pieces, 8)).memory.activation == pytest.approx(
        plain.activation * 1.375
    )


def test_tokens_epochs_disk_and_time() -> None:
    training = estimate(
        read_configuration(RECIPE, 8),
        data_tokens=1_000_000_000,
        train_split=0.949,
        throughput=Throughput(879.9, "as given"),
    ).training
    assert training.tokens_per_iteration == 1024 * 4096
    assert training.epochs == pytest.approx(1024 * 4096 * 500_000 / 0.949e9)
    assert training.checkpoints == 50
    assert training.disk_bytes == 50 * 14 * 6_436_659_200
    assert training.throughput.measured and training.seconds == pytest.approx(
        500_000 * training.seconds_per_iteration
    )


@pytest.mark.parametrize(
    ("log", "gpus", "sequence"), [("tutorial-1node.log", 8, 2048), ("tutorial-2node.log", 16, 4096)]
)
def test_time_agrees_with_the_tutorials_logs(log: str, gpus: int, sequence: int) -> None:
    # Both name the same recipe; the throughput and the milliseconds of the first go together at sequence 2048 only.
    text = (LOGS / log).read_text()
    pairs = re.findall(r"iteration \(ms\): ([\d.]+) \| throughput per GPU \(TFLOP/s/GPU\): ([\d.]+)", text)
    assert len(pairs) == 10
    config = read_configuration([*RECIPE, "--seq-length", str(sequence)], gpus)
    for milliseconds, teraflops in pairs:
        training = estimate(config, throughput=Throughput(float(teraflops), "as logged")).training
        assert training.seconds_per_iteration * 1000 == pytest.approx(float(milliseconds), rel=1e-3)


def test_an_assumed_throughput_says_what_it_assumes() -> None:
    fp8, half = (
        read_configuration(RECIPE, 8),
        read_configuration(apply_fix(RECIPE, {"--fp8-format": None}), 8),
    )
    assert assumed_throughput(fp8).words == "792 TFLOP/s a GPU (assumed: 40 % of the FP8 peak of H100)"
    on_a100 = assumed_throughput(fp8, "NVIDIA A100-SXM4-80GB")  # which has no FP8
    assert on_a100.words == "125 TFLOP/s a GPU (assumed: 40 % of the half-precision peak of A100)"
    assert assumed_throughput(half, "NVIDIA H100 PCIe").value == pytest.approx(302.6)
    assert assumed_throughput(half, "NVIDIA of tomorrow") == assumed_throughput(half, None)
    again = read_configuration([*RECIPE, "--recompute-granularity", "full"], 8)
    assert "less the recomputation" in assumed_throughput(again).source
    # The tutorial's own 16 GPUs at the recipe's sequence, within the share that was assumed.
    assert assumed_throughput(fp8).value == pytest.approx(801.7, rel=0.02)


def test_the_last_of_equal_flags_wins_and_an_unreadable_one_is_named() -> None:
    assert read_configuration([*RECIPE, "--num-layers=2"], 8).num_layers == 2
    for words, flag in (
        (["--num-layers", "0"], "--num-layers"),
        (["--hidden-size"], "--hidden-size"),
        (["--micro-batch-size", "two"], "--micro-batch-size"),
        (["--global-batch-size", "9" * 400], "--global-batch-size"),
    ):
        with pytest.raises(ArgumentError) as error:
            read_configuration([*RECIPE, *words], 8)
        assert error.value.field == flag
    with pytest.raises(ArgumentError, match="--num-layers is missing"):
        read_configuration(RECIPE[2:], 8)


# The branch's own file.


@pytest.fixture(scope="module")
def branch() -> ModuleType:
    path = CLONE / "megatron" / "training" / "theoretical_memory_usage.py"
    if not path.is_file():
        pytest.skip(f"no clone of Megatron-LM in {CLONE} (MDK_MEGATRON names another)")
    specification = importlib.util.spec_from_file_location("theoretical_memory_usage", path)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def random_arguments(seed: int) -> tuple[list[str], int]:
    """Arguments and a number of GPUs that Megatron would accept."""
    pick = random.Random(seed)
    tensor, pipeline, copies = pick.choice([1, 2, 4, 8]), pick.choice([1, 2, 4]), pick.choice([1, 2, 3, 8])
    heads, per_head = pick.choice([8, 16, 32, 64]), pick.choice([64, 128])
    micro = pick.choice([1, 2, 4])
    words = {
        "--num-layers": pipeline * pick.choice([4, 12, 20]),
        "--hidden-size": heads * per_head,
        "--num-attention-heads": heads,
        "--seq-length": pick.choice([512, 2048, 8192]),
        "--micro-batch-size": micro,
        "--global-batch-size": micro * copies * pick.choice([1, 2, 64]),
        "--tensor-model-parallel-size": tensor,
        "--pipeline-model-parallel-size": pipeline,
        "--tokenizer-type": pick.choice(["GPT2BPETokenizer", "Llama2Tokenizer", "Llama3Tokenizer"]),
    }
    flags = [f for f in ("--swiglu", "--untie-embeddings-and-output-weights", "--use-distributed-optimizer")
             if pick.random() < 0.5]  # fmt: skip
    if pick.random() < 0.5:
        flags += ["--group-query-attention", "--num-query-groups", "8"]
    if pick.random() < 0.3:
        flags += ["--kv-channels", "96"]
    if pick.random() < 0.3:
        flags += ["--ffn-hidden-size", "14336"]
    if pick.random() < 0.2:
        flags += ["--num-experts", "8"]
    if pipeline > 1 and pick.random() < 0.5:
        flags += ["--num-layers-per-virtual-pipeline-stage", "2"]
    flags += ["--sequence-parallel", "--recompute-activations", "--bf16"]
    return [*(str(word) for pair in words.items() for word in pair), *flags], tensor * pipeline * copies


def as_megatron_has_it(config: Configuration) -> SimpleNamespace:
    names = {name: getattr(config, name) for name in Configuration.__dataclass_fields__}
    return SimpleNamespace(
        **names,
        group_query_attention=config.num_query_groups != config.num_attention_heads,
        padded_vocab_size=config.padded_vocab_size,
        data_parallel_size=config.data_parallel_size,
        virtual_pipeline_model_parallel_size=config.virtual_pipeline_model_parallel_size,
    )


@pytest.mark.parametrize("seed", range(30))
def test_agrees_with_the_branch_on_a_random_configuration(seed: int, branch: ModuleType) -> None:
    config = read_configuration(*random_arguments(seed))
    args = as_megatron_has_it(config)
    result = estimate(config)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        weight = branch.compute_weight_and_optimizer_memory(args, verbose=True) / 2**20
    assert result.memory.weight_and_optimizer == pytest.approx(weight, rel=1e-6)
    shard = re.search(r"most loaded shard in billions: ([\d.]+)", printed.getvalue())
    assert shard and f"{result.parameters.most_loaded_shard / 1e9:.4f}" == shard[1]
    if config.tensor_model_parallel_size > 1:  # with one, sequence parallelism and this print are off
        activation = branch.compute_activation_memory(args, config.num_microbatches) / 2**20
        assert result.memory.activation == pytest.approx(activation, rel=1e-9)


@pytest.mark.parametrize("seed", range(30, 40))
def test_operations_agree_with_the_branch(seed: int) -> None:
    path = CLONE / "megatron" / "training" / "training.py"
    if not path.is_file():
        pytest.skip(f"no clone of Megatron-LM in {CLONE} (MDK_MEGATRON names another)")
    source = path.read_text(encoding="utf-8")
    function = source[source.index("def num_floating_point_operations(") :]
    namespace: dict[str, object] = {}
    exec(function[: function.index("\ndef ")], namespace)
    config = read_configuration(*random_arguments(seed))
    args = as_megatron_has_it(config)
    args.moe_router_topk = 2
    count = namespace["num_floating_point_operations"]
    assert callable(count)
    assert flops_per_iteration(config) == pytest.approx(count(args, config.global_batch_size), rel=1e-9)


def test_counts_are_whole_numbers() -> None:
    counts = count_parameters(read_configuration(RECIPE, 8))
    assert counts.total == counts.transformer + counts.embedding == counts.most_loaded_shard
