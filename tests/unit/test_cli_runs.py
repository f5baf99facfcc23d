"""The commands around runs, as a user types them: from the demo to a resume, a branch, a server and its end."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from scripted_jobs import clean_up, wait_for

from backends.inference.trained_and_served import start_both, tiny_plan
from backends.runs.catalog import find_run, run_folders
from backends.runs.checkpoints import read_tracker
from backends.runs.processes import marked_processes
from backends.workspace import Workspace

SMALL = ("--num-layers", "1", "--hidden-size", "16", "--seq-length", "16", "--max-position-embeddings", "16",
         "--micro-batch-size", "1", "--global-batch-size", "1", "--eval-iters", "1")  # fmt: skip
LONG = (
    *SMALL,
    "--train-iters",
    "100000",
    "--log-interval",
    "1",
    "--save-interval",
    "10",
    "--eval-interval",
    "100000",
)
RUN_KEYS = {
    "run",
    "kind",
    "phase",
    "pid",
    "host",
    "started",
    "ended",
    "exit_code",
    "iteration",
    "train_iters",
    "address",
}


class Terminal:
    """`mdk-tui -w WORKSPACE …` and what it says."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def __call__(self, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        argv = [
            sys.executable,
            "-c",
            "from tui.cli import main; main()",
            "-w",
            str(self.workspace.root),
            *words,
        ]
        done = subprocess.run(
            argv, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300
        )
        assert done.returncode == status, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self(words[0], "--json", *words[1:]).stdout)

    def wait(self, run: str, key: str, *values: object) -> dict[str, Any]:
        """`status` of `run` as soon as `key` has one of `values` (none given: any value)."""

        def look() -> dict[str, Any] | None:
            now = self.json("status", run)
            return now if (now[key] in values if values else now[key] is not None) else None

        return wait_for(look)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    workspace = Workspace(tmp_path)
    yield Terminal(workspace)
    for folder in run_folders(workspace):
        clean_up(folder)


def test_a_run_is_launched_stopped_resumed_branched_and_served(terminal: Terminal) -> None:
    first = terminal.json("launch", "--preset", "tiny", "--", *LONG)
    assert first.keys() >= RUN_KEYS and first["kind"] == "train"
    terminal.wait(first["run"], "iteration")
    wait_for(lambda: read_tracker(Path(first["save"])).iteration)

    stopped = terminal.json("stop")
    assert (stopped["run"], stopped["phase"], stopped["exit_code"]) == (first["run"], "finished", 0)
    saved = read_tracker(Path(first["save"])).iteration
    assert saved == stopped["iteration"]

    again = terminal.json("resume")
    assert again["load"] == again["save"] == first["save"]
    assert terminal.wait(again["run"], "iteration")["iteration"] > saved
    refused = terminal("resume", status=1)
    assert f"mdk-tui stop {again['run']}" in refused.stderr
    ended = terminal.json("stop", again["run"], "--now")
    assert (ended["phase"], ended["exit_code"]) == ("failed", None)

    branch = terminal.json("resume", first["save"], "--iteration", "10")
    assert branch["save"] != first["save"] and Path(branch["save"], "iter_0000010").is_symlink()
    assert terminal.wait(branch["run"], "iteration")["iteration"] > 10
    terminal("stop")

    server = terminal.json("serve", first["save"])
    address = terminal.wait(server["run"], "address")["address"]
    assert address.startswith("http://127.0.0.1:")
    assert terminal.json("ask", "def ", "--tokens", "4", "--url", address)["text"].startswith("def ")
    assert terminal.json("stop")["phase"] == "finished"

    listed = terminal.json("runs")
    assert [run["run"] for run in listed] == [server["run"], branch["run"], again["run"], first["run"]]
    for folder in run_folders(terminal.workspace):
        state = folder.state()
        assert state and marked_processes(state.mark) == []
    assert terminal("runs", "--check", status=3).stdout.startswith("RUN")


def test_the_command_script_does_the_same_by_hand(terminal: Terminal) -> None:
    terminal("launch", "--preset", "tiny", "--", *SMALL, "--train-iters", "2", "--log-interval", "1")
    [folder] = run_folders(terminal.workspace)
    terminal.wait(folder.name, "phase", "finished")
    by_hand = subprocess.run(
        ["sh", str(folder.command)], check=False, capture_output=True, text=True, timeout=300
    )
    assert by_hand.returncode == 0
    mine, theirs = ([line for line in text.splitlines() if "lm loss:" in line] for text in (by_hand.stdout, folder.log.read_text()))  # fmt: skip
    assert len(mine) == 2 and [line.split("lm loss")[1] for line in mine] == [
        line.split("lm loss")[1] for line in theirs
    ]


def test_a_file_is_no_workspace(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_text("words\n")
    assert "is not a folder" in Terminal(Workspace(file))("runs", status=2).stderr


def test_the_demo_without_a_screen(terminal: Terminal) -> None:
    base = terminal.workspace.root / "elsewhere"
    done = terminal("demo", "--headless", "--iters", "6", "--save", str(base))
    assert (
        len([line for line in done.stdout.splitlines() if " iteration " in line and "lm loss:" in line]) >= 2
    )
    [tracker] = base.glob("*/*/latest_checkpointed_iteration.txt")
    assert tracker.read_text() == "6"
    assert "completion" in done.stdout and "served" in done.stdout
    assert [run["phase"] for run in terminal.json("runs")] == ["finished", "finished"]


def test_behind_the_demo_s_screen_train_a_run_and_a_server_that_waits_for_it(terminal: Terminal) -> None:
    workspace = terminal.workspace
    plan = dataclasses.replace(
        tiny_plan(workspace.checkpoints, datetime.now()), arguments=(*LONG, "--exit-signal-handler")
    )
    train = start_both(workspace, plan)
    assert find_run(workspace, None) == train and len(list(run_folders(workspace))) == 2
    [server] = [folder for folder in run_folders(workspace) if folder != train]
    assert terminal.wait(server.name, "address")["load"] == terminal.json("status")["save"]
    assert terminal("ask", "x", "--tokens", "2").stdout.startswith("x")
    assert [terminal.json("stop")["run"] for _ in range(2)] == [train.name, server.name]


def test_the_demo_without_a_screen_says_why_it_failed(terminal: Terminal) -> None:
    """A base that is a file: nothing can be saved there."""
    (terminal.workspace.root / "base").write_text("")
    failed = terminal(
        "demo", "--headless", "--iters", "2", "--save", str(terminal.workspace.root / "base"), status=1
    )
    assert "cannot be made" in failed.stderr and "--save BASE" in failed.stderr


def test_a_dry_run_starts_nothing(terminal: Terminal) -> None:
    plan = terminal.json("launch", "--preset", "tiny", "--dry-run", "--save", "/base", "--gpus", "2")
    assert plan["argv"][1:4] == ["-u", "-m", "backends.demo.train"] and plan["problems"] == []
    assert plan["argv"][-2] == "--save" and plan["argv"][-1].startswith("/base/")
    assert plan["env"]["CUDA_VISIBLE_DEVICES"] == "0,1" and plan["cwd"] == str(terminal.workspace.root)
    assert not terminal.workspace.outputs.exists()
    broken = terminal.json("launch", "--preset", "tiny", "--dry-run", "--", "--hidden-size", "65")
    [problem] = broken["problems"]
    assert (
        problem.keys() == {"severity", "field", "message", "remedy"} and problem["field"] == "--hidden-size"
    )
    assert "--save" in terminal("launch", "--preset", "tiny", "--dry-run").stdout


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("launch", "--preset", "nine-lives"), 2, "no preset"),
        (("launch", "--preset", "tiny", "--launcher", "pigeon"), 2, "no launcher"),
        (("launch", "--preset", "tiny", "--gpus", "0,0"), 2, "one twice"),
        (("launch", "--preset", "tiny", "--gpus", "all"), 2, "neither a number"),
        (("launch", "--preset", "tiny", "stray"), 2, "is no option"),
        (("launch", "--preset", "tiny", "--", "--load", "/x"), 1, "mdk-tui resume"),
        (("resume",), 2, "has saved anything"),
        (("resume", "/nowhere"), 2, "is no folder"),
        (("serve", "/nowhere"), 2, "is no folder"),
        (("status",), 2, "no runs"),
        (("status", "2026-11-30/05-00-00"), 2, "no run"),
        (("stop", "../../etc"), 2, "no run"),
        (("demo",), 2, "--headless"),
    ],
)  # fmt: skip
def test_impossible_commands_are_refused_with_a_sentence(
    terminal: Terminal, words: tuple[str, ...], status: int, sentence: str
) -> None:
    assert sentence in terminal(*words, status=status).stderr


def test_without_numpy_the_demo_names_the_extra_to_install(terminal: Terminal) -> None:
    code = "import sys; sys.modules['autograd'] = None; from tui.cli import main; main()"
    argv = [sys.executable, "-c", code, "-w", str(terminal.workspace.root), "demo", "--headless"]
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, env=dict(os.environ), timeout=300
    )
    assert done.returncode == 1 and "pip install 'mdk-tui[demo]'" in done.stderr


def test_a_resume_shows_what_differs_and_refuses_what_cannot_load(terminal: Terminal) -> None:
    quick = (*SMALL, "--train-iters", "4", "--log-interval", "1", "--save-interval", "2")
    first = terminal.json("launch", "--preset", "tiny", "--", *quick)
    terminal.wait(first["run"], "phase", "finished")
    base = str(Path(first["save"]).parents[1])
    refused = terminal("resume", base, "--", "--train-iters", "6", "--hidden-size", "32", status=1)
    assert "is a base" in refused.stderr and "cannot load" in refused.stderr
    assert "hint: Give --hidden-size 16." in refused.stderr and len(terminal.json("runs")) == 1
    shown = terminal.json("resume", base, "--dry-run", "--", "--train-iters", "6")
    assert shown["problems"] == [] and "--override-opt_param-scheduler" in shown["argv"]
    assert [(d["flag"], d["verdict"]) for d in shown["differences"]] == [("--train-iters", "flag")]
    assert shown["from"]["path"] == str(Path(first["save"], "iter_0000004")) and shown["from"]["why"]

    again = terminal.json(
        "launch", "--preset", "tiny", "--load", f"{first['save']}/iter_0000002", "--", *quick
    )
    assert again["save"] != first["save"] and again["from"]["branch"]
    assert terminal.wait(again["run"], "phase", "finished")["iteration"] == 4
    for path in terminal.workspace.runs.glob("*/*/output.log"):
        text = path.read_text()
        assert "from random" not in text and ("at iteration 2" in text) == (again["run"] in str(path))
