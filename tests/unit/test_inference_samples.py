"""Samples while training: when they are taken, from which checkpoint, and without a free GPU; with the demo's trainer and server."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from demo_runs import run as train_demo
from demo_runs import write_corpus
from scripted_jobs import wait_for
from textual.app import App, ComposeResult
from textual.widgets import Static
from waiting import until_seen

from backends.errors import UserError
from backends.files import hold_lock, write_json
from backends.inference import samples
from backends.inference.brief_server import brief_server
from backends.inference.request import Request, complete
from backends.inference.sampler import Sampler, due, follow
from backends.inference.samples import Sample, of_prompt, prompts_of, read
from backends.launch.sidecars import SAMPLER, sidecars_of
from backends.runs.checkpoints import TRACKER
from backends.runs.folder import RunFolder, create_run_folder
from backends.runs.plan import RunPlan
from backends.runs.planning import train_plan
from backends.runs.processes import find_process
from backends.runs.state import RunState
from backends.settings import SampleSettings, read_settings
from backends.telemetry.readings import GpuReading
from backends.workspace import Workspace
from tui.cli import cli
from tui.screens.samples import SamplesScreen, samples_text

needs_numpy = pytest.mark.skipif(
    importlib.util.find_spec("autograd") is None, reason="the demo needs autograd"
)
SETTINGS = SampleSettings(prompts=("the cat", "a dog"), tokens=4)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of iterations 4 and 8 of a very small model."""
    folder = tmp_path_factory.mktemp("trained")
    text = write_corpus(folder / "corpus.jsonl")
    words = ("--max-position-embeddings", "48", "--train-iters", "8", "--save-interval", "4")
    train_demo("--data-path", text, "--save", folder / "ck", *words)
    return folder / "ck"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def run_of(workspace: Workspace, save: Path, **changes: Any) -> tuple[RunFolder, RunPlan]:
    folder = create_run_folder(workspace.runs, datetime(2026, 11, 30, 5))
    plan = dataclasses.replace(train_plan("demo", ("--train-iters", "8"), (), save), **changes)
    write_json(folder.plan_file, plan.as_json())
    return folder, plan


def sampler(workspace: Workspace, save: Path, gpus: Sequence[GpuReading] = (), **changes: Any) -> Sampler:
    folder, plan = run_of(workspace, save, **changes)
    return Sampler(folder, plan, workspace, SETTINGS, look=lambda: gpus, clock=lambda: 1.0)


# When.


@pytest.mark.parametrize(
    ("iteration", "last", "every", "wanted"),
    [
        (50, None, 0, True),
        (100, 50, 0, True),
        (50, 50, 0, False),
        (100, 50, 100, False),
        (150, 50, 100, True),
        (20, 50, 0, False),
    ],
)
def test_a_checkpoint_is_due_after_the_interval(
    iteration: int, last: int | None, every: int, wanted: bool
) -> None:
    assert due(iteration, last, every) is wanted


def test_the_newest_checkpoint_is_sampled_until_the_run_is_over(workspace: Workspace, tmp_path: Path) -> None:
    save = tmp_path / "ck"
    save.mkdir()
    it = sampler(workspace, save)
    taken: list[int] = []
    moments = iter(["", "4", "4", "8"])  # what the tracker says after each look
    it = dataclasses.replace(it, settings=dataclasses.replace(SETTINGS, prompts=()))

    def sleep(_seconds: float) -> None:
        (save / TRACKER).write_text(next(moments, "8"))

    class Recording(Sampler):
        def sample(self, iteration: int) -> list[Sample]:
            taken.append(iteration)
            return [Sample(1.0, iteration, "p", "c")]

    recording = Recording(it.run, it.plan, workspace, SETTINGS)
    follow(recording, sleep=sleep, over=lambda: len(taken) == 2)
    assert taken == [4, 8] and [sample.iteration for sample in read(it.run.path)] == [4, 8]
    follow(recording, sleep=sleep, over=lambda: True)
    assert taken == [4, 8], "another companion goes on where this one ended"


def test_the_last_checkpoint_is_always_sampled(workspace: Workspace, tmp_path: Path) -> None:
    save = tmp_path / "ck"
    save.mkdir()
    (save / TRACKER).write_text("8")
    folder, plan = run_of(workspace, save)
    samples.append(folder.path, [Sample(1.0, 5, "p", "c")])
    rare = Sampler(
        folder,
        dataclasses.replace(plan, launcher="slurm"),
        workspace,
        dataclasses.replace(SETTINGS, every=100),
    )
    follow(rare, sleep=lambda _: None, over=lambda: True)
    assert {sample.iteration for sample in read(folder.path)} == {5, 8}


def test_a_sample_without_a_gpu_is_tried_again_after_the_run(workspace: Workspace, tmp_path: Path) -> None:
    save = tmp_path / "ck"
    save.mkdir()
    (save / TRACKER).write_text("8")
    folder, plan = run_of(workspace, save)
    answers = iter([Sample(1.0, 8, skipped="no GPU is free"), Sample(2.0, 8, "p", "c")])

    class Answering(Sampler):
        def sample(self, iteration: int) -> list[Sample]:
            return [next(answers)]

    looks = iter([False, True, True])
    follow(Answering(folder, plan, workspace, SETTINGS), sleep=lambda _: None, over=lambda: next(looks))
    assert [sample.skipped for sample in read(folder.path)] == ["no GPU is free", ""]


# Where there is no room.


def test_a_sample_without_room_for_a_server_says_why(workspace: Workspace, tmp_path: Path) -> None:
    from test_inference_serving import STORED, write_checkpoint

    write_checkpoint(tmp_path / "ck", 200, STORED, tp=2, pp=2)
    busy = [GpuReading(index, memory_used=70 * 10**9, memory_total=80 * 10**9) for index in range(8)]
    (skipped,) = sampler(workspace, tmp_path / "ck", busy, launcher="mpirun", trainer="megatron").sample(200)
    assert skipped.skipped in ("Too few GPUs are free: it needs 1.", "Too few GPUs are free: it needs 4.")
    (skipped,) = sampler(workspace, tmp_path / "ck", launcher="slurm").sample(200)
    assert "A run of slurm" in skipped.skipped
    (skipped,) = sampler(workspace, tmp_path / "ck").sample(100)
    assert "no checkpoint of iteration 100" in skipped.skipped


# From the demo's real checkpoints.


@needs_numpy
def test_the_prompts_are_completed_from_the_right_checkpoint(workspace: Workspace, trained: Path) -> None:
    it = sampler(workspace, trained)
    four, eight = it.sample(4), it.sample(8)
    assert [sample.prompt for sample in four] == ["the cat", "a dog"]
    assert all(
        sample.continuation and sample.mean is not None and not sample.skipped for sample in four + eight
    )
    assert [sample.mean for sample in four] != [sample.mean for sample in eight]
    assert it.sample(8) == eight, "the seed is the same each time"
    assert "at iteration 8" in (it.run.path / "samples.log").read_text()


@needs_numpy
def test_a_server_that_cannot_load_is_a_sample_with_its_reason(workspace: Workspace, tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "ck" / "iter_0000008" / "mp_rank_00" / "model_optim_rng.pt"
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("args.json", "{}")
    (tmp_path / "ck" / TRACKER).write_text("8")
    (sample,) = sampler(workspace, tmp_path / "ck").sample(8)
    assert "ended before it could answer" in sample.skipped


@needs_numpy
def test_a_brief_server_ends_with_its_context_and_with_its_starter(
    workspace: Workspace, trained: Path, tmp_path: Path
) -> None:
    it = sampler(workspace, trained)
    with brief_server(it._server(8), workspace, tmp_path / "log") as client:
        assert complete(client, Request("the cat", tokens=2)).continuation
    with pytest.raises(UserError, match="Nothing listens"):
        complete(client, Request("x"))
    program = (
        "import sys, time; from pathlib import Path; from backends.inference.brief_server import brief_server;"
        "from backends.inference.sampler import Sampler; from backends.runs.folder import RunFolder;"
        "from backends.settings import SampleSettings; from backends.workspace import Workspace\n"
        f"run = RunFolder(Path({str(it.run.path)!r})); w = Workspace(Path({str(workspace.root)!r}))\n"
        "s = Sampler(run, run.plan(), w, SampleSettings())\n"
        f"with brief_server(s._server(8), w, Path({str(tmp_path / 'log')!r})) as client: print(client.url, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline().startswith("http")
        served_by = psutil.Process(starter.pid).children(recursive=True)
        starter.send_signal(signal.SIGKILL)
    assert served_by and wait_for(lambda: not any(find_process(process.pid) for process in served_by))


@needs_numpy
def test_the_companion_as_the_supervisor_starts_it(workspace: Workspace, trained: Path) -> None:
    folder, _ = run_of(workspace, trained)
    workspace.settings.write_text('[samples]\nprompts = ["the cat"]\ntokens = 3\n')
    folder.write_state(RunState(phase="finished"))
    words = [sys.executable, "-m", SAMPLER, str(folder.path), str(workspace.root)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (sample,) = read(folder.path)
    assert (sample.iteration, sample.prompt) == (8, "the cat") and sample.continuation


def test_only_one_companion_samples_a_run(workspace: Workspace, tmp_path: Path) -> None:
    folder, _ = run_of(workspace, tmp_path / "ck")
    assert hold_lock(folder.path / "samples.lock")
    words = [sys.executable, "-m", SAMPLER, str(folder.path), str(workspace.root)]
    assert subprocess.run(words, timeout=300, check=False).returncode == 0
    assert read(folder.path) == []


def test_the_supervisor_starts_the_sampler_if_prompts_are_set(workspace: Workspace, tmp_path: Path) -> None:
    folder, plan = run_of(workspace, tmp_path / "ck")
    state = RunState(phase="finished")
    folder.write_state(state)  # so that the companion leaves at once
    counts: list[int] = []
    for text in ("", '[samples]\nprompts = ["x"]\n'):
        workspace.settings.write_text(text)
        sidecars = sidecars_of(folder, plan, workspace, state, lambda _: None)
        counts.append(len(sidecars))
        for sidecar in sidecars:
            sidecar.close(state)
    assert counts[1] == counts[0] + 1


# Kept and shown.


def test_damaged_samples_are_skipped_and_samples_are_grouped_by_prompt(tmp_path: Path) -> None:
    written = [
        Sample(1.0, 4, "a", " x", -1.5),
        Sample(1.0, 4, "b", " y"),
        Sample(2.0, 8, skipped="no GPU"),
        Sample(3.0, 12, "a", "z"),
    ]
    samples.append(tmp_path, written)
    with (tmp_path / samples.NAME).open("ab") as file:
        file.write(b'\xff\n{"iteration": "4", "at": 1}\n[]\n{"iteration": 16}\n')
    assert read(tmp_path) == written and read(tmp_path / "none") == []
    assert prompts_of(written) == ["a", "b"]
    assert [sample.iteration for sample in of_prompt(written, "a")] == [4, 8, 12]
    assert [sample.iteration for sample in of_prompt(written, "b")] == [4, 8]


def test_the_command_prints_them_by_prompt_and_iteration(workspace: Workspace, tmp_path: Path) -> None:
    folder, _ = run_of(workspace, tmp_path / "ck")
    error = CliRunner().invoke(cli, ["-w", str(workspace.root), "samples"]).exception
    assert isinstance(error, UserError) and "[samples]" in error.remedy
    samples.append(
        folder.path, [Sample(1.0, 1000, "Once", " upon\n\x1b[2J"), Sample(2.0, 2000, skipped="no GPU")]
    )
    found = CliRunner().invoke(cli, ["-w", str(workspace.root), "samples"])
    assert found.output == "Once\n    1,000   upon \n    2,000  (none: no GPU)\n"
    found = CliRunner().invoke(cli, ["-w", str(workspace.root), "samples", folder.name, "--json"])
    assert [json.loads(line)["iteration"] for line in found.output.splitlines()] == [1000, 2000]


async def test_the_screen_follows_the_file_and_turns_to_the_next_prompt(tmp_path: Path) -> None:
    hostile = "[/x] [@click=app.quit]q[/]"
    samples.append(tmp_path, [Sample(1.0, 4, "a", f" {hostile}", -1.0), Sample(1.0, 4, "b", " other")])

    class Host(App[None]):
        def compose(self) -> ComposeResult:
            yield Static("")

        def on_mount(self) -> None:
            self.push_screen(SamplesScreen("run", lambda: read(tmp_path), lambda error: None))

    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:

        async def until(words: str) -> None:
            await until_seen(pilot, lambda: words in str(app.screen.query_one(Static).render()), words)

        await until(f"a {hostile}")
        await pilot.press("right")
        await until("b other")
        samples.append(tmp_path, [Sample(2.0, 8, skipped="no GPU is free")])
        await until("none: no GPU is free")
    assert "perplexity 2.72" in samples_text([Sample(1.0, 4, "a", "b", -1.0)], "a").plain


def test_settings_name_the_prompts(workspace: Workspace) -> None:
    workspace.settings.write_text('[samples]\nprompts = ["a", "b"]\nevery = 500\n')
    assert read_settings(workspace.settings).samples == SampleSettings(("a", "b"), 500)
