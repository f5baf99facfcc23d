"""The monitor reports the flood of messages of a first start, and one key starts the run again as the tutorial advises."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from checkpoint_trees import torch_checkpoint
from fake_runs import listing
from textual.widgets import Static, TextArea
from waiting import until_seen

from backends.errors import UserError
from backends.files import write_json
from backends.inference.trained_and_served import demo_prospect
from backends.launch.prospect import prospect_of, restart_prospect, resume_prospect
from backends.megatron.events import Milestone
from backends.megatron.folding import Folder
from backends.megatron.record import Record
from backends.models.presets import TINY
from backends.runs.folder import RunFolder, create_run_folder
from backends.runs.planning import train_plan
from backends.runs.processes import find_process, this_machine
from backends.runs.state import RunState
from backends.workspace import Workspace
from tui.app import MdkApp, Opening
from tui.appearance import Appearance
from tui.screens.confirm import Confirm
from tui.screens.monitor_model import MonitorModel
from tui.screens.monitor_sources import News

FLOOD = b"[INFO     | DotProductAttention]: Running with FusedAttention backend (sub-backend 1)\n"


def running(workspace: Workspace) -> RunFolder:
    """A run whose job and supervisor are this very process: nobody stops it here."""
    save = workspace.checkpoints / "2026-11-30/05-00-00"
    save.mkdir(parents=True)
    folder = create_run_folder(workspace.runs, datetime(2026, 11, 30, 5))
    write_json(folder.plan_file, train_plan("demo", TINY.arguments, (), save).as_json())
    folder.write_state(state())
    return folder


def state(**known: Any) -> RunState:
    me = find_process(os.getpid())
    return RunState(phase="running", job=me, supervisor=me, leader=me, mark="none", machine=this_machine(),
                    heartbeat=time.time(), **known)  # fmt: skip


def news(data: bytes, *, reset: bool = False) -> News:
    record = Record()
    record.apply([Milestone(1, None, "arguments")])  # or the log would be somebody else's
    return News(tuple(Folder().feed(data)), record, True, False, None, None, reset)


def test_a_flood_is_one_entry_and_a_few_notices_are_none() -> None:
    model = MonitorModel(None)
    model.take(news(FLOOD * 900))
    assert model.look() == []
    before = model.version[2]
    model.take(news(FLOOD * 12_288))
    (entry,) = model.look()
    assert "12,288 times" in entry.message and entry.severity == "warning" and entry.line == 1
    assert model.version[2] != before, "the panel is drawn again"
    model.take(news(b"another log\n", reset=True))
    assert model.look() == []


def test_the_commands_are_those_that_would_be_typed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    folder = running(workspace)
    anew = restart_prospect(workspace, folder)
    assert anew.shell.endswith(f"stop 2026-11-30/05-00-00 --now && sh {folder.command}")
    assert "05-00-00 " not in anew.command, "it saves elsewhere"
    save = workspace.checkpoints / "2026-11-30/05-00-00"
    folder.write_state(state(iteration=60))
    goes_on = restart_prospect(workspace, folder)
    assert goes_on.shell.endswith(f"stop 2026-11-30/05-00-00 && mdk-tui -w {tmp_path} resume {save}")
    assert f"--load {save}" in goes_on.command and goes_on.problems == (), "its stop will save there"


def test_every_proposed_command_can_be_edited(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    save = workspace.checkpoints / "2026-11-30/05-00-00"
    again = restart_prospect(workspace, running(workspace))
    demo = demo_prospect(workspace)
    torch_checkpoint(save, 50)
    (save / "latest_checkpointed_iteration.txt").write_text("50")
    finished = RunFolder(workspace.runs / "2026-11-30/05-00-00")
    finished.write_state(replace(state(iteration=50), phase="finished"))
    for prospect in (again, demo, resume_prospect(workspace, save), resume_prospect(workspace, save, 50)):
        assert prospect.edit is not None and prospect.editable
        new = prospect.edit(prospect.editable.replace("--log-interval 5", "--log-interval 7"))
        assert "--log-interval 7" in new.command and "edited by hand" in new.shell, prospect.title
        assert (new.title, new.notes) == (prospect.title, prospect.notes)
        with pytest.raises(UserError):
            prospect.edit("a | b")


async def test_a_key_asks_before_it_does(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    folder = running(workspace)
    folder.log.write_bytes(FLOOD * 3000)
    app = MdkApp(workspace, Appearance(calm=True), Opening("monitor", folder), watch=listing())
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until_seen(pilot, lambda: app.screen.check_action("again", ()))
        await pilot.press("R")
        await until_seen(pilot, lambda: isinstance(app.screen, Confirm))
        assert "--now && sh" in " ".join(str(static.content) for static in app.screen.query(Static)).replace(
            "\n", " "
        )
        await pilot.press("escape")
    assert app.failures == [] and not folder.request_file.exists()


async def test_a_command_that_is_proposed_is_edited_before_it_starts(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    plan = train_plan("demo", TINY.arguments, (), workspace.checkpoints / "2026-11-30/05-00-00")
    app = MdkApp(workspace, Appearance(calm=True), Opening("home"), watch=listing())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        question = Confirm(prospect_of(workspace, plan, "train", "mdk-tui launch"))
        await app.push_screen(question)
        await pilot.press("e")
        await pilot.pause()
        area = app.screen.query_one(TextArea)
        area.text = area.text.replace("--num-layers 2", "--num-layers 7")
        await pilot.press("ctrl+j")
        await until_seen(pilot, lambda: "--num-layers 7" in question.prospect.command)
        await pilot.pause()
        shown = " ".join(str(static.content) for static in question.query(Static)).replace("\n", " ")
        assert "--num-layers 7" in shown and "edited by hand" in shown
    assert app.failures == []
