"""A real Slurm of two nodes on this machine (network namespaces), without accounting: submitted, followed, stopped with a
checkpoint, requeued, resumed."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from namespace_nodes import NamespaceNodes
from waiting import until

from backends.errors import UserError
from backends.launch.adoption import looked_after
from backends.launch.slurm_attach import watched_job
from backends.launch.slurm_control import SlurmControl
from backends.launch.start import start
from backends.launch.stop import stop_run
from backends.models.presets import TINY
from backends.runs.catalog import describe
from backends.runs.checkpoints import read_tracker
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.planning import train_plan
from backends.runs.processes import MARK, is_alive
from backends.workspace import Workspace

pytestmark = [
    pytest.mark.hpc,
    pytest.mark.skipif(importlib.util.find_spec("autograd") is None, reason="the demo needs autograd"),
]
CONTROLLER_PORTS = 20000  # and the number of the cluster: below those that the kernel gives to clients
SLURM_PROGRAMS = ("ip", "nsenter", "munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=localhost({here})
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock
SlurmUser=root
SlurmdUser=root
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
TmpFS={root}/tmp-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
MpiDefault=none
KillWait=5
NodeName={first} NodeHostname={first} CPUs={cpus}
NodeName={second} NodeHostname={second} CPUs={cpus}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def require_slurm() -> None:
    missing = [program for program in SLURM_PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (.ci/install-hpc.sh --slurm)")  # in CI this fails
    if os.geteuid() != 0:
        pytest.skip("a Slurm of one's own needs root")


def slurm_version() -> tuple[int, ...]:
    words = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout.split()
    return tuple(int(part) for part in words[-1].split(".")[:2] if part.isdigit())


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory, nodes: NamespaceNodes) -> Iterator[Path]:
    """A controller and two nodes of its own, beside any other Slurm; its configuration is what SLURM_CONF names."""
    require_slurm()
    both = (nodes.first, nodes.second)
    root = tmp_path_factory.mktemp("slurm")
    for name in ("state", *(f"tmp-{node}" for node in both)):  # PMIx makes a folder of one name on each node
        (root / name).mkdir()
    key = root / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    configuration = root / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            root=root,
            here=nodes.address(1),
            controller=CONTROLLER_PORTS + nodes.number,
            first=nodes.first,
            second=nodes.second,
            cpus=os.cpu_count(),
        )
    )
    (root / "cgroup.conf").write_text("CgroupPlugin=disabled\n" if slurm_version() >= (23, 11) else "")
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    daemons = (
        ["munged", "--force", f"--key-file={key}", f"--socket={root}/munge.sock", f"--pid-file={root}/munge.pid",
         f"--log-file={root}/munge.log", f"--seed-file={root}/munge.seed"],
        ["slurmctld", "-c"],
        *(on_node(node, f"exec slurmd -N {node}") for node in both),
    )  # fmt: skip
    try:
        for words in daemons:
            subprocess.run(words, env=environment, check=True, timeout=60, capture_output=True)
        until(lambda: told(environment, "sinfo", "-h", "-N", "-o", "%T").count("idle") == 2, "two idle nodes")
        yield configuration
    finally:
        told(environment, "scancel", "--full", "--signal=KILL", "--user=root")
        told(environment, "scancel", "--user=root")
        # A slurmd that is starting a job does not end before that job does.
        with contextlib.suppress(AssertionError):
            until(lambda: not told(environment, "squeue", "-h"), "an empty queue", 60.0)
        for name in (*both, "slurmctld", "munge"):
            end(root / f"{name}.pid")


def on_node(node: str, script: str) -> list[str]:
    """With the node's network and name. Not by `ip netns exec`: that hides /sys/fs/cgroup, which slurmd looks for."""
    return [
        "nsenter",
        f"--net=/run/netns/{node}",
        "unshare",
        "--uts",
        "bash",
        "-c",
        f"hostname {node}; {script}",
    ]


def told(environment: dict[str, str], *words: str) -> str:
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=60, check=False
    ).stdout


def end(pid_file: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(AssertionError):
            until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of {pid_file.name}", 60.0)
        os.kill(pid, signal.SIGKILL)  # or the next set-up finds its port taken


class Jobs:
    """Starts runs in the Slurm of the test; what a failed test leaves there is cancelled."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self.workspace, self.environment = Workspace(root), environment
        self._started: list[RunFolder] = []

    def settings(self, *lines: str) -> None:
        self.workspace.settings.write_text("\n".join(["[slurm]", "poll_seconds = 0.5", *lines, ""]))

    def plan(self, name: str, *changes: str, ranks: int = 1, image: Path | None = None) -> RunPlan:
        words = ("--micro-batch-size", "2", "--global-batch-size", "4", "--num-layers", "1", "--log-interval", "1",
                 "--train-iters", "100000", *changes)  # fmt: skip
        save = self.workspace.checkpoints / name
        plan = train_plan("demo", TINY.arguments, words, save, launcher="slurm", processes=ranks)
        return dataclasses.replace(plan, image=str(image) if image else None)

    def start(self, plan: RunPlan) -> RunFolder:
        folder = start(plan, self.workspace, environment=self.environment)
        self._started.append(folder)
        return folder

    def slurm(self, *words: str) -> str:
        return told(self.environment, *words)

    def close(self) -> None:
        for folder in self._started:
            if job := folder.batch_job():
                self.slurm("scancel", "--full", "--signal=KILL", job)
                self.slurm("scancel", job)
                until(
                    lambda run=folder: describe(run).over or looked_after(run, self.workspace).over, "the end"
                )


@pytest.fixture
def jobs(
    tmp_path: Path, slurm: Path, hpc_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Jobs]:
    monkeypatch.setenv("SLURM_CONF", str(slurm))  # whoever looks asks the same Slurm
    environment = {name: value for name, value in hpc_environment.items() if name != MARK}
    jobs = Jobs(tmp_path, {**environment, "SLURM_CONF": str(slurm)})
    jobs.settings()
    yield jobs
    jobs.close()


# Slurm refuses a job that starts in the second in which it was requeued ("Job credential revoked"); by itself it waits two minutes.
SOON = "EligibleTime=now+3"


def log(folder: RunFolder) -> str:
    return folder.log.read_text(errors="replace") if folder.log.exists() else ""


def test_two_nodes_train_in_an_image_are_followed_and_stopped_with_a_checkpoint(
    jobs: Jobs, cpu_image: Path, nodes: NamespaceNodes
) -> None:
    jobs.settings("nodes = 2")
    folder = jobs.start(jobs.plan("stopped", ranks=2, image=cpu_image))
    until(lambda: describe(folder).iteration or describe(folder).over, "an iteration")
    info = describe(folder)
    assert (info.phase, info.slurm_job) == ("running", folder.batch_job())
    assert "using world size: 2" in log(folder)
    assert f"{nodes.first[:-1]}[1-2]" in jobs.slurm("squeue", "-h", "-j", info.slurm_job or "", "-o", "%N")
    *_, info = stop_run(folder, jobs.workspace)
    assert (info.phase, info.exit_code, info.reason) == ("finished", 0, "Stopped on request."), log(folder)[
        -3000:
    ]
    tracker = read_tracker(Path(info.save or ""))
    assert tracker.problem is None
    assert f"successfully saved checkpoint from iteration {tracker.iteration:7d}" in log(folder)
    assert jobs.slurm("squeue", "-h", "-j", info.slurm_job or "") == ""


def test_inside_it_may_be_srun_which_passes_the_stop_on(jobs: Jobs) -> None:
    jobs.settings('inside = "srun"')
    folder = jobs.start(jobs.plan("srun"))
    until(lambda: describe(folder).iteration, f"an iteration: {log(folder)[-2000:]}")
    *_, info = stop_run(folder, jobs.workspace)
    assert (info.phase, info.exit_code) == ("finished", 0), log(folder)[-3000:]
    assert read_tracker(Path(info.save or "")).problem is None


def test_srun_brings_the_ranks_of_two_nodes_together_by_pmix(jobs: Jobs, cpu_image: Path) -> None:
    """No mpirun anywhere: the ranks in the image find each other through Slurm's own PMIx server."""
    offered = told(jobs.environment, "srun", "--mpi=list")
    if "pmix" not in offered:
        pytest.skip(
            f"not installed: a Slurm with PMIx (.ci/install-hpc.sh --slurm); srun --mpi=list: {offered}"
        )
    jobs.settings("nodes = 2", 'inside = "srun"', 'srun_options = ["--mpi=pmix"]')
    folder = jobs.start(jobs.plan("pmix", ranks=2, image=cpu_image))
    until(lambda: describe(folder).iteration or describe(folder).over, f"an iteration: {log(folder)[-2000:]}")
    assert "using world size: 2" in log(folder), log(folder)[-3000:]
    *_, info = stop_run(folder, jobs.workspace)
    assert (info.phase, info.exit_code) == ("finished", 0), log(folder)[-3000:]
    assert read_tracker(Path(info.save or "")).problem is None


def test_a_requeued_job_continues_and_is_adopted_by_the_next_command(jobs: Jobs) -> None:
    folder = jobs.start(jobs.plan("requeued", "--save-interval", "5"))
    until(lambda: (describe(folder).iteration or 0) > 5, f"a checkpoint: {log(folder)[-2000:]}")
    state = folder.state()
    assert state is not None and state.supervisor is not None
    os.kill(state.supervisor.pid, signal.SIGKILL)
    until(lambda: not is_alive(state.supervisor), "the end of the supervisor")
    assert (describe(folder).phase, describe(folder).orphaned) == ("running", True)
    job = folder.batch_job() or ""
    jobs.slurm("scontrol", "requeue", job)
    info = looked_after(folder, jobs.workspace)
    assert not info.over and not describe(folder).orphaned
    until(lambda: "BeginTime" in (describe(folder).note or ""), f"why it waits: {describe(folder)}")
    assert describe(folder).phase == "starting"
    jobs.slurm("scontrol", "update", f"JobId={job}", SOON)
    until(lambda: "successfully loaded checkpoint" in log(folder), f"a resume: {log(folder)[-2000:]}")
    until(lambda: describe(folder).phase == "running" and not describe(folder).note, "a run that runs again")
    *_, info = stop_run(folder, jobs.workspace, now=True)
    assert (info.phase, info.reason) == ("failed", "Stopped on request, without saving.")


def test_before_its_time_limit_it_saves_and_queues_up_again_by_itself(jobs: Jobs) -> None:
    # Slurm looks every 30 s, and sends the signal up to that much early: a job that was begun at such a moment with 54 s of
    # its 60 asked for had the signal before its trainer, and ended by it.
    jobs.settings('time = "1:00"', "save_minutes = 0.1")
    folder = jobs.start(jobs.plan("limited", "--save-interval", "100000"))
    until(lambda: "BeginTime" in (describe(folder).note or ""), f"the time limit: {log(folder)[-2000:]}")
    saved = read_tracker(jobs.workspace.checkpoints / "limited").iteration
    assert isinstance(saved, int) and f"successfully saved checkpoint from iteration {saved:7d}" in log(
        folder
    )
    jobs.slurm("scontrol", "update", f"JobId={folder.batch_job()}", SOON)
    until(lambda: f"at iteration {saved}" in log(folder), f"a resume at {saved}: {log(folder)[-2000:]}")
    until(lambda: (describe(folder).iteration or 0) > saved, "more iterations")


def test_why_it_waits_is_shown_and_a_waiting_job_is_cancelled(jobs: Jobs) -> None:
    jobs.settings('options = ["--hold"]')
    folder = jobs.start(jobs.plan("waits"))
    until(lambda: "JobHeldUser (it is held: scontrol release it)" in (describe(folder).note or ""), "why")
    *_, info = stop_run(folder, jobs.workspace)
    assert (info.phase, info.reason) == ("failed", "Stopped on request.")
    assert jobs.slurm("squeue", "-h", "-j", folder.batch_job() or "") == ""


def test_a_job_that_was_taken_though_the_answer_was_lost_is_found(jobs: Jobs, tmp_path: Path) -> None:
    busy = tmp_path / "bin" / "sbatch"
    busy.parent.mkdir()
    lost = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    busy.write_text(
        f'#!/bin/sh\n{shutil.which("sbatch")} "$@" > {tmp_path}/said\necho "{lost}" >&2\nexit 1\n'
    )
    busy.chmod(0o755)
    jobs.environment["PATH"] = f"{busy.parent}{os.pathsep}{jobs.environment['PATH']}"
    jobs.settings('options = ["--hold"]')
    folder = jobs.start(jobs.plan("lost"))
    assert folder.batch_job() == (tmp_path / "said").read_text().strip()


def test_a_refusal_of_slurm_is_reported_in_its_words(jobs: Jobs) -> None:
    jobs.settings('partition = "nowhere"')
    with pytest.raises(UserError, match=r"Slurm refuses the job: .*invalid partition"):
        start(jobs.plan("refused"), jobs.workspace, environment=jobs.environment)


def test_a_cancel_by_hand_is_reported_as_such(jobs: Jobs) -> None:
    folder = jobs.start(jobs.plan("cancelled"))
    until(lambda: describe(folder).iteration, f"an iteration: {log(folder)[-2000:]}")
    jobs.slurm("scancel", folder.batch_job() or "")
    until(lambda: describe(folder).over, "the end")
    info = describe(folder)
    assert info.phase == "failed" and "CANCELLED (somebody cancelled it)" in (info.reason or "")


def test_a_job_that_was_submitted_by_hand_is_found_by_its_number(jobs: Jobs, tmp_path: Path) -> None:
    output = tmp_path / "by-hand-%j.out"
    submitted = jobs.slurm("sbatch", "--parsable", f"--output={output}", "--wrap", "echo iteration; sleep 60")
    job = submitted.strip()
    written = tmp_path / f"by-hand-{job}.out"
    try:
        until(written.exists, "its output")
        assert watched_job(jobs.workspace, f"slurm:{job}", SlurmControl()) == written
    finally:
        jobs.slurm("scancel", job)
