"""Problems of a plan on this machine: data, disk and GPUs; and the speed of earlier runs."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from pathlib import Path

import pytest
from idx_files import write_dataset

from backends.files import write_json
from backends.launch.facts import Facts, gather, visible
from backends.launch.preview import preview_of
from backends.launch.site_checks import check_site, estimate_of
from backends.models.flag_checks import split_counts, split_shares
from backends.models.layout import Resources, apply_fix, check
from backends.models.presets import find
from backends.models.problem import Problem
from backends.models.throughput import Throughput
from backends.runs.folder import create_run_folder
from backends.runs.plan import RunPlan
from backends.telemetry.readings import GpuProcess, GpuReading
from backends.workspace import Workspace

GIB = 2**30
RECIPE = find("gpt3-7b").arguments
SMOKE = find("smoke").arguments
LINE = (
    " [2026-11-30 05:00:00] iteration       10/     200 | consumed samples:          320 | elapsed time per iteration"
    " (ms): 100.0 | throughput per GPU (TFLOP/s/GPU): 55.5 | learning rate: 1.0E-04 | global batch size:    32 |"
    " lm loss: 9.0E+00 | loss scale: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def planned(workspace: Workspace, *, arguments: tuple[str, ...] = RECIPE, processes: int = 8) -> RunPlan:
    save = str(workspace.checkpoints / "x")
    return RunPlan("train", "megatron", "mpirun", arguments=arguments, save=save, processes=processes)


def gpus(*used: int, total: int = 80) -> tuple[GpuReading, ...]:
    """GPUs of `total` GiB, of which so many are used by a python of alice."""
    return tuple(
        GpuReading(at, memory_used=gib * GIB, memory_total=total * GIB,
                   processes=(GpuProcess(7, gib * GIB, "python", "alice"),) if gib else ())
        for at, gib in enumerate(used)
    )  # fmt: skip


def on_gpus(plan: RunPlan, facts: Facts) -> list[Problem]:
    return [problem for problem in check_site(plan, facts) if problem.field == "gpus"]


def test_idle_gpus_are_enough(workspace: Workspace) -> None:
    assert on_gpus(planned(workspace), Facts(gpus=gpus(*[0] * 8))) == []
    assert on_gpus(planned(workspace), Facts(gpus=None)) == []


def test_gpus_in_use_are_named_with_their_user_and_idle_ones_instead(workspace: Workspace) -> None:
    plan = planned(workspace, processes=2)
    (problem,) = on_gpus(plan, Facts(gpus=gpus(60, 0, 0, 0)))
    assert "GPU 0 (python of alice), 20 of 80 GiB free" in problem.message
    assert problem.severity == "error" and problem.fix == {
        "gpus": ("1,2",)
    }  # 46 GB for certain, on 2 even more
    (problem,) = on_gpus(dataclasses.replace(plan, gpus=(0, 1)), Facts(gpus=gpus(2, 0)))
    assert problem.severity == "warning" or problem.fix is None


def test_only_gpus_that_this_shell_may_use_count() -> None:
    indices = {"": 4, "2,3": 2, "3": 1, "GPU-8f2c": 4, "7": 0}
    assert {devices: len(visible(gpus(0, 0, 0, 0), devices)) for devices in indices} == indices


def test_gpus_that_are_not_there(workspace: Workspace) -> None:
    (problem,) = on_gpus(planned(workspace), Facts(gpus=gpus(0, 0)))
    assert problem.severity == "error" and problem.fix == {"gpus": ("0,1",)}
    chosen = dataclasses.replace(planned(workspace, processes=1), gpus=(5,))
    (problem,) = on_gpus(chosen, Facts(gpus=gpus(0, 0)))
    assert "There is no GPU 5" in problem.message
    (problem,) = on_gpus(planned(workspace), Facts(gpus=()))
    assert problem.severity == "warning" and "no NVIDIA GPU" in problem.message


def test_memory_is_held_against_the_gpus_that_are_chosen(workspace: Workspace) -> None:
    facts = Facts(gpus=(*gpus(0, total=24), *gpus(0, 0, total=141)[1:]))
    assert facts.resources(planned(workspace)).gpu_memory == 24 * GIB
    chosen = dataclasses.replace(planned(workspace), gpus=(1,), processes=1)
    assert facts.resources(chosen).gpu_memory == 141 * GIB


def test_fp8_on_a_gpu_without_it_and_what_such_a_gpu_takes(workspace: Workspace) -> None:
    here = tuple(dataclasses.replace(gpu, name="NVIDIA A100-SXM4-80GB") for gpu in gpus(*[0] * 8))
    facts, plan = Facts(gpus=here), planned(workspace)
    (problem,) = check_site(plan, facts)
    assert problem.severity == "error" and "A100 has no FP8" in problem.message and problem.fix
    mended = planned(workspace, arguments=apply_fix(RECIPE, problem.fix))
    assert list(check_site(mended, facts)) == []
    result = estimate_of(mended, facts)
    assert result and "peak of A100" in result.training.throughput.source


def test_checkpoints_that_fill_the_disk(workspace: Workspace) -> None:
    """50 of 84 GB each; with 500 GiB free five of them fit."""
    (problem,) = check_site(planned(workspace), Facts(disk_free=500 * GIB))
    assert problem.severity == "warning" and problem.field == "save" and problem.fix
    mended = planned(workspace, arguments=apply_fix(RECIPE, problem.fix))
    assert list(check_site(mended, Facts(disk_free=500 * GIB))) == []
    (problem,) = check_site(planned(workspace), Facts(disk_free=GIB))
    assert problem.severity == "error"


def test_a_base_that_is_no_folder(workspace: Workspace) -> None:
    workspace.checkpoints.parent.mkdir()
    workspace.checkpoints.write_text("")
    (problem,) = check_site(planned(workspace), Facts())
    assert problem.field == "save" and "is no folder" in problem.message


def test_a_broken_data_set_and_one_too_small_to_split(workspace: Workspace) -> None:
    small, broken = (workspace.root / name for name in ("small", "broken"))
    write_dataset(small, 10)
    write_dataset(broken, 2000)
    broken.with_name("broken.bin").write_bytes(b"")
    arguments = (*SMOKE, "--data-path", "0.5", str(small), "0.5", str(broken))
    preview = preview_of(planned(workspace, arguments=arguments, processes=1), workspace)
    found = {problem.field: problem for problem in preview.problems}
    assert "The .bin has 0 bytes" in found["--data-path"].message
    assert found["--split"].fix == {"--split": ("8,1,1",)}
    assert "leaves no test set" in found["--split"].message


@pytest.mark.parametrize("documents", [1, 2, 3, 10, 400, 501, 100_000])
@pytest.mark.parametrize("split", ["949,50,1", "98,1,1", "99,1,0", "1,0,0", "969, 30, 1"])
def test_the_remedy_of_a_split_leaves_no_set_empty(documents: int, split: str) -> None:
    arguments = (*SMOKE, "--split", split)
    problems = [p for p in check(arguments, Resources(1, fewest_documents=documents)) if p.field == "--split"]
    shares = split_shares(split)
    empty = any(
        share > 0 and not count for share, count in zip(shares, split_counts(shares, documents), strict=True)
    )
    assert bool(problems) == empty
    for problem in problems:
        mended = apply_fix(arguments, problem.fix or {})
        assert "--split" not in {p.field for p in check(mended, Resources(1, fewest_documents=documents))}


def test_split_counts_are_those_of_core_r0_8_0() -> None:
    assert split_counts(split_shares("949,50,1"), 10) == [9, 1, 0]
    assert split_counts(split_shares("949,50,1"), 1800) == [1708, 90, 2]


def test_earlier_runs_of_the_same_model_say_how_fast_it_is(workspace: Workspace) -> None:
    for second, arguments, text in (
        (1, RECIPE, LINE.replace("55.5", "800")),
        (2, SMOKE, LINE),
        (3, SMOKE, ""),
    ):
        run = create_run_folder(workspace.runs, datetime(2026, 11, 30, 5, 0, second))
        write_json(run.plan_file, planned(workspace, arguments=arguments).as_json())
        run.log.write_text(text)
    plan = planned(workspace, arguments=(*SMOKE, "--train-iters", "400"), processes=1)
    facts = gather(plan, workspace)
    assert facts.measured == Throughput(55.5, "as 2026-11-30/05-00-02 had it")
    result = estimate_of(plan, facts)
    assert result and result.training.throughput == facts.measured
    other = planned(workspace, arguments=apply_fix(SMOKE, {"--num-layers": ("12",)}))
    assert gather(other, workspace).measured is None


def test_the_clone_says_which_flags_there_are(workspace: Workspace) -> None:
    file = workspace.megatron / "megatron/training/arguments.py"
    file.parent.mkdir(parents=True)
    words = {word for word in SMOKE if word.startswith("--")} | {"--bf16", "--exit-signal-handler"}
    file.write_text("".join(f"group.add_argument({word!r})\n" for word in words))
    plan = planned(
        workspace, arguments=(*apply_fix(SMOKE, {"--num-layers": None}), "--num_layers", "8"), processes=1
    )
    (problem,) = [p for p in preview_of(plan, workspace).problems if p.field == "--num_layers"]
    assert (
        problem.fix == {"--num_layers": None, "--num-layers": ("8",)}
        and "Did you mean --num-layers?" in problem.remedy
    )
    good = preview_of(planned(workspace, arguments=SMOKE, processes=1), workspace)
    assert not [p for p in good.problems if "does not know" in p.message]


def test_the_vocabulary_file_is_counted(workspace: Workspace) -> None:
    file = workspace.root / "vocab.json"
    write_json(file, {str(at): at for at in range(8000)})
    plan = planned(workspace, arguments=(*SMOKE, "--vocab-file", str(file)))
    assert gather(plan, workspace).vocab_size == 8000
    file.write_text("[")
    assert gather(plan, workspace).vocab_size is None
