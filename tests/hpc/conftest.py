"""Shared by the hpc tests: real mpirun and singularity, and the image of singularity/cpu.def, built once per session.

With CI=true a missing program fails the test instead of skipping it. MDK_CPU_SIF names an image that is already built.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from namespace_nodes import NamespaceNodes
from several_nodes import Cluster

from backends.resources import resource_folder
from backends.runs.processes import MARK

QUICK = ["--mksquashfs-args", "-comp zstd -Xcompression-level 1"]


def require(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if not missing:
        return
    message = f"not installed: {', '.join(missing)} (.ci/install-hpc.sh installs them)"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def hpc_environment() -> dict[str, str]:
    """The environment in which root, too, may use mpirun, with more ranks than cores."""
    require("mpirun", "singularity")
    return {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }


@pytest.fixture(scope="session")
def build_image(hpc_environment: dict[str, str]) -> Callable[[Path, Path], Path]:
    """`build_image(definition, image)`: the image, made from it."""
    require("mmdebstrap")

    def build(definition: Path, image: Path) -> Path:
        built = subprocess.run(
            ["singularity", "build", "--fakeroot", *QUICK, str(image), str(definition)],
            env=hpc_environment, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert built.returncode == 0, built.stderr[-4000:]
        return image

    return build


@pytest.fixture(scope="session")
def cpu_image(tmp_path_factory: pytest.TempPathFactory, build_image: Callable[[Path, Path], Path]) -> Path:
    if given := os.environ.get("MDK_CPU_SIF"):
        return Path(given)
    return build_image(
        resource_folder("singularity") / "cpu.def", tmp_path_factory.mktemp("image") / "cpu.sif"
    )


@pytest.fixture(scope="session")
def nodes() -> Iterator[NamespaceNodes]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("nodes on one machine need root and iproute2")
    nodes = NamespaceNodes.up()
    yield nodes
    nodes.down()


@pytest.fixture
def cluster(tmp_path: Path, nodes: NamespaceNodes, hpc_environment: dict[str, str]) -> Iterator[Cluster]:
    environment = {name: value for name, value in hpc_environment.items() if name != MARK}
    yield Cluster(tmp_path, environment, nodes)
    nodes.mend(nodes.second)
