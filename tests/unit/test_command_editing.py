"""A command that the user edited runs word for word, and the plan holds its arguments."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from backends.errors import UserError
from backends.files import write_json
from backends.launch.commands import commands
from backends.launch.editing import check_edited, editable, edited, read_shell
from backends.models.arguments import value_of
from backends.models.presets import TINY
from backends.runs.checkpoints import TRACKER
from backends.runs.folder import create_run_folder, moment_of
from backends.runs.plan import RunPlan
from backends.runs.planning import continue_plan, train_plan
from backends.runs.ports import PortBook, with_master_port
from backends.workspace import Workspace

FLAGS = ("--num-layers", "2", "--train-iters", "10", "--data-path", "/d/x")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def megatron(workspace: Workspace) -> RunPlan:
    plan = RunPlan(
        "train", "megatron", "mpirun", arguments=FLAGS, save="/s/2026", processes=2, image="/i.sif"
    )
    return with_master_port(plan, workspace, lambda port: True, book=PortBook(workspace.root / "ports"))


def test_a_command_that_is_read_back_unchanged_gives_the_same_plan(workspace: Workspace) -> None:
    for plan in (megatron(workspace), train_plan("demo", TINY.arguments, (), workspace.root / "a b'c")):
        command = commands(plan, workspace)
        assert edited(plan, workspace, command.shell()) == plan
        assert edited(plan, workspace, editable(command)) == plan


def test_an_edited_command_runs_unchanged_and_its_flags_enter_the_plan(workspace: Workspace) -> None:
    plan = megatron(workspace)
    text = commands(plan, workspace).shell()
    text = text.replace("--np 2", "--np 2 --display map").replace(
        "--num-layers 2", "--num-layers 4 \\\n  --bf16"
    )
    text = text.replace("/d/x", "'0.5 /d/x 0.5 /d/y'").replace("mpi.sh /s/2026 ", "mpi.sh /t/2027 ")
    new = edited(plan, workspace, f"# a comment; with | signs\nexport NCCL_DEBUG=INFO\n{text}")
    command = commands(new, workspace)
    assert command.argv == read_shell(text).argv and "--display" in command.argv
    assert command.env["NCCL_DEBUG"] == "INFO" and command.env["MASTER_PORT"] == "14535"
    assert (value_of(new.arguments, "--num-layers"), value_of(new.arguments, "--bf16")) == ("4", "")
    assert value_of(new.arguments, "--data-path") == new.data == "0.5 /d/x 0.5 /d/y"
    assert new.save == "/t/2027"
    assert RunPlan.from_json(_as_file(new), "test") == new


def test_a_resume_of_an_edited_run_loads(workspace: Workspace) -> None:
    """The command that was edited loads nothing: its flags go on, its words do not."""
    save = workspace.root / "base/2026-11-30/05-00-00"
    plan = train_plan("demo", TINY.arguments, (), save)
    text = commands(plan, workspace).shell().replace("--num-layers 2", "--num-layers 3")
    run = create_run_folder(workspace.runs, moment_of("2026-11-30/05-00-00"))
    write_json(run.plan_file, edited(plan, workspace, text).as_json())
    (save / "iter_0000050").mkdir(parents=True)
    (save / TRACKER).write_text("50")
    again = continue_plan(workspace, save, ())
    words = commands(again, workspace).argv
    assert again.command == () and value_of(words, "--load") == str(save)
    assert value_of(words, "--num-layers") == "3"


def test_a_batch_script_is_edited_as_a_whole(workspace: Workspace) -> None:
    plan = dataclasses.replace(megatron(workspace), launcher="slurm")
    script = editable(commands(plan, workspace))
    assert script.startswith("#!/bin/bash\n") and edited(plan, workspace, script) == plan
    text = script.replace("#SBATCH --nodes=1", "#SBATCH --nodes=1\n#SBATCH --qos=high")
    text = text.replace("--num-layers 2", "--num-layers 4").replace("/s/2026", "/t/2027")
    check_edited(f"# problems, as an editor shows them\n{text}")
    new = edited(plan, workspace, f"# problems, as an editor shows them\n{text}")
    assert commands(new, workspace).batch == text and "--qos=high" in commands(new, workspace).shell()
    assert value_of(new.arguments, "--num-layers") == "4" and new.save == "/t/2027"
    assert RunPlan.from_json(_as_file(new), "test") == new
    assert (
        "/u/2028" in new.moved("/t/2027", "/u/2028").batch
        and "/t/2027" not in new.moved("/t/2027", "/u/2028").batch
    )
    for bad, message in (
        (text.replace("#!/bin/bash", "echo"), "begins with #!"),
        (text.replace("exit.json", "end.json"), "by which the end of the run is known"),
    ):
        with pytest.raises(UserError, match=message):
            edited(plan, workspace, bad)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cd /x", "There is no command"),
        ("", "There is no command"),
        ("a\nb", "more than one command"),
        ("a | b", "is a shell's"),
        ("a && b", "is a shell's"),
        ("a $HOME", "is a shell's"),
        ("a 'b", "not closed"),
        ("export X\na", "no NAME=VALUE"),
        ("export 1=2\na", "no NAME=VALUE"),
    ],
)
def test_commands_that_cannot_run_are_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_shell(text)


def test_quotes_and_continued_lines_are_read() -> None:
    assert read_shell("a 'b | c' \\\n  \"d;e\" # f | g").argv == ("a", "b | c", "d;e")
    assert read_shell("a 'b\nc'").argv == ("a", "b\nc")


def test_another_folder_and_a_script_without_its_words_are_refused(workspace: Workspace) -> None:
    plan = megatron(workspace)
    with pytest.raises(UserError, match="The job runs in"):
        edited(plan, workspace, "cd /elsewhere\nmpirun x")
    with pytest.raises(UserError, match="needs 5 words"):
        edited(plan, workspace, "bash examples/gpt3/train_gpt3_7b_mpi.sh a --lr 1")
    own = edited(plan, workspace, "mpirun my-own-script")
    assert own.arguments == FLAGS and own.command == ("mpirun", "my-own-script")


def _as_file(plan: RunPlan) -> dict[str, object]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(plan).items()}
