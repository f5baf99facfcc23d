"""Continuing a checkpoint that no run of the workspace wrote, with the arguments stored in it."""

from __future__ import annotations

import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from checkpoint_trees import dist_checkpoint, torch_checkpoint, torch_file
from click.testing import CliRunner
from demo_runs import SMALL, run, write_corpus

from backends.errors import UserError
from backends.launch.resume import placed_resumption, resume_problems
from backends.models import training_flags
from backends.models.arguments import group_arguments, value_of
from backends.runs.argument_values import given_values
from backends.runs.planning import continue_plan
from backends.runs.resuming import Resumption, resumption
from backends.workspace import Workspace
from tui.cli import cli

NOW = datetime(2026, 11, 30, 5)
ARGUMENTS = Path(__file__).parents[2] / "third_party/Megatron-LM/megatron/training/arguments.py"
# As core_r0.8.0 stores a run of two nodes: given, filled in, and left alone.
STORED: dict[str, Any] = {
    "num_layers": 8, "hidden_size": 512, "ffn_hidden_size": 2048, "num_attention_heads": 8, "kv_channels": 64,
    "seq_length": 1024, "max_position_embeddings": 1024, "position_embedding_type": "learned_absolute",
    "padded_vocab_size": 50304, "transformer_impl": "transformer_engine", "tokenizer_type": "GPT2BPETokenizer",
    "make_vocab_size_divisible_by": 128, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2,
    "context_parallel_size": 1, "world_size": 8, "micro_batch_size": 2, "global_batch_size": 64, "bf16": True,
    "swiglu": False, "add_bias_linear": True, "train_iters": 1000, "train_samples": None, "lr": 3e-4, "min_lr": 3e-5,
    "lr_decay_style": "cosine", "lr_decay_iters": 1000, "lr_warmup_iters": 0, "lr_warmup_fraction": 0.01,
    "lr_warmup_samples": 0, "weight_decay": 0.1, "start_weight_decay": 0.1, "end_weight_decay": 0.1,
    "weight_decay_incr_style": "constant", "clip_grad": 1.0, "data_path": ["0.3", "a", "0.7", "b"], "split": "949,50,1",
    "save_interval": 100, "log_interval": 10, "use_distributed_optimizer": True, "sequence_parallel": True,
    "check_for_nan_in_loss_and_grad": False, "num_layers_per_virtual_pipeline_stage": 2, "seed": 7, "fp8": None,
    "fp8_margin": 0, "load": "/theirs", "save": "/theirs", "tensorboard_dir": "/theirs/board", "rank": 0, "finetune": False,
}  # fmt: skip


def flags_of(**changes: Any) -> dict[str, tuple[str, ...]]:
    return dict(group_arguments(training_flags.of_checkpoint(STORED | changes)))


def test_given_arguments_come_back_and_derived_ones_do_not() -> None:
    flags = flags_of()
    assert flags["--lr"] == ("0.0003",) and flags["--data-path"] == ("0.3", "a", "0.7", "b")
    assert flags["--num-layers-per-virtual-pipeline-stage"] == ("2",) and flags["--seed"] == ("7",)
    assert flags["--tensor-model-parallel-size"] == ("2",) and flags["--lr-warmup-fraction"] == ("0.01",)
    assert {
        "--bf16",
        "--use-distributed-optimizer",
        "--sequence-parallel",
        "--no-check-for-nan-in-loss-and-grad",
    } <= flags.keys()
    absent = {"--lr-decay-iters", "--lr-warmup-iters", "--start-weight-decay", "--weight-decay-incr-style", "--load", "--save",
              "--fp8-margin", "--fp8-format", "--tensorboard-dir", "--rank", "--train-samples", "--finetune"}  # fmt: skip
    assert not absent & flags.keys()


def test_training_by_samples_and_another_decay_are_reported() -> None:
    flags = flags_of(train_samples=64000, lr_decay_samples=32000, lr_decay_iters=None)
    assert flags["--train-samples"] == ("64000",) and flags["--lr-decay-samples"] == ("32000",)
    assert "--train-iters" not in flags, "Megatron-LM counts them from the samples"
    flags = flags_of(lr_decay_iters=800, weight_decay_incr_style="linear", fp8="hybrid")
    assert flags["--lr-decay-iters"] == ("800",) and flags["--end-weight-decay"] == ("0.1",)
    assert flags["--fp8-format"] == ("hybrid",) and flags["--fp8-margin"] == ("0",)


@pytest.mark.skipif(not ARGUMENTS.is_file(), reason="no clone of Megatron-LM in third_party")
def test_megatron_knows_every_flag() -> None:
    known = set(re.findall(r"'(--[\w-]+)'", ARGUMENTS.read_text()))
    everything = dict.fromkeys((*training_flags.VALUES, "fp8", "num_experts", *STORED), 1)
    everything |= dict.fromkeys(training_flags.SWITCHES, True) | dict.fromkeys(
        training_flags.OFF_SWITCHES, False
    )
    for stored in (STORED, everything | {"train_samples": None}, everything):
        words = [flag for flag, _ in group_arguments(training_flags.of_checkpoint(stored))]
        assert set(words) <= known and len(words) == len(set(words))


def foreign(tmp_path: Path, **changes: Any) -> Path:
    save = tmp_path / "theirs"
    for shard in ("mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"):
        file = save / "iter_0000500" / shard / "model_optim_rng.pt"
        file.parent.mkdir(parents=True)
        file.write_bytes(torch_file(STORED | changes))
    (save / "latest_checkpointed_iteration.txt").write_text("500")
    return save


def test_a_foreign_checkpoint_is_continued_with_its_arguments(tmp_path: Path) -> None:
    save, workspace = foreign(tmp_path), Workspace(tmp_path / "ws")
    found = resumption(workspace, save, None, (), NOW)
    assert found.rebuilt and found.plan.parent is None and found.plan.load == found.plan.save == str(save)
    assert (found.plan.trainer, found.plan.launcher, found.plan.processes) == ("megatron", "mpirun", 8)
    assert [d for d in found.differences if d.verdict != "harmless"] == []
    placed = placed_resumption(found, workspace).plan
    assert placed.processes == 8 and placed.layout == {"tp": 2, "pp": 2, "cp": 1, "dp": 2}
    assert placed.image == str(workspace.megatron / "pytorch.sif")
    changed = resumption(workspace, save, None, ("--train-iters", "2000"), NOW).plan.arguments
    assert value_of(changed, "--train-iters") == "2000" and "--override-opt_param-scheduler" in changed


def test_another_split_of_it_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """TP 2 and PP 2 in torch format, wanted as TP 1."""
    save, workspace = foreign(tmp_path), Workspace(tmp_path / "ws")
    found = resumption(workspace, save, None, ("--tensor-model-parallel-size", "1"), NOW)
    [refused] = [d for d in found.differences if d.verdict == "refused"]
    assert refused.flag == "--tensor-model-parallel-size" and (refused.stored, refused.planned) == ("2", "1")
    assert "each rank can only load its own shard" in refused.message
    assert "Give --tensor-model-parallel-size 2, or convert the checkpoint" in refused.remedy
    [problem] = [p for p in resume_problems(found, workspace) if p.field == "--tensor-model-parallel-size"]
    assert problem.severity == "error" and problem.fix == {"--tensor-model-parallel-size": ("2",)}


@pytest.mark.parametrize(
    ("fully_parallel", "verdict", "words"),
    [
        (True, "harmless", "It is split again"),
        (False, "refused", "cannot be split again"),
    ],
)
def test_a_distributed_checkpoint_may_get_another_layout(
    tmp_path: Path, fully_parallel: bool, verdict: str, words: str
) -> None:
    """TP 2 wanted as TP 1, in torch_dist format."""
    save, workspace = tmp_path / "theirs", Workspace(tmp_path / "ws")
    stored = STORED | {"pipeline_model_parallel_size": 1, "num_layers_per_virtual_pipeline_stage": None,
                       "use_dist_ckpt": True, "dist_ckpt_format": "torch_dist", "world_size": 2,
                       "ckpt_fully_parallel_save": fully_parallel}  # fmt: skip
    (dist_checkpoint(save) / "common.pt").write_bytes(torch_file(stored))
    found = resumption(workspace, save, None, ("--tensor-model-parallel-size", "1"), NOW)
    [layout] = [d for d in found.differences if d.flag == "--tensor-model-parallel-size"]
    assert (layout.verdict, layout.stored, layout.planned) == (verdict, "2", "1") and words in layout.message
    as_it_was = resumption(workspace, save, None, (), NOW)
    assert as_it_was.plan.processes == 2 and "--use-dist-ckpt" in as_it_was.plan.arguments
    assert [d for d in as_it_was.differences if d.verdict != "harmless"] == []


def test_a_shard_of_the_second_rank_that_is_missing_is_counted(tmp_path: Path) -> None:
    save = foreign(tmp_path)
    shutil.rmtree(save / "iter_0000500/mp_rank_01_001")
    with pytest.raises(UserError, match=r"1 of 4 shards are missing \(TP 2 × PP 2\)"):
        resumption(Workspace(tmp_path / "ws"), save, None, (), NOW)


def test_without_readable_arguments_the_user_is_asked_for_the_model(tmp_path: Path) -> None:
    save = tmp_path / "theirs"
    torch_checkpoint(save, 500, stored=False)
    with pytest.raises(UserError, match="cannot be read from inside it") as caught:
        continue_plan(Workspace(tmp_path / "ws"), save, ())
    assert "--preset" in caught.value.remedy


@pytest.fixture
def demo(tmp_path: Path) -> tuple[Workspace, Path]:
    """A checkpoint of the demo's, saved elsewhere, and a workspace that knows nothing of it."""
    corpus, save = write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "theirs"
    run("--data-path", corpus, "--save", save, "--save-interval", "3")
    return Workspace(tmp_path / "ws"), save


def test_a_demo_plan_is_rebuilt_exactly(demo: tuple[Workspace, Path]) -> None:
    workspace, save = demo
    found: Resumption = resumption(workspace, save, 3, (), NOW)
    assert found.rebuilt and found.branches and (found.plan.trainer, found.plan.launcher) == ("demo", "local")
    assert found.differences == () and resume_problems(found, workspace) == []
    assert given_values(SMALL).items() <= given_values(found.plan.arguments).items()


def test_it_is_shown_and_asked_for_before_it_starts(demo: tuple[Workspace, Path], tmp_path: Path) -> None:
    workspace, save = demo
    words = ["-w", str(workspace.root), "resume", str(save), "--iteration", "3"]
    refused = CliRunner().invoke(cli, words)
    assert isinstance(refused.exception, UserError) and "--yes" in refused.exception.remedy
    assert "are read from inside it" in refused.output and "--hidden-size 16" in refused.output
    shown = CliRunner().invoke(cli, [*words, "--dry-run"])
    assert shown.exit_code == 0 and "--hidden-size 16" in shown.output
    shutil.rmtree(tmp_path / "theirs")
