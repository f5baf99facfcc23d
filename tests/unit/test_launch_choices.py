"""The launch form's choices without the form: they become a plan, and remedies change them until nothing is wrong."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from checkpoint_trees import torch_checkpoint

from backends.errors import UserError
from backends.files import write_json
from backends.launch.choices import (
    Choices,
    accelerations_of,
    effects_of,
    gpus_of,
    plan_of,
    value_without,
    with_remedy,
)
from backends.launch.form_fields import field_of
from backends.launch.resume import resume_problems
from backends.models.arguments import value_of
from backends.models.layout import Resources, check
from backends.models.presets import PRESETS, TINY, find
from backends.models.problem import Problem
from backends.runs.folder import create_run_folder
from backends.runs.plan import RunPlan
from backends.runs.planning import train_plan
from backends.tracking.place import said_of
from backends.workspace import Workspace

NOW = datetime(2026, 11, 30, 5)
RECIPE = find("gpt3-7b")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def test_an_empty_form_gives_the_plan_of_the_preset(workspace: Workspace) -> None:
    plan, resumption = plan_of(Choices(RECIPE), workspace, NOW, present=8)
    assert resumption is None and (plan.processes, plan.launcher, plan.preset) == (8, "mpirun", "gpt3-7b")
    assert plan.arguments == (*RECIPE.arguments, "--exit-signal-handler")
    assert plan.save == str(workspace.checkpoints / "2026-11-30/05-00-00")
    for launcher in ("mpirun", "slurm"):
        smoke = Choices(find("smoke"), {"launcher": launcher})
        assert plan_of(smoke, workspace, NOW, present=8)[0].processes == 1


def test_entries_of_the_form_override_the_preset(workspace: Workspace) -> None:
    texts = {
        "gpus": "2,3", "tensor": "2", "batch": " 512 ", "save": "/big", "mlflow": "http://localhost:5000",
        "more": "--seed 7", "less": "--swiglu --fp8-format", "data": "0.5 'a b' 0.5 c",
    }  # fmt: skip
    choices = Choices(RECIPE, texts, {"sequence-parallel": True}, "full", no_home=True)
    plan, _ = plan_of(choices, workspace, NOW)
    assert (plan.gpus, plan.processes, plan.layout["tp"], plan.layout["dp"]) == ((2, 3), 2, 2, 1)
    assert plan.save == "/big/2026-11-30/05-00-00" and plan.image_options == ("--no-home",)
    assert plan.environment["MLFLOW_TRACKING_URI"] == "http://localhost:5000"
    assert (
        value_of(plan.arguments, "--global-batch-size") == "512" and value_of(plan.arguments, "--seed") == "7"
    )
    assert "--swiglu" not in plan.arguments and "--fp8-format" not in plan.arguments
    assert (
        value_of(plan.arguments, "--recompute-method") == "uniform"
        and "--sequence-parallel" in plan.arguments
    )
    assert plan.arguments[plan.arguments.index("--data-path") + 1 :][:4] == ("0.5", "a b", "0.5", "c")


def test_the_demo_is_not_split_and_takes_processes(workspace: Workspace) -> None:
    texts = {"tensor": "8", "gpus": "2", "launcher": "mpirun", "iterations": "5"}
    plan, _ = plan_of(Choices(TINY, texts, {"fp8": True}), workspace, NOW)
    assert (plan.processes, plan.gpus, plan.launcher, plan.train_iters) == (2, None, "mpirun", 5)
    assert "--tensor-model-parallel-size" not in plan.arguments and "--fp8-format" not in plan.arguments


@pytest.mark.parametrize("text", ["x", "1,", "0", "1,1", "-1", "1.5", "٣"])
def test_wrong_gpu_lists_are_refused(text: str) -> None:
    with pytest.raises(UserError):
        gpus_of(text)
    assert gpus_of("") is None and gpus_of("3") == (0, 1, 2) and gpus_of("4, 6") == (4, 6)


@pytest.mark.parametrize("name", ["more", "data", "less"])
def test_an_open_quotation_is_reported(workspace: Workspace, name: str) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        plan_of(Choices(RECIPE, {name: "'a"}), workspace, NOW)


def test_a_stray_word_is_no_argument(workspace: Workspace) -> None:
    with pytest.raises(UserError, match="'seed' is no flag"):
        plan_of(Choices(RECIPE, {"more": "seed 1"}), workspace, NOW)


@pytest.mark.parametrize(
    "texts",
    [
        {"batch": "1000", "micro": "3"},
        {"tensor": "3"},
        {"sequence": "8192"},
        {"more": "--bf16"},
        {"more": "--overlap-param-gather"},
        {"more": "--rampup-batch-size 16 16 100"},
        {"more": "--recompute-granularity full"},
        {"more": "--fp8-format hybrid --transformer-impl local"},
        {"context": "2"},
        {"pipeline": "2", "more": "--num-layers-per-virtual-pipeline-stage 4"},
        {"more": "--min-lr 1"},
    ],
)
def test_taking_remedies_ends_with_nothing_wrong(texts: dict[str, str]) -> None:
    """As a user does who presses the key for the remedy again and again."""
    choices = Choices(RECIPE, texts)

    def resources() -> Resources:
        return Resources(len(gpus_of(choices.text("gpus")) or range(8)))

    for _ in range(8):
        fixes = [problem.fix for problem in check(choices.arguments, resources()) if problem.fix]
        if not fixes:
            break
        choices = with_remedy(choices, fixes[0])
    assert [p for p in check(choices.arguments, resources()) if p.severity == "error"] == []
    assert choices.preset == RECIPE


def test_remedies_of_places_go_to_their_fields() -> None:
    choices = with_remedy(Choices(RECIPE), {"gpus": ("4,5",), "launcher": ("mpirun",)})
    assert (choices.text("gpus"), choices.text("launcher")) == ("4,5", "mpirun")
    assert with_remedy(choices, {"processes": ("2",)}).text("gpus") == "2"
    taken = with_remedy(Choices(RECIPE), {"--swiglu": None})
    assert taken.text("less") == "--swiglu" and "--swiglu" not in taken.arguments
    assert with_remedy(taken, {"--swiglu": ()}).text("less") == ""


def test_where_a_run_is_tracked_is_part_of_its_plan(workspace: Workspace) -> None:
    off, _ = plan_of(Choices(RECIPE, {"mlflow": "off"}), workspace, NOW)
    assert said_of({**off.environment, "MLFLOW_RUN_ID": "x"}) == {"MDK_MLFLOW": "0"}
    with pytest.raises(UserError, match="with a password") as caught:
        plan_of(Choices(RECIPE, {"mlflow": "https://me:secret@host/"}), workspace, NOW)
    assert "secret" not in str(caught.value)


def test_problems_find_their_field() -> None:
    fields = {
        "--tensor-model-parallel-size": "tensor",
        "--fp8-format": "fp8",
        "processes": "gpus",
        "--lr": "more",
    }
    assert {flag: field_of(flag) for flag in fields} == fields


def test_what_a_field_says_when_it_is_empty() -> None:
    assert (
        value_without(Choices(RECIPE), "batch") == "1024" and value_without(Choices(RECIPE), "context") == "1"
    )
    assert value_without(Choices(TINY), "data") == "the help of Python"


def test_accelerations_are_read_from_the_arguments() -> None:
    on, recompute = accelerations_of(Choices(RECIPE, {}, {"fp8": False}, "selective").arguments)
    assert on["distributed-optimizer"] and not on["fp8"] and recompute == "selective"
    effects = effects_of(RECIPE.arguments, 8, None)
    assert effects["fp8"].time == 0.5 and effects["distributed-optimizer"].memory_mb < -60_000
    assert effects_of(("--num-layers", "x"), 8, None) == {}


def save_of(workspace: Workspace, preset: str, *changes: str) -> Path:
    """A checkpoint of a run of `preset`, which the workspace knows."""
    save = workspace.checkpoints / "2026-11-30/05-00-00"
    torch_checkpoint(save, 100, stored=False)
    run = create_run_folder(workspace.runs, NOW)
    plan = train_plan("megatron", PRESETS[preset].arguments, changes, save, preset=preset, launcher="mpirun")
    write_json(run.plan_file, plan.as_json())
    return save


def against(choices: Choices, workspace: Workspace) -> tuple[RunPlan, list[Problem]]:
    _, resumption = plan_of(choices, workspace, NOW)
    assert resumption is not None
    found = resume_problems(resumption, workspace)
    return resumption.plan, [p for p in found if p.field == "load" or "in the checkpoint" in p.message]


def test_a_checkpoint_of_another_preset_is_taken_with_one_key(workspace: Workspace) -> None:
    save = save_of(workspace, "gpt3-857m", "--global-batch-size", "64", "--swiglu")
    choices = Choices(RECIPE, {"load": str(save), "gpus": "2", "sequence": "8192", "more": "--seed 7"})
    _, (first, *others) = against(choices, workspace)
    assert first.field == "load" and first.severity == "error" and first.fix and len(others) > 3
    assert "--num-layers" in first.message and "Take gpt3-857m and the arguments of" in first.remedy
    taken = with_remedy(choices, first.fix, PRESETS)
    plan, left = against(taken, workspace)
    assert left == [] and plan.preset == "gpt3-857m" and plan.processes == 2
    assert (taken.text("batch"), taken.text("sequence"), taken.text("more")) == ("64", "", "--swiglu")
    assert plan.load == str(save), "what it begins with is still what was chosen"


def test_a_foreign_checkpoint_provides_its_arguments(workspace: Workspace, tmp_path: Path) -> None:
    save = tmp_path / "theirs"
    torch_checkpoint(save, 100)  # hidden size 64
    choices = Choices(PRESETS["gpt2-medium"], {"load": str(save), "tensor": "2"})
    _, (first, *_) = against(choices, workspace)
    assert first.field == "load" and first.remedy == "Take the checkpoint's own." and first.fix
    plan, left = against(with_remedy(choices, first.fix, PRESETS), workspace)
    assert left == [] and value_of(plan.arguments, "--hidden-size") == "64"
