"""The Set-up screen: what each step shows, what its keys run, and that nothing runs without being shown and confirmed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from fake_runs import listing
from fake_setup import FakePrograms, FakeStep, fake_site
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input, TextArea
from waiting import until_so

import tui.app
from backends.errors import UserError
from backends.runs.processes import Machine
from backends.settings import DataSettings, ImageSettings, Settings, read_settings
from backends.setup.job import JobFolder, cancel_job, job_folder, prepare
from backends.setup.job_state import JobState
from backends.setup.step import Action, Finding, Site, Step
from backends.workspace import Workspace
from tui.app import MdkApp, Opening
from tui.appearance import Appearance
from tui.application import running_steps
from tui.screens import setup_options
from tui.screens.commands_question import CommandsQuestion
from tui.screens.details import Details
from tui.screens.doctor import DoctorScreen
from tui.screens.edit_command import EditCommand
from tui.screens.setup import SetupScreen
from tui.screens.setup_options import OPTIONS, SetupOptions
from tui.widgets.listing import Listing
from tui.widgets.text_pane import TextPane, wrap

SIZES = [(80, 24), (200, 50)]
HOSTILE = "[/x] [@click=app.quit]q[/] \x1b]52;c;aGk=\x07\x1b[2J [red]日本語\x9b31m\u202e tail"
PLACE = Path("/home/user/mdk/outputs")
NOW = datetime(2026, 11, 30, 9, 30, tzinfo=timezone.utc)


def steps(folder: Path = PLACE) -> list[FakeStep]:
    """A server in the middle of its set-up."""
    download = Action("download the RedPajama sample", ("python", "-m", "backends.setup.download", "https://host/a.jsonl", "arxiv.jsonl"), folder, weight="The sample is about 1 GB. A broken download goes on where it ended.")  # fmt: skip
    patch = Action("training script: patch a copy", ("echo", "patching"), folder)
    return [
        FakeStep("workspace", Finding("workspace", "ok", "412 GB free, nfs4")),
        FakeStep("megatron", Finding("megatron", "ok", "core_r0.8.0 · baf94af · clean", details=("commit baf94af3c667248865f23df73b9fb8e2395e6fd0",))),
        FakeStep("image", Finding("image", "ok", f"{folder}/Megatron-LM/pytorch.sif · 19.2 GB · built 2026-11-28")),
        FakeStep("mpi", Finding("mpi", "failed", "host 5.0.5   image 4.1.7. Ranks started by the host's Open MPI 5 cannot join in an image with 4: each believes it is alone (rank 0 of 1), or MPI_Init fails.", "Rebuild the image with --build-arg OPENMPI=5.0.5, under a new name, then rename it.")),
        FakeStep("data", Finding("data", "pending", "arxiv.jsonl is not there yet.", "Download it, or name a .jsonl of your own."), [download]),
        FakeStep("patches", Finding("patches", "pending", "5 of 6 applied; to do: training script", "Apply them."), [patch]),
    ]  # fmt: skip


def application(
    root: Path,
    made: list[FakeStep] | None = None,
    *,
    site: Callable[[Workspace], Site] | None = None,
    look: Appearance = Appearance(calm=True),  # noqa: B008
) -> MdkApp:
    """The application with Set-up on `made`, which opens at once."""

    class Stage(MdkApp):
        CSS_PATH = Path(tui.app.__file__).with_name("app.tcss")

        def _factories(self) -> dict[str, Callable[[], Screen[Any]]]:
            def setup() -> Screen[Any]:
                return SetupScreen(
                    self.workspace,
                    ascii_only=self.ascii_only,
                    site=site or (lambda workspace: fake_site(workspace.root)),
                    steps=list[Step](made or steps()),
                    now=lambda: NOW,
                )

            return {**super()._factories(), "setup": setup}

    return Stage(Workspace(root), look, Opening("setup"), watch=listing())


async def until(pilot: Pilot[Any], holds: Callable[[], object], what: str) -> None:
    await until_so(holds, what)
    await pilot.pause()
    await pilot.pause()


def screen(app: MdkApp) -> SetupScreen:
    found = app.screen_stack[0]
    assert isinstance(found, SetupScreen)
    return found


async def looked(pilot: Pilot[Any]) -> None:
    app = pilot.app
    assert isinstance(app, MdkApp)
    await until(
        pilot,
        lambda: app.screen_stack and len(screen(app)._standings) == len(screen(app)._steps),
        "a look at all steps",
    )


def text(app: MdkApp) -> str:
    return "\n".join(
        "".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()
    )


def words(app: MdkApp) -> str:
    """What is shown, without frames and line breaks."""
    return " ".join(text(app).replace("│", " ").split())


def phase(folder: JobFolder) -> str:
    state = folder.state()
    return state.phase if state else "none"


# What is seen.


async def test_the_first_step_that_is_not_done_is_marked_with_its_remedy(tmp_path: Path) -> None:
    app = application(tmp_path)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await looked(pilot)
        assert app.screen.query_one(Listing).marked == "mpi"
        shown = text(app)
        assert "3 of 6 done" in shown and "--build-arg OPENMPI=5.0.5" in shown
    assert app.failures == []


async def test_the_exact_commands_are_seen_before_they_run(tmp_path: Path) -> None:
    app = application(tmp_path)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await looked(pilot)
        await pilot.press("down")
        await pilot.pause()
        shown = text(app)
        assert "enter runs" in shown and f"cd {PLACE}" in shown
        assert "python -m backends.setup.download https://host/a.jsonl arxiv.jsonl" in shown
        assert "about 1 GB" in shown
        assert not list(tmp_path.iterdir()), "looking writes nothing"
    assert app.failures == []


async def test_outside_text_is_shown_as_text(tmp_path: Path) -> None:
    hostile = [FakeStep("workspace", Finding("workspace", "failed", HOSTILE, HOSTILE, (HOSTILE,)), refusal=UserError(HOSTILE, HOSTILE)),
               FakeStep("data", Finding("data", "pending", HOSTILE), [Action(HOSTILE, ("echo", HOSTILE), tmp_path, weight=HOSTILE)])]  # fmt: skip
    folder = job_folder(Workspace(tmp_path), "workspace")
    prepare(folder, [Action("x", ("true",), tmp_path)])
    state = JobState(
        "failed", None, Machine("node2", "x"), True, "", 1.0, 2.0, message=HOSTILE, remedy=HOSTILE
    )
    folder.state_file.write_text(json.dumps(state.as_json()))
    folder.log.write_text(f"{HOSTILE}\n{HOSTILE}\n")
    app = application(tmp_path, hostile)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await looked(pilot)
        await until(pilot, lambda: screen(app)._jobs, "the job")
        await pilot.press("enter")  # the refusal, in a window
        await pilot.pause()
        shown = text(app)
        await pilot.press("escape", "down", "enter")  # the question
        await pilot.pause()
        shown += text(app)
        await pilot.press("escape", "e")
        await pilot.pause()
        shown += text(app)
        assert app.is_running
    assert "[/x]" in shown and "\x1b" not in shown and "\x07" not in shown and "\u202e" not in shown
    assert app.failures == []


async def test_unreadable_settings_are_reported(tmp_path: Path) -> None:
    (tmp_path / "mdk.toml").write_text("[imag]\npath = 1\n")
    app = application(
        tmp_path,
        site=lambda workspace: Site(workspace, read_settings(workspace.settings), {}, FakePrograms()),
    )
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: isinstance(app.screen, Details), "the window")
        assert "Did you mean 'image'" in text(app)
    assert app.failures == []


# What runs.


async def test_a_light_step_runs_at_once_and_is_looked_at_again(tmp_path: Path) -> None:
    made = steps(tmp_path)
    app = application(tmp_path, made)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await looked(pilot)
        await pilot.press("end", "enter")
        folder = job_folder(app.workspace, "patches")
        await until(pilot, lambda: phase(folder) == "finished", "the end")
        await until(pilot, lambda: made[0].looks == 2, "a second look, at every step")
    assert "patching" in folder.log.read_text()
    assert app.failures == []


async def test_large_commands_need_a_confirmation(tmp_path: Path) -> None:
    app = application(tmp_path, steps(tmp_path))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await looked(pilot)
        await pilot.press("down", "r")
        await pilot.pause()
        assert isinstance(app.screen, CommandsQuestion)
        assert "about 1 GB" in text(app) and "backends.setup.download" in text(app)
        await pilot.press("escape")
        await pilot.pause()
    assert not (tmp_path / "outputs").exists(), "nothing was started"
    assert app.failures == []


async def test_a_running_step_shows_its_progress_goes_on_elsewhere_and_is_cancelled_only_when_asked(
    tmp_path: Path,
) -> None:
    wait = Action(
        "clone core_r0.8.0",
        ("bash", "-c", "printf 'Receiving objects:  41%% (410/1000), 2 MiB | 3.20 MiB/s\\r'; sleep 300"),
        tmp_path,
    )
    made = [
        FakeStep("megatron", Finding("megatron", "pending", "to do"), [wait]),
        FakeStep("data", Finding("data", "pending", "later")),
    ]
    app = application(tmp_path, made)
    folder = job_folder(app.workspace, "megatron")
    try:
        async with app.run_test(size=(80, 24), notifications=True) as pilot:
            await looked(pilot)
            await pilot.press("enter")
            await until(pilot, lambda: "41 %" in text(app), "the progress")
            assert "receiving objects 410 of 1,000" in text(app) and "It goes on when you leave" in words(app)
            await pilot.press("1")
            assert app.current_mode == "home"
            await pilot.press("2")
            await until(pilot, lambda: "41 %" in text(app), "the progress, after another screen")
            await pilot.press("enter")  # runs already: said, nothing started
            await pilot.press("x")
            await pilot.pause()
            assert isinstance(app.screen, CommandsQuestion) and "starts from the beginning" in words(app)
            await pilot.press("escape")
            assert phase(folder) == "running"
            await pilot.press("x")
            await pilot.pause()
            await pilot.press("enter")
            await until(pilot, lambda: "Cancelled at" in text(app), "the cancellation")
            assert phase(folder) == "cancelled"
            await pilot.press("enter")
            await until(pilot, lambda: phase(folder) == "running", "the second start")
        assert phase(folder) == "running", "leaving the application ends nothing"
        assert running_steps(app.workspace) == ["megatron"], "and it is said"
    finally:
        cancel_job(folder)
    assert app.failures == []


async def test_a_failure_is_explained_beside_what_was_printed(tmp_path: Path) -> None:
    broken = Action(
        "build the image",
        ("bash", "-c", "echo 'FATAL: could not use fakeroot: no mapping entry found'; exit 255"),
        tmp_path,
    )
    app = application(tmp_path, [FakeStep("image", Finding("image", "pending", "not built"), [broken])])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await looked(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "range of user ids" in words(app), "the explanation")
        shown = words(app)
        assert "/etc/subuid" in shown and "FATAL: could not use fakeroot" in shown
        assert "bash -c" in shown, "what enter runs again"
        screen(app)._now = lambda: datetime.now(timezone.utc)
        await pilot.press("v")
        await until(
            pilot, lambda: "range of user ids" not in words(app), "a fresh look, without old failures"
        )
    assert app.failures == []


async def test_a_job_that_died_is_interrupted_and_can_be_run_again(tmp_path: Path) -> None:
    made = [
        FakeStep("data", Finding("data", "pending", "to do"), [Action("quick", ("echo", "again"), tmp_path)])
    ]
    folder = job_folder(Workspace(tmp_path), "data")
    prepare(folder, [Action("long", ("sleep", "300"), tmp_path)])
    gone = dataclasses.replace(JobState.started_by(None, True, "", NOW.timestamp() - 600))
    folder.state_file.write_text(json.dumps(gone.as_json()))
    app = application(tmp_path, made)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await looked(pilot)
        await until(pilot, lambda: "Interrupted" in text(app), "the reason")
        assert "continues where it ended" in words(app)
        await pilot.press("enter")
        await until(pilot, lambda: phase(folder) == "finished", "the end")
    assert app.failures == []


async def test_commands_are_edited_before_they_run(tmp_path: Path) -> None:
    app = application(tmp_path, steps(tmp_path))
    folder = job_folder(app.workspace, "patches")
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await looked(pilot)
        await pilot.press("end", "e")
        await pilot.pause()
        assert isinstance(app.screen, EditCommand)
        field = app.screen.query_one(TextArea)
        before = field.text
        field.text = f"{before} | less"
        await pilot.press("ctrl+j")
        await pilot.pause()
        assert "only a shell knows" in text(app)
        field.text = before.replace("patching", "edited")
        await pilot.press("ctrl+j")
        await pilot.pause()
        assert isinstance(app.screen, CommandsQuestion) and "edited" in text(app)
        await pilot.press("enter")
        await until(pilot, lambda: phase(folder) == "finished", "the end")
    assert "edited" in folder.log.read_text()
    assert app.failures == []


async def test_a_step_with_nothing_to_run_is_checked_again(tmp_path: Path) -> None:
    made = steps(tmp_path)
    app = application(tmp_path, made)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await looked(pilot)
        await pilot.press("enter")  # mpi: failed, and no command mends it
        await until(pilot, lambda: made[3].looks == 2, "a second look")
        await pilot.press("v")
        await until(pilot, lambda: made[3].looks == 3, "a third look")
    assert app.failures == []


# Options, data, other screens.


async def test_options_are_written_with_the_comments_kept(tmp_path: Path) -> None:
    settings = tmp_path / "mdk.toml"
    settings.write_text('# mine\n[data]\nkey = "content"  # as our crawler has it\n')
    made = steps(tmp_path)
    app = application(tmp_path, made, site=lambda w: Site(w, read_settings(w.settings), {}, FakePrograms()))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await looked(pilot)
        await pilot.press("down", "o", "x", "escape", "e", "x", "escape")
        await pilot.pause()
        assert isinstance(app.screen, SetupScreen), "esc leaves, and nothing was written or run"
        await pilot.press("o")
        await pilot.pause()
        assert isinstance(app.screen, SetupOptions)
        corpus, key, workers = app.screen.query(Input)
        assert key.value == "content"
        corpus.value, workers.value = "my texts.jsonl", "many"
        await pilot.press("enter")
        await pilot.pause()
        assert "whole number" in text(app)
        workers.value = "12"
        await pilot.press("enter")
        await until(pilot, lambda: made[0].looks == 2, "a second look")
    assert read_settings(settings).data == DataSettings("my texts.jsonl", "content", 12)
    assert "# mine" in settings.read_text() and "# as our crawler has it" in settings.read_text()
    assert app.failures == []


def test_every_option_is_a_setting_and_survives_a_round_trip() -> None:
    filled = Settings(image=ImageSettings(options=("--a b", "c"), no_home=True), data=DataSettings(workers=3))
    for options in OPTIONS.values():
        shown = [setup_options.shown(getattr(getattr(filled, o.section), o.key)) for o in options]
        assert setup_options.changes(options, filled, shown) == []
    emptied = setup_options.changes(OPTIONS["image"], filled, [""] * len(OPTIONS["image"]))
    assert [(o.key, value) for o, value in emptied] == [("options", ()), ("no_home", False)]


async def test_documents_are_previewed_as_text(tmp_path: Path) -> None:
    corpus = tmp_path / "mine.jsonl"
    corpus.write_text(json.dumps({"text": HOSTILE}) + "\n" + json.dumps({"text": "second"}) + "\n")
    settings = Settings(data=DataSettings(corpus=str(corpus)))
    app = application(tmp_path, steps(tmp_path), site=lambda w: fake_site(w.root, settings=settings))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await looked(pilot)
        await pilot.press("down", "p")
        await until(pilot, lambda: isinstance(app.screen, Details), "the preview")
        assert "document 2" in text(app) and "[/x]" in text(app) and "\x1b" not in text(app)
        await pilot.press("escape", "w")
        folder = job_folder(app.workspace, "data")
        await until(pilot, lambda: phase(folder) == "finished", "the whole check")
    assert "2 documents, 0 empty, 0 bad lines" in folder.log.read_text()
    assert app.failures == []


async def test_the_doctor_is_one_key_away(tmp_path: Path) -> None:
    app = application(tmp_path, steps(tmp_path))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await looked(pilot)
        await pilot.press("d")
        await pilot.pause()
        assert isinstance(app.screen, DoctorScreen)
        await until(pilot, lambda: "nvidia-smi" in text(app) and "cores" in text(app), "the checks")
        await pilot.press("y", "escape")
        await pilot.pause()
        assert isinstance(app.screen, SetupScreen)
    assert app.failures == []


async def test_keys_that_do_not_belong_to_the_marked_step_do_nothing(tmp_path: Path) -> None:
    app = application(tmp_path, steps(tmp_path))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await looked(pilot)
        await pilot.press("home", "u", "n", "p", "w", "o", "x")
        await pilot.pause()
        assert isinstance(app.screen, SetupScreen)
        await pilot.press("tab", "z")
        await pilot.pause()
        assert app.screen.query_one("#about", TextPane).size.height > 15
        await pilot.press("z")
    assert not (tmp_path / "outputs").exists()
    assert app.failures == []


def test_wrapping_keeps_every_word_and_the_width() -> None:
    assert wrap("  ab cdef gh", 6) == ["  ab", "  cdef", "  gh"]
    assert wrap("日本語日本語", 4) == ["日本", "語日", "本語"]
    assert wrap("a\n\nb", 5) == ["a", "", "b"]
    assert wrap("x" * 7, 3) == ["xxx", "xxx", "x"]


# How it looks.


def pictured(look: Appearance) -> MdkApp:
    """Data downloads, on a machine that is not this one. In the current folder, so that the path is always the same."""
    folder = job_folder(Workspace(Path("mdk")), "data")
    made = steps()
    prepare(folder, made[4].actions_)
    state = dataclasses.replace(
        JobState.started_by(None, True, "", NOW.timestamp() - 300), machine=Machine("node2", "x")
    )
    folder.state_file.write_text(json.dumps(state.as_json()))
    folder.log.write_text(
        "# download the RedPajama sample\ndownloaded 410000000 of 1000000000 bytes, 212.0 MiB/s\n"
    )
    return application(Path("mdk"), made, look=look)


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("look", ["colour", "ascii", "no-colour"])
def test_picture(
    look: str, size: tuple[int, int], tmp_path: Path, snap_compare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if look == "no-colour":
        monkeypatch.setenv("NO_COLOR", "1")
    appearance = {
        "colour": Appearance(calm=True),
        "ascii": Appearance(calm=True, ascii_only=True),
        "no-colour": Appearance("ansi-dark", calm=True, own_colours=True),
    }[look]
    monkeypatch.chdir(tmp_path)
    app = pictured(appearance)

    async def ready(pilot: Pilot[Any]) -> None:
        await looked(pilot)
        await until(pilot, lambda: screen(app)._jobs, "the job")
        await pilot.press(*(["down", "down"] if look == "ascii" else ["down"] if look == "colour" else []))
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=ready)


@pytest.mark.parametrize("ascii_only", [False, True], ids=["unicode", "ascii"])
def test_the_doctor(ascii_only: bool, snap_compare: Any, tmp_path: Path) -> None:
    found = [
        Finding("workspace", "ok", "412 GB free, nfs4"),
        Finding("gpus", "failed", "8 × NVIDIA H200, 140 GiB, driver 570.86.15; uncorrected ECC errors on GPU 2", "Take the GPU out of service."),
        Finding("ports", "warning", "taken: 6006 (TensorBoard, by tensorboard of ann (pid 4711))", "A launch chooses a free port."),
        Finding("clock", "skipped", "no timedatectl"),
    ]  # fmt: skip
    app = application(Path("mdk"), look=Appearance(calm=True, ascii_only=ascii_only))

    async def ready(pilot: Pilot[Any]) -> None:
        await looked(pilot)
        doctor = DoctorScreen(
            lambda: fake_site(tmp_path), ascii_only=ascii_only, check=lambda site: iter(found)
        )
        await app.push_screen(doctor)
        await until(pilot, lambda: len(doctor.query_one(Listing).rows) == 4, "the findings")
        await pilot.press("down")
        await pilot.pause()

    assert snap_compare(app, terminal_size=(80, 24), run_before=ready)
