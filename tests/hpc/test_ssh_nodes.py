"""Two nodes on one machine that mpirun enters by real ssh: an sshd in each network namespace, with a key, a port and a
configuration of its own. Probed, trained on, stopped; and what keeps ssh out is named with its remedy."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from namespace_nodes import NamespaceNodes
from several_nodes import Cluster, bad, log, marked, trained
from waiting import until

from backends.launch.placement import Placement, placed
from backends.launch.start import start
from backends.launch.stop import stop_run
from backends.models.presets import TINY
from backends.runs.checkpoints import read_tracker
from backends.runs.folder import RunFolder
from backends.runs.planning import train_plan

pytestmark = pytest.mark.hpc
PORT = 2222
SSHD = """\
Port {port}
HostKey {root}/{node}
PidFile {root}/{node}.pid
AuthorizedKeysFile {root}/key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication yes
SetEnv PATH={path}
Match User nobody
  PasswordAuthentication no
  KbdInteractiveAuthentication no
"""
CONFIG = """\
Host *
  Port {port}
  User root
  IdentityFile {root}/key
  IdentitiesOnly yes
  UserKnownHostsFile {root}/known
"""
# Names in the same configuration, all of the second node, each with what keeps ssh out of it: the words and the remedy.
KEPT_OUT = {
    "stranger": ("HostKeyAlias elsewhere", "does not know its host key", "ssh stranger"),
    "changed": (
        "HostKeyAlias [{first}]:{port}",
        "host key is another one than before",
        "ssh-keygen -R changed",
    ),
    "asks": ("PubkeyAuthentication no", "asks for a password", "ssh -o BatchMode=yes asks true"),
    "denies": ("User nobody", "does not let us in", "ssh-copy-id denies"),
    "refuses": ("Port 2223", "cannot be reached by ssh", "ssh refuses true"),
}


class Ssh:
    """A server in each node, and a configuration that leads to both. Nothing of the user's own is read or written."""

    def __init__(self, root: Path, nodes: NamespaceNodes) -> None:
        self.root, self.nodes = root, (nodes.first, nodes.second)
        for name in ("key", *self.nodes):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / name)]
            subprocess.run(words, check=True, timeout=60, capture_output=True)
        path = os.pathsep.join([str(Path(shutil.which("mpirun") or "").resolve().parent), os.environ["PATH"]])
        for node in self.nodes:
            text = SSHD.format(port=PORT, root=root, node=node, path=path)
            (root / f"{node}.conf").write_text(text)
        keys = {node: (root / f"{node}.pub").read_text().split()[:2] for node in self.nodes}
        known = [f"[{node}]:{PORT} {' '.join(key)}\n" for node, key in keys.items()]
        (root / "known").write_text("".join(known))
        others = [
            f"Host {name}\n  Hostname {nodes.second}\n  {how.format(first=nodes.first, port=PORT)}\n"
            for name, (how, *_) in KEPT_OUT.items()
        ]
        (root / "config").write_text("".join([*others, CONFIG.format(port=PORT, root=root)]))

    @property
    def way(self) -> tuple[str, str]:
        """The setting that makes Open MPI's ssh use it."""
        return "plm_ssh_args", f"-F {self.root / 'config'}"

    def start(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        for node in self.nodes:
            server = shlex.join(
                ["/usr/sbin/sshd", "-E", f"{self.root}/{node}.log", "-f", f"{self.root}/{node}.conf"]
            )
            inside = [
                "ip",
                "netns",
                "exec",
                node,
                "unshare",
                "--uts",
                "--mount",
                "bash",
                "-c",
                f"hostname {node}; exec {server}",
            ]
            subprocess.run(inside, check=True, timeout=60, capture_output=True)
        until(lambda: all((self.root / f"{node}.pid").exists() for node in self.nodes), "two servers")

    def close(self) -> None:
        for node in self.nodes:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((self.root / f"{node}.pid").read_text()), signal.SIGTERM)


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory, nodes: NamespaceNodes) -> Iterator[Ssh]:
    if not Path("/usr/sbin/sshd").exists():
        pytest.skip("not installed: sshd (.ci/install-hpc.sh)")
    ssh = Ssh(tmp_path_factory.mktemp("ssh"), nodes)
    ssh.start()
    yield ssh
    ssh.close()


def test_nodes_are_asked_through_ssh(cluster: Cluster, ssh: Ssh) -> None:
    cluster.configure(way=ssh.way)
    found = cluster.probe()
    assert {name: [b for b in bad(verdict) if b[0] != "disk"] for name, verdict in found.items()} == {
        name: [] for name in ssh.nodes
    }
    assert "Accepted publickey" in (ssh.root / f"{cluster.second}.log").read_text()


def test_each_node_that_ssh_is_kept_out_of_is_named_with_its_remedy(cluster: Cluster, ssh: Ssh) -> None:
    """Also where a desktop would open a window to ask: nobody would see it, and mpirun would wait for ever."""
    asks = cluster.root / "askpass"
    asks.write_text(f"#!/bin/sh\ntouch {cluster.root}/asked\nsleep 60\n")
    asks.chmod(0o755)
    cluster.environment |= {"DISPLAY": ":9", "SSH_ASKPASS": str(asks)}
    cluster.configure(way=ssh.way)
    with (cluster.root / "hosts").open("a") as hosts:
        hosts.write("".join(f"{name} slots=1\n" for name in KEPT_OUT))
    found = {name: verdict.finding for name, verdict in cluster.probe(60.0).items()}
    for name, (_, why, remedy) in KEPT_OUT.items():
        assert found[name].verdict == "failed", found[name]
        assert why in found[name].evidence and remedy in found[name].remedy, found[name]
    assert all(found[name].verdict != "failed" for name in ssh.nodes), found
    assert not (cluster.root / "asked").exists()


@pytest.mark.skipif(importlib.util.find_spec("autograd") is None, reason="the demo needs autograd")
def test_ranks_started_through_ssh_train_save_on_a_stop_and_leave_nothing(
    cluster: Cluster, ssh: Ssh, cpu_image: Path
) -> None:
    cluster.configure(image=cpu_image, way=ssh.way)
    workspace, words = cluster.workspace, ("--train-iters", "100000", "--num-layers", "1", "--log-interval", "1",
                                           "--micro-batch-size", "2", "--global-batch-size", "4")  # fmt: skip
    plan = train_plan("demo", TINY.arguments, words, workspace.checkpoints / "two", launcher="mpirun")
    plan = placed(plan, workspace, Placement(image=cpu_image))
    folder: RunFolder | None = None
    try:
        folder = start(plan, workspace, environment=cluster.environment)
        trained(folder)
        assert "using world size: 2" in log(folder)
        *_, info = stop_run(folder, workspace)
        assert (info.phase, info.exit_code) == ("finished", 0), log(folder)[-3000:]
        assert read_tracker(workspace.checkpoints / "two").problem is None and marked(folder) == []
    finally:
        for pid in marked(folder) if folder else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
