"""The all-reduce of `mdk-tui probe --all-reduce` with PyTorch and NCCL on real GPUs, through mpirun and singularity.

Made ready by `prepare.sh` beside this file; MDK_GPU_IMAGE names the image. One GPU is enough for the first test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from backends.nodes.allreduce import Result, read_result, tried
from backends.nodes.allreduce import command as all_reduce_command
from backends.nodes.asking import converse
from backends.nodes.survey import Nodes, nodes_of, own_allocation, probe
from backends.programs import RealPrograms
from backends.settings import read_settings
from backends.setup.step import Site
from backends.workspace import Workspace

IMAGE = os.environ.get("MDK_GPU_IMAGE")
pytestmark = pytest.mark.skipif(
    not (IMAGE and shutil.which("nvidia-smi")), reason="needs a GPU and an image: tests/gpu/prepare.sh"
)
BINDS = "/usr,/opt,/tmp,/etc"


def gpus() -> int:
    said = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True)
    return len(said.stdout.splitlines())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "mdk.toml").write_text(
        f'[image]\npath = "{IMAGE}"\noptions = ["-B", "{BINDS}"]\n[mpi]\nhostfile = "none"\n'
        'options = ["--bind-to", "none", "-x", "PYTHONPATH"]\n'
    )
    workspace = Workspace(tmp_path)
    packages = sysconfig.get_path("purelib")
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", packages)}
    return Site(workspace, read_settings(workspace.settings), environment, RealPrograms(environment))


def with_slots(nodes: Nodes, count: int, root: Path) -> Path:
    path = root / "hosts"
    path.write_text(f"{nodes.names[0]} slots={count}\n")
    return path


def measured(site: Site, nodes: Nodes) -> Result:
    question = all_reduce_command(site, nodes, gpus=True, port=29411)
    talk = converse(question, 180.0, lambda lines: read_result(lines) is not None)
    result = read_result(talk.output.splitlines())
    assert result is not None, talk.output[-4000:]
    return result


def test_the_probe_sees_the_gpus_and_one_of_them_adds_up(site: Site, tmp_path: Path) -> None:
    path = with_slots(own_allocation(site), 1, tmp_path)
    nodes = nodes_of(site, path)
    *_, verdicts = probe(site, nodes)
    assert verdicts[0].reached and verdicts[0].gpus == gpus()
    assert any("GiB" in check.evidence for check in verdicts[0].checks if check.name == "gpus")
    assert tried(site, nodes, verdicts).verdict == "ok"


@pytest.mark.skipif(not IMAGE or gpus() < 2, reason="needs two GPUs")
def test_two_gpus_add_up_rightly_and_fast(site: Site, tmp_path: Path) -> None:
    nodes = nodes_of(site, with_slots(own_allocation(site), 2, tmp_path))
    result = measured(site, nodes)
    assert result.right and result.ranks == 2
    # Two H200s of one host are joined by NVLink; even through PCIe it is more than this.
    assert max(speed.bus for speed in result.whole) > 5e9
    print("\n".join(f"{speed.size} bytes: {speed.bus / 1e9:.1f} GB/s" for speed in result.whole))
