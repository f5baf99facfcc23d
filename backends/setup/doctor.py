"""The check-up: what a week-long run needs of this machine, each with verdict, evidence and remedy."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from backends.launch.ports import is_free
from backends.setup.step import Finding, Site
from backends.setup.steps import STEPS

GIB = 2**30
PORTS = {
    14535: "training",
    14536: "text server's ranks",
    6006: "TensorBoard",
    5000: "MLflow",
    8028: "text server",
}
# The CUDA of the base image 24.08 is 12.6; NVIDIA's forward compatibility needs at least the driver branch 470.
IMAGE_DRIVER = 560


def check_up(site: Site) -> Iterator[Finding]:
    """All findings, one after the other, as they are made: the steps first, then the machine."""
    for step in STEPS:
        yield step.look(site)
    for check in CHECKS:
        yield check(site)


def check_gpus(site: Site) -> Finding:
    """Driver and count from nvidia-smi: a hanging driver costs its time limit, not the application."""
    query = "driver_version,name,memory.total,ecc.errors.uncorrected.volatile.total"
    smi = site.programs.find("nvidia-smi")
    if smi is None:
        return Finding(
            "gpus",
            "warning",
            "There is no nvidia-smi: no GPU here.",
            "The demo runs without; real runs need GPUs.",
        )
    answer = site.programs.ask([smi, f"--query-gpu={query}", "--format=csv,noheader,nounits"], timeout=15)
    rows = [
        [cell.strip() for cell in row.split(",")] for row in answer.stdout.splitlines() if row.count(",") == 3
    ]
    if not answer.ok or not rows:
        words = (answer.stderr or answer.stdout).strip().splitlines() or ["no answer"]
        return Finding("gpus", "failed", f"nvidia-smi: {words[0]}", "Reload the driver or reboot the node.")
    driver, name, memory, _ = rows[0]
    evidence = f"{len(rows)} × {name}, {int(float(memory)) / 1024:.0f} GiB, driver {driver}"
    broken = [str(i) for i, row in enumerate(rows) if row[3].isdigit() and int(row[3]) > 0]
    if broken:
        return Finding(
            "gpus",
            "failed",
            f"{evidence}; uncorrected ECC errors on GPU {', '.join(broken)}",
            "Take the GPU out of service.",
        )
    major = driver.split(".")[0]
    if major.isdigit() and int(major) < IMAGE_DRIVER:
        return Finding(
            "gpus",
            "warning",
            f"{evidence}; the image's CUDA 12.6 was made for driver {IMAGE_DRIVER} or newer",
            "On data-centre GPUs its compatibility package helps; else update the driver.",
        )
    return Finding("gpus", "ok", evidence)


def check_gpu_processes(site: Site) -> Finding:
    smi = site.programs.find("nvidia-smi")
    if smi is None:
        return Finding("gpu processes", "skipped", "no nvidia-smi")
    answer = site.programs.ask(
        [smi, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"], timeout=15
    )
    if not answer.ok:
        return Finding("gpu processes", "skipped", "nvidia-smi did not answer")
    others = [described for row in answer.stdout.splitlines() if (described := _process(row))]
    if others:
        return Finding(
            "gpu processes",
            "warning",
            "; ".join(others[:8]),
            "Ask their owner, or choose other GPUs with --gpus.",
        )
    return Finding("gpu processes", "ok", "no process on the GPUs")


def _process(row: str) -> str:
    pid, _, memory = row.partition(",")
    if not pid.strip().isdigit():
        return ""
    try:
        process = psutil.Process(int(pid))
        owner = f"{process.name()} of {process.username()}"
    except psutil.Error:
        owner = "a process of another container"
    return f"{owner} (pid {pid.strip()}, {memory.strip()} MiB)"


def check_ports(site: Site) -> Finding:
    taken = [f"{port} ({use})" for port, use in PORTS.items() if not is_free(port)]
    if taken:
        return Finding(
            "ports",
            "warning",
            f"taken: {', '.join(taken)}",
            "A launch chooses a free port; find the owner with `ss -ltnp`.",
        )
    return Finding("ports", "ok", f"free: {', '.join(map(str, PORTS))}")


def check_shared_memory(site: Site) -> Finding:
    try:
        size = psutil.disk_usage("/dev/shm").total
    except OSError:
        return Finding(
            "/dev/shm",
            "failed",
            "There is no /dev/shm.",
            "NCCL and data loaders need it: mount a tmpfs there.",
        )
    evidence = f"{size / GIB:.1f} GiB"
    if size < GIB:
        return Finding(
            "/dev/shm",
            "failed",
            evidence,
            "Enlarge it: ranks die of a bus error (mount -o remount,size=16G /dev/shm).",
        )
    return Finding("/dev/shm", "ok", evidence)


def check_limits(site: Site) -> Finding:
    locked, files = (
        resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
    words = "unlimited" if locked == resource.RLIM_INFINITY else f"{locked / 2**20:.0f} MiB"
    evidence = f"locked memory {words}, open files {'unlimited' if files == resource.RLIM_INFINITY else f'{files:,}'}"
    if files != resource.RLIM_INFINITY and files < 4096:
        return Finding("limits", "warning", evidence, "Raise the open files: ulimit -n 65536.")
    if locked != resource.RLIM_INFINITY and locked < GIB and Path("/sys/class/infiniband").exists():
        return Finding(
            "limits",
            "warning",
            evidence,
            "InfiniBand needs locked memory: ulimit -l unlimited (limits.conf).",
        )
    return Finding("limits", "ok", evidence)


def check_clock(site: Site) -> Finding:
    if time.time() < 1_700_000_000:
        return Finding(
            "clock",
            "failed",
            time.strftime("%Y-%m-%d %H:%M"),
            "Set the clock: dated folders and TLS depend on it.",
        )
    timedatectl = site.programs.find("timedatectl")
    if timedatectl:
        answer = site.programs.ask([timedatectl, "show", "--property=NTPSynchronized", "--value"], timeout=5)
        if answer.stdout.strip() == "no":
            return Finding(
                "clock", "warning", "not synchronised", "Turn on NTP: several nodes' logs should agree."
            )
    return Finding("clock", "ok", time.strftime("%Y-%m-%d %H:%M %Z"))


def check_logout(site: Site) -> Finding:
    """Whether a logout ends what was started: logind's KillUserProcesses takes even processes of other sessions."""
    inside = "inside tmux" if site.environment.get("TMUX") else "not inside tmux"
    loginctl = site.programs.find("loginctl")
    answer = (
        site.programs.ask([loginctl, "show-session", "self", "--property=KillProcesses"], timeout=5)
        if loginctl
        else None
    )
    if (answer is not None and "KillProcesses=yes" in answer.stdout) or kills_at_logout(Path("/etc/systemd")):
        return Finding(
            "logout",
            "failed",
            f"systemd-logind has KillUserProcesses=yes; {inside}",
            f"loginctl enable-linger {site.environment.get('USER', 'USER')}, or every run ends at logout.",
        )
    return Finding("logout", "ok", f"runs outlive a logout; {inside}")


def kills_at_logout(systemd: Path) -> bool:
    """Whether logind.conf or one of its drop-ins (below `systemd`) turns KillUserProcesses on; the last one counts."""
    value = ""
    for file in (systemd / "logind.conf", *sorted((systemd / "logind.conf.d").glob("*.conf"))):
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError:
            continue
        for text in lines:
            key, _, setting = text.partition("=")
            if key.strip() == "KillUserProcesses":
                value = setting.strip().lower()
    return value in ("yes", "true", "1", "on")


def check_cores(site: Site) -> Finding:
    return Finding(
        "cores", "ok", f"{os.cpu_count()} cores, {psutil.virtual_memory().total / GIB:.0f} GiB of memory"
    )


CHECKS: tuple[Callable[[Site], Finding], ...] = (
    check_gpus,
    check_gpu_processes,
    check_ports,
    check_shared_memory,
    check_limits,
    check_clock,
    check_logout,
    check_cores,
)
