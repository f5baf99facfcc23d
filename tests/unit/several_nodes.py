"""A workspace whose mpirun is led to two nodes on one machine, for tests; what is asked of a run there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from namespace_nodes import AGENT, NamespaceNodes
from waiting import until

from backends.nodes.survey import Nodes, nodes_of, probe
from backends.nodes.verdicts import NodeVerdict
from backends.programs import RealPrograms
from backends.runs.catalog import describe
from backends.runs.folder import RunFolder
from backends.runs.processes import marked_processes
from backends.settings import read_settings
from backends.setup.step import Site
from backends.workspace import Workspace


@dataclasses.dataclass
class Cluster:
    """A workspace whose settings lead mpirun to the two nodes. `differ` makes a node see something else."""

    root: Path
    environment: dict[str, str]
    both: NamespaceNodes

    @property
    def first(self) -> str:
        return self.both.first

    @property
    def second(self) -> str:
        return self.both.second

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.root)

    def configure(
        self,
        *,
        image: Path | None = None,
        way: Sequence[str] = ("plm_ssh_agent", str(AGENT)),
        slots: int = 1,
        more: str = "",
    ) -> None:
        """`way`: the setting that leads Open MPI into the nodes."""
        hosts = self.root / "hosts"
        hosts.write_text(f"{self.first} slots={slots}\n{self.second} slots={slots}\n")
        options = ["--bind-to", "none", "--prtemca", *way, "--prtemca", "prte_if_include", self.both.network,
                   "--mca", "btl_tcp_if_include", self.both.network]  # fmt: skip
        quoted = ", ".join(f'"{word}"' for word in options)
        picture = f'[image]\npath = "{image}"\n' if image else ""
        self.workspace.settings.write_text(
            f'[mpi]\nhostfile = "hosts"\noptions = [{quoted}]\n{more}\n{picture}'
        )

    def differ(self, node: str, script: str) -> None:
        folder = self.root / "differ"
        folder.mkdir(exist_ok=True)
        (folder / f"{node}.sh").write_text(script)
        self.environment["TEST_NODES"] = str(folder)

    @property
    def site(self) -> Site:
        settings = read_settings(self.workspace.settings)
        return Site(self.workspace, settings, self.environment, RealPrograms(self.environment))

    def probe(self, limit: float = 60.0) -> dict[str, NodeVerdict]:
        *_, last = probe(self.site, self.nodes, limit)
        return {verdict.name: verdict for verdict in last}

    @property
    def nodes(self) -> Nodes:
        return nodes_of(self.site, None)


def bad(verdict: NodeVerdict) -> list[tuple[str, str]]:
    return [(check.name, check.evidence) for check in verdict.checks if check.verdict != "ok"]


def trained(folder: RunFolder) -> None:
    until(lambda: (describe(folder).iteration or 0) > 2 or describe(folder).over, "an iteration")
    assert not describe(folder).over, log(folder)[-3000:]


def log(folder: RunFolder) -> str:
    return folder.log.read_text(errors="replace")


def marked(folder: RunFolder) -> list[int]:
    state = folder.state()
    return [process.pid for process in marked_processes(state.mark)] if state else []
