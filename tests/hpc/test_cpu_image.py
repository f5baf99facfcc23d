"""Builds singularity/cpu.def: its contents, and that ranks started by the host's mpirun see each other."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from backends.launch.image import container_words
from backends.settings import ImageSettings

pytestmark = pytest.mark.hpc
SEE_EACH_OTHER = (
    "from mpi4py import MPI; c = MPI.COMM_WORLD; print(c.rank, c.size, c.allreduce(10 ** c.rank))"
)


def test_two_ranks_see_each_other(cpu_image: Path, hpc_environment: dict[str, str]) -> None:
    job = subprocess.run(
        ["mpirun", "--np", "2", "singularity", "exec", str(cpu_image), "python3", "-c", SEE_EACH_OTHER],
        env=hpc_environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert job.returncode == 0, job.stderr
    assert sorted(job.stdout.split("\n")[:-1]) == ["0 2 11", "1 2 11"]


def test_the_hosts_own_prefix_does_not_reach_the_containers_open_mpi(
    cpu_image: Path, hpc_environment: dict[str, str]
) -> None:
    said = subprocess.run(
        ["singularity", "exec", str(cpu_image), "mpirun", "--version"],
        env=hpc_environment | {"OPAL_PREFIX": "/nowhere"}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert said.stdout.startswith("mpirun (Open MPI) "), said.stderr


@pytest.mark.parametrize("hidden", [False, True])
def test_no_home_hides_the_users_home(
    hidden: bool, cpu_image: Path, hpc_environment: dict[str, str], tmp_path: Path
) -> None:
    words = container_words("singularity", str(cpu_image), ImageSettings(no_home=hidden), [tmp_path])
    mounted = subprocess.run([*words, "cut", "-d ", "-f2", "/proc/mounts"], env=hpc_environment, cwd=tmp_path,
                             capture_output=True, text=True, timeout=60, check=True).stdout.split()  # fmt: skip
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert (home in mounted) is not hidden
