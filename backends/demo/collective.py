"""Collective operations over ranks: a single rank, or the ranks of an MPI job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


class Collective(Protocol):
    """The operations that data parallelism needs. All ranks call the same methods in the same order."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...

    def sum(self, values: Vector) -> Vector:
        """The sum over all ranks, the same on each."""
        ...

    def gather(self, value: float) -> list[float]:
        """The value of each rank, on every rank. It returns when all ranks have called it."""
        ...

    def abort(self, status: int) -> None:
        """End the other ranks, which would otherwise wait for this one for ever."""
        ...


class Alone:
    """A single rank, which needs no communication."""

    rank, size = 0, 1

    def sum(self, values: Vector) -> Vector:
        return values

    def gather(self, value: float) -> list[float]:
        return [value]

    def abort(self, status: int) -> None:
        pass


class Mpi:
    """All ranks of an MPI job, through mpi4py's communicator."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self.rank, self.size = int(world.Get_rank()), int(world.Get_size())

    def sum(self, values: Vector) -> Vector:
        total = np.empty_like(values)
        self._world.Allreduce(values, total)
        return total

    def gather(self, value: float) -> list[float]:
        return list(self._world.allgather(value))

    def abort(self, status: int) -> None:
        self._world.Abort(status)


def announced_ranks(environment: Mapping[str, str]) -> int:
    """How many ranks mpirun says it has started, or srun with PMIx."""
    names = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"]
    if "PMIX_RANK" in environment:
        names.append("SLURM_STEP_NUM_TASKS")
    found = [int(environment[name]) for name in names if environment.get(name, "").isdigit()]
    return found[0] if found else 1


def find_collective() -> Collective:
    """MPI's if a launcher started several ranks. Raises RuntimeError if they cannot communicate."""
    announced = announced_ranks(os.environ)
    if announced == 1:
        return Alone()
    try:
        from mpi4py import MPI  # pyright: ignore
    except ImportError:
        raise RuntimeError(
            f"{announced} ranks were started, but this Python has no mpi4py, through which they communicate"
        ) from None
    ranks = Mpi(MPI.COMM_WORLD)  # pyright: ignore
    if ranks.size != announced:
        raise RuntimeError(
            f"mpirun started {announced} ranks, but MPI sees {ranks.size}: the Open MPI of host and image differ"
        )
    return ranks
