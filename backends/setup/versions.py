"""Versions of Open MPI: reading them, and whether two of them work together."""

from __future__ import annotations

import re
from dataclasses import dataclass

OPEN_MPI = re.compile(r"\(Open MPI\) (\d+)\.(\d+)\.(\d+)")
OTHERS = (
    (re.compile(r"Intel\(R\) MPI"), "Intel MPI"),
    (re.compile(r"HYDRA|MPICH"), "MPICH"),
    (re.compile(r"MVAPICH"), "MVAPICH"),
    (re.compile(r"slurm", re.I), "Slurm's srun"),
)


@dataclass(frozen=True, slots=True)
class MpiVersion:
    """An MPI by its name and version. `numbers` is None if it is not Open MPI."""

    vendor: str
    numbers: tuple[int, int, int] | None

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers)) if self.numbers else self.vendor


def read_mpi_version(output: str) -> MpiVersion | None:
    """The version in the output of `mpirun --version`; None when it is not understood."""
    if match := OPEN_MPI.search(output):
        return MpiVersion("Open MPI", (int(match[1]), int(match[2]), int(match[3])))
    for pattern, vendor in OTHERS:
        if pattern.search(output):
            return MpiVersion(vendor, None)
    return None


def mismatch(host: MpiVersion, image: MpiVersion) -> str:
    """What will happen when `host` starts ranks of `image`; "" when they go together (equal up to the patch number)."""
    if host.numbers is None or image.numbers is None:
        other = host if host.numbers is None else image
        return f"{other.vendor} and Open MPI do not start each other's ranks: each rank believes it is alone (rank 0 of 1)."
    if host.numbers[0] != image.numbers[0]:
        return (
            f"Ranks started by the host's Open MPI {host.numbers[0]} cannot join in an image with {image.numbers[0]}: "
            "each believes it is alone (rank 0 of 1), or MPI_Init fails."
        )
    if host.numbers[1] != image.numbers[1]:
        return f"Open MPI {host} and {image} differ in more than the patch number: ranks may fail to connect."
    return ""
