"""Two nodes on one machine (network namespaces, .ci/test-nodes.sh) and the launcher's real mpirun: probed, tried together,
trained on by the demo in the CPU image; one cut off the network while probing and while training."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from namespace_nodes import AGENT
from several_nodes import Cluster, bad, log, marked, trained
from waiting import LIMIT, until

from backends.launch.placement import Placement, placed
from backends.launch.start import start
from backends.launch.stop import stop_run
from backends.models.presets import TINY
from backends.nodes.allreduce import all_reduce, tried
from backends.nodes.survey import probe
from backends.nodes.verdicts import NodeVerdict
from backends.runs.catalog import describe
from backends.runs.checkpoints import read_tracker
from backends.runs.folder import RunFolder
from backends.runs.planning import continue_plan, train_plan

pytestmark = pytest.mark.hpc


def test_nodes_that_are_alike_are_well_and_say_what_they_have(cluster: Cluster) -> None:
    image = cluster.root / "image.sif"
    image.write_bytes(os.urandom(300_000))
    cluster.configure(image=image)
    found = cluster.probe()
    assert {name: [b for b in bad(verdict) if b[0] != "disk"] for name, verdict in found.items()} == {
        cluster.first: [],
        cluster.second: [],
    }
    said = {check.name: check.evidence for check in found[cluster.second].checks}
    assert f"eth0 {cluster.both.address(12)}" in said["network"] and said["paths"] == "same folders"
    assert said["mpi"].startswith("Open MPI ") and said["image"].startswith("same image")


def test_another_image_and_another_folder_are_laid_at_the_node_that_has_them(cluster: Cluster) -> None:
    image, other = cluster.root / "image.sif", cluster.root / "other.sif"
    image.write_bytes(b"a" * 300_000)
    other.write_bytes(b"b" * 300_000)
    cluster.configure(image=image)
    cluster.differ(cluster.second, f"mount --bind {other} {image}\n")
    found = cluster.probe()
    assert "another image of the same size" in dict(bad(found[cluster.second]))["image"]
    assert "image" not in dict(bad(found[cluster.first]))
    cluster.differ(cluster.second, f"mount -t tmpfs tmpfs {cluster.root}\n")
    found = cluster.probe()
    wrong = dict(bad(found[cluster.second]))
    assert "another folder" in wrong["paths"] and "no image" in wrong["image"]
    assert "paths" not in dict(bad(found[cluster.first]))


def test_a_port_is_looked_for_where_rank_0_will_listen(cluster: Cluster) -> None:
    cluster.configure()
    program = "import socket; s = socket.create_server(('', 14535)); print('listens', flush=True); input()"
    words = ["bash", str(AGENT), cluster.first, f'{sys.executable} -c "{program}"']
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
        assert listener.stdout is not None and listener.stdout.readline() == b"listens\n"
        found = cluster.probe()
        listener.communicate()
    assert "MASTER_PORT 14535 is in use there" in dict(bad(found[cluster.first]))["port"]
    assert found[cluster.first].port == 14536 and "port" not in dict(bad(found[cluster.second]))


def test_a_node_cut_off_while_probing_is_named_and_delays_nothing(cluster: Cluster) -> None:
    cluster.configure()
    cluster.both.cut(cluster.second)
    found = cluster.probe()
    assert found[cluster.first].reached and not found[cluster.second].reached
    assert found[cluster.second].finding.remedy
    finding = tried(cluster.site, cluster.nodes, list(found.values()))
    assert (finding.verdict, finding.evidence) == ("skipped", f"{cluster.second} did not answer")


def test_a_node_that_is_silent_is_named_after_its_own_time_limit(cluster: Cluster) -> None:
    silent = cluster.root / "agent.sh"
    silent.write_text(
        f'#!/bin/bash\ncase " $* " in *" {cluster.second} "*) exec sleep 1000 ;; esac\nexec {AGENT} "$@"\n'
    )
    silent.chmod(0o755)
    cluster.configure(way=("plm_ssh_agent", str(silent)))
    answered: list[list[str]] = []
    verdicts: list[NodeVerdict] = []
    for verdicts in probe(cluster.site, cluster.nodes, 40.0):
        answered.append([verdict.name for verdict in verdicts if verdict.reached])
    assert answered == [[cluster.first], [cluster.first]], "the one does not wait for the other"
    assert verdicts[1].finding.evidence == "No answer within 40 s."


def test_all_ranks_add_up_over_both_nodes_in_the_image(cluster: Cluster, cpu_image: Path) -> None:
    cluster.configure(image=cpu_image)
    finding = all_reduce(cluster.site, cluster.nodes, gpus=False, limit=LIMIT)
    assert finding.verdict == "ok", finding
    assert (
        finding.evidence.startswith("2 processes: ")
        and f"{cluster.first} to {cluster.second}" in finding.evidence
    )


def test_without_a_hostfile_mpirun_says_which_nodes_it_takes(cluster: Cluster) -> None:
    """A default hostfile of the site spans both, and nobody named it."""
    cluster.configure(slots=2)
    default = cluster.root / "default-hosts"
    shutil.copy(cluster.root / "hosts", default)
    text = cluster.workspace.settings.read_text().replace('hostfile = "hosts"', 'hostfile = "none"')
    cluster.workspace.settings.write_text(
        text.replace('"--bind-to"', f'"--hostfile", "{default}", "--bind-to"')
    )
    nodes = cluster.nodes
    assert nodes.source == "mpirun's own allocation"
    assert [(host.name, host.slots) for host in nodes.hosts] == [
        (name, 2) for name in (cluster.first, cluster.second)
    ]


@pytest.mark.skipif(importlib.util.find_spec("autograd") is None, reason="the demo needs autograd")
def test_a_node_cut_off_while_training_is_named_and_the_run_ends_whole(
    cluster: Cluster, cpu_image: Path
) -> None:
    cluster.configure(image=cpu_image, more="silence_minutes = 0.05")
    workspace, started = cluster.workspace, list[RunFolder]()
    words = ("--micro-batch-size", "2", "--global-batch-size", "4", "--num-layers", "1", "--log-interval", "1",
             "--train-iters", "100000", "--save-interval", "100000")  # fmt: skip
    plan = train_plan("demo", TINY.arguments, words, workspace.checkpoints / "two", launcher="mpirun")
    plan = placed(plan, workspace, Placement(image=cpu_image))
    assert (plan.hosts, plan.processes) == ((f"{cluster.first}:1", f"{cluster.second}:1"), 2)
    try:
        started.append(start(plan, workspace, environment=cluster.environment))
        trained(started[-1])
        assert "using world size: 2" in log(started[-1])
        *_, info = stop_run(started[-1], workspace)
        assert (info.phase, info.exit_code) == ("finished", 0), log(started[-1])[-3000:]
        assert read_tracker(workspace.checkpoints / "two").problem is None

        again = continue_plan(workspace, workspace.checkpoints / "two", ())
        started.append(start(again, workspace, environment=cluster.environment))
        folder = started[-1]
        trained(folder)
        cluster.both.cut(cluster.second)
        until(
            lambda: f"{cluster.second} does not answer" in (describe(folder).note or ""),
            f"the note: {describe(folder)}",
        )
        assert describe(folder).phase == "running", "mpirun notices nothing"
        *_, info = stop_run(folder, workspace, now=True)
        assert info.over and marked(folder) == []
        assert not folder.nodes_file.exists() or describe(folder).note is None
    finally:
        cluster.both.mend(cluster.second)
        for pid in [pid for folder in started for pid in marked(folder)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
