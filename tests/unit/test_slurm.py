"""The launcher slurm: its batch script and how that handles signals, reading Slurm's output, and adoption."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from backends.errors import UserError
from backends.files import write_json
from backends.launch.commands import problems
from backends.launch.facts import gather
from backends.launch.placement import Placement, placed
from backends.launch.slurm import SBATCH, Shape, Slurm, directives, shape, time_limit
from backends.launch.slurm_attach import watched_job
from backends.launch.slurm_control import SlurmControl, SlurmState, read_accounting, read_state
from backends.launch.slurm_job import SlurmJob, adopt, submit
from backends.launch.slurm_script import batch_script
from backends.runs.catalog import describe
from backends.runs.folder import RunFolder, create_run_folder
from backends.runs.judgement import observe
from backends.runs.plan import RunPlan
from backends.runs.processes import Machine, this_machine
from backends.runs.state import JobExit, RunState
from backends.settings import SlurmSettings
from backends.workspace import Workspace

BASH = shutil.which("bash") or "/bin/bash"
RUNNING = SlurmState("RUNNING", nodes="n1")
PENDING = SlurmState("PENDING", "Resources", start="2026-11-30T09:00:00")
GONE = SlurmState("")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def folder(workspace: Workspace) -> RunFolder:
    return create_run_folder(workspace.runs, datetime(2026, 11, 30, 9, 0, 0))


def planned(**fields: Any) -> RunPlan:
    usual = {"kind": "train", "trainer": "megatron", "launcher": "slurm", "preset": "gpt3-7b", "save": "/s/x",
             "arguments": ("--num-layers", "2", "--mock-data", "--exit-signal-handler"), "processes": 16}  # fmt: skip
    return RunPlan(**{**usual, **fields})


def slurm(found: bool = True) -> Slurm:
    return Slurm(find=lambda name: f"/usr/bin/{name}" if found else None, root=False)


# What is asked of Slurm.


def test_settings_become_directives() -> None:
    settings = SlurmSettings(
        nodes=2, time="2-00:00:00", account="a1", partition="gpu", reservation="r", options=("--qos=high",)
    )
    assert directives(planned(), settings) == [
        "--job-name=mdk-gpt3-7b", "--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=8", "--time=2-00:00:00",
        "--account=a1", "--partition=gpu", "--reservation=r", "--signal=B:USR2@600", "--requeue", "--qos=high",
    ]  # fmt: skip
    own = SlurmSettings(
        options=("--gres=gpu:h100:8", "--signal=B:USR2@60", "--no-requeue"), requeue=False, save_minutes=0
    )
    said = directives(planned(processes=8), own)
    assert "--gpus-per-node=8" not in said and not any(o.startswith("--signal=B:USR2@6") for o in said[:-3])
    assert "--gpus-per-node=1" not in directives(planned(trainer="demo", processes=1), SlurmSettings())


def test_processes_follow_from_nodes_and_gpus(workspace: Workspace) -> None:
    workspace.settings.write_text("[slurm]\nnodes = 3\ngpus_per_node = 4\n")
    wish = Placement(in_image=False)
    plan = placed(planned(processes=1), workspace, wish)
    assert plan.processes == 12 and plan.hosts == ()
    assert placed(planned(processes=1, gpus=(0, 1)), workspace, wish).processes == 6
    settings = SlurmSettings(nodes=3, gpus_per_node=4)
    assert shape(plan, settings) == Shape(3, 4)
    assert shape(planned(processes=6, gpus=(0, 1)), settings) == Shape(3, 2)
    assert shape(planned(processes=2), settings) == Shape(1, 2)
    assert shape(planned(trainer="demo", processes=6), settings) == Shape(3, 2)
    assert gather(plan, workspace).resources(plan).gpus_per_node == 4


def test_inside_it_is_mpirun_on_all_nodes_with_the_variables(workspace: Workspace) -> None:
    plan = planned(gpus=tuple(range(8)), environment={"MASTER_PORT": "14540"}, image="/i.sif")
    command = slurm().command(plan, workspace)
    assert command.argv == SBATCH and command.cwd == str(workspace.root)
    assert (
        "command=(mpirun --np 16 --map-by slot -x MDK_RUN -x MASTER_ADDR -x MASTER_PORT --bind-to none singularity exec --nv"
        in command.batch
    )
    assert "export MASTER_PORT=14540\n" in command.batch and "CUDA_VISIBLE_DEVICES" not in command.batch
    assert command.shell().endswith(f"command.sh\n\n{command.batch}") and command.script("x") == command.batch
    first, again = command.batch.split("command=(")[1:3]
    assert "--load" not in first and "--load /s/x" in again, "requeued, it goes on"


def test_inside_it_may_be_srun(workspace: Workspace) -> None:
    workspace.settings.write_text('[slurm]\ninside = "srun"\nsrun_options = ["--mpi=pmix"]\n')
    batch = slurm().command(planned(image="/i.sif"), workspace).batch
    assert (
        "command=(srun --nodes 2 --ntasks-per-node 8 --kill-on-bad-exit=1 --mpi=pmix singularity exec --nv"
        in batch
    )
    assert "mpirun" not in batch.split("command=(")[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('time = "1 day"', "is no time of Slurm's"),
        ('time = "10:00"\nsave_minutes = 10.0', "not longer than save_minutes = 10"),
        ('inside = "ssh"', "starts no ranks"),
        ("gpus_per_node = 5", "do not fill nodes of 5"),
        ('options = ["qos=high"]', "no option of sbatch"),
        ('options = ["--qos=x\\n#SBATCH --nodes=99"]', "no option of sbatch"),
        ('account = "a b"', "holds blanks"),
    ],
)
def test_a_job_that_slurm_would_refuse_is_reported_before_it_is_submitted(
    workspace: Workspace, text: str, words: str
) -> None:
    workspace.settings.write_text(f"[slurm]\n{text}\n")
    found = [p for p in slurm().check(planned(), workspace) if p.field == "launcher"]
    assert [words in problem.message for problem in found] == [True] and found[0].remedy


def test_missing_programs_are_reported(workspace: Workspace) -> None:
    fields = [p.message for p in slurm(found=False).check(planned(image="/nowhere.sif"), workspace)]
    assert any("no sbatch" in said for said in fields) and any(
        "no image /nowhere.sif" in said for said in fields
    )
    assert not any("mpirun" in said for said in fields), "it need not be where the job is submitted"
    serve = planned(kind="serve", trainer="server", processes=1)
    assert any("text server" in p.message for p in slurm().check(serve, workspace))
    workspace.settings.write_text('[slurm]\ninside = "srun"\n')
    demo = planned(trainer="demo", processes=2)
    assert any("PMIx" in p.message for p in slurm().check(demo, workspace))
    workspace.settings.write_text('[slurm]\ninside = "srun"\nsrun_options = ["--mpi=pmix"]\n')
    assert not any("PMIx" in p.message for p in slurm().check(demo, workspace))
    assert any(p.field == "launcher" for p in problems(serve, workspace))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", float("inf")), ("UNLIMITED", float("inf")), ("90", 5400), ("1:30", 90), ("1:00:00", 3600),
     ("2-0", 172800), ("1-02:03", 93780), ("1-02:03:04", 93784), ("x", None), ("1-", None), ("1:2:3:4", None)],
)  # fmt: skip
def test_times_as_sbatch_takes_them(text: str, seconds: float | None) -> None:
    assert time_limit(text) == seconds


# The script, really run, with a trainer that talks.

TRAINER = """\
trap 'touch saving; while [ -e slow ]; do sleep 0.02; done; echo saved; exit 0' USR1
trap 'echo ended; exit 3' TERM
echo "args $* mark $MDK_RUN first $MASTER_ADDR"
echo ready > "$1"
while :; do sleep 0.05; done
"""


class Batch:
    """A batch script as a process, with a `scontrol` that writes down what it is asked."""

    def __init__(self, root: Path, requeue: bool = True, accepts: bool = True) -> None:
        self.root = root
        self.ready, self.said = root / "ready", root / "scontrol.txt"
        self.trainer = root / "trainer.sh"
        self.trainer.write_text(TRAINER)
        programs = root / "bin"
        programs.mkdir()
        fake = programs / "scontrol"
        fake.write_text(
            f'#!/bin/sh\necho "$@" >> {self.said}\n[ "$1" != show ] || printf "n1\\nn2\\n"\n'
            f'while [ -e slow-controller ]; do sleep 0.02; done\n[ "$1" != requeue ] || exit {0 if accepts else 1}\n'
        )
        fake.chmod(0o755)
        (root / "save").mkdir()
        words = [BASH, str(self.trainer), str(self.ready)]
        self.script = batch_script(
            title="a\nb", options=["--nodes=2"], env={"A": "b c"}, cwd=str(root), command=[*words, "first"],
            again=[*words, "again"], save=str(root / "save"), requeue=requeue,
        )  # fmt: skip
        (root / "job.sh").write_text(self.script)
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
        self.environment.pop("MDK_RUN", None)

    def start(self, ready: Path | None = None) -> subprocess.Popen[str]:
        """Returns when the file `ready` is there: the trainer's, unless another is named."""
        process = subprocess.Popen(
            [BASH, str(self.root / "job.sh"), str(self.root)],
            env=self.environment,
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        until((ready or self.ready).exists, "the start of the job")
        return process

    def exit_file(self) -> dict[str, Any] | None:
        path = self.root / "exit.json"
        return json.loads(path.read_text()) if path.exists() else None


def ended(process: subprocess.Popen[str], number: int) -> str:
    process.send_signal(number)
    out, _ = process.communicate(timeout=300)
    return out


def test_a_stop_lets_the_ranks_save_and_is_written_down(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    (tmp_path / "exit.json").write_text("old")
    process = batch.start()
    assert batch.exit_file() is None, "the end of an earlier start is not this one's"
    out = ended(process, signal.SIGUSR1)
    assert "first mark slurm-7 first n1" in out and "saved" in out
    assert process.returncode == 0
    written = batch.exit_file()
    assert written is not None and JobExit.from_json(written) == JobExit(0, None, written["time"])
    assert "requeue" not in batch.said.read_text()


def test_before_the_time_limit_it_saves_and_queues_up_again(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    process = batch.start()
    assert "saved" in ended(process, signal.SIGUSR2)
    assert batch.said.read_text().splitlines()[-1] == "requeue 7"
    assert batch.exit_file() is None, "it has not ended"
    batch.ready.unlink()
    (tmp_path / "save/latest_checkpointed_iteration.txt").write_text("20")
    process = batch.start()
    assert f"args {batch.ready} again" in ended(process, signal.SIGUSR1)


def test_a_signal_that_the_ranks_cannot_take_yet_requeues_the_job_once(tmp_path: Path) -> None:
    """The default action of USR1 ends mpirun and python until they have installed their handlers."""
    batch = Batch(tmp_path)
    batch.trainer.write_text(TRAINER.partition("\n")[2])
    assert "nothing was saved" in ended(batch.start(), signal.SIGUSR2)
    assert batch.said.read_text().splitlines()[-1] == "requeue 7" and batch.exit_file() is None
    batch.ready.unlink()
    said = ended(batch.start(), signal.SIGUSR2)
    assert "nothing was saved" in said and "not requeued: set a longer time" in said
    assert (batch.exit_file() or {})["exit_code"] == 138 and batch.said.read_text().count("requeue") == 1


def test_a_signal_before_the_ranks_are_started_reaches_them(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    (tmp_path / "slow-controller").touch()
    process = batch.start(ready=batch.said)
    process.send_signal(signal.SIGTERM)
    (tmp_path / "slow-controller").unlink()
    process.communicate(timeout=300)
    assert (batch.exit_file() or {})["exit_code"] in (3, 143), "by its trap, or before it had one"


def test_a_stop_that_is_still_saving_at_the_time_limit_is_not_requeued(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    (tmp_path / "slow").touch()
    process = batch.start()
    process.send_signal(signal.SIGUSR1)
    until((tmp_path / "saving").exists, "the ranks' answer")
    process.send_signal(signal.SIGUSR2)
    (tmp_path / "slow").unlink()
    assert "saved" in process.communicate(timeout=300)[0]
    assert "requeue" not in batch.said.read_text() and (batch.exit_file() or {})["exit_code"] == 0


@pytest.mark.parametrize("tracker", [None, b""])
def test_a_requeued_job_never_restarts_over_its_checkpoints(tmp_path: Path, tracker: bytes | None) -> None:
    """Preempted in the instant in which core_r0.8.0 wrote its tracker, which is then empty."""
    batch = Batch(tmp_path)
    (tmp_path / "save/iter_0000020").mkdir()
    if tracker is not None:
        (tmp_path / "save/latest_checkpointed_iteration.txt").write_bytes(tracker)
    words = [BASH, str(tmp_path / "job.sh"), str(tmp_path)]
    done = subprocess.run(
        words, env=batch.environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1 and "would begin anew" in done.stderr and not batch.ready.exists()
    assert (batch.exit_file() or {})["exit_code"] == 1


@pytest.mark.parametrize(("requeue", "accepts"), [(False, True), (True, False)])
def test_without_a_requeue_the_time_limit_is_an_end(tmp_path: Path, requeue: bool, accepts: bool) -> None:
    batch = Batch(tmp_path, requeue, accepts)
    assert "saved" in ended(batch.start(), signal.SIGUSR2)
    assert batch.exit_file() is not None


def test_a_cancelled_job_says_how_it_ended(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    process = batch.start()
    assert "ended" in ended(process, signal.SIGTERM)
    assert process.returncode == 3 and (batch.exit_file() or {})["exit_code"] == 3


def test_by_hand_it_needs_no_run_folder_and_holds_no_stray_lines(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    lines = batch.script.splitlines()
    assert lines[:3] == ["#!/bin/bash", "# a b", "#SBATCH --nodes=2"] and "export A='b c'" in lines
    assert subprocess.run([BASH, "-n", str(tmp_path / "job.sh")], check=False).returncode == 0


# Slurm's words.

SHOWN = (
    "JobId=3 JobName=mdk-tiny UserId=root(0) JobState=PENDING Reason=BeginTime Dependency=(null) Requeue=1 Restarts=1 "
    "BatchFlag=1 ExitCode=0:0 StartTime=2026-11-30T08:51:11 NodeList= BatchHost=localhost "
    "Command=/w/JobState=FAILED StdOut=/w/a%%b.log Power= \n"
)


def test_what_scontrol_and_sacct_say() -> None:
    state = read_state(SHOWN)
    assert state == SlurmState(
        "PENDING", "BeginTime", restarts=1, log="/w/a%%b.log", start="2026-11-30T08:51:11"
    )
    assert state.waits and not state.over and "two minutes" in state.words("3")
    done = read_state("JobState=CANCELLED Reason=None ExitCode=0:15 StartTime=Unknown StdOut=(null)")
    assert (done.over, done.signal, done.start, done.log) == (True, 15, None, None)
    assert read_accounting("TIMEOUT|0:15\n") == SlurmState("TIMEOUT", signal=15)
    assert read_accounting("CANCELLED by 0|1:0\n") == SlurmState("CANCELLED", exit_code=1)
    assert read_accounting("") is None
    assert "on n1" in RUNNING.words("4") and "started again 2 times" in dataclasses.replace(
        RUNNING, restarts=2
    ).words("4")
    assert "does not know" in GONE.words("4") and GONE.over


SILENCE = (0, "", "")


def answering(**answers: tuple[int, str, str]) -> tuple[SlurmControl, list[list[str]]]:
    """A controller whose programs answer with (status, stdout, stderr); what they were asked."""
    asked: list[list[str]] = []

    def run(
        words: Sequence[str], environment: Any = None, cwd: Any = None, limit: float = 0.0
    ) -> subprocess.CompletedProcess[str]:
        asked.append(list(words))
        if words[0] not in answers:
            raise OSError(2, "No such file or directory")
        if answers[words[0]] == SILENCE:
            raise subprocess.TimeoutExpired(words, limit)
        return subprocess.CompletedProcess(list(words), *answers[words[0]])

    return SlurmControl(run), asked


def test_a_controller_that_is_silent_says_nothing_of_the_job() -> None:
    unknown = (1, "", "slurm_load_jobs error: Invalid job id specified")
    down = (1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    assert answering(scontrol=(0, SHOWN, ""))[0].ask("3") == read_state(SHOWN)
    assert answering(scontrol=down)[0].ask("3") is None and answering()[0].ask("3") is None
    assert answering(scontrol=unknown)[0].ask("3") == GONE
    disabled = (1, "", "Slurm accounting storage is disabled")
    assert answering(scontrol=unknown, sacct=disabled)[0].ask("3") == GONE
    assert answering(scontrol=unknown, sacct=(0, "TIMEOUT|0:0\n", ""))[0].ask("3") == SlurmState("TIMEOUT")


def test_a_refused_job_says_why() -> None:
    control, _ = answering(
        sbatch=(
            1,
            "",
            "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed\n",
        )
    )
    with pytest.raises(UserError, match="refuses the job: invalid partition specified: x") as caught:
        control.submit(["sbatch"], ["job.sh"], {}, "/")
    assert "[slurm]" in caught.value.remedy
    with pytest.raises(UserError, match="cannot be run"):
        answering()[0].submit(["sbatch"], ["job.sh"], {}, "/")
    assert answering(sbatch=(0, "12;cluster\n", ""))[0].submit(["sbatch"], ["job.sh"], {}, "/") == "12"


LOST = (1, "", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n")
QUEUE = (0, "7 /w/a b/command.sh.old /w/a b\n12 /w/a b/command.sh /w/a b\n", "")


@pytest.mark.parametrize("sbatch", [SILENCE, LOST])
def test_a_job_accepted_without_an_answer_is_found(sbatch: tuple[int, str, str]) -> None:
    control, asked = answering(sbatch=sbatch, squeue=QUEUE)
    assert control.submit(["sbatch"], ["/w/a b/command.sh", "/w/a b"], {}, "/") == "12"
    assert [words[0] for words in asked] == ["sbatch", "squeue"], "it is not submitted twice"
    for queue in (SILENCE, (0, "", " ")):
        with pytest.raises(UserError, match="does not answer sbatch"):
            answering(sbatch=sbatch, squeue=queue)[0].submit(["sbatch"], ["/w/a b/command.sh"], {}, "/")


class FakeSlurm:
    """A controller that says what the test wants."""

    def __init__(self, state: SlurmState | None = RUNNING) -> None:
        self.state = state
        self.asked = 0
        self.told: list[tuple[str, ...]] = []
        self.takes = True

    def ask(self, job: str) -> SlurmState | None:
        self.asked += 1
        return self.state

    def submit(
        self, words: Sequence[str], script: Sequence[str], environment: Mapping[str, str], cwd: str
    ) -> str:
        self.told.append((*words, *script, environment["MDK_RUN"]))
        return "12"

    def signal(self, job: str, name: str, *options: str) -> bool:
        self.told.append(("signal", job, name, *options))
        return self.takes

    def cancel(self, job: str) -> bool:
        self.told.append(("cancel", job))
        return self.takes


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def job(folder: RunFolder) -> tuple[SlurmJob, FakeSlurm, Clock]:
    fake, clock = FakeSlurm(), Clock()
    return SlurmJob(folder, "12", fake, 5.0, clock), fake, clock


def test_slurm_is_asked_rarely_but_at_once_after_the_job_wrote_its_end(
    job: tuple[SlurmJob, FakeSlurm, Clock], folder: RunFolder
) -> None:
    it, fake, clock = job
    assert it.lives() and it.lives() and fake.asked == 1 and it.note is None
    clock.now = 4.9
    assert it.lives() and fake.asked == 1
    folder.exit_file.write_text('{"exit_code": 0, "signal": null, "time": 1}')
    fake.state = dataclasses.replace(RUNNING, state="COMPLETING")
    assert it.lives() and fake.asked == 2, "Slurm decides, not the file: a requeued job lives on"
    clock.now = 6.0
    fake.state = SlurmState("COMPLETED")
    assert not it.lives() and it.exit() == JobExit(0, None, 1.0)


def test_a_silent_controller_never_ends_a_run(job: tuple[SlurmJob, FakeSlurm, Clock]) -> None:
    it, fake, clock = job
    fake.state = None
    assert it.lives() and "does not answer" in (it.note or "")
    clock.now, fake.state = 5.0, PENDING
    assert it.lives() and it.waits and "Resources (it is next" in (it.note or "")
    clock.now, fake.state = 10.0, None
    assert it.lives()


@pytest.mark.parametrize(
    ("state", "exit", "words"),
    [
        (SlurmState("TIMEOUT", signal=15), JobExit(None, 15), "save_minutes"),
        (SlurmState("CANCELLED"), JobExit(None, 15), "somebody cancelled it"),
        (SlurmState("NODE_FAIL", exit_code=1), JobExit(1, None), "a node failed"),
        (SlurmState("OUT_OF_MEMORY"), JobExit(1, None), "--mem=0"),
        (SlurmState("FAILED", exit_code=7), JobExit(7, None), None),
        (SlurmState("COMPLETED"), JobExit(0, None), None),
        (GONE, None, None),
    ],
)  # fmt: skip
def test_an_end_that_the_script_could_not_record_is_asked_from_slurm(
    job: tuple[SlurmJob, FakeSlurm, Clock], state: SlurmState, exit: JobExit | None, words: str | None
) -> None:
    it, fake, _ = job
    fake.state = state
    assert not it.lives() and it.exit() == exit
    assert (words in (it.note or "")) if words else it.note is None


def test_a_stop_goes_to_the_batch_script_and_what_waits_is_cancelled(
    job: tuple[SlurmJob, FakeSlurm, Clock],
) -> None:
    it, fake, clock = job
    it.lives()
    it.ask_to_save()
    it.signal_all(signal.SIGTERM)
    it.signal_all(signal.SIGKILL)
    assert fake.told == [("signal", "12", "USR1", "--batch"), ("cancel", "12"),
                         ("signal", "12", "KILL", "--full"), ("cancel", "12")]  # fmt: skip
    fake.told, fake.state, clock.now = [], PENDING, 5.0
    it.lives()
    it.ask_to_save()
    assert fake.told == [("cancel", "12")]


def test_a_stop_that_the_controller_did_not_take_is_sent_until_it_does(
    job: tuple[SlurmJob, FakeSlurm, Clock],
) -> None:
    it, fake, clock = job
    it.lives()
    stop = ("signal", "12", "USR1", "--batch")
    fake.takes, fake.state = False, None
    it.ask_to_save()
    clock.now = 5.0
    assert it.lives() and fake.told == [stop], "the controller is down"
    clock.now, fake.takes, fake.state = 10.0, True, RUNNING
    assert it.lives() and fake.told == [stop, stop]
    clock.now = 15.0
    assert it.lives() and fake.told == [stop, stop], "the trainer is not asked twice"


def test_a_submitted_job_is_recorded_and_cancelled_if_it_cannot_be(
    folder: RunFolder, workspace: Workspace
) -> None:
    fake = FakeSlurm()
    command = slurm().command(planned(), workspace)
    submit(folder, command, "the-mark", {}, fake, 5.0)
    assert fake.told == [
        (*SBATCH, f"--output={folder.log}", str(folder.command), str(folder.path), "the-mark")
    ]
    assert folder.batch_job() == "12" and adopt(folder, fake, 5.0).lives()
    folder.batch_file.unlink()
    with pytest.raises(UserError, match="not known which Slurm job"):
        adopt(folder, fake, 5.0)
    shutil.rmtree(folder.path)
    with pytest.raises(OSError):
        submit(folder, command, "the-mark", {}, fake, 5.0)
    assert fake.told[-1] == ("cancel", "12")


# Who looks after it.


def test_any_host_takes_up_a_job_whose_supervisor_is_silent(folder: RunFolder) -> None:
    here = Machine("login2", "b")
    state = RunState(phase="running", machine=Machine("login1", "a"), heartbeat=100.0)

    def seen(now: float, anywhere: bool) -> Any:
        return observe(state, here, now, lambda p: False, lambda s: True, pytest.fail, anywhere)

    assert not seen(130.0, True).orphaned
    assert (seen(200.0, True).phase, seen(200.0, True).orphaned) == ("running", True)
    assert (seen(200.0, False).phase, seen(200.0, False).orphaned) == ("lost", False)
    here = Machine("login1", "booted again")
    assert (seen(200.0, True).phase, seen(200.0, True).orphaned) == ("running", True)


def test_without_a_supervisor_the_script_records_the_end(folder: RunFolder) -> None:
    write_json(folder.plan_file, planned().as_json())
    folder.write_state(RunState(phase="running", machine=this_machine(), mark="none-carries-this"))
    write_json(folder.batch_file, {"job_id": "12"})
    info = describe(folder)
    assert (info.phase, info.orphaned, info.slurm_job) == ("running", True, "12")
    folder.exit_file.write_text('{"exit_code": 0, "signal": null, "time": 1}')
    folder.log.write_text("[after training is done] datetime: 2026-11-30 09:00:00 \n")
    assert describe(folder).phase == "finished"


def test_a_job_that_was_submitted_by_hand_is_watched_by_its_log(
    workspace: Workspace, folder: RunFolder
) -> None:
    log = workspace.root / "slurm-9.out"
    fake = FakeSlurm(dataclasses.replace(RUNNING, log=str(log)))

    def refused(word: str) -> str:
        with pytest.raises(UserError) as caught:
            watched_job(workspace, word, fake)
        return str(caught.value)

    assert "where the job runs" in refused("slurm:9")
    log.touch()
    assert watched_job(workspace, "slurm:9", fake) == log
    write_json(folder.batch_file, {"job_id": "9"})
    assert watched_job(workspace, "slurm:9", fake) == folder, "a run of ours can be stopped, too"
    assert "no number" in refused("slurm:x;y")
    fake.state = dataclasses.replace(PENDING, log=str(workspace.root / "later.out"))
    assert "Resources" in refused("slurm:10") and "will be" in refused("slurm:10")
    for state, words in ((GONE, "does not know"), (None, "does not answer"), (RUNNING, "does not say where")):
        fake.state = state
        assert words in refused("slurm:10")
