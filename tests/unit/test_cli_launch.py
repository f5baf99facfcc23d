"""`mdk-tui launch` without a screen: every choice of the form, the command printed, edited, refused."""

from __future__ import annotations

import json
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from idx_files import write_dataset

from backends.errors import UserError
from backends.launch.editing import read_shell
from backends.models.arguments import value_of
from backends.workspace import Workspace
from tui.cli import cli


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def said(workspace: Workspace, *words: str) -> str:
    arguments = ["-w", str(workspace.root), *words]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert done.return_value == 0
    return done.stdout


def shown(workspace: Workspace, *words: str) -> dict[str, Any]:
    return json.loads(said(workspace, "launch", "--dry-run", "--json", *words))


def test_the_recipe_is_the_default_and_missing_files_are_reported(workspace: Workspace) -> None:
    found = shown(workspace)
    assert value_of(found["argv"], "--hidden-size") == "4096"
    errors = {problem["field"] for problem in found["problems"] if problem["severity"] == "error"}
    assert "trainer" in errors  # there is no clone


def test_acceleration_choices_are_options(workspace: Workspace) -> None:
    words = (
        "--preset",
        "gpt3-7.1b",
        "--np",
        "8",
        "--without",
        "distributed-optimizer",
        "--recompute",
        "full",
    )
    argv = shown(workspace, *words, "--with", "fp8", "--with", "overlap-grad-reduce")["argv"]
    assert value_of(argv, "--fp8-format") == "hybrid" and "--overlap-grad-reduce" in argv
    assert "--use-distributed-optimizer" not in argv
    assert value_of(argv, "--recompute-method") == "uniform"
    text = said(
        workspace, "estimate", "--preset", "gpt3-7b", "--gpus", "8", "--without", "distributed-optimizer"
    )
    bytes_per_parameter = 18
    assert f"weight and optimizer {6436659200 * bytes_per_parameter / 2**20:.2f} MB" in text


def test_what_is_printed_is_what_a_shell_would_run(workspace: Workspace) -> None:
    words = ("--preset", "tiny", "--no-home", "--save", "a base", "--", "--lr", "1e-3")
    text = said(workspace, "launch", "--dry-run", *words)
    written = read_shell(text)
    found = shown(workspace, *words)
    assert (written.argv[:-1], written.cwd) == (tuple(found["argv"][:-1]), found["cwd"])
    assert dict(written.env) == found["env"]
    assert text.splitlines()[-1] == shlex.join(written.argv)


@pytest.mark.parametrize("command", [("launch", "--preset", "tiny"), ("resume",), ("serve", "x")])
def test_an_option_of_mdk_tui_after_the_dashes_is_refused(
    workspace: Workspace, command: tuple[str, ...]
) -> None:
    words = ["-w", str(workspace.root), *command, "--", "--lr", "1", "--dry-run"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2 and "--dry-run is no argument of Megatron-LM" in done.output
    assert not workspace.runs.exists()


def test_presets_of_the_users_own(workspace: Workspace) -> None:
    workspace.settings.write_text(
        '[preset.mine]\nbase = "tiny"\ntitle = "mine"\narguments = { num-layers = 3 }\n'
    )
    assert value_of(shown(workspace, "--preset", "mine")["argv"], "--num-layers") == "3"
    assert "  demo      mine  (" in said(workspace, "presets")
    with pytest.raises(UserError, match="There is no preset 'mime'") as caught:
        shown(workspace, "--preset", "mime")
    assert caught.value.remedy == "Did you mean mine?"


def test_epochs_of_a_data_set(workspace: Workspace) -> None:
    write_dataset(workspace.root / "x_text_document", 1000, 512)
    text = said(
        workspace,
        "estimate",
        "--preset",
        "smoke",
        "--data",
        str(workspace.root / "x"),
        "--",
        "--split",
        "1,0,0",
    )
    assert "6.40 epochs" in text  # 200 iterations of 32 × 512 tokens of 512,000


def test_the_command_is_edited_before_it_is_started(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = workspace.root / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/--num-layers 2/--num-layers 5/" "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("VISUAL", str(editor))
    argv = shown(workspace, "--preset", "tiny", "--edit")["argv"]
    assert value_of(argv, "--num-layers") == "5"
    editor.write_text("#!/bin/sh\n")
    with pytest.raises(UserError, match="was not saved"):
        shown(workspace, "--preset", "tiny", "--edit")


def test_an_error_starts_nothing(workspace: Workspace) -> None:
    with pytest.raises(UserError, match="divisible"):
        said(workspace, "launch", "--preset", "tiny", "--", "--global-batch-size", "3")
    assert not workspace.runs.exists()
