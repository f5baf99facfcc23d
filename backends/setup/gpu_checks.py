"""Checks of the GPUs: the driver, their processes, and whether the driver supports the image's CUDA."""

from __future__ import annotations

import re

import psutil

from backends.launch.image import container_words
from backends.programs import Answer
from backends.setup.step import Finding, Site

CSV = "--format=csv,noheader,nounits"
CUDA = re.compile(r"CUDA(?: UMD)? Version:\s*(\d+)\.(\d+)")
DEFINITION_CUDA = (12, 6)  # of the base image of pytorch.def, nvcr.io/nvidia/pytorch:24.08-py3


def check_gpus(site: Site) -> Finding:
    """Driver, number and kind of the GPUs, and their memory errors."""
    query = "driver_version,name,memory.total,ecc.errors.uncorrected.volatile.total"
    answer = _smi(site, f"--query-gpu={query}", CSV)
    if answer is None:
        evidence = "There is no nvidia-smi: no GPU here."
        return Finding("gpus", "warning", evidence, "The demo runs without; real runs need GPUs.")
    rows = [
        [cell.strip() for cell in row.split(",")] for row in answer.stdout.splitlines() if row.count(",") == 3
    ]
    if not answer.ok or not rows:
        words = (answer.stderr or answer.stdout).strip().splitlines() or ["no answer"]
        return Finding("gpus", "failed", f"nvidia-smi: {words[0]}", "Reload the driver or reboot the node.")
    driver, name, memory, _ = rows[0]
    room = f"{float(memory) / 1024:.0f} GiB" if memory.replace(".", "", 1).isdigit() else "memory unknown"
    evidence = f"{len(rows)} × {name}, {room}, driver {driver}"
    kinds = {row[1] for row in rows}
    if len(kinds) > 1:
        evidence += f"; not all the same: {', '.join(sorted(kinds))}"
    broken = [str(i) for i, row in enumerate(rows) if row[3].isdigit() and int(row[3]) > 0]
    if broken:
        evidence += f"; uncorrected ECC errors on GPU {', '.join(broken)}"
        return Finding("gpus", "failed", evidence, "Take the GPU out of service.")
    return Finding("gpus", "ok", evidence)


def check_gpu_processes(site: Site) -> Finding:
    answer = _smi(site, "--query-compute-apps=pid,used_memory", CSV)
    if answer is None:
        return Finding("gpu processes", "skipped", "no nvidia-smi")
    if not answer.ok:
        return Finding("gpu processes", "skipped", "nvidia-smi did not answer")
    others = [described for row in answer.stdout.splitlines() if (described := _process(row))]
    if others:
        remedy = "Ask their owner, or choose other GPUs with --gpus."
        return Finding("gpu processes", "warning", "; ".join(others[:8]), remedy)
    return Finding("gpu processes", "ok", "no process on the GPUs")


def _smi(site: Site, *options: str) -> Answer | None:
    """What nvidia-smi says; None if there is none. A driver that hangs costs the time limit."""
    smi = site.programs.find("nvidia-smi")
    return site.programs.ask([smi, *options], timeout=15) if smi else None


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


def check_cuda(site: Site) -> Finding:
    """The driver's CUDA against the image's. A newer minor number in the image works: NVIDIA's minor version compatibility."""
    answer = _smi(site)
    if answer is None:
        return Finding("cuda", "skipped", "no nvidia-smi")
    match = CUDA.search(answer.stdout)
    if match is None:
        return Finding("cuda", "skipped", "nvidia-smi names no CUDA version")
    driver = int(match[1]), int(match[2])
    image, whose = _cuda_of_image(site)
    if image is None:
        return Finding("cuda", "skipped", f"driver CUDA {match[1]}.{match[2]}; {whose} names no CUDA_VERSION")
    evidence = f"driver CUDA {match[1]}.{match[2]}   {whose} {image[0]}.{image[1]}"
    if driver >= image:
        return Finding("cuda", "ok", evidence)
    if driver[0] == image[0]:
        return Finding("cuda", "ok", f"{evidence} (minor version compatibility)")
    remedy = "Update the driver; on data-centre GPUs the image's own compatibility libraries may do."
    return Finding("cuda", "warning", f"{evidence}, a newer major version than the driver knows", remedy)


def _cuda_of_image(site: Site) -> tuple[tuple[int, int] | None, str]:
    """(version, whose it is)."""
    if site.singularity is None or not site.image.is_file():
        return DEFINITION_CUDA, "pytorch.def"
    words = container_words(site.singularity, str(site.image), site.settings.image)
    said = site.programs.ask([*words, "sh", "-c", 'echo "$CUDA_VERSION"'], timeout=60).stdout
    match = re.search(r"(\d+)\.(\d+)", said)
    return ((int(match[1]), int(match[2])) if match else None), "image"
