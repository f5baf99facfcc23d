"""From a checkpoint to a text server: derived flags, chosen GPUs, a source that is not fixed, how it comes up."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from argparse import Namespace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fake_runs import seen
from scripted_jobs import clean_up, start_scripted, wait_for_phase

from backends.errors import UserError
from backends.files import write_json
from backends.inference.free_gpus import held_by_runs, roomiest, unused
from backends.inference.readiness import (
    STAGES,
    Readiness,
    loading_words,
    readiness_of,
    stage_of,
    until_address,
    until_ready,
)
from backends.inference.serving import serve_plan
from backends.launch.placement import Placement
from backends.launch.server_source import SERVER, TOKENIZATION, server_problems
from backends.launch.stop import stop_run
from backends.models import model_flags
from backends.models.arguments import group_arguments, value_of
from backends.models.megatron_presets import MEGATRON_PRESETS
from backends.models.presets import find
from backends.runs.catalog import describe
from backends.runs.checkpoint_choice import checkpoint_meant
from backends.runs.checkpoints import TRACKER, read_tracker
from backends.runs.folder import RunFolder, create_run_folder
from backends.runs.judgement import not_ready, pinned_folder, wanted_iteration
from backends.runs.plan import RunPlan
from backends.runs.planning import train_plan
from backends.runs.signs import Signs
from backends.runs.state import RunState
from backends.telemetry.readings import GpuProcess, GpuReading
from backends.workspace import Workspace

# As an argparse.Namespace of core_r0.8.0 has them after its own checks.
STORED: dict[str, Any] = {
    "num_layers": 8, "encoder_num_layers": 8, "hidden_size": 512, "ffn_hidden_size": 1365, "num_attention_heads": 8,
    "kv_channels": 64, "seq_length": 512, "max_position_embeddings": 512, "position_embedding_type": "rope",
    "rotary_base": 500000, "rotary_percent": 1.0, "normalization": "RMSNorm", "norm_epsilon": 1e-05, "swiglu": True,
    "group_query_attention": True, "num_query_groups": 2, "untie_embeddings_and_output_weights": True, "fp16": False,
    "bf16": True, "add_bias_linear": False, "masked_softmax_fusion": True, "gradient_accumulation_fusion": False,
    "transformer_impl": "local", "tokenizer_type": "GPT2BPETokenizer", "tokenizer_model": None, "num_experts": None,
    "moe_router_topk": 2, "vocab_file": "/d/vocab.json", "merge_file": "/d/merges.txt", "padded_vocab_size": 8064,
    "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "sequence_parallel": True, "lr": 1e-3,
    "micro_batch_size": 8, "use_dist_ckpt": False, "dist_ckpt_format": "torch_dist",
    "num_layers_per_virtual_pipeline_stage": None,
}  # fmt: skip


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def write_checkpoint(
    save: Path, iteration: int, arguments: dict[str, Any], *, tp: int = 1, pp: int = 1
) -> None:
    """As torch.save writes it, with a Namespace where Megatron-LM has one."""
    import pickle

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(
            "archive/data.pkl", pickle.dumps({"args": Namespace(**arguments), "iteration": iteration})
        )
    for tensor in range(tp):
        for stage in range(pp):
            name = f"mp_rank_{tensor:02d}" + (f"_{stage:03d}" if pp > 1 else "")
            path = save / f"iter_{iteration:07d}" / name / "model_optim_rng.pt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.getvalue())
    (save / TRACKER).write_text(str(iteration))


def trained(workspace: Workspace, save: Path, preset: str = "llama3-8b") -> RunFolder:
    """A run whose plan says that it wrote `save`."""
    folder = create_run_folder(workspace.runs, datetime(2026, 11, 30, 5))
    chosen = find(preset)
    plan = train_plan(
        chosen.trainer, chosen.arguments, ("--data-path", "d"), save, preset=preset, launcher="mpirun"
    )
    write_json(folder.plan_file, plan.as_json())
    return folder


def gpu(index: int, used: float, *pids: int) -> GpuReading:
    return GpuReading(
        index, memory_used=int(used * 1e9), memory_total=80 * 10**9, processes=tuple(map(GpuProcess, pids))
    )


# Flags.


def test_the_models_flags_come_from_the_arguments_in_the_checkpoint() -> None:
    flags = dict(group_arguments(model_flags.of_checkpoint(STORED)))
    assert flags["--num-layers"] == ("8",) and flags["--norm-epsilon"] == ("1e-05",)
    assert flags["--rotary-base"] == ("500000",) and flags["--num-query-groups"] == ("2",)
    assert {
        "--swiglu",
        "--bf16",
        "--disable-bias-linear",
        "--no-gradient-accumulation-fusion",
    } <= flags.keys()
    absent = {"--fp16", "--sequence-parallel", "--lr", "--no-masked-softmax-fusion", "--moe-router-topk", "--num-experts",
              "--tokenizer-model", "--dist-ckpt-format", "--encoder-num-layers"}  # fmt: skip
    assert not absent & flags.keys()


def test_learnt_positions_need_no_rotary_base() -> None:
    flags = model_flags.of_checkpoint(STORED | {"position_embedding_type": "learned_absolute"})
    assert "--rotary-base" not in flags


@pytest.mark.parametrize("name", MEGATRON_PRESETS)
def test_only_the_models_flags_of_a_run_are_kept(name: str) -> None:
    flags = model_flags.of_run(find(name).arguments)
    for kept in (
        "--num-layers",
        "--hidden-size",
        "--seq-length",
        "--tensor-model-parallel-size",
        "--swiglu",
        "--bf16",
    ):
        assert value_of(flags, kept) == value_of(find(name).arguments, kept)
    for gone in (
        "--lr",
        "--train-iters",
        "--save-interval",
        "--sequence-parallel",
        "--log-throughput",
        "--clip-grad",
    ):
        assert value_of(flags, gone) is None


def test_interleaved_layers_cannot_be_served() -> None:
    for make in (
        lambda: model_flags.of_run(["--num-layers-per-virtual-pipeline-stage", "2"]),
        lambda: model_flags.of_checkpoint(STORED | {"num_layers_per_virtual_pipeline_stage": 2}),
    ):
        with pytest.raises(UserError, match="interleaved") as caught:
            make()
        assert caught.value.remedy


def test_spread_experts_can_be_served_from_a_distributed_checkpoint_only() -> None:
    several = ("--expert-model-parallel-size", "2")
    stored = STORED | {"num_experts": 4, "moe_router_topk": 2, "expert_model_parallel_size": 2}
    for make in (lambda: model_flags.of_run(several), lambda: model_flags.of_checkpoint(stored)):
        with pytest.raises(UserError, match="experts") as caught:
            make()
        assert "--use-dist-ckpt" in caught.value.remedy
    assert model_flags.of_run((*several, "--use-dist-ckpt")) == ("--use-dist-ckpt",)
    flags = model_flags.of_checkpoint(stored | {"use_dist_ckpt": True, "dist_ckpt_format": "torch_dist"})
    assert value_of(flags, "--num-experts") == "4" and value_of(flags, "--expert-model-parallel-size") is None


def test_arguments_that_say_nothing_ask_for_the_flags() -> None:
    with pytest.raises(UserError, match="do not say") as caught:
        model_flags.of_checkpoint({"num_layers": "eight"})
    assert "-- --num-layers" in caught.value.remedy


# Plans.


def test_a_checkpoint_without_a_run_can_be_served(workspace: Workspace) -> None:
    save = workspace.root / "elsewhere"
    write_checkpoint(save, 200, STORED, tp=2, pp=2)
    plan = serve_plan(workspace, save, port=8028, look=lambda: [gpu(i, 70 if i < 2 else 1) for i in range(6)])
    assert (plan.kind, plan.trainer, plan.launcher, plan.processes) == ("serve", "server", "mpirun", 4)
    assert plan.gpus == (2, 3, 4, 5), "the ones with room"
    assert (plan.load, plan.parent) == (str(save), None)
    assert (value_of(plan.arguments, "--port"), value_of(plan.arguments, "--hidden-size")) == ("8028", "512")


def test_the_plan_of_a_run_overrides_the_arguments_in_the_checkpoint(workspace: Workspace) -> None:
    save = workspace.root / "base/2026-11-30/05-00-00"
    write_checkpoint(save, 200, STORED, tp=2, pp=2)
    run = trained(workspace, save)
    plan = serve_plan(workspace, save, port=1, iteration=200, changes=("--seq-length", "64"), look=list)
    assert plan.parent == run.name and plan.preset == "llama3-8b"
    assert (
        value_of(plan.arguments, "--rotary-base") == "500000"
        and value_of(plan.arguments, "--data-path") is None
    )
    assert value_of(plan.arguments, "--seq-length") == "64"
    assert (plan.processes, plan.gpus) == (2, None), "without a driver nothing is chosen"
    assert "iteration 200" in plan.title


def test_one_iteration_of_a_folder_can_be_served(workspace: Workspace) -> None:
    save = workspace.root / "s"
    for iteration in (100, 200):
        write_checkpoint(save, iteration, STORED)
    assert checkpoint_meant(workspace, save / "iter_0000100")[:2] == (save, 100)
    assert checkpoint_meant(workspace, save, 100) == (save, 100, None)
    assert checkpoint_meant(workspace, save) == (save, None, None)


def test_an_iteration_is_loaded_from_a_folder_whose_tracker_names_it(workspace: Workspace) -> None:
    """core_r0.8.0 loads what the tracker names, whatever `--ckpt-step` says (seen on an H200)."""
    save = workspace.root / "s"
    for iteration in (100, 200):
        write_checkpoint(save, iteration, STORED, tp=2, pp=2)
    before = {path: path.stat().st_mtime_ns for path in save.rglob("*")}
    for _ in range(2):  # the second finds it made
        load = Path(serve_plan(workspace, save, port=1, iteration=100, look=list).load or "")
        assert read_tracker(load).iteration == 100
        assert (load / "iter_0000100").resolve() == (save / "iter_0000100").resolve()
    assert {path: path.stat().st_mtime_ns for path in save.rglob("*")} == before
    assert Path(serve_plan(workspace, save, port=1, look=list).load or "") == save


def test_missing_and_incomplete_checkpoints_are_not_served(workspace: Workspace) -> None:
    save = workspace.root / "s"
    write_checkpoint(save, 200, STORED, tp=2)  # named as with PP 1, though it says PP 2
    for iteration, said in ((100, "no checkpoint of iteration 100"), (200, "not complete: 4 of 4 shards")):
        with pytest.raises(UserError, match=said) as caught:
            serve_plan(workspace, save, port=1, iteration=iteration, look=list)
        assert "mdk-tui checkpoints" in caught.value.remedy
    (save / TRACKER).unlink()
    with pytest.raises(UserError, match="no checkpoint to serve"):
        serve_plan(workspace, save, port=1, look=list)


def test_a_checkpoint_of_the_demo_is_served_by_the_demo(workspace: Workspace) -> None:
    save = workspace.root / "s"
    path = save / "iter_0000008" / "mp_rank_00" / "model_optim_rng.pt"
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("args.json", json.dumps({"num_layers": 1, "padded_vocab_size": 300}))
    (save / TRACKER).write_text("8")
    plan = serve_plan(workspace, save, port=1, look=list)
    assert (plan.trainer, plan.launcher, plan.processes) == ("demo", "local", 1)


def test_the_nodes_of_the_settings_are_for_training(workspace: Workspace) -> None:
    save = workspace.root / "s"
    write_checkpoint(save, 200, STORED, tp=2, pp=2)
    (workspace.root / "hosts").write_text("a slots=8\nb slots=8\n")
    workspace.settings.write_text('[mpi]\nhostfile = "hosts"\n')
    plan = serve_plan(workspace, save, port=1, look=list)
    assert (plan.hosts, plan.processes) == ((), 4)
    named = serve_plan(workspace, save, port=1, look=list, wish=Placement(hostfile=workspace.root / "hosts"))
    assert named.hosts == ("a:8", "b:8")


def test_gpus_that_nobody_uses() -> None:
    readings = [gpu(0, 70), gpu(1, 1), gpu(2, 1, 4711), GpuReading(3), gpu(4, 0)]
    assert unused(readings, 2) == (1, 4) and unused(readings, 3) is None and unused([], 1) is None
    assert unused(readings, 1, held={1}) == (4,)
    assert (
        roomiest(readings, 2) == (1, 4)
        and roomiest(readings, 4) == (0, 1, 2, 4)
        and roomiest(readings, 5) is None
    )


def test_runs_hold_their_gpus_until_they_are_over(workspace: Workspace) -> None:
    folder = trained(workspace, workspace.root / "s")
    plan = folder.plan()
    write_json(folder.plan_file, dataclasses.replace(plan, processes=2).as_json())
    assert held_by_runs(workspace) == {0, 1}
    write_json(folder.plan_file, dataclasses.replace(plan, gpus=(3, 5)).as_json())
    folder.write_state(RunState(phase="running"))
    assert held_by_runs(workspace) == {3, 5}
    folder.write_state(RunState(phase="finished"))
    assert held_by_runs(workspace) == set()


# The source.

FIXED = {
    TOKENIZATION: "tokenizer = get_tokenizer()",
    SERVER: 'add_argument("--host") rotary_base=args.rotary_base',
}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, []),
        ({TOKENIZATION: "tokenizer = get_tokenizer(args)"}, ["server_tokenizer"]),
        ({SERVER: "rotary_base=args.rotary_base"}, ["server_host"]),
        ({SERVER: 'add_argument("--host")'}, ["server_rotary_base"]),
    ],
)
def test_a_source_that_is_not_fixed_is_seen_before_the_start(
    tmp_path: Path, changed: dict[str, str], found: list[str]
) -> None:
    for name, text in (FIXED | changed).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    problems = server_problems(tmp_path, ("--rotary-base", "500000"))
    assert [problem.field for problem in problems] == found
    assert all("setup patches" in problem.remedy for problem in problems)
    assert [p.field for p in server_problems(tmp_path, ())] == [f for f in found if "rotary" not in f]


def test_a_missing_source_is_not_reported(tmp_path: Path) -> None:
    assert server_problems(tmp_path, ()) == []


# Coming up.


def test_a_real_log_goes_through_its_stages(logs: Path) -> None:
    lines = (logs / "h200-core_r0.8.0-serve.log").read_text().splitlines(keepends=True)
    reached = [stage_of("".join(lines[: at + 1]))[0] for at in range(len(lines))]
    assert reached == sorted(reached) and reached[0] == 0 and reached[-1] == len(STAGES)
    at = next(i for i, line in enumerate(lines) if " loading checkpoint from" in line)
    assert stage_of("".join(lines[: at + 1])) == (7, "loading iteration 200")


def test_a_missing_log_is_at_the_first_stage(tmp_path: Path) -> None:
    assert loading_words(tmp_path / "output.log") == "starting (0 of 8)"


def test_waiting_yields_each_stage_once_and_then_the_address(tmp_path: Path) -> None:
    looks = iter([Readiness(), Readiness(), Readiness("http://127.0.0.1:1")])
    said = until_address(lambda: next(looks), tmp_path / "output.log", sleep=lambda _: None)
    assert list(said) == ["starting (0 of 8)", "http://127.0.0.1:1"]


def test_waiting_ends_with_the_reason(tmp_path: Path) -> None:
    loading = seen("2026-11-30/05-00-00", kind="serve", phase="starting").info
    assert readiness_of(loading) == Readiness()
    failed = readiness_of(dataclasses.replace(loading, phase="failed", reason="No room."))
    with pytest.raises(UserError, match=r"failed\. No room\."):
        list(until_address(lambda: failed, tmp_path / "output.log"))
    moments = iter(range(10))
    with pytest.raises(UserError, match="not ready after 0 s: starting"):
        list(until_address(Readiness, tmp_path / "output.log", limit=0, clock=lambda: next(moments)))


# Under the real supervisor: what the log says decides.

LISTENS = 'print(" * Running on http://127.0.0.1:8028", flush=True)'
LOADS = 'print("  successfully loaded checkpoint from X [ t 0, p 0 ] at iteration 200", flush=True)'
RANDOM = (
    'print("WARNING: could not find the metadata file X/latest_checkpointed_iteration.txt", flush=True);'
    'print("    will not load any checkpoints and will start from random", flush=True)'
)
WAITS = "import time; time.sleep(600)"


@pytest.fixture
def loaded_from(workspace: Workspace) -> str:
    save = workspace.root / "s"
    write_checkpoint(save, 200, STORED)
    return str(save)


def test_a_server_that_has_loaded_is_ready(workspace: Workspace, loaded_from: str) -> None:
    folder = start_scripted(workspace, ";".join((LOADS, LISTENS, WAITS)), "serve", loaded_from)
    try:
        *_, address = until_ready(folder, workspace, limit=60)
        info = describe(folder)
        assert address == "http://127.0.0.1:8028" and (info.phase, info.iteration) == ("running", 200)
        *_, ended = stop_run(folder, workspace)
        assert ended.phase == "finished"
    finally:
        clean_up(folder)


def test_a_server_with_random_weights_is_ended_and_never_called_ready(
    workspace: Workspace, loaded_from: str
) -> None:
    folder = start_scripted(workspace, ";".join((RANDOM, LISTENS, WAITS)), "serve", loaded_from)
    try:
        with pytest.raises(UserError, match="answers would come from random weights"):
            list(until_ready(folder, workspace, limit=60))
        state = wait_for_phase(folder, "failed")
        assert state.address is None
    finally:
        clean_up(folder)


def test_a_server_that_loaded_another_iteration_than_asked_is_never_called_ready(
    workspace: Workspace, loaded_from: str
) -> None:
    pinned = pinned_folder(workspace.outputs, "0123abcd", 100)
    pinned.parent.mkdir(parents=True)
    pinned.symlink_to(loaded_from)
    folder = start_scripted(workspace, ";".join((LOADS, LISTENS, WAITS)), "serve", str(pinned))
    try:
        with pytest.raises(
            UserError, match=r"must not answer\. It has loaded iteration 200, not 100"
        ) as error:
            list(until_ready(folder, workspace, limit=60, settle=0))
        assert f"mdk-tui stop {folder.name}" in error.value.remedy
        assert (describe(folder).phase, describe(folder).address) == ("starting", None)
    finally:
        clean_up(folder)


@pytest.mark.parametrize(
    ("load", "arguments", "wanted"),
    [
        ("/w/outputs/pinned/0123abcd/200", (), 200),
        ("/w/outputs/pinned/0123abcd/200", ("--ckpt-step", "100"), 100),
        ("/base/2026-11-30/200", (), None),
        ("/w/outputs/pinned/0123abcd", (), None),
        (None, (), None),
    ],
)
def test_which_iteration_is_wanted_and_what_may_be_called_ready(
    load: str | None, arguments: tuple[str, ...], wanted: int | None
) -> None:
    plan = RunPlan("serve", "server", load=load, arguments=arguments)
    assert wanted_iteration(plan) == wanted
    right = Signs(loaded=True, loaded_iteration=wanted)
    assert not_ready(plan, right) is None
    other = not_ready(plan, dataclasses.replace(right, loaded_iteration=300))
    assert (other is None) == (wanted is None)
    assert not_ready(plan, dataclasses.replace(right, loaded_iteration=0)) is None  # with --finetune
    assert (not_ready(plan, Signs()) is None) == (load is None)


def test_a_server_that_does_not_say_what_it_loaded_is_never_called_ready(
    workspace: Workspace, loaded_from: str
) -> None:
    folder = start_scripted(workspace, ";".join((LISTENS, WAITS)), "serve", loaded_from)
    try:
        with pytest.raises(UserError, match=r"must not answer\. .* would come from random weights"):
            list(until_ready(folder, workspace, limit=60, settle=0))
        assert (describe(folder).phase, describe(folder).address) == ("starting", None)
    finally:
        clean_up(folder)
