"""Lineages of checkpoints and the cost of a save: real logs, real runs of the demo's trainer, and a slow disk."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

import pytest
from checkpoint_trees import torch_checkpoint
from demo_runs import SMALL, arguments, printed, write_corpus

from backends.files import write_json
from backends.runs.branching import make_branch
from backends.runs.checkpoints import checkpoints
from backends.runs.folder import create_run_folder
from backends.runs.lineages import lineages
from backends.runs.plan import RunPlan
from backends.runs.save_forecast import SaveForecast, forecast
from backends.runs.save_history import SaveHistory, read_save_history
from backends.runs.state import RunState
from backends.workspace import Workspace


def test_the_real_log_tells_how_long_saves_took_and_the_loss_there(logs: Path) -> None:
    history = read_save_history([logs / "h200-core_r0.8.0-train.log"])
    assert history.seconds == {100: pytest.approx(0.55121), 200: pytest.approx(0.55405)}
    assert set(history.losses) == {100, 200} and 3 < history.losses[200] < history.losses[100] < 6
    assert history.iteration == 200 and history.iteration_ms is not None and 100 < history.iteration_ms < 1000
    assert read_save_history([logs / "no such log"]).losses == {}


HISTORY = SaveHistory(seconds={100: 9.0, 200: 12.0}, iteration=210, iteration_ms=500.0)


def coming(tmp_path: Path, history: SaveHistory = HISTORY, **known: int | None) -> SaveForecast:
    if not (tmp_path / "iter_0000100").exists():
        torch_checkpoint(tmp_path)
    facts: dict[str, int | None] = {"interval": 100, "train_iters": 450, "free": 10**6, **known}
    found = checkpoints(tmp_path)
    return forecast(
        found, history, interval=facts["interval"], train_iters=facts["train_iters"], free=facts["free"]
    )


def test_the_next_save_is_forecast_with_its_time_and_whether_it_fits(tmp_path: Path) -> None:
    found = coming(tmp_path)
    assert (found.next_iteration, found.seconds_until, found.seconds) == (300, 45.0, 12.0)
    assert found.remaining == 3  # at 300, at 400 and, at the end, at 450
    assert found.size and found.fits == 10**6 // found.size
    assert found.next_fits and found.all_fit
    tight = coming(tmp_path, free=found.size * 2)
    assert tight.next_fits and tight.all_fit is False
    assert coming(tmp_path, free=found.size - 1).next_fits is False


def test_the_last_save_is_at_the_end_and_after_it_none_comes(tmp_path: Path) -> None:
    assert coming(tmp_path, train_iters=250).next_iteration == 250
    over = coming(tmp_path, train_iters=210)
    assert (over.next_iteration, over.remaining) == (None, 0)


def test_unknown_inputs_give_unknown_forecasts(tmp_path: Path) -> None:
    assert coming(tmp_path, interval=None).next_iteration is None
    assert coming(tmp_path, SaveHistory()).next_iteration is None
    found = coming(tmp_path, SaveHistory(iteration=5), train_iters=None, free=None)
    assert (found.next_iteration, found.seconds_until, found.remaining) == (100, None, None)
    assert (found.fits, found.next_fits, found.all_fit, found.seconds) == (None, None, None, None)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A run that saved 2, 4 and 6, a branch of its iteration 2, and a folder that nobody of this workspace wrote."""
    workspace = Workspace(tmp_path)
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    save = workspace.checkpoints / "2026-11-30/04-00-00"
    words = ("--data-path", corpus, "--save", save, "--save-interval", "2")
    text = printed(arguments(*words))
    folder = create_run_folder(workspace.runs, datetime(2026, 11, 30, 4))
    plan = RunPlan(
        "train", "demo", title="tiny [/x]", arguments=(*SMALL, "--save-interval", "2"), save=str(save)
    )
    write_json(folder.plan_file, plan.as_json())
    folder.write_state(RunState("failed"))
    folder.log.write_text(text)
    branch = workspace.checkpoints / "2026-11-30/05-00-00"
    branch.mkdir()
    make_branch(save, 2, branch)
    torch_checkpoint(workspace.checkpoints / "2026-11-29/01-00-00", 300)
    return workspace


def test_all_folders_are_found_with_their_runs_losses_and_branches(workspace: Workspace) -> None:
    found = {lineage.save.name: lineage for lineage in list(lineages(workspace))[-1]}
    assert set(found) == {"04-00-00", "05-00-00", "01-00-00"}
    run = found["04-00-00"]
    assert (run.run, run.title, run.phase, run.busy) == ("2026-11-30/04-00-00", "tiny [/x]", "failed", False)
    assert [point.checkpoint.iteration for point in run.points] == [6, 4, 2]
    assert all(point.loss is not None and point.checkpoint.complete for point in run.points)
    assert all(point.seconds is not None and point.seconds > 0 for point in run.points)
    assert len({point.loss for point in run.points}) == 3
    assert run.forecast is not None and run.forecast.remaining == 0
    assert found["05-00-00"].branch_of == run.save and found["05-00-00"].run is None
    assert found["01-00-00"].points[0].loss is None


def test_folders_are_yielded_before_their_logs_are_read_and_sorted_newest_first(workspace: Workspace) -> None:
    steps = list(lineages(workspace))
    assert [len(step) for step in steps[:3]] == [1, 2, 3]
    assert steps[0][0].points[0].loss is None, "the folders come before the logs"
    assert [lineage.newest for lineage in steps[-1]] == sorted((x.newest for x in steps[-1]), reverse=True)


def test_closing_ends_the_reading_early(workspace: Workspace) -> None:
    looks: list[int] = []

    def closed() -> bool:
        looks.append(1)
        return len(looks) > 2

    assert len(list(lineages(workspace, closed))) == 2


def test_without_anything_there_is_nothing(tmp_path: Path) -> None:
    assert list(lineages(Workspace(tmp_path))) == [()]
    shutil.rmtree(tmp_path)
    assert list(lineages(Workspace(tmp_path))) == [()]
