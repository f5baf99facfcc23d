"""Asks all nodes of a launch the same question, and this machine too, whose answer is the reference."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.errors import UserError
from backends.launch.hostfile import Host, parse
from backends.launch.hostfile_source import FoundHostfile, find_hostfile, hosts_of
from backends.nodes import node_program
from backends.nodes.asking import Asked, Question, ask, ask_all, explain
from backends.nodes.node_shell import SCRIPT
from backends.nodes.verdicts import Expected, NodeVerdict, judge
from backends.runs.ports import WANTED
from backends.setup.mpi_step import root_may_run
from backends.setup.step import Site
from backends.setup.versions import read_mpi_version

LIMIT = 20.0  # s for a node
ALLOCATED = re.compile(r"^\s+(\S+): (?:flags=\S+ )?slots=(\d+) ", re.M)
SPANNED = re.compile(r"mdk-host (\S+)")
THERE = 'echo "mdk-host $(uname -n)"'


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a launch. `source` tells in words where the list comes from; `found` is the hostfile."""

    hosts: tuple[Host, ...]
    source: str
    found: FoundHostfile | None = None

    @property
    def names(self) -> list[str]:
        return [host.name for host in self.hosts]


def nodes_of(site: Site, hostfile: Path | None) -> Nodes:
    """The nodes of the hostfile that a launch would use, else those that mpirun uses by default. Raises UserError."""
    found = find_hostfile(site.workspace, site.settings.mpi, site.environment, hostfile)
    if found is None:
        return own_allocation(site)
    hosts_of(found)
    return Nodes(parse(found.text).hosts, found.name, found)


def named_nodes(words: Sequence[str]) -> Nodes:
    """The nodes of a plan, each written as for `mpirun --host`."""
    text = "".join(
        f"{name}{f' slots={slots}' if slots else ''}\n"
        for name, _, slots in (w.partition(":") for w in words)
    )
    return Nodes(parse(text).hosts, "the plan", FoundHostfile("asked for", None, text))


def allocation_command(site: Site, major: int) -> tuple[str, ...]:
    """One process on each node that mpirun uses by default. It prints the slots, and each node prints its name."""
    display = ("--display", "alloc") if major >= 5 else ("--display-allocation",)
    return ("mpirun", *site.settings.mpi.options, *display, "--map-by", "ppr:1:node", "sh", "-c", THERE)


def own_allocation(site: Site) -> Nodes:
    """The nodes that mpirun uses without a hostfile: a site's default may span several. Raises UserError if there are none."""
    if site.programs.find("mpirun") is None:
        raise UserError(
            "There is no mpirun in PATH.", "Load the Open MPI module of this site, or install Open MPI 5."
        )
    version = read_mpi_version(site.programs.ask(["mpirun", "--version"]).stdout)
    major = version.numbers[0] if version and version.numbers else 5
    command = allocation_command(site, major)
    answer = site.programs.ask(command, timeout=LIMIT, cwd=Path("/"), env=root_may_run(site))
    hosts = read_allocation(answer.stdout)
    if not hosts:
        why, remedy = explain(
            "NODE", answer.stdout + answer.stderr, answer.status, LIMIT if answer.status is None else None
        )
        raise UserError(f"mpirun does not say which nodes it takes. {why}", remedy)
    return Nodes(hosts, "mpirun's own allocation")


def read_allocation(output: str) -> tuple[Host, ...]:
    """The nodes in the output of `allocation_command` on which a process really started, with their slots."""
    slots = {name: int(count) for name, count in ALLOCATED.findall(output)}
    spanned = list(dict.fromkeys(SPANNED.findall(output)))
    listed = [
        name
        for name in slots
        if name in spanned or name.partition(".")[0] in {s.partition(".")[0] for s in spanned}
    ]
    names = listed if len(listed) >= len(spanned) else spanned
    return tuple(Host(name, slots.get(name), 0) for name in names)


@dataclass(frozen=True, slots=True)
class Survey:
    """A question to every node. All must see `paths`; `token` is a file that exists only in this machine's folder.

    `port`: where rank 0 is to listen, on the first node. `mark`: of the run whose ranks are looked at.
    """

    site: Site
    nodes: Nodes
    paths: tuple[str, ...]
    token: str | None = None
    port: int | None = None
    mark: str | None = None

    def words(self) -> tuple[str, ...]:
        """The command that runs on a node."""
        image, singularity = self._image(), self.site.singularity if self._image() else None
        tokens = [self.token] if self.token else []
        question = {
            "image": image,
            "singularity": singularity,
            "paths": list(self.paths),
            "tokens": tokens,
            "port": self.port,
            "mark": self.mark,
        }
        program = Path(node_program.__file__).read_text(encoding="utf-8")
        seen = (*self.paths, *tokens)
        return (
            "sh",
            "-c",
            SCRIPT,
            "mdk-probe",
            program,
            json.dumps(question),
            image or "",
            singularity or "",
            *seen,
        )

    def command(self, name: str) -> tuple[str, ...]:
        """mpirun with one process on the node `name`."""
        return ("mpirun", "--np", "1", "--host", f"{name}:1", *self.site.settings.mpi.options, *self.words())

    def ask(self, limit: float = LIMIT) -> Iterator[Asked]:
        """Each node's answer as it comes."""
        root, environment = Path("/"), self._environment()
        questions = [Question(name, self.command(name), root, environment) for name in self.nodes.names]
        yield from ask_all(questions, limit)

    def ask_here(self, limit: float = LIMIT) -> Asked:
        """This machine's own answer, asked without mpirun."""
        return ask(Question("here", self.words(), Path("/"), self._environment()), limit)

    def expected(self, limit: float = LIMIT) -> Expected:
        """The reference for all nodes."""
        here = self.ask_here(limit).report
        slots = {host.name: host.slots for host in self.nodes.hosts}
        image, first = self._image(), self.nodes.names[0] if self.nodes.hosts else ""
        return Expected(image, self.site.singularity, self.paths, self.token, slots, here, first, self.port)

    def _image(self) -> str | None:
        return str(self.site.image) if self.site.image.exists() or self.site.settings.image.path else None

    def _environment(self) -> Mapping[str, str]:
        return {**self.site.environment, **root_may_run(self.site)}


@contextlib.contextmanager
def survey(
    site: Site, nodes: Nodes, more_paths: Sequence[Path] = (), port: int | None = None
) -> Generator[Survey]:
    """A survey that makes its token, if the workspace is writable, and removes it at the end."""
    workspace = site.workspace
    wanted = [
        workspace.root,
        *(path for path in (workspace.megatron, workspace.checkpoints) if path.exists()),
        *more_paths,
    ]
    paths = tuple(dict.fromkeys(map(str, wanted)))
    token = workspace.root / f".mdk-probe-{secrets.token_hex(6)}"
    try:
        token.touch(exist_ok=False)
    except OSError:
        yield Survey(site, nodes, paths, port=port)
        return
    try:
        yield Survey(site, nodes, paths, str(token), port)
    finally:
        with contextlib.suppress(OSError):
            token.unlink()


def probe(
    site: Site,
    nodes: Nodes,
    limit: float = LIMIT,
    more_paths: Sequence[Path] = (),
    port: int | None = WANTED["train"],
) -> Iterator[list[NodeVerdict]]:
    """Ask all nodes. Yields after each answer the verdicts so far, in the order of the hostfile; the last has all nodes.

    `port`: where rank 0 would listen, on the first node. A silent node is judged after `limit` s.
    """
    with survey(site, nodes, more_paths, port) as asking:
        expected = asking.expected(limit)
        answers: dict[str, Asked] = {}
        for answer in asking.ask(limit):
            answers[answer.name] = answer
            yield judge([answers[name] for name in nodes.names if name in answers], expected)
