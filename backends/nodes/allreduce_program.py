"""The program of each rank of the all-reduce test, given as text, in the image: PyTorch with NCCL, or mpi4py without GPUs.

    python3 -c "TEXT OF THIS FILE" '{"sizes": [bytes, …], "repeats": N, "gpus": true}'

Each rank prints `mdk-rank {"rank", "host", "step"}` with the steps "started" and "joined". At the end rank 0 prints
`mdk-allreduce {…}`: whether the sum is right, and the times of an all-reduce over all ranks for each size, within each
node, and between one rank of each two neighbouring nodes. Times are in seconds, of the slowest rank.
"""

# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

MAX_PAIRS = 64  # neighbouring nodes that are tried two by two


def first_of(*names: str) -> int:
    """The first of these environment variables that is a number: Open MPI's names, then Slurm's."""
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), 0)


class Nccl:
    """PyTorch's process groups on GPUs. As in Megatron-LM a rank takes GPU rank mod visible GPUs."""

    def __init__(self, rank: int, size: int) -> None:
        import datetime

        import torch  # pyright: ignore
        import torch.distributed as dist  # pyright: ignore

        self.torch, self.dist, self.rank, self.size = torch, dist, rank, size
        torch.cuda.set_device(rank % torch.cuda.device_count())
        dist.init_process_group(
            "nccl", init_method="env://", rank=rank, world_size=size, timeout=datetime.timedelta(seconds=120)
        )

    def vector(self, size: int, value: float) -> object:
        return self.torch.full((max(size // 4, 1),), value, dtype=self.torch.float32, device="cuda")

    def group(self, ranks: list[int]) -> object:
        """Every rank calls this for every group, in the same order."""
        return self.dist.new_group(ranks)

    def sum(self, vector: object, group: object) -> None:
        self.dist.all_reduce(vector, group=group)
        self.torch.cuda.synchronize()

    def first(self, vector: object) -> float:
        return float(vector[0])  # type: ignore[index]

    def gather(self, value: object) -> list[object]:
        values: list[object] = [None] * self.size
        self.dist.all_gather_object(values, value)
        return values

    def close(self) -> None:
        self.dist.destroy_process_group()


class Mpi:
    """mpi4py's communicators on CPUs."""

    def __init__(self) -> None:
        from mpi4py import MPI  # pyright: ignore

        self.mpi, self.world = MPI, MPI.COMM_WORLD
        self.rank, self.size = self.world.Get_rank(), self.world.Get_size()

    def vector(self, size: int, value: float) -> object:
        import array

        return array.array("d", [value]) * max(size // 8, 1)

    def group(self, ranks: list[int]) -> object:
        return self.world.Split(0 if self.rank in ranks else self.mpi.UNDEFINED, self.rank)

    def sum(self, vector: object, group: Any) -> None:
        (self.world if group is None else group).Allreduce(self.mpi.IN_PLACE, vector)

    def first(self, vector: object) -> float:
        return float(vector[0])  # type: ignore[index]

    def gather(self, value: object) -> list[object]:
        return self.world.allgather(value)

    def close(self) -> None:
        pass


def say(kind: str, value: dict[str, object]) -> None:
    print("mdk-" + kind, json.dumps(value), flush=True)  # noqa: T201


def seconds(ranks: Nccl | Mpi, size: int, group: object, member: bool, repeats: int) -> float | None:
    """The shortest of some all-reduces within `group`, of its slowest rank; None on ranks that are not in it."""
    if not member:
        return None
    vector = ranks.vector(size, 1.0)
    taken = float("inf")
    for number in range(repeats + 1):
        began = time.perf_counter()
        ranks.sum(vector, group)
        if number:  # the first one sets the connections up
            taken = min(taken, time.perf_counter() - began)
    return taken


def slowest(values: list[object]) -> float | None:
    known = [value for value in values if isinstance(value, float)]
    return max(known) if known else None


def measure(ranks: Nccl | Mpi, sizes: list[int], repeats: int) -> dict[str, object]:
    hosts = [str(host) for host in ranks.gather(socket.gethostname())]
    names = list(dict.fromkeys(hosts))
    vector = ranks.vector(8, ranks.rank + 1.0)
    ranks.sum(vector, None)
    right = all(ranks.gather(ranks.first(vector) == ranks.size * (ranks.size + 1) / 2))
    whole = [slowest(ranks.gather(seconds(ranks, size, None, True, repeats))) for size in sizes]
    members = {name: [rank for rank, host in enumerate(hosts) if host == name] for name in names}
    mine, groups = None, {name: ranks.group(members[name]) for name in names}
    if len(members[hosts[ranks.rank]]) > 1:
        mine = seconds(ranks, sizes[-1], groups[hosts[ranks.rank]], True, repeats)
    alone = ranks.gather(mine)
    links: list[dict[str, object]] = []
    pairs = [(at, (at + 1) % len(names)) for at in range(len(names) if len(names) > 2 else len(names) - 1)]
    for one, other in pairs[:MAX_PAIRS]:
        both = [members[names[one]][0], members[names[other]][0]]
        group = ranks.group(both)
        taken = slowest(ranks.gather(seconds(ranks, sizes[-1], group, ranks.rank in both, repeats)))
        links.append({"nodes": [names[one], names[other]], "seconds": taken})
    nodes = [
        {
            "name": name,
            "ranks": len(members[name]),
            "seconds": slowest([alone[rank] for rank in members[name]]),
        }
        for name in names
    ]
    timed = [{"bytes": size, "seconds": taken} for size, taken in zip(sizes, whole)]  # noqa: B905 (Python 3.8)
    return {"ranks": ranks.size, "right": right, "sizes": timed, "nodes": nodes, "links": links}


def main(question: dict[str, object]) -> None:
    rank = first_of("OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
    size = first_of("OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS") or 1
    who: dict[str, object] = {"rank": rank, "host": socket.gethostname()}
    say("rank", {**who, "step": "started"})
    ranks: Nccl | Mpi = Nccl(rank, size) if question["gpus"] else Mpi()
    ranks.gather(0)
    say("rank", {**who, "step": "joined", "size": ranks.size})
    found = measure(ranks, list(question["sizes"]), int(str(question["repeats"])))  # type: ignore[call-overload]
    if ranks.rank == 0:
        say("allreduce", found)
    ranks.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
