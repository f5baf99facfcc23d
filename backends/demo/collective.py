"""Ranks that average: one alone, or those of MPI."""

# pyright: standard, reportMissingTypeStubs=false, reportMissingImports=false
from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np


class Collective(Protocol):
    rank: int
    size: int

    def mean(self, values: np.ndarray) -> np.ndarray:
        """The mean over all ranks, the same on each."""
        ...

    def any(self, flag: bool) -> bool:
        """Whether some rank says so."""
        ...

    def barrier(self) -> None: ...


class Alone:
    rank, size = 0, 1

    def mean(self, values: np.ndarray) -> np.ndarray:
        return values

    def any(self, flag: bool) -> bool:
        return flag

    def barrier(self) -> None:
        pass


class Mpi:
    """All ranks of an MPI job, through mpi4py."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self.rank, self.size = world.Get_rank(), world.Get_size()

    def mean(self, values: np.ndarray) -> np.ndarray:
        total = np.empty_like(values)
        self._world.Allreduce(np.ascontiguousarray(values), total)
        return total / self.size

    def any(self, flag: bool) -> bool:
        return bool(self._world.allreduce(int(flag)))

    def barrier(self) -> None:
        self._world.Barrier()


def find_collective() -> Collective:
    """MPI's where a launcher started several ranks; raises RuntimeError when they cannot talk to each other."""
    announced = int(os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ.get("PMI_SIZE") or 1)
    if announced == 1:
        return Alone()
    try:
        from mpi4py import MPI  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise RuntimeError(
            f"{announced} ranks were started, but there is no mpi4py for them to talk through"
        ) from None
    collective = Mpi(MPI.COMM_WORLD)  # pyright: ignore
    if collective.size != announced:
        raise RuntimeError(
            f"mpirun started {announced} ranks, but MPI sees {collective.size}: host and image carry different Open MPI"
        )
    return collective
