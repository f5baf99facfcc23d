"""Home and Runs: what they propose, what their keys do, how they look."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

import pytest
from fake_runs import FAILED, FINISHED, SERVER, TRAINING, WORKSPACE, listing, seen
from textual.pilot import Pilot
from waiting import until_seen

from backends.errors import UserError
from backends.launch import prospect as launch_prospect
from backends.launch import stop_prospect
from backends.launch.prospect import Prospect
from backends.launch.stop_prospect import StopProspect
from backends.runs.folder import RunFolder
from backends.runs.watching import SeenRun
from tui import run_words
from tui.app import MdkApp
from tui.appearance import Appearance
from tui.glyphs import UNICODE
from tui.screens import home_view, run_actions
from tui.screens.confirm import Confirm
from tui.screens.details import Details
from tui.screens.runs import details
from tui.screens.stop import StopScreen
from tui.widgets.listing import Listing

ALL = (TRAINING, SERVER, FINISHED, FAILED)
SIZES = [(80, 24), (120, 40)]
CALM = Appearance(calm=True)


def application(*runs: SeenRun, ascii_only: bool = False) -> MdkApp:
    return MdkApp(WORKSPACE, dataclasses.replace(CALM, ascii_only=ascii_only), watch=listing(*runs))


async def settled(pilot: Pilot[Any]) -> None:
    app = cast("MdkApp", pilot.app)
    await until_seen(
        pilot, lambda: app.runs is not None and all(one.marked for one in app.screen.query(Listing))
    )
    await pilot.pause()
    await pilot.pause()


def deeds(*runs: SeenRun) -> list[str]:
    return [step.deed for step in home_view.steps(runs)]


# What is proposed.


def test_a_newcomer_is_offered_the_demo_first() -> None:
    assert deeds() == ["demo", "launch"]


def test_where_megatron_is_missing_set_up_is_offered_before_a_launch() -> None:
    assert [step.deed for step in home_view.steps((), set_up=False)] == ["demo", "setup", "launch"]


async def test_home_leads_to_set_up() -> None:
    app = application()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("s")
        assert app.current_mode == "setup"
    assert app.failures == []


def test_home_offers_to_watch_and_prompt_a_training_run() -> None:
    assert deeds(TRAINING, SERVER) == ["watch", "talk", "launch"]
    assert deeds(TRAINING) == ["watch", "serve", "launch"], "a checkpoint is there, but nobody serves it"


def test_after_a_crash_the_reason_and_the_last_checkpoint_come_first() -> None:
    first, second, *_ = home_view.steps([FAILED, FINISHED])
    assert (first.deed, first.words) == ("watch", "See why gpt3-7b failed")
    assert (second.deed, second.words) == ("resume", "Resume gpt3-7b from iteration 4,000")
    assert second.command == "mdk-tui resume /home/user/mdk/outputs/checkpoints/2024-11-28/03-12-00"


def test_without_a_checkpoint_there_is_nothing_to_resume() -> None:
    assert deeds(dataclasses.replace(FAILED, checkpoint=None)) == ["watch", "demo", "launch"]


def test_a_crash_before_a_success_is_old_news() -> None:
    assert deeds(FINISHED, FAILED) == ["serve", "demo", "launch"]


def test_a_server_that_still_loads_is_neither_asked_nor_started_again() -> None:
    loading = dataclasses.replace(SERVER, info=dataclasses.replace(SERVER.info, address=None))
    assert deeds(TRAINING, loading) == ["watch", "launch"]


def test_more_runs_than_home_shows_are_counted() -> None:
    past = [seen(f"2024-11-30/01-01-{at:02}", phase="finished") for at in range(11)]
    rows = home_view.rows(past, UNICODE, datetime(2024, 12, 1), 80)
    assert rows[-1].spans[0][0].strip() == "and 3 more (key 6)"


# Words.


def test_numbers_keep_their_place() -> None:
    assert run_words.progress(TRAINING.info) == "  120 / 1,000"
    assert run_words.loss(TRAINING) == "loss 2.913"
    assert run_words.left(TRAINING) == "1 m left"
    assert (
        run_words.left(seen("x", iteration=1, train_iters=10**6, last={run_words.ITERATION_MS: 6e4}))
        == "694 d 10 h left"
    )
    assert (run_words.loss(FAILED), run_words.left(FAILED)) == ("", "")
    assert run_words.cell("日本語", 5) == "日本 " and run_words.cell("ab", 4, right=True) == "  ab"


def test_times_say_the_day_only_when_it_is_another() -> None:
    assert run_words.when(TRAINING.info, datetime(2024, 11, 30)) == "09:32"
    assert run_words.when(TRAINING.info, datetime(2024, 12, 1)) == "11-30 09:32"
    assert run_words.when(dataclasses.replace(TRAINING.info, started="[/x]"), datetime(2024, 12, 1)) == ""


def test_the_reason_of_an_end_comes_first() -> None:
    assert details(FAILED, 70)[0] == ("why", "Rank 3 ran out of GPU memory: tried to allocate 20.00 GiB.")


# Keys.


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs that were opened in the monitor, which has tests of its own."""
    names: list[str] = []
    monkeypatch.setattr(MdkApp, "open_run", lambda _app, run: names.append(run.name))
    return names


async def test_enter_opens_what_is_marked(opened: list[str]) -> None:
    app = application(*ALL)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("enter", "down", "down", "enter")  # the training; then past the server: watch it
        await pilot.press("end", "enter")
        await pilot.press("6")
        await settled(pilot)
        await pilot.press("G", "enter")
    assert opened == [TRAINING.info.run, TRAINING.info.run, FAILED.info.run, FAILED.info.run]
    assert app.failures == []


async def test_the_marked_run_stays_marked_when_others_come() -> None:
    app = application(TRAINING, FINISHED)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("6")
        await settled(pilot)
        await pilot.press("down")
        app.runs = (seen("2024-12-01/00-00-00"), TRAINING, FINISHED)
        await pilot.pause()
        assert app.screen.query_one(Listing).marked == str(FINISHED.info.path)
        app.runs = (TRAINING,)
        await pilot.pause()
        assert app.screen.query_one(Listing).marked == str(TRAINING.info.path)
        app.runs = ()
        await pilot.pause()
        assert app.screen.query_one(Listing).marked is None


async def test_a_list_longer_than_the_screen_scrolls_with_its_mark() -> None:
    many = [
        seen(f"2024-11-30/01-{at:02}-00", phase="finished", title=f"run {at}") for at in range(59, -1, -1)
    ]
    app = application(*many)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("6")
        await settled(pilot)
        listing_ = app.screen.query_one(Listing)

        def shown() -> str:
            return "\n".join(
                "".join(part.text for part in listing_.render_line(y)) for y in range(listing_.size.height)
            )

        assert "run 59" in shown() and "run 0" not in shown()
        await pilot.press("end")
        await pilot.pause()
        assert "run 59" not in shown() and shown().rstrip().endswith("run 0")
        await pilot.press("home")
        await pilot.pause()
        assert "run 59" in shown()


async def confirmed(key: str, *keys: str, runs: tuple[SeenRun, ...], started: list[str]) -> str:
    """Press `key`, note the question, then press `keys`."""
    app = application(*runs)
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press(key)
        await until_seen(pilot, lambda: isinstance(app.screen, Confirm | Details | StopScreen))
        text = "\n".join(
            "".join(part.text for part in strip) for strip in app.screen._compositor.render_strips()
        )
        await pilot.press(*keys)
        await until_seen(pilot, lambda: started or "enter" not in keys)
        await pilot.pause()
    assert app.failures == []
    return text


def prospect(started: list[str]) -> Prospect:
    def start() -> RunFolder:
        started.append("started")
        return RunFolder(WORKSPACE.runs / "2024-12-01" / "00-00-00")

    return Prospect("resume", "mdk-tui resume [/x]", "python -m backends.demo.train [/x]", (), start)


async def test_nothing_starts_before_its_command_is_shown(
    monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    started: list[str] = []
    monkeypatch.setattr(launch_prospect, "resume_prospect", lambda *_: prospect(started))
    text = await confirmed("r", "escape", runs=(FAILED,), started=started)
    assert "mdk-tui resume [/x]" in text and "python -m backends.demo.train [/x]" in text and started == []
    await confirmed("r", "enter", runs=(FAILED,), started=opened)
    assert started == ["started"] and opened == ["2024-12-01/00-00-00"]


async def test_a_plan_that_cannot_be_made_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Prospect:
        raise UserError("It is already at its end [/x].", "Train longer.")

    monkeypatch.setattr(launch_prospect, "resume_prospect", refuse)
    text = await confirmed("r", "escape", runs=(FAILED,), started=[])
    assert "already at its end [/x]" in text and "Train longer." in text


async def test_an_error_in_the_plan_forbids_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    from backends.runs.plan import Problem

    started: list[str] = []
    wrong = (Problem("error", "load", "Nothing to load.", "Look elsewhere."),)
    monkeypatch.setattr(
        launch_prospect, "resume_prospect", lambda *_: dataclasses.replace(prospect(started), problems=wrong)
    )
    text = await confirmed("r", "escape", runs=(FAILED,), started=started)
    assert "error: Nothing to load." in text and "start" not in text.splitlines()[-1]


async def test_stopping_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        stop_prospect,
        "stop_prospect",
        lambda *_: StopProspect(TRAINING.info.run, "train", None, 120, 15, None),
    )
    monkeypatch.setattr(
        run_actions, "stop", lambda app, folder, how, limit: asked.append((folder.name, how, limit))
    )
    app = application(*ALL)
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        await pilot.press("6")
        await settled(pilot)
        await pilot.press("S")
        await until_seen(pilot, lambda: isinstance(app.screen, StopScreen))
        assert asked == []
        await pilot.press("s")
        await pilot.pause()
    assert asked == [(TRAINING.info.run, "save", 900)]


async def test_keys_that_would_do_nothing_are_not_offered() -> None:
    app = application(*ALL)
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        await pilot.press("6")
        await settled(pilot)
        assert {"S", "v"} <= set(app.screen.active_bindings) and "r" not in app.screen.active_bindings
        await pilot.press("down")
        assert "v" not in app.screen.active_bindings, "a server is not served"
        await pilot.press("end")
        assert "r" in app.screen.active_bindings and "S" not in app.screen.active_bindings


# Pictures.

Compare = Callable[..., bool]


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "120x40"])
@pytest.mark.parametrize("runs", [(), ALL, (FAILED, FINISHED)], ids=["newcomer", "busy", "crashed"])
def test_home(snap_compare: Compare, size: tuple[int, int], runs: tuple[SeenRun, ...]) -> None:
    assert snap_compare(application(*runs), terminal_size=size, run_before=settled)


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "120x40"])
def test_runs(snap_compare: Compare, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await pilot.press("6")
        await settled(pilot)
        await pilot.press("end")
        await pilot.pause()

    assert snap_compare(application(*ALL), terminal_size=size, run_before=before)


def test_home_in_ascii(snap_compare: Compare) -> None:
    assert snap_compare(application(*ALL, ascii_only=True), terminal_size=(80, 24), run_before=settled)


async def test_an_automatic_resume_is_shown_and_called_off(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(run_actions, "call_off", lambda app, info: asked.append(info.run))
    words = "Resumes by itself at 14:02:10 (1 of 3)."
    waiting = dataclasses.replace(FAILED, info=dataclasses.replace(FAILED.info, again=words, again_due=True))
    assert details(waiting, 200)[0][1].endswith(words)
    app = application(waiting)
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        await pilot.press("6")
        await settled(pilot)
        await pilot.press("S")
        await pilot.pause()
    assert asked == [FAILED.info.run] and app.failures == []
