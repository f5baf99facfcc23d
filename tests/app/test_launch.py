"""The launch form: its keys, its preview of what would run, and its appearance."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fake_runs import listing
from idx_files import write_dataset
from textual.pilot import Pilot
from textual.widgets import Input, Static, TextArea
from waiting import at_rest, until_seen

from backends.errors import UserError
from backends.launch import preview
from backends.launch.choices import Choices
from backends.launch.local import Local
from backends.launch.mpirun import Mpirun
from backends.models.arguments import value_of
from backends.models.presets import find
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.telemetry.readings import GpuProcess, GpuReading
from backends.ticks import count_words
from backends.workspace import Workspace
from tui.app import MdkApp, Opening
from tui.appearance import Appearance
from tui.screens import launch_words
from tui.screens.edit_command import EditCommand
from tui.screens.launch import LaunchScreen
from tui.screens.launch_answer import answer_of
from tui.screens.launch_form import LaunchForm

GIB = 2**30
NOW = datetime(2026, 11, 30, 5)
EIGHT = tuple(
    GpuReading(at, name="NVIDIA H100", memory_used=0, memory_total=80 * GIB, processes=()) for at in range(8)
)
BUSY = (
    GpuReading(0, name="NVIDIA H100", memory_used=70 * GIB, memory_total=80 * GIB,
               processes=(GpuProcess(9, 70 * GIB, "python", "alice"),)),
    *EIGHT[1:],
)  # fmt: skip


class Launching:
    """The application on Launch, with GPUs of the test's choice. Runs that are started are only noted."""

    def __init__(
        self, root: Path, gpus: tuple[GpuReading, ...] | None = EIGHT, *, ascii_only: bool = False
    ) -> None:
        self.workspace = Workspace(root)
        look = Appearance(calm=True, ascii_only=ascii_only)
        self.app = MdkApp(self.workspace, look, Opening("launch"), watch=listing())
        make: Callable[[], LaunchScreen] = lambda: LaunchScreen(  # noqa: E731
            self.workspace, ascii_only=ascii_only, read_gpus=lambda: gpus, now=lambda: NOW
        )
        self.app._modes["launch"] = make  # type: ignore[index]
        self.opened: list[Path] = []
        self.app.open_run = lambda run: self.opened.append(run.path)  # type: ignore[method-assign]

    @property
    def screen(self) -> LaunchScreen:
        return next(screen for screen in self.app.screen_stack if isinstance(screen, LaunchScreen))

    def text(self, name: str) -> str:
        return str(self.screen.query_one(f"#{name}", Static).content)

    def field(self, name: str) -> str:
        return self.screen.query_one(f"#{name}", Input).value

    @property
    def problems(self) -> list[str]:
        answer = self.screen._answer
        assert answer is not None
        return [problem.field for problem in answer.problems]


async def settled(pilot: Pilot[Any]) -> None:
    """Until what the choices mean has been worked out, with the GPUs."""
    screen = pilot.app.screen_stack[0] if not isinstance(pilot.app.screen, LaunchScreen) else pilot.app.screen
    assert isinstance(screen, LaunchScreen)
    await at_rest(pilot)  # what was typed has taken the answer before it away
    await until_seen(pilot, lambda: screen._answer is not None, "the preview")


async def choose(pilot: Pilot[Any], preset: str) -> None:
    await pilot.press("enter", *preset, "enter")
    await settled(pilot)


async def write(pilot: Pilot[Any], name: str, text: str) -> None:
    field = pilot.app.screen.query_one(f"#{name}", Input)
    field.focus()
    field.value = text
    await settled(pilot)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """With as much of a clone as the checks look for."""
    workspace = Workspace(tmp_path)
    for name in ("examples/gpt3/train_gpt3_7b_mpi.sh", "gpt2/vocab.json", "gpt2/merges.txt", "pytorch.sif"):
        path = workspace.megatron / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    write_dataset(workspace.megatron / "arxiv_text_document", 2000, 512)
    return workspace


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RunPlan]:
    """Plans that were started."""
    plans: list[RunPlan] = []

    def start(plan: RunPlan, workspace: Workspace) -> RunFolder:
        plans.append(plan)
        return RunFolder(workspace.runs / "2026-11-30/05-00-00")

    monkeypatch.setattr(preview, "start", start)
    here = Mpirun(find=lambda name: f"/usr/bin/{name}", cpus=64, root=False)
    monkeypatch.setattr("backends.launch.commands.LAUNCHERS", {"local": Local(), "mpirun": here})
    return plans


async def test_the_recipe_comes_first_and_a_key_takes_the_data_that_is_there(workspace: Workspace) -> None:
    launching = Launching(workspace.root)
    async with launching.app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot)
        assert "tutorial's recipe" in launching.text("title")
        assert "It is not said what to train on" in launching.text("problems")
        launching.screen.query_one("#data").focus()
        await pilot.press("ctrl+t")
        await settled(pilot)
        assert launching.field("data") == str(workspace.megatron / "arxiv_text_document")
        assert "2,000 documents, 1.02 M tokens" in launching.text("estimate")
        assert launching.field("data") in launching.text("command")
    assert launching.app.failures == []


async def test_the_preview_follows_every_key(workspace: Workspace) -> None:
    launching = Launching(workspace.root)
    async with launching.app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        estimate = launching.text("estimate")
        assert "8 of 8 NVIDIA H100" in estimate and "73.5 of 80 GiB" in estimate, estimate
        launching.screen.query_one("#tensor").focus()
        await pilot.press("3")
        await settled(pilot)
        assert "--tensor-model-parallel-size" in launching.problems
        assert "--tensor-model-parallel-size 3" in launching.text("command").replace("\n", " ")
        await pilot.press("ctrl+t")
        await settled(pilot)
        assert launching.field("tensor") == "2" and "--tensor-model-parallel-size" not in launching.problems
        await pilot.press("down", "down", "down", "down", "9", "9", "9")
        await settled(pilot)
        assert launching.field("batch") == "999" and "--global-batch-size" in launching.problems


async def test_one_key_applies_the_remedy_for_a_model_that_does_not_fit(workspace: Workspace) -> None:
    launching = Launching(workspace.root)
    async with launching.app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot)
        await choose(pilot, "gpt3-32b")
        await write(pilot, "tensor", "1")
        assert "gpus" in launching.problems
        launching.screen.query_one("#gpus").focus()
        await pilot.press("ctrl+t")
        await settled(pilot)
        assert "gpus" not in launching.problems and int(launching.field("tensor")) > 1


async def test_gpus_of_others_are_seen_and_left_alone(workspace: Workspace) -> None:
    launching = Launching(workspace.root, BUSY)
    async with launching.app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot)
        assert "python of alice" in launching.text("problems")
        await write(pilot, "gpus", "4")
        launching.screen.query_one("#gpus").focus()
        await pilot.press("ctrl+t")
        await settled(pilot)
        assert launching.field("gpus") == "1,2,3,4" and "alice" not in launching.text("problems")


async def test_acceleration_is_switched_and_its_effect_shown(workspace: Workspace) -> None:
    launching = Launching(workspace.root)
    async with launching.app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot)
        row = launching.screen.query_one("#row-distributed-optimizer")
        assert "[x] distributed optimizer  -62.9 GiB" in str(row.render())
        row.focus()
        await pilot.press("space")
        await settled(pilot)
        assert "--use-distributed-optimizer" not in launching.text("command")
        launching.screen.query_one("#row-recompute").focus()
        await pilot.press("right", "right")
        await settled(pilot)
        assert "--recompute-granularity full" in launching.text("command").replace("\n", " ")


async def test_only_two_keys_start_it_and_only_once(workspace: Workspace, started: list[RunPlan]) -> None:
    launching = Launching(workspace.root)
    async with launching.app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot)
        await choose(pilot, "gpt3-345m")
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert started == [], "it is not said what to train on"
        await write(pilot, "data", "arxiv_text_document")
        await write(pilot, "more", "--split 1,0,0")
        await pilot.press("enter", "enter")
        await settled(pilot)
        assert started == []
        launching.screen.query_one("#row-start").focus()
        await pilot.press("enter", "enter")
        await until_seen(pilot, lambda: launching.opened)
    assert len(started) == 1 and launching.opened
    assert started[0].processes == 8 and started[0].environment["MASTER_PORT"]


async def test_a_command_edited_by_hand_runs_as_it_is(tmp_path: Path, started: list[RunPlan]) -> None:
    launching = Launching(tmp_path, ())
    async with launching.app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("e")
        await pilot.pause()
        assert isinstance(launching.app.screen, EditCommand)
        area = launching.app.screen.query_one(TextArea)
        area.text = area.text.replace("--num-layers 2", "--num-layers 2 | tee log")
        await pilot.press("ctrl+j")
        assert isinstance(launching.app.screen, EditCommand), "no shell runs this"
        area.text = area.text.replace(" | tee log", "").rstrip() + " --seed 3"
        await pilot.press("ctrl+j")
        await settled(pilot)
        assert launching.screen.query_one(LaunchForm).disabled
        assert "--seed 3" in launching.text("command")
        await pilot.press("ctrl+r")
        await until_seen(pilot, lambda: started)
        assert started[0].command[-2:] == ("--seed", "3") and value_of(started[0].arguments, "--seed") == "3"


async def test_an_edit_is_undone(tmp_path: Path) -> None:
    launching = Launching(tmp_path, ())
    async with launching.app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        launching.screen._edit_ended("echo hello")
        await settled(pilot)
        assert launching.text("command").endswith("echo hello")
        await pilot.press("u")
        await settled(pilot)
        assert "echo" not in launching.text("command") and not launching.screen.query_one(LaunchForm).disabled


async def test_presets_of_the_user_and_their_mistakes(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.settings.write_text('[preset.mine]\nbase = "tiny"\ntitle = "mine [/x]"\n')
    launching = Launching(tmp_path, ())
    async with launching.app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        await until_seen(pilot, lambda: "mine" in launching.screen._presets)
        await choose(pilot, "mine")
        assert launching.text("title").strip() == "mine [/x]"
    workspace.settings.write_text("[preset.mine]\nbase = 3\n")
    launching = Launching(tmp_path, ())
    async with launching.app.run_test(size=(80, 24), notifications=True) as pilot:
        await until_seen(pilot, lambda: len(launching.app.screen_stack) > 1)
        assert "base must be the name of a preset" in str(launching.app.screen.query_one(Static).content)


async def test_in_ascii_nothing_else_is_drawn(tmp_path: Path) -> None:
    launching = Launching(tmp_path, BUSY, ascii_only=True)
    async with launching.app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot)
        await choose(pilot, "llama3-8b")
        strips = launching.app.screen._compositor.render_strips()
        text = "".join(segment.text for strip in strips for segment in strip)
        assert text.isascii(), {sign for sign in text if not sign.isascii()}


async def test_a_text_field_keeps_letters_and_esc_gives_them_back(tmp_path: Path) -> None:
    launching = Launching(tmp_path, ())
    async with launching.app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        launching.screen.query_one("#more").focus()
        await pilot.press("e", "y", "z", "q", "1", "space")
        assert launching.field("more") == "eyzq1 "
        await settled(pilot)
        assert launching.problems == ["more"]
        await pilot.press("escape", "z")
        assert launching.screen.has_class("-zoomed")
        await pilot.press("z", "pagedown", "pageup")
    assert launching.app.failures == []


def test_a_preview_is_quick(workspace: Workspace) -> None:
    """It runs in a thread, at every key: the best of some."""
    choices = Choices(find("gpt3-7b"), {"data": "arxiv_text_document"})

    def once() -> float:
        begun = time.thread_time()
        assert answer_of(choices, workspace, EIGHT, None, NOW).preview
        return time.thread_time() - begun

    assert min(once() for _ in range(10)) < 0.1


def test_words() -> None:
    assert [*map(count_words, (6436659200, 1_024, 2.1e12, 5e6))] == ["6.44 B", "1,024", "2.10 T", "5.00 M"]
    assert launch_words.effect_text(None, "-") == ""


def test_a_refusal_has_its_field(workspace: Workspace) -> None:
    answer = answer_of(Choices(find("gpt3-7b"), {"load": "/nowhere"}), workspace, None, None, NOW)
    assert answer.refusal and answer.refusal.field == "load" and "is no folder" in answer.refusal.message
    with pytest.raises(UserError):
        Choices(find("gpt3-7b"), {"more": "'"}).words("more")


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A disk, a user and a machine that are nobody's own."""
    monkeypatch.setattr("backends.launch.facts.room", lambda folder, programs: 9000 * GIB)
    monkeypatch.setattr("backends.runs.ports.is_free", lambda port: True)
    monkeypatch.setattr("backends.runs.ports.PortBook.promised", lambda book: set())
    monkeypatch.setattr("backends.launch.placement.found_files", lambda arguments, folders: tuple(arguments))
    plain = Mpirun(find=lambda name: f"/usr/bin/{name}", cpus=64, root=False)
    monkeypatch.setattr("backends.launch.commands.LAUNCHERS", {"local": Local(), "mpirun": plain})
    yield


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_picture(size: tuple[int, int], frozen: None, snap_compare: Any) -> None:
    from fake_runs import WORKSPACE

    launching = Launching(WORKSPACE.root, BUSY)

    async def ready(pilot: Pilot[Any]) -> None:
        await settled(pilot)
        await choose(pilot, "gpt3-7b")

    assert snap_compare(launching.app, terminal_size=size, run_before=ready)
