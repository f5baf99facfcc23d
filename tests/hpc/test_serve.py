"""The demo trained, sampled and served as `mpirun … singularity exec cpu.sif …`; asked, compared, killed in the middle."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from waiting import LIMIT, until

from backends.errors import UserError
from backends.files import write_json
from backends.inference.megatron_api import MegatronClient
from backends.inference.readiness import until_ready
from backends.inference.request import Request, complete
from backends.inference.samples import read
from backends.inference.serving import serve_plan
from backends.launch.placement import Placement
from backends.launch.start import start, start_supervisor
from backends.launch.stop import stop_run
from backends.models.presets import TINY
from backends.runs.catalog import describe
from backends.runs.checkpoints import checkpoints
from backends.runs.folder import RunFolder, create_run_folder, moment_of
from backends.runs.planning import train_plan
from backends.runs.ports import free_port
from backends.runs.processes import MARK, marked_processes
from backends.workspace import Workspace
from tui.cli import cli

pytestmark = [
    pytest.mark.hpc,
    pytest.mark.skipif(importlib.util.find_spec("autograd") is None, reason="the demo needs autograd"),
]
SMALL = ("--micro-batch-size", "2", "--global-batch-size", "4", "--num-layers", "1", "--train-iters", "60",
         "--save-interval", "20", "--log-interval", "10", "--eval-iters", "0")  # fmt: skip
SETTINGS = '[samples]\nprompts = ["The ", "Return "]\ntokens = 8\n[mlflow]\nenabled = false\n'


def marked(folder: RunFolder) -> list[int]:
    state = folder.state()
    return [process.pid for process in marked_processes(state.mark)] if state else []


class Jobs:
    """Runs of the demo in the image; what a failed test leaves running is killed."""

    def __init__(self, root: Path, image: Path, environment: dict[str, str]) -> None:
        self.workspace, self.image = Workspace(root), image
        self.environment = {name: value for name, value in environment.items() if name != MARK}
        self.started: list[RunFolder] = []

    def train(self) -> RunFolder:
        save = self.workspace.checkpoints / "trained"
        plan = train_plan("demo", TINY.arguments, SMALL, save, launcher="mpirun", processes=2)
        return self._start(dataclasses.replace(plan, image=str(self.image)))

    def serve(self, save: Path, iteration: int | None = None) -> RunFolder:
        wish = Placement(image=self.image)
        plan = serve_plan(
            self.workspace, save, port=free_port(0), iteration=iteration, launcher="mpirun", wish=wish
        )
        return self._start(plan)

    def _start(self, plan: object) -> RunFolder:
        folder = start(plan, self.workspace, environment=self.environment)  # pyright: ignore[reportArgumentType]
        self.started.append(folder)
        return folder

    def ready(self, folder: RunFolder) -> str:
        *_, address = until_ready(folder, self.workspace, limit=LIMIT)
        return address

    def close(self) -> None:
        for folder in self.started:
            for pid in marked(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def jobs(
    tmp_path_factory: pytest.TempPathFactory, cpu_image: Path, hpc_environment: dict[str, str]
) -> Iterator[Jobs]:
    """The companion is started by the supervisor, whose environment is that of whoever launched."""
    root = tmp_path_factory.mktemp("serve")
    (root / "mdk.toml").write_text(SETTINGS)
    jobs = Jobs(root, cpu_image, hpc_environment)
    yield jobs
    jobs.close()


@pytest.fixture(scope="module")
def trained(jobs: Jobs) -> RunFolder:
    folder = jobs.train()
    until(lambda: describe(folder).over, "the end of the training")
    assert describe(folder).phase == "finished", folder.log.read_text()[-3000:]
    return folder


@pytest.fixture(scope="module")
def save(trained: RunFolder) -> Path:
    found = Path(trained.plan().save or "")
    assert [(each.iteration, each.complete) for each in checkpoints(found)] == [
        (60, True),
        (40, True),
        (20, True),
    ]
    return found


@pytest.fixture(scope="module")
def addresses(jobs: Jobs, save: Path) -> Sequence[str]:
    """Of servers on the iterations 20 and 60, beside each other."""
    folders = [jobs.serve(save, 20), jobs.serve(save)]
    found = [jobs.ready(folder) for folder in folders]
    assert [describe(folder).iteration for folder in folders] == [20, 60]
    return found


def test_the_training_was_sampled_through_the_same_launcher_and_image(jobs: Jobs, trained: RunFolder) -> None:
    until(
        lambda: 60 in {sample.iteration for sample in read(trained.path)}, "a sample of the last checkpoint"
    )
    last = [sample for sample in read(trained.path) if sample.iteration == 60]
    assert [sample.prompt for sample in last] == ["The ", "Return "], last
    assert all(sample.continuation for sample in last), last


def test_two_checkpoints_answer_and_the_later_one_knows_the_text_better(
    jobs: Jobs, addresses: Sequence[str], tmp_path: Path
) -> None:
    clients = [MegatronClient(address) for address in addresses]
    request = Request("The method ", tokens=6, seed=7, logprobs=True)
    answers = [complete(client, request) for client in clients]
    assert answers[0].text != answers[1].text and all(answer.generated == 6 for answer in answers)
    (tmp_path / "text.txt").write_text(
        "Return a copy of the string with all characters converted to lowercase. " * 20
    )
    words = [word for address in addresses for word in ("--url", address)]
    found = CliRunner().invoke(
        cli, ["-w", str(jobs.workspace.root), "perplexity", str(tmp_path / "text.txt"), "--json", *words]
    )
    early, late = (json.loads(line) for line in found.output.splitlines())
    assert early["tokens"] == late["tokens"] > 100 and early["bytes"] == 1440
    assert late["perplexity"] < early["perplexity"] < 1000


def test_a_stopped_server_leaves_no_process(jobs: Jobs, save: Path) -> None:
    folder = jobs.serve(save)
    client = MegatronClient(jobs.ready(folder))
    *_, info = stop_run(folder, jobs.workspace)
    assert info.phase == "finished" and marked(folder) == []
    with pytest.raises(UserError, match="Nothing listens"):
        complete(client, Request("x"))


def test_a_server_that_is_killed_in_the_middle_of_an_answer(jobs: Jobs, save: Path) -> None:
    folder = jobs.serve(save)
    client = MegatronClient(jobs.ready(folder))
    said: list[str] = []

    def ask() -> None:
        try:
            while True:  # so that one is under way when the server dies
                complete(client, Request("The ", tokens=100))
        except UserError as error:
            said.append(error.message)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: "request IP" in folder.log.read_text(errors="replace"), "a request")
    server = next(pid for pid in marked(folder) if b"backends.demo.serve" in Path(f"/proc/{pid}/cmdline").read_bytes()
                  and b"mpirun" not in Path(f"/proc/{pid}/cmdline").read_bytes())  # fmt: skip
    os.kill(server, signal.SIGKILL)
    asking.join(LIMIT)
    assert said and ("broke off" in said[0] or "Nothing listens" in said[0])
    until(lambda: describe(folder).over, "the end of the run")
    assert describe(folder).phase == "failed" and marked(folder) == []


def test_a_checkpoint_that_is_gone_when_the_server_looks_is_a_failure_with_its_reason(
    jobs: Jobs, tmp_path: Path
) -> None:
    """As on a node that does not see the shared disk: nobody could check before."""
    (tmp_path / "empty").mkdir()
    folder = create_run_folder(jobs.workspace.runs, moment_of("2026-11-30/05-00-00"))
    plan = train_plan("demo", (), (), tmp_path, launcher="mpirun")
    serve = dataclasses.replace(
        plan,
        kind="serve",
        arguments=("--port", "0"),
        load=str(tmp_path / "empty"),
        save=None,
        image=str(jobs.image),
    )
    write_json(folder.plan_file, serve.as_json())
    jobs.started.append(folder)
    start_supervisor(folder, jobs.workspace, jobs.environment)
    with pytest.raises(UserError, match="failed"):
        list(until_ready(folder, jobs.workspace, limit=LIMIT))
    assert "there is no checkpoint to serve" in folder.log.read_text()
