"""Runs on a node with any python3 >= 3.7, given as text, and prints what the node has as one line of JSON.

    python3 -c "TEXT OF THIS FILE" '{"image": …, "singularity": …, "paths": […], "tokens": […], "port": …, "mark": …}'

It prints `mdk-clock SECONDS`, then `mdk-node {…}`. null: could not be found out.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time

BLOCK = 65536  # bytes of a sample of the image
SAMPLES = 16  # blocks, spread evenly from the first to the last; `node_shell` does the same
SIOCGIFADDR = 0x8915  # linux/sockios.h: the address of an interface
PORTS = 200  # ports that are tried
GPU_FIELDS = "index,name,memory.total,memory.used,driver_version"


def said(*argv: str) -> str | None:
    """The output of a program; None if it is missing, fails, or takes longer than 10 s."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def image_of(path: str) -> dict[str, object] | None:
    """Size and SHA-256 over samples. A .sif of 20 GB is not read whole, so images that differ elsewhere look alike."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            size = file.seek(0, 2)
            digest = hashlib.sha256()
            for number in range(SAMPLES):
                file.seek(number * max(size // BLOCK - 1, 0) // (SAMPLES - 1) * BLOCK)
                digest.update(file.read(BLOCK))
    except OSError:
        return None
    return {"size": size, "sample": digest.hexdigest()}


def gpus() -> list[dict[str, object]] | None:
    """The GPUs; None if nvidia-smi is missing or does not answer. Memory in MiB."""
    text = said("nvidia-smi", "--query-gpu=" + GPU_FIELDS, "--format=csv,noheader,nounits")
    if text is None:
        return None
    rows = [[word.strip() for word in line.split(",")] for line in text.splitlines() if line.count(",") >= 4]
    return [
        {"name": ",".join(row[1:-3]), "total": number(row[-3]), "used": number(row[-2]), "driver": row[-1]}
        for row in rows
    ]


def number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def free(path: str) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def interfaces() -> list[dict[str, object]]:
    """Network interfaces that are up and have an IPv4 address, without the loopback; `speed` in Mb/s."""
    import fcntl

    found: list[dict[str, object]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            address = socket.inet_ntoa(answer[20:24])
            if not address.startswith("127."):
                speed = text_of("/sys/class/net/" + name + "/speed")
                found.append({"name": name, "address": address, "speed": number(speed or "")})
    return found


def infiniband() -> list[dict[str, object]]:
    ports = sorted(glob.glob("/sys/class/infiniband/*/ports/*"))  # noqa: PTH207
    return [
        {"name": port.split("/")[4], "state": text_of(port + "/state"), "rate": text_of(port + "/rate")}
        for port in ports
    ]


def free_port(wanted: int) -> int | None:
    """The first port from `wanted` on that nothing listens on."""
    for port in range(wanted, min(wanted + PORTS, 65536)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    return None


def processes_of(mark: str) -> dict[int, tuple[int, str, float]]:
    """pid → (rank, state, s of CPU so far) of each process of the run `mark` that belongs to a rank."""
    found: dict[int, tuple[int, str, float]] = {}
    for folder in glob.glob("/proc/[0-9]*"):  # noqa: PTH207
        try:
            with open(folder + "/environ", "rb") as file:  # noqa: PTH123
                words = file.read().split(b"\0")
            with open(folder + "/stat") as file:  # noqa: PTH123
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        values = {name: value for name, _, value in (word.partition(b"=") for word in words)}
        rank = values.get(b"OMPI_COMM_WORLD_RANK", values.get(b"SLURM_PROCID", b""))
        if values.get(b"MDK_RUN") == mark.encode() and rank.isdigit():
            ticks = int(fields[11]) + int(fields[12])
            found[int(folder[6:])] = (int(rank), fields[0], ticks / os.sysconf("SC_CLK_TCK"))
    return found


def ranks_of(mark: str) -> list[dict[str, object]]:
    """The processes of a run's ranks: `state` as in /proc/PID/stat, `cpu` as the share of a core that each used in a second."""
    before = processes_of(mark)
    time.sleep(1.0)
    return [
        {"rank": rank, "pid": pid, "state": state, "cpu": used - before[pid][2]}
        for pid, (rank, state, used) in processes_of(mark).items()
        if pid in before
    ]


def text_of(path: str) -> str | None:
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return None


def main(question: dict[str, object]) -> None:
    print("mdk-clock", time.time(), flush=True)  # noqa: T201
    image, singularity, port = question.get("image"), question.get("singularity"), question.get("port")
    paths, tokens = [[str(path) for path in question.get(key) or []] for key in ("paths", "tokens")]  # type: ignore
    singularity_path = shutil.which(str(singularity)) if singularity else None
    answer = {
        "host": socket.gethostname(),
        "python": "%d.%d.%d" % tuple(sys.version_info[:3]),  # noqa: UP031
        "image": image_of(str(image)) if image else None,
        "paths": {path: os.access(path, os.F_OK) for path in paths},
        "writable": {path: os.access(path, os.W_OK) for path in paths},
        "tokens": {path: os.access(path, os.F_OK) for path in tokens},
        "free": {path: free(path) for path in [*paths, "/tmp", "/dev/shm"]},
        "mpirun": said("mpirun", "--version"),
        "mpirun_path": shutil.which("mpirun"),
        "singularity": singularity_path,
        "singularity_version": said(singularity_path, "--version") if singularity_path else None,
        "port": free_port(port) if isinstance(port, int) else None,
        "gpus": gpus(),
        "interfaces": interfaces(),
        "infiniband": infiniband(),
        "ranks": ranks_of(str(question["mark"])) if question.get("mark") else None,
    }
    print("mdk-node", json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
