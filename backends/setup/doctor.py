"""The check-up: everything that a week-long run needs of this machine, with verdict, evidence and remedy."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil

from backends.runs.ports import is_free
from backends.setup.gpu_checks import check_cuda, check_gpu_processes, check_gpus
from backends.setup.standing import in_parallel, looked_at
from backends.setup.step import Finding, Site
from backends.setup.steps import STEPS
from backends.text import clean_line

GIB = 2**30
PORTS = {
    14535: "training",
    14536: "text server's ranks",
    6006: "TensorBoard",
    5000: "MLflow",
    8028: "text server",
}


def check_up(site: Site) -> Iterator[Finding]:
    """All findings: the steps first, then the machine. They are made at the same time and come in this order."""
    steps = [partial(looked_at, step.name, partial(step.look, site)) for step in STEPS]
    machine = [partial(looked_at, name, partial(check, site)) for name, check in CHECKS.items()]
    yield from in_parallel([*steps, *machine])


def check_ports(site: Site) -> Finding:
    taken = [port for port in PORTS if not is_free(port)]
    if not taken:
        return Finding("ports", "ok", f"free: {', '.join(map(str, PORTS))}")
    owners = _listeners()
    words = [f"{port} ({PORTS[port]}{owners.get(port, '')})" for port in taken]
    remedy = "A launch chooses a free port; `ss -ltnp` as root names every owner."
    return Finding("ports", "warning", f"taken: {', '.join(words)}", remedy)


def _listeners() -> dict[int, str]:
    """The processes that listen, as far as this user may see them: `, by python3 of ann (pid 12)`."""
    found: dict[int, str] = {}
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return {}
    for connection in connections:
        if connection.status != psutil.CONN_LISTEN or not connection.pid or not connection.laddr:
            continue
        try:
            process = psutil.Process(connection.pid)
            owner = f", by {process.name()} of {process.username()} (pid {process.pid})"
        except psutil.Error:
            continue
        found[connection.laddr.port] = clean_line(owner, 80)
    return found


def check_shared_memory(site: Site) -> Finding:
    try:
        size = psutil.disk_usage("/dev/shm").total
    except OSError:
        remedy = "NCCL and data loaders need it: mount a tmpfs there."
        return Finding("/dev/shm", "failed", "There is no /dev/shm.", remedy)
    evidence = f"{size / GIB:.1f} GiB"
    if size < GIB:
        remedy = "Enlarge it: ranks die of a bus error (mount -o remount,size=16G /dev/shm)."
        return Finding("/dev/shm", "failed", evidence, remedy)
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
        remedy = "InfiniBand needs locked memory: ulimit -l unlimited (limits.conf)."
        return Finding("limits", "warning", evidence, remedy)
    return Finding("limits", "ok", evidence)


def check_clock(site: Site) -> Finding:
    if time.time() < 1_700_000_000:
        remedy = "Set the clock: dated folders and TLS depend on it."
        return Finding("clock", "failed", time.strftime("%Y-%m-%d %H:%M"), remedy)
    timedatectl = site.programs.find("timedatectl")
    if timedatectl:
        answer = site.programs.ask([timedatectl, "show", "--property=NTPSynchronized", "--value"], timeout=5)
        if answer.stdout.strip() == "no":
            remedy = "Turn on NTP: several nodes' logs should agree."
            return Finding("clock", "warning", "not synchronised", remedy)
    return Finding("clock", "ok", time.strftime("%Y-%m-%d %H:%M %Z"))


def check_logout(site: Site) -> Finding:
    """Whether a logout ends the runs: logind's KillUserProcesses kills even processes of other sessions."""
    inside = "inside tmux" if site.environment.get("TMUX") else "not inside tmux"
    loginctl = site.programs.find("loginctl")
    answer = (
        site.programs.ask([loginctl, "show-session", "self", "--property=KillProcesses"], timeout=5)
        if loginctl
        else None
    )
    if (answer is not None and "KillProcesses=yes" in answer.stdout) or kills_at_logout(Path("/etc/systemd")):
        remedy = (
            f"loginctl enable-linger {site.environment.get('USER', 'USER')}, or every run ends at logout."
        )
        return Finding("logout", "failed", f"systemd-logind has KillUserProcesses=yes; {inside}", remedy)
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


CHECKS: dict[str, Callable[[Site], Finding]] = {
    "gpus": check_gpus,
    "gpu processes": check_gpu_processes,
    "cuda": check_cuda,
    "ports": check_ports,
    "/dev/shm": check_shared_memory,
    "limits": check_limits,
    "clock": check_clock,
    "logout": check_logout,
    "cores": check_cores,
}
