"""The Resume screen: which checkpoints can be continued, the questions before an action, and a slow disk."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from demo_runs import SMALL, arguments, printed, write_corpus
from fake_runs import FAILED, WORKSPACE, listing
from textual.pilot import Pilot
from waiting import until_seen

from backends.files import write_json
from backends.launch import prospect as launch_prospect
from backends.launch.prospect import Prospect
from backends.runs.checkpoints import Checkpoint
from backends.runs.difference import Difference
from backends.runs.folder import RunFolder, create_run_folder, moment_of
from backends.runs.lineages import Lineage, SavedPoint
from backends.runs.plan import RunPlan
from backends.runs.save_forecast import SaveForecast
from backends.runs.state import RunState
from backends.runs.torch_checkpoint import Layout
from backends.ticks import size_words
from backends.workspace import Workspace
from tui.app import MdkApp
from tui.appearance import Appearance
from tui.glyphs import UNICODE
from tui.save_words import forecast_words
from tui.screens import resume_view
from tui.screens.confirm import Confirm
from tui.screens.details import Details
from tui.screens.one_line import OneLine
from tui.screens.prune_question import PruneQuestion
from tui.screens.resume import ResumeScreen
from tui.screens.resume_view import Comparison
from tui.widgets.listing import Listing

CALM = Appearance(calm=True)
Compare = Callable[..., bool]


def point(
    save: Path,
    iteration: int,
    *,
    reason: str | None = None,
    tracked: bool = False,
    loss: float | None = 2.913,
) -> SavedPoint:
    path = str(save / f"iter_{iteration:07d}")
    return SavedPoint(
        Checkpoint(
            path, iteration, "torch", Layout(1, 1), 81_200_000_000, 1764493200.0 + iteration, tracked, reason
        ),
        loss,
        12.0,
    )


SEVEN = WORKSPACE.checkpoints / "2024-11-28/03-12-00"
BRANCH = WORKSPACE.checkpoints / "2024-11-28/09-00-00"
LINEAGES = (
    Lineage(
        BRANCH, (point(BRANCH, 30000, tracked=True, loss=None),), title="gpt3-7b [/x]", run="2024-11-28/09-00-00",
        phase="finished", branch_of=SEVEN,
    ),
    Lineage(
        SEVEN,
        (
            point(SEVEN, 50000, reason="mp_rank_00/model_optim_rng.pt is cut off."),
            point(SEVEN, 40000, tracked=True),
            *(point(SEVEN, at) for at in (30000, 20000, 15000, 10000)),
        ),
        title="gpt3-7b: the tutorial's recipe", run="2024-11-28/03-12-00", phase="failed",
        forecast=SaveForecast(60000, 7200.0, 12.0, 81_200_000_000, 200_000_000_000, 45),
    ),
)  # fmt: skip
COMPARISON = Comparison(
    (
        Difference("--hidden-size", "4096", "8192", "refused", "Megatron-LM compares the two and ends.", "Give --hidden-size 4096."),
        Difference("--train-iters", "500000", "600000", "flag", "The schedule changes.", "--override-opt_param-scheduler is added."),
        Difference("--seed", "1234", "7", "harmless", "The data come in another order."),
    ),
    "iter_0040000",
)  # fmt: skip


def application(look: Any) -> MdkApp:
    """With a mode "shown" that shows the lineages of `look`."""
    app = MdkApp(WORKSPACE, CALM, watch=listing(FAILED))
    app.add_mode("shown", lambda: ResumeScreen(WORKSPACE, look=look))
    return app


@pytest.fixture
def comparison(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, tuple[str, ...]]]:
    """What was compared."""
    asked: list[tuple[Path, tuple[str, ...]]] = []

    def comparison_of(workspace: Workspace, checkpoint: Path, changes: tuple[str, ...]) -> Comparison:
        asked.append((checkpoint, changes))
        return COMPARISON

    monkeypatch.setattr("tui.screens.resume.comparison_of", comparison_of)
    return asked


async def opened(pilot: Pilot[Any]) -> Listing:
    pilot.app.action_go("shown")  # type: ignore[attr-defined]
    await until_seen(pilot, lambda: rows_of(pilot))
    await pilot.pause()
    return pilot.app.screen.query_one(Listing)


def rows_of(pilot: Pilot[Any]) -> list[Any]:
    """The rows of Resume; none while it is not shown."""
    screen = pilot.app.screen
    return (
        [row for listed in screen.query(Listing) for row in listed.rows]
        if isinstance(screen, ResumeScreen)
        else []
    )


def one_line(app: MdkApp) -> str:
    """The screen's text with wrapped lines joined."""
    return re.sub(r"[\s│]+", " ", screen_text(app))


def screen_text(app: MdkApp) -> str:
    return "\n".join("".join(part.text for part in strip) for strip in app.screen._compositor.render_strips())


def test_rows_are_newest_first_and_say_what_is_whole() -> None:
    texts = [
        "".join(text for text, _ in row.spans)
        for row in resume_view.rows(LINEAGES, UNICODE, everything=False)
    ]
    assert "branch of 2024-11-28/03-12-00" in texts[0] and "gpt3-7b [/x]" in texts[0]
    assert "50,000" in texts[4] and "is cut off" in texts[4]
    assert (
        "40,000" in texts[5] and "newest" in texts[5] and "loss 2.913" in texts[5] and "75.6 GiB" in texts[5]
    )
    assert texts[-1].strip() == "and 2 earlier: x"
    assert len(resume_view.rows(LINEAGES, UNICODE, everything=True)) == len(texts) + 1


def test_the_disk_is_described_in_words() -> None:
    assert forecast_words(LINEAGES[1].forecast or SaveForecast(None, None, None, None, None, None)) == [
        ("next save at iteration 60,000 in 2 h 0 m, which takes 12.0 s", False),
        ("186 GiB free: room for 2 more of 75.6 GiB, 45 to come: not all of them fit; prune in time", True),
    ]
    full = SaveForecast(10, None, None, 10**9, 10**8, 3)
    assert "THE NEXT ONE DOES NOT FIT" in forecast_words(full)[1][0]
    assert forecast_words(SaveForecast(None, None, None, None, None, None)) == []
    assert [size_words(size) for size in (999, 1536, 99 << 20, 480 << 30)] == [
        "999 B",
        "1.5 KiB",
        "99 MiB",
        "480 GiB",
    ]


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        (("down", "down", "enter"), (SEVEN / "iter_0040000", None, ())),
        (("down", "down", "down", "b"), (SEVEN, 30000, ())),
        (("down", "down", "down", "enter"), (SEVEN / "iter_0030000", None, ())),
    ],
)
async def test_continue_and_branch_show_their_command_first(
    monkeypatch: pytest.MonkeyPatch, comparison: list[Any], keys: tuple[str, ...], asked: tuple[Any, ...]
) -> None:
    made: list[tuple[Any, ...]] = []
    started: list[str] = []

    def prospect(
        workspace: Workspace, given: Path, iteration: int | None, changes: tuple[str, ...]
    ) -> Prospect:
        made.append((given, iteration, changes))

        def start() -> RunFolder:
            started.append("started")
            return RunFolder(WORKSPACE.runs / "2024-12-01/00-00-00")

        return Prospect(
            "continue", "mdk-tui resume [/x]", "python", (), start, "--seed 1234 > 7 [/x] harmless"
        )

    monkeypatch.setattr(launch_prospect, "resume_prospect", prospect)
    monkeypatch.setattr(MdkApp, "open_run", lambda app, run: None)
    app = application(lambda closed: iter([LINEAGES]))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await opened(pilot)
        await pilot.press(*keys)
        await until_seen(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.pause()
        assert "--seed 1234 > 7 [/x] harmless" in screen_text(app) and started == []
        await pilot.press("enter")
        await until_seen(pilot, lambda: started)
    assert made == [asked] and app.failures == []


async def test_an_incomplete_checkpoint_is_not_resumed(comparison: list[Any]) -> None:
    app = application(lambda closed: iter([LINEAGES]))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await opened(pilot)
        await pilot.press("down")
        await pilot.pause()
        assert not {"enter", "b"} & set(app.screen.active_bindings) and "p" in app.screen.active_bindings
        assert "is cut off" in screen_text(app)


async def test_changed_arguments_are_compared_and_taken_back(
    comparison: list[tuple[Path, tuple[str, ...]]],
) -> None:
    app = application(lambda closed: iter([LINEAGES]))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await opened(pilot)
        await until_seen(pilot, lambda: "Give --hidden-size 4096." in screen_text(app))
        await pilot.press("a")
        await until_seen(pilot, lambda: isinstance(app.screen, OneLine))
        await pilot.press(*"--seed 7", "enter")
        await until_seen(pilot, lambda: comparison[-1][1] == ("--seed", "7"))
        await pilot.pause()
        assert "changed: --seed 7" in screen_text(app)
        await pilot.press("a")
        await until_seen(pilot, lambda: isinstance(app.screen, OneLine))
        await pilot.press("ctrl+u", *"none", "enter")
        await until_seen(pilot, lambda: comparison[-1][1] == ())
    assert app.failures == []


async def test_a_disk_that_does_not_answer_does_not_hold_the_screen(comparison: list[Any]) -> None:
    """A tree of 10,000 files on a file system far away: the folders come one by one, keys are answered meanwhile."""
    answer, asked = threading.Event(), threading.Event()

    def slow(closed: Callable[[], bool]) -> Iterator[tuple[Lineage, ...]]:
        yield LINEAGES[:1]
        asked.set()
        answer.wait(100)
        yield LINEAGES

    app = application(slow)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        rows = await opened(pilot)
        await until_seen(pilot, asked.is_set)
        began = time.monotonic()
        await pilot.press("x", "1")
        await pilot.pause()
        assert time.monotonic() - began < 90 and app.current_mode == "home"
        app.action_go("shown")
        assert len(rows.rows) == 2
        answer.set()
        await until_seen(pilot, lambda: len(rows.rows) > 4)
    assert app.failures == []


# With real checkpoints.


@pytest.fixture
def trained(tmp_path: Path) -> Workspace:
    """A run that saved 2, 4 and 6 of 6 and then failed."""
    workspace = Workspace(tmp_path)
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    save = workspace.checkpoints / "2026-11-30/04-00-00"
    text = printed(arguments("--data-path", corpus, "--save", save, "--save-interval", "2"))
    folder = create_run_folder(workspace.runs, moment_of("2026-11-30/04-00-00"))
    words = (*SMALL, "--data-path", str(corpus), "--save-interval", "2")
    write_json(
        folder.plan_file, RunPlan("train", "demo", title="tiny", arguments=words, save=str(save)).as_json()
    )
    folder.write_state(RunState("failed"))
    folder.log.write_text(text)
    return workspace


async def test_pruning_shows_what_goes_and_removes_it_when_told_to(trained: Workspace) -> None:
    app = MdkApp(trained, CALM, watch=listing(FAILED))
    save = trained.checkpoints / "2026-11-30/04-00-00"
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await pilot.press("8")
        await until_seen(pilot, lambda: app.screen.query(Listing) and app.screen.query_one(Listing).rows)
        for last in ("escape", "d"):
            await until_seen(pilot, lambda: isinstance(app.screen, ResumeScreen) and app.screen.chosen)
            await pilot.press("p")
            await until_seen(pilot, lambda: isinstance(app.screen, OneLine))
            await pilot.press("ctrl+u", "1", "enter")
            await until_seen(pilot, lambda: isinstance(app.screen, PruneQuestion))
            await pilot.pause()
            text = screen_text(app)
            assert (
                "remove           4" in text
                and "remove           2" in text
                and "the tracker names it" in text
            )
            assert (save / "iter_0000002").exists()
            await pilot.press(last)
            await pilot.pause()
        await until_seen(pilot, lambda: not (save / "iter_0000002").exists())
        await until_seen(pilot, lambda: len([r for r in app.screen.query_one(Listing).rows if r.key]) == 1)
    assert (save / "pruned.log").read_text().count("removed") == 2 and app.failures == []


async def test_a_run_at_its_end_says_how_to_train_on(trained: Workspace) -> None:
    app = MdkApp(trained, CALM, watch=listing(FAILED))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await pilot.press("8")
        await until_seen(pilot, lambda: "already at iteration 6 of 6" in one_line(app))
        await pilot.press("enter")
        await until_seen(pilot, lambda: isinstance(app.screen, Details))
        await pilot.press("escape", "a")
        await until_seen(pilot, lambda: isinstance(app.screen, OneLine))
        await pilot.press(*"--train-iters 9", "enter")
        await until_seen(pilot, lambda: "needs a flag" in screen_text(app))
        await pilot.press("enter")
        await until_seen(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.pause()
        assert "--override-opt_param-scheduler" in one_line(app) and "--train-iters 9" in one_line(app)
        await pilot.press("escape")
    assert app.failures == []


# Pictures.


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
def test_picture(snap_compare: Compare, comparison: list[Any], size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await opened(pilot)
        await pilot.press("down", "down")
        await until_seen(pilot, lambda: "--hidden-size" in screen_text(pilot.app))  # type: ignore[arg-type]

    assert snap_compare(application(lambda closed: iter([LINEAGES])), terminal_size=size, run_before=before)
