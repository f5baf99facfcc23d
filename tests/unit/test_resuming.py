"""Which checkpoint is meant, and what a resume of it would do: real runs of the demo's trainer on disk."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from checkpoint_trees import dist_checkpoint, torch_checkpoint, torch_file
from demo_runs import SMALL, run, write_corpus

from backends.errors import UserError
from backends.files import write_json
from backends.launch.commands import problems
from backends.launch.image import bound_folders
from backends.launch.resume import resume_problems, start_resumption
from backends.models.arguments import value_of
from backends.runs.branching import make_branch
from backends.runs.checkpoint_choice import find_source
from backends.runs.checkpoints import TRACKER, read_tracker
from backends.runs.folder import create_run_folder
from backends.runs.plan import RunPlan
from backends.runs.planning import train_plan
from backends.runs.processes import Machine
from backends.runs.pruning import needed_by_branches
from backends.runs.resuming import load_problems, loading, resumption
from backends.runs.schedule_comparison import OVERRIDE
from backends.runs.state import RunState
from backends.workspace import Workspace

NOW = datetime(2026, 11, 30, 5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose one run saved iterations 2, 4 and 6 of 6."""
    root = tmp_path_factory.mktemp("trained")
    corpus = write_corpus(root / "corpus.jsonl")
    save = root / "base/2026-11-30/04-00-00"
    run("--data-path", corpus, "--save", save, "--save-interval", "2")
    return root


@pytest.fixture
def workspace(trained: Path, tmp_path: Path) -> Workspace:
    root = tmp_path / "ws"
    shutil.copytree(trained, root)
    save = root / "base/2026-11-30/04-00-00"
    folder = create_run_folder(root / "outputs/runs", datetime(2026, 11, 30, 4))
    arguments = (*SMALL, "--data-path", str(root / "corpus.jsonl"), "--save-interval", "2")
    plan = RunPlan("train", "demo", arguments=arguments, save=str(save), data=str(root / "corpus.jsonl"))
    write_json(folder.plan_file, plan.as_json())
    folder.write_state(RunState("finished"))
    return Workspace(root)


def save_of(workspace: Workspace) -> Path:
    return workspace.root / "base/2026-11-30/04-00-00"


def longer(workspace: Workspace, given: Path | None = None, iteration: int | None = None, *changes: str):
    return resumption(workspace, given, iteration, ("--train-iters", "9", *changes), NOW)


def test_the_folder_that_a_run_saved_to_is_taken_as_it_is(workspace: Workspace) -> None:
    for given in (None, save_of(workspace)):
        source = find_source(workspace, given, None)
        assert (source.save, source.iteration, source.branch, source.why) == (
            save_of(workspace),
            6,
            False,
            None,
        )


def test_one_checkpoint_means_its_folder_or_a_branch_with_the_reason(workspace: Workspace) -> None:
    save = save_of(workspace)
    newest = find_source(workspace, save / "iter_0000006", None)
    assert (newest.save, newest.iteration, newest.branch) == (save, 6, False)
    assert newest.why and "random weights" in newest.why
    earlier = find_source(workspace, save / "iter_0000002", None)
    assert (earlier.save, earlier.iteration, earlier.branch) == (save, 2, True)
    assert earlier.why and "branch of its own" in earlier.why


def test_a_base_means_its_newest_dated_folder_with_a_whole_checkpoint(workspace: Workspace) -> None:
    save = save_of(workspace)
    torn = save.parent / "04-30-00"
    shutil.copytree(save, torn)
    shard = torn / "iter_0000006/mp_rank_00/model_optim_rng.pt"
    shard.write_bytes(shard.read_bytes()[:1000])
    (save.parent / "04-45-00/iter_0000001").mkdir(parents=True)
    for base in (save.parents[1], save.parent):
        source = find_source(workspace, base, None)
        assert (source.save, source.iteration) == (save, 6) and source.why and "is a base" in source.why
        assert (
            "04-30-00: iter_0000006 is not complete" in source.why and "04-45-00: There is no" in source.why
        )
        assert find_source(workspace, base, 4).save == torn  # of the newest that has this one
    with pytest.raises(UserError, match=r"None of the 3 dated folders .* holds iteration 30"):
        find_source(workspace, save.parents[1], 30)


def tracker(text: str) -> Callable[[Path], object]:
    return lambda save: (save / TRACKER).write_text(text)


@pytest.mark.parametrize(
    ("damage", "words", "remedy"),
    [
        (tracker(""), "no checkpoint to continue from", "--iteration 6"),
        (tracker("8"), "no checkpoint of iteration 8", "2, 4, 6"),
        (lambda save: (save / TRACKER).unlink(), "no checkpoint to continue from", "--iteration 6"),
        (
            lambda save: (save / "iter_0000006/mp_rank_00/model_optim_rng.pt").write_bytes(b""),
            "is empty",
            "--iteration 4",
        ),
        (lambda save: shutil.rmtree(save / "iter_0000006/mp_rank_00"), "not complete", "--iteration 4"),
    ],
)
def test_what_is_not_whole_is_refused_and_the_newest_whole_one_named(
    workspace: Workspace, damage: Callable[[Path], object], words: str, remedy: str
) -> None:
    damage(save_of(workspace))
    with pytest.raises(UserError, match=words) as caught:
        find_source(workspace, save_of(workspace), None)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("folder", ["nowhere", "outputs"])
def test_a_folder_without_checkpoints_is_refused(workspace: Workspace, folder: str) -> None:
    with pytest.raises(UserError):
        find_source(workspace, workspace.root / folder, None)


def test_a_longer_training_gets_the_flag_that_it_needs_and_has_no_problem_then(workspace: Workspace) -> None:
    found = longer(workspace)
    assert {d.flag: d.verdict for d in found.differences}["--train-iters"] == "flag"
    assert OVERRIDE in found.plan.arguments and found.compared_with == "iter_0000006"
    assert found.plan.load == found.plan.save == str(save_of(workspace)) and not found.branches
    assert resume_problems(found, workspace) == []


def test_a_branch_is_compared_with_the_checkpoint_that_it_leaves_from(workspace: Workspace) -> None:
    found = longer(workspace, None, 4, "--hidden-size", "32")
    assert found.compared_with == "iter_0000004" and found.branches
    assert found.plan.save == str(workspace.root / "base/2026-11-30/05-00-00")
    assert [p.field for p in resume_problems(found, workspace)] == ["--hidden-size"]
    assert not Path(found.plan.save or "").exists()


def test_an_image_sees_what_a_branch_links_to(workspace: Workspace) -> None:
    """Its base may be on another disk than the workspace."""
    save = save_of(workspace)
    branch = workspace.root / "base/2026-11-30/05-00-00"
    branch.mkdir()
    make_branch(save, 4, branch)
    plan = RunPlan("train", "demo", launcher="mpirun", load=str(branch), save=str(branch))
    assert str(save) in bound_folders(plan, Workspace(workspace.root / "elsewhere"))


def test_an_unloadable_checkpoint_is_a_problem_of_any_plan_that_loads_it(workspace: Workspace) -> None:
    """Whoever made the plan: launch, the form, a resume."""
    save = str(save_of(workspace))
    words = (*SMALL, "--save-interval", "2")
    late = RunPlan("train", "demo", arguments=words, load=save, save=save)
    wider = dataclasses.replace(late, arguments=(*words, "--swiglu"))
    assert "--swiglu" in [p.field for p in problems(wider, workspace) if p.severity == "error"]
    [problem] = problems(late, workspace)
    assert problem.severity == "error" and "iteration 6 of 6" in problem.message


def test_a_run_from_iteration_0_never_saves_where_it_loads(workspace: Workspace) -> None:
    """It would write over the checkpoints there, and through a branch's link over those of the original."""
    for iteration in (None, 4):
        [problem] = resume_problems(longer(workspace, None, iteration, "--finetune"), workspace)
        assert problem.severity == "error" and "launch --load" in problem.remedy


def test_a_new_run_loads_an_earlier_checkpoint_through_a_separate_folder(
    workspace: Workspace,
) -> None:
    words = (
        *SMALL,
        "--save-interval",
        "2",
        "--data-path",
        str(workspace.root / "corpus.jsonl"),
        "--finetune",
    )
    plan = train_plan("demo", words, (), workspace.root / "other/2026-11-30/05-00-00")
    found = loading(workspace, plan, save_of(workspace) / "iter_0000004")
    assert resume_problems(found, workspace) == []
    answers = (sys.executable, "-c", r"import os, sys; os.write(int(sys.argv[-1]), b'{}\n')")
    started = start_resumption(found, workspace, program=answers).plan()
    load, save = Path(started.load or ""), Path(started.save or "")
    assert read_tracker(load).iteration == 4 and not any(save.iterdir())
    assert (load / "iter_0000004").samefile(save_of(workspace) / "iter_0000004")
    assert needed_by_branches(workspace, []) == {save_of(workspace) / "iter_0000004"}


def test_a_branch_whose_load_was_edited_leaves_the_tracker_of_that_folder_alone(workspace: Workspace) -> None:
    other = workspace.root / "other"
    torch_checkpoint(other, 50)
    (other / TRACKER).write_text("50")
    found = longer(workspace, None, 4)
    found = dataclasses.replace(found, plan=dataclasses.replace(found.plan, load=str(other)))
    with pytest.raises(UserError, match="holds other checkpoints"):
        start_resumption(found, workspace)
    assert read_tracker(other).iteration == 50
    assert not (other / "iter_0000004").is_symlink()


def test_training_that_is_counted_in_samples_is_not_continued_beyond_its_end(workspace: Workspace) -> None:
    save = workspace.root / "samples"
    folder = torch_checkpoint(save) / "mp_rank_00/model_optim_rng.pt"
    folder.write_bytes(torch_file({"consumed_train_samples": 800}))
    plan = RunPlan("train", "megatron", arguments=("--train-samples", "800"), load=str(save), save=str(save))
    [problem] = load_problems(plan, workspace)
    assert (problem.severity, problem.field) == ("error", "--train-samples")


def test_leftovers_of_a_crashed_save_are_named_before_the_next_save(workspace: Workspace) -> None:
    save = workspace.root / "dist"
    for iteration in (200, 100):
        dist_checkpoint(save, iteration)
    plan = RunPlan("train", "megatron", arguments=("--use-dist-ckpt",), load=str(save), save=str(save))
    [problem] = load_problems(plan, workspace)
    assert problem.severity == "error" and "resume" in problem.remedy
    (save / "iter_0000200/metadata.json").unlink()
    assert "mv " in load_problems(plan, workspace)[0].remedy
    assert load_problems(dataclasses.replace(plan, save="elsewhere"), workspace) == []
    shutil.rmtree(save / "iter_0000200")
    (save / "iter_0000200").mkdir()
    assert load_problems(plan, workspace) == []


def test_a_new_run_may_begin_with_a_checkpoint_of_a_base(workspace: Workspace) -> None:
    save = workspace.root / "other/2026-11-30/05-00-00"
    words = (
        *SMALL,
        "--train-iters",
        "12",
        "--save-interval",
        "3",
        "--data-path",
        str(workspace.root / "corpus.jsonl"),
    )
    plan = train_plan("demo", words, (), save)
    found = loading(workspace, plan, workspace.root / "base")
    assert (found.plan.load, found.plan.save) == (str(save_of(workspace)), str(save))
    assert found.source.why and value_of(found.plan.arguments, OVERRIDE) == ""
    assert resume_problems(found, workspace) == [] and found.plan.parent == "2026-11-30/04-00-00"
    earlier = loading(workspace, plan, save_of(workspace) / "iter_0000002")
    assert earlier.plan.load == earlier.plan.save == str(save) and earlier.branches


def test_a_run_that_still_saves_there_is_not_joined(workspace: Workspace) -> None:
    folder = create_run_folder(workspace.runs, datetime(2026, 11, 30, 4, 30))
    write_json(folder.plan_file, RunPlan("train", "demo", save=str(save_of(workspace))).as_json())
    with pytest.raises(UserError, match="saves into") as caught:
        longer(workspace)
    assert "mdk-tui stop" in caught.value.remedy
    assert longer(workspace, None, 4).branches  # a branch is in nobody's way


def test_a_run_on_a_host_that_is_silent_may_still_save_there(workspace: Workspace) -> None:
    folder = create_run_folder(workspace.runs, datetime(2026, 11, 30, 4, 30))
    write_json(folder.plan_file, RunPlan("train", "demo", save=str(save_of(workspace))).as_json())
    folder.write_state(RunState("running", machine=Machine("node7", "boot"), heartbeat=1.0))
    with pytest.raises(UserError, match="node7, where it runs, is silent") as caught:
        longer(workspace)
    assert "--iteration" in caught.value.remedy


def test_without_readable_arguments_the_log_or_the_plan_is_compared(workspace: Workspace) -> None:
    """An older or foreign file: its arguments cannot be read, the run that wrote it is known."""
    import zipfile

    shard = save_of(workspace) / "iter_0000006/mp_rank_00/model_optim_rng.pt"
    with zipfile.ZipFile(shard) as old:
        members = {name: old.read(name) for name in old.namelist() if name != "args.json"}
    with zipfile.ZipFile(shard, "w") as new:
        for name, content in members.items():
            new.writestr(name, content)
    found = longer(workspace, None, None, "--hidden-size", "32")
    assert found.compared_with == "the plan of 2026-11-30/04-00-00"
    assert {d.flag: d.verdict for d in found.differences}["--hidden-size"] == "refused"
    log = workspace.runs / "2026-11-30/04-00-00/output.log"
    log.write_text("------------------------ arguments ------------------------\n  hidden_size ..................................... 16\n"
                   "-------------------- end of arguments ---------------------\n")  # fmt: skip
    assert (
        longer(workspace, None, None, "--hidden-size", "32").compared_with == "the log of 2026-11-30/04-00-00"
    )


def test_differences_are_plain_values(workspace: Workspace) -> None:
    words = json.loads(json.dumps([d.as_json() for d in longer(workspace).differences]))
    assert all(d.keys() == {"flag", "stored", "planned", "verdict", "message", "remedy"} for d in words)


def test_a_branch_on_a_disk_that_takes_no_links_is_refused_and_leaves_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "symlink_to", refused)
    before = sorted(save_of(workspace).parent.iterdir())
    with pytest.raises(UserError, match="cannot be made: Operation not permitted"):
        start_resumption(longer(workspace, None, 4), workspace)
    assert sorted(save_of(workspace).parent.iterdir()) == before


def test_a_link_to_a_branch_of_a_branch_leads_to_the_checkpoint_itself(workspace: Workspace) -> None:
    save, base = save_of(workspace), workspace.root / "other/2026-11-30"
    first, second = base / "05-00-00", base / "06-00-00"
    for branch, origin in ((first, save), (second, first)):
        branch.mkdir(parents=True)
        make_branch(origin, 4, branch)
    shutil.rmtree(first)
    assert (second / "iter_0000004").samefile(save / "iter_0000004")
    assert find_source(workspace, second, None).iteration == 4
