"""`mdk-tui launch` with real programs: a command edited by hand runs unchanged, and command.sh repeats it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import LIMIT, until

from backends.runs.catalog import describe
from backends.runs.folder import RunFolder
from backends.workspace import Workspace

pytestmark = pytest.mark.hpc
MODEL = ("--num-layers", "1", "--train-iters", "4", "--log-interval", "1", "--eval-iters", "0")


class Terminal:
    """Commands as a user types them, in a workspace of their own; what is left running at the end is stopped."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self.workspace, self.environment = Workspace(root), environment
        self.started: list[RunFolder] = []

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-c",
            "from tui.cli import main; main()",
            "-w",
            str(self.workspace.root),
            *words,
        ]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=LIMIT
        )

    def json(self, *words: str) -> Any:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def finished(self, info: dict[str, Any]) -> RunFolder:
        folder = RunFolder(Path(info["path"]))
        self.started.append(folder)
        until(lambda: describe(folder).over, "the end")
        return folder


@pytest.fixture
def terminal(tmp_path: Path, hpc_environment: dict[str, str]) -> Iterator[Terminal]:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/--train-iters 4/--train-iters 6/" "$1"\n')
    editor.chmod(0o755)
    terminal = Terminal(tmp_path, {**hpc_environment, "VISUAL": str(editor)})
    yield terminal
    for folder in terminal.started:
        if not describe(folder).over:
            terminal.run("stop", folder.name, "--now")


def test_an_edited_command_trains_and_its_script_trains_again(terminal: Terminal, cpu_image: Path) -> None:
    words = (
        "launch",
        "--json",
        "--preset",
        "tiny",
        "--launcher",
        "mpirun",
        "--np",
        "2",
        "--image",
        str(cpu_image),
    )
    folder = terminal.finished(terminal.json(*words, "--edit", "--", *MODEL))
    info = describe(folder)
    assert (info.phase, info.iteration, info.train_iters) == ("finished", 6, 6), folder.log.read_text()[
        -3000:
    ]
    plan = folder.plan()
    assert plan.command[:3] == ("mpirun", "--np", "2") and plan.train_iters == 6 and plan.layout["dp"] == 2

    by_hand = subprocess.run(
        ["sh", str(folder.command)],
        env=terminal.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert by_hand.returncode == 0, by_hand.stdout[-2000:] + by_hand.stderr[-2000:]
    assert "using world size: 2" in by_hand.stdout


def test_a_dry_run_prints_what_the_script_runs(terminal: Terminal, cpu_image: Path) -> None:
    words = ("launch", "--preset", "tiny", "--launcher", "mpirun", "--np", "2", "--image", str(cpu_image))
    shown = terminal.run(*words, "--dry-run", "--", *MODEL)
    folder = terminal.finished(terminal.json(*words, "--json", "--", *MODEL))
    script = folder.command.read_text().splitlines()
    lines = shown.stdout.splitlines()
    assert script[2] == f"{lines[0]} || exit 1"
    # The dated folder is of another second.
    *exports, command = [line.rpartition(" --save ")[0] or line for line in lines[1:]]
    assert script[3:] == [*exports, f"exec {command} --save {folder.plan().save}"]
    assert os.access(folder.command, os.X_OK)
