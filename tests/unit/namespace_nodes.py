"""A cluster on one machine: nodes with addresses and names of their own (network namespaces, .ci/test-nodes.sh)."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

AGENT = Path(__file__).parents[2] / ".ci" / "test-nodes.sh"


def agent(*words: str) -> str:
    done = subprocess.run(
        ["bash", str(AGENT), *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True, slots=True)
class NamespaceNodes:
    """Two nodes of a cluster that is nobody else's on this machine."""

    first: str
    second: str

    @classmethod
    def up(cls) -> NamespaceNodes:
        return cls(*(line.split()[0] for line in agent("up", "2").splitlines()))

    @property
    def number(self) -> int:
        return int(self.first.removeprefix("mdk").partition("node")[0])

    def address(self, host: int) -> str:
        """Of host 1, this machine; 11 and 12 are the nodes."""
        return f"10.77.{self.number}.{host}"

    @property
    def network(self) -> str:
        return f"{self.address(0)}/24"

    def cut(self, node: str) -> None:
        agent("cut", node)

    def mend(self, node: str) -> None:
        agent("mend", node)

    def down(self) -> None:
        agent("down", self.first, self.second)
