"""The folder of a run, `outputs/runs/YYYY-MM-DD/HH-MM-SS/`. Supervisor, commands and screens talk through its files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from backends.errors import UserError
from backends.files import read_json, write_json
from backends.runs.plan import RunPlan
from backends.runs.state import JobExit, RunState

DATE = re.compile(r"\d{4}-\d\d-\d\d")
TIME = re.compile(r"\d\d-\d\d-\d\d")
NAME = re.compile(rf"{DATE.pattern}/{TIME.pattern}")


class _File:
    """A file of a run folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: RunFolder, owner: type[RunFolder]) -> Path:
        return folder.path / self._name


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run, and its files."""

    path: Path

    plan_file = _File("plan.json")
    command = _File("command.sh")
    log = _File("output.log")
    state_file = _File("state.json")
    request_file = _File("request.json")
    telemetry = _File("telemetry.jsonl")
    tracking = _File("tracking.json")  # id and address of the MLflow run, and how much was sent to it
    exit_file = _File("exit.json")  # the wrapper in the job's own session writes it when the job ends
    batch_file = _File("slurm.json")  # names the run's job in a batch system; only for runs of one
    nodes_file = _File("nodes.json")  # what is wrong with the nodes, while the run makes no progress
    supervisor_log = _File("supervisor.log")

    @property
    def name(self) -> str:
        """`DATE/TIME`."""
        return f"{self.path.parent.name}/{self.path.name}"

    def plan(self) -> RunPlan:
        """Raises UserError when plan.json is missing, damaged or no plan."""
        value = read_json(self.plan_file)
        if value is None:
            raise UserError(
                f"{self.plan_file} is missing or damaged.",
                f"Its log can still be read: mdk-tui watch {self.log}",
            )
        return RunPlan.from_json(value, self.plan_file)

    def state(self) -> RunState | None:
        """None if state.json does not exist yet or is damaged."""
        value = read_json(self.state_file)
        return None if value is None else RunState.from_json(value)

    def write_state(self, state: RunState) -> None:
        """Raises OSError and then keeps the old state."""
        write_json(self.state_file, state.as_json())

    def batch_job(self) -> str | None:
        """The id of the run's job in a batch system; None if there is none or it is not submitted yet."""
        value = (read_json(self.batch_file) or {}).get("job_id")
        return value if isinstance(value, str) and value.isascii() and value.isdigit() else None

    def job_exit(self) -> JobExit | None:
        return JobExit.from_json(read_json(self.exit_file))


def dated_name(moment: datetime) -> str:
    """`DATE/TIME`, the name of run and save folders."""
    return moment.strftime("%Y-%m-%d/%H-%M-%S")


def moment_of(name: str) -> datetime:
    """The inverse of `dated_name`. Raises ValueError for anything else."""
    return datetime.strptime(name, "%Y-%m-%d/%H-%M-%S")


def next_free(base: Path, now: datetime) -> Path:
    """The dated folder below `base` that `claim_dated_folder` would make now."""
    while (base / dated_name(now)).exists():
        now += timedelta(seconds=1)
    return base / dated_name(now)


def claim_dated_folder(base: Path, now: datetime) -> Path:
    """Make the new folder BASE/DATE/TIME by an exclusive mkdir; if it exists, try the next second. Raises UserError."""
    while True:
        folder = base / dated_name(now)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
        except FileExistsError:
            if not folder.parent.is_dir():
                raise UserError(f"{folder.parent} is in the way: it is no folder.", "Move it away.") from None
            now += timedelta(seconds=1)
        except OSError as error:
            raise UserError(
                f"{folder} cannot be made: {error.strerror}.",
                "Choose a folder that you can write to: -w DIR for runs, --save BASE for checkpoints.",
            ) from None
        else:
            return folder


def create_run_folder(runs: Path, now: datetime) -> RunFolder:
    """A new, empty run folder below `runs`. Raises UserError when it cannot be made."""
    return RunFolder(claim_dated_folder(runs, now))
