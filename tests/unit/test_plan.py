"""Plans: their checks, reading and replacing arguments, and plans that resume or branch."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import UserError
from backends.files import write_json
from backends.inference.serving import serve_plan
from backends.models.arguments import flatten, group_arguments, merge_arguments, value_of, without
from backends.runs.branching import make_branch
from backends.runs.catalog import run_folders
from backends.runs.checkpoints import TRACKER, read_tracker
from backends.runs.folder import create_run_folder
from backends.runs.plan import RunPlan
from backends.runs.planning import (
    continue_plan,
    new_save_folder,
    next_plan,
    train_plan,
)
from backends.runs.pruning import linked_checkpoints
from backends.workspace import Workspace

MODEL = ("--num-layers", "2", "--hidden-size", "64", "--num-attention-heads", "4", "--micro-batch-size", "4",
         "--global-batch-size", "8", "--train-iters", "100", "--save-interval", "50", "--lr", "1e-3")  # fmt: skip
WORDS = st.lists(st.sampled_from(["--lr", "--bf16", "--split", "1", "-1", "--lr=2", "949,50,1"]))


def errors(plan: RunPlan) -> dict[str, str]:
    return {problem.field: problem.message for problem in plan.check() if problem.severity == "error"}


def planned(**fields: Any) -> RunPlan:
    return RunPlan(**{"kind": "train", "trainer": "demo", "arguments": MODEL, "save": "/base/save", **fields})


def test_a_change_replaces_a_flag_in_place() -> None:
    assert merge_arguments(("--lr", "1", "--bf16", "--split", "9,1"), ("--lr", "2", "--seed", "-1")) == (
        "--lr", "2", "--bf16", "--split", "9,1", "--seed", "-1",
    )  # fmt: skip
    assert without(("--lr", "1", "--bf16"), "--lr") == ("--bf16",)
    assert value_of(("--lr=3",), "--lr") == "3" and value_of(("--bf16",), "--bf16") == ""
    assert value_of(("--bf16",), "--lr") is None


@given(WORDS, WORDS.map(lambda words: ["--seed", *words]))
def test_merging_gives_each_flag_once_and_the_last_value(base: list[str], changes: list[str]) -> None:
    merged = merge_arguments(base, changes)
    flags = [flag for flag, _ in group_arguments(merged)]
    assert len(flags) == len(set(flags))
    assert merge_arguments(merged, ()) == merged == flatten(group_arguments(merged))
    for flag in ("--lr", "--split"):
        assert value_of(merged, flag) == value_of([*base, *changes], flag)


def test_a_sound_plan_has_no_problem() -> None:
    assert planned().check() == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (("--train-iters", "0"), "--train-iters"),
        (("--train-iters", "many"), "--train-iters"),
        (("--hidden-size", "65"), "--hidden-size"),
        (("--global-batch-size", "7"), "--global-batch-size"),
        (("--load", "/x"), "load"),
        (("--save", "/x"), "save"),
        (("--data-path", "/no/such/data"), "--data-path"),
        (("--title", "zero \0 byte"), "arguments"),
    ],
)
def test_wrong_arguments_are_named_with_a_remedy(changes: tuple[str, ...], field: str) -> None:
    plan = train_plan("demo", MODEL, changes, Path("/base/save"))
    assert field in errors(plan)
    assert all(problem.remedy for problem in plan.check())


def test_the_sizes_of_megatrons_model_are_left_to_its_layout_checks() -> None:
    """They know --kv-channels, which makes any number of heads possible."""
    plan = train_plan("megatron", MODEL, ("--hidden-size", "65", "--kv-channels", "16"), Path("/base/save"))
    assert "--hidden-size" not in errors(plan)


def test_a_plan_that_saves_says_how_often() -> None:
    assert "--save-interval" in errors(planned(arguments=without(MODEL, "--save-interval")))


def test_a_trainer_does_not_serve_and_a_server_does_not_train() -> None:
    assert "trainer" in errors(planned(trainer="server"))
    assert "trainer" in errors(RunPlan("serve", "megatron"))


@pytest.mark.parametrize("tracker", [None, "", "garbage", "-3"])
def test_a_plan_never_loads_without_a_valid_tracker(tmp_path: Path, tracker: str | None) -> None:
    if tracker is not None:
        (tmp_path / TRACKER).write_text(tracker)
    assert "holds no checkpoint to load" in errors(planned(load=str(tmp_path)))["load"]
    (tmp_path / TRACKER).write_text("100")
    assert planned(load=str(tmp_path)).check() == []


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    plan = planned(gpus=(0, 2), hosts=("a", "b"), layout={"tp": 2}, environment={"X": "1"}, parent="a/b")
    write_json(tmp_path / "plan.json", plan.as_json())
    assert RunPlan.from_json(json.loads((tmp_path / "plan.json").read_text()), "plan.json") == plan


@pytest.mark.parametrize(
    "damage",
    [{"kind": 3}, {"trainer": "rm"}, {"arguments": "--lr"}, {"arguments": [1]}, {"gpus": ["0"]}, {"layout": []}, {"save": 1}],
)  # fmt: skip
def test_a_damaged_plan_is_refused_with_its_file_name(damage: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"plan\.json is not a plan"):
        RunPlan.from_json({**planned().as_json(), **damage}, "plan.json")


def test_a_newer_plan_with_more_keys_is_read() -> None:
    value = json.loads(json.dumps({**planned().as_json(), "new": 1}))
    assert RunPlan.from_json(value, "plan.json") == planned()


# From a run that saved to one that goes on.


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """One run that saved iterations 50 and 70 of 100."""
    workspace = Workspace(tmp_path)
    save = tmp_path / "base/2026-11-30/05-00-00"
    for iteration in ("iter_0000050", "iter_0000070"):
        (save / iteration).mkdir(parents=True)
    (save / TRACKER).write_text("70")
    run = create_run_folder(workspace.runs, datetime(2026, 11, 30, 5))
    write_json(run.plan_file, planned(save=str(save)).as_json())
    return workspace


def save_of(workspace: Workspace) -> Path:
    return workspace.root / "base/2026-11-30/05-00-00"


def test_continuing_loads_and_saves_in_one_dated_folder(workspace: Workspace) -> None:
    save = save_of(workspace)
    plan = continue_plan(workspace, save, ())
    assert (plan.load, plan.save, plan.parent) == (str(save), str(save), "2026-11-30/05-00-00")
    assert value_of(plan.arguments, "--exit-signal-handler") == ""
    assert plan.check() == []


def test_flags_of_one_load_are_not_carried_on(workspace: Workspace) -> None:
    """--finetune begins at iteration 0: a resume of a fine-tuning run that kept it would lose what was trained."""
    [run] = run_folders(workspace)
    once = ("--finetune", "--no-load-optim", "--override-opt_param-scheduler")
    write_json(run.plan_file, planned(save=str(save_of(workspace)), arguments=(*MODEL, *once)).as_json())
    plan = continue_plan(workspace, save_of(workspace), ("--no-load-rng",))
    assert not set(once) & set(plan.arguments) and "--no-load-rng" in plan.arguments


def test_a_run_that_is_complete_is_not_continued_unless_for_longer(workspace: Workspace) -> None:
    (save_of(workspace) / TRACKER).write_text("100")
    with pytest.raises(UserError, match="already at iteration 100 of 100") as caught:
        continue_plan(workspace, save_of(workspace), ())
    assert "--train-iters 200" in caught.value.remedy


@pytest.mark.parametrize("tracker", [None, "", "seventy"])
def test_without_a_valid_tracker_nothing_is_continued(workspace: Workspace, tracker: str | None) -> None:
    file = save_of(workspace) / TRACKER
    file.unlink()
    if tracker is not None:
        file.write_text(tracker)
    with pytest.raises(UserError, match="no checkpoint to continue from"):
        continue_plan(workspace, save_of(workspace), ())
    with pytest.raises(UserError, match="no checkpoint to serve"):
        serve_plan(workspace, save_of(workspace), port=8028)


def test_a_branch_links_to_the_checkpoint_and_leaves_the_original_alone(workspace: Workspace) -> None:
    save = save_of(workspace)
    branch = new_save_folder(save.parents[1], datetime(2026, 11, 30, 5))
    assert branch.name == "05-00-01"  # the original's second is taken
    plan = next_plan(workspace, save, 50, branch, ())
    branch.mkdir()
    make_branch(save, 50, branch)
    assert (plan.load, plan.save, plan.parent) == (str(branch), str(branch), "2026-11-30/05-00-00")
    assert read_tracker(branch).iteration == 50 and read_tracker(save).iteration == 70
    assert (branch / "iter_0000050").samefile(save / "iter_0000050")
    assert save / "iter_0000050" in linked_checkpoints(save.parents[1])  # so it is never pruned
    assert plan.check() == []


def test_a_server_may_wait_for_its_first_checkpoint(workspace: Workspace) -> None:
    (save_of(workspace) / TRACKER).unlink()
    plan = serve_plan(workspace, save_of(workspace), port=1234, wait=True)
    assert plan.kind == "serve" and plan.check() == []
    assert value_of(plan.arguments, "--port") == "1234" and "--follow-checkpoints" in plan.arguments
