"""The words of Nodes: notes beside the lines of the hostfile, a row for each probed node, its remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backends.launch.hostfile import Hostfile
from backends.launch.hostfile_source import FoundHostfile
from backends.text import clean_line
from tui.glyphs import Glyphs
from tui.run_words import cell
from tui.widgets.attention import wrapped
from tui.widgets.listing import ListRow
from tui.widgets.panel import Span

if TYPE_CHECKING:
    from backends.nodes.verdicts import NodeVerdict
    from backends.setup.step import Finding

TOGETHER = "\0all"  # the key of the row for all nodes together: no node is called so
STYLES = {"ok": "good", "warning": "warning", "failed": "error"}
FROM = {"asked for": "asked for", "settings": "named in mdk.toml", "site": "the site's", "Slurm": "Slurm's"}


def beside(
    read: Hostfile, addresses: Mapping[str, str | None], asked: frozenset[str], sign: Glyphs
) -> Mapping[int, Span]:
    """Line number → its note. `asked`: the names that were looked up; one without an address was not found."""
    said: dict[int, Span] = {}
    for host in read.hosts:
        slots = f"{host.slots} slot{'s' * (host.slots != 1)}" if host.slots else "1 slot"
        if (address := addresses.get(host.name)) is not None:
            said[host.line] = (f"{sign.good} {address}   {slots}", "good")
        elif host.name in addresses:
            said[host.line] = (f"{sign.failed} its name is not known here", "error")
        elif host.name in asked:
            said[host.line] = ("! the name server does not answer for it", "warning")
        else:
            said[host.line] = (f"{sign.waiting} {slots}", "dim")
    for note in sorted(read.notes, key=lambda note: note.severity == "error"):
        mark, style = (sign.failed, "error") if note.severity == "error" else ("!", "warning")
        said[note.line] = (f"{mark} {note.message} {note.remedy}", style)
    return said


def heading(
    read: Hostfile, found: FoundHostfile | None, target: Path, changed: bool, root: Path
) -> list[Span]:
    """Which hostfile this is, its nodes and processes, and where ctrl+s writes it. Paths are relative to `root`."""
    if found is None and not read.hosts:
        return [("no hostfile: mpirun chooses the nodes", "text"), ("   p asks it", "dim")]
    count = len(read.hosts)
    words = [(f"{count} node{'s' * (count != 1)}, {read.slots} process{'es' * (read.slots != 1)}", "title")]
    if changed:
        words.append((f"   changed: ctrl+s writes {_short(target, root)}", "warning"))
    if found is not None:
        name = _short(found.path, root) if found.path else found.name
        words.append((f"   {name} ({FROM[found.why]})", "text"))
    return words


def _short(path: Path, root: Path) -> str:
    return clean_line(str(path.relative_to(root) if path.is_relative_to(root) else path), 100)


def rows(names: Sequence[str], verdicts: Sequence[NodeVerdict], sign: Glyphs) -> list[ListRow]:
    """A row for each node, in the order of the hostfile, also for those that have not answered."""
    known = {verdict.name: verdict for verdict in verdicts}
    width = min(max(map(len, names), default=4), 24)
    listed: list[ListRow] = []
    for name in names:
        verdict = known.get(name)
        if verdict is None:
            spans: tuple[Span, ...] = (
                (f" {sign.waiting} ", "dim"),
                (cell(name, width), "text"),
                ("  is asked", "dim"),
            )
        else:
            finding = verdict.finding
            mark = {"ok": sign.good, "failed": sign.failed}.get(finding.verdict, "!")
            style = STYLES.get(finding.verdict, "text")
            evidence = clean_line(finding.evidence)
            spans = ((f" {mark} ", style), (cell(name, width), "text"), (f"  {evidence}", "text"))
        listed.append(ListRow(name, spans))
    return listed


def trying(count: int) -> Finding:
    """The row of all nodes while the all-reduce runs."""
    from backends.setup.step import Finding

    return Finding("all-reduce", "running", f"adding up over {count} node{'s' * (count != 1)}")


def together_row(finding: Finding | None, names: Sequence[str], sign: Glyphs) -> list[ListRow]:
    if finding is None:
        return []
    width = min(max(map(len, names), default=4), 24)
    mark = {"ok": sign.good, "failed": sign.failed, "running": sign.waiting}.get(finding.verdict, "!")
    words = clean_line(finding.evidence)
    return [
        ListRow(
            TOGETHER,
            (
                (f" {mark} ", STYLES.get(finding.verdict, "dim")),
                (cell("all", width), "text"),
                (f"  {finding.name}: {words}", "text"),
            ),
        )
    ]


def as_node(finding: Finding) -> NodeVerdict:
    from backends.nodes.verdicts import NodeVerdict

    return NodeVerdict(TOGETHER, (finding,), 0.0)


def details(verdict: NodeVerdict | None, width: int) -> list[list[Span]]:
    """All checks of one node: first the problems with their remedies, then the rest."""
    if verdict is None:
        return []
    checks = sorted(verdict.checks, key=lambda check: check.verdict == "ok")
    lines: list[list[Span]] = []
    for check in checks:
        if not check.evidence:
            continue
        style = STYLES.get(check.verdict, "text")
        text = (
            f"{clean_line(check.evidence)}. {clean_line(check.remedy)}"
            if check.remedy
            else clean_line(check.evidence)
        )
        for at, line in enumerate(wrapped(text, max(width - 13, 10), 3)):
            lines.append([(f"{'' if at else check.name:<13}", style), (line, "text")])
    return lines
