"""Nodes: the hostfile with notes beside its lines, and the report of each node after a probe."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import TextArea

from backends.launch.hostfile import Hostfile, parse
from backends.launch.hostfile_source import FoundHostfile, find_hostfile, save_hostfile, target_of
from backends.settings import read_settings
from tui.bridge import Bridge
from tui.glyphs import glyphs
from tui.screens import nodes_view
from tui.screens.place import PlaceScreen
from tui.widgets.clipboard import copy
from tui.widgets.listing import Listing
from tui.widgets.panel import Panel, Span

if TYPE_CHECKING:
    from backends.nodes.survey import Nodes
    from backends.nodes.verdicts import NodeVerdict
    from backends.setup.step import Finding, Site
    from backends.workspace import Workspace

UNFRAMED = 1 << 16


class Rows(Panel, can_focus=False):
    """Rows of words, without a frame."""

    FRAMED_FROM = UNFRAMED

    def __init__(self, *, id: str | None = None, ascii_only: bool = False) -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self._spans: Sequence[Sequence[Span]] = ()

    def update(self, rows: Sequence[Sequence[Span]]) -> None:
        self._spans = rows
        self.show()

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        return self._spans[:height]


@dataclass(frozen=True, slots=True)
class Answer:
    """The state of a probe: the verdicts so far, and the result of the all-reduce over all nodes."""

    names: Sequence[str]
    verdicts: Sequence[NodeVerdict]
    together: Finding | None
    over: bool


class NodesScreen(PlaceScreen):
    """Edits stay in the screen until ctrl+s writes them; a probe asks the nodes of the text as it is shown."""

    WHERE = "Nodes"
    CSS = """
    NodesScreen #heading { height: 1; margin: 1 0 0 0; }
    NodesScreen #hostfile { height: 2fr; margin: 1 1 0 1; }
    NodesScreen TextArea, NodesScreen TextArea:focus { width: 2fr; max-width: 52; border: none; padding: 0; background: $surface; scrollbar-size: 1 1; }
    NodesScreen #beside { width: 3fr; }
    NodesScreen Listing { height: 2fr; margin: 1 1 0 0; }
    NodesScreen #details { height: 3fr; margin: 1 1 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "probe", "probe", id="nodes.probe", tooltip="Ask every node through mpirun what it has"),
        Binding("a", "all_reduce", "all-reduce", id="nodes.all_reduce", tooltip="Probe the nodes, then test all-reduce over all GPUs"),
        Binding("e", "edit", "edit", id="nodes.edit", tooltip="Edit the hostfile (esc leaves it)"),
        Binding("ctrl+s", "save", "write it", id="nodes.save", tooltip="Write the hostfile and keep the previous one beside it", priority=True),
        Binding("y", "copy", "copy", id="nodes.copy", tooltip="Copy the report of the marked node"),
    ]  # fmt: skip

    def __init__(self, workspace: Workspace, *, ascii_only: bool = False) -> None:
        super().__init__(workspace, ascii_only=ascii_only)
        self._found: FoundHostfile | None = None
        self._written = ""
        self._read = Hostfile((), ())
        self._addresses: Mapping[str, str | None] = {}
        self._asked: frozenset[str] = frozenset()
        self._looking: Bridge[tuple[frozenset[str], Mapping[str, str | None]]] | None = None
        self._probing: Bridge[Answer] | None = None
        self._together: Finding | None = None
        self._names: Sequence[str] = ()
        self._verdicts: Sequence[NodeVerdict] = ()

    def content(self) -> Iterable[Widget]:
        yield Rows(id="heading", ascii_only=self.ascii_only)
        with Horizontal(id="hostfile"):
            area = TextArea(show_line_numbers=True, soft_wrap=False, id="text")
            area.cursor_blink = False
            yield area
            yield Rows(id="beside", ascii_only=self.ascii_only)
        yield Listing(
            id="nodes", ascii_only=self.ascii_only, empty=" p asks every node: image, folders, GPUs, network"
        )
        yield Rows(id="details", ascii_only=self.ascii_only)

    @property
    def _area(self) -> TextArea:
        return self.query_one(TextArea)

    def on_mount(self) -> None:
        self.query_one(Listing).focus()
        self.watch(self._area, "scroll_y", self._show_beside, init=False)
        self.in_background(self._find, self._take)

    def on_resize(self) -> None:
        self._show_details()

    # The hostfile.

    def _find(self) -> FoundHostfile | None:
        settings = read_settings(self.workspace.settings).mpi
        return find_hostfile(self.workspace, settings, os.environ)

    def _take(self, found: FoundHostfile | None) -> None:
        self._found, self._written = found, found.text if found else ""
        self._area.load_text(self._written)
        self._look()

    def on_text_area_changed(self) -> None:
        self._look()

    def _look(self) -> None:
        """Check the text now, and look its host names up in a thread; only the newest text counts."""
        self._read = parse(self._area.text)
        wanted = [host.name for host in self._read.hosts]
        self._show_hostfile()
        if set(wanted) <= self._asked:
            return
        if self._looking is not None:
            self._looking.close()

        def look() -> tuple[frozenset[str], Mapping[str, str | None]]:
            from backends.nodes.resolve import resolve

            return frozenset(wanted), resolve(wanted)

        self._looking = self.in_background(look, self._looked_up)

    def _looked_up(self, answer: tuple[frozenset[str], Mapping[str, str | None]]) -> None:
        self._asked |= answer[0]
        self._addresses = {**self._addresses, **answer[1]}
        self._show_hostfile()

    def _show_hostfile(self) -> None:
        changed = self._area.text.rstrip("\n") != self._written.rstrip("\n")
        target = target_of(self._found, self.workspace)
        words = nodes_view.heading(self._read, self._found, target, changed, self.workspace.root)
        self.query_one("#heading", Rows).update([words])
        self._show_beside()
        self.refresh_bindings()

    def _show_beside(self) -> None:
        said = nodes_view.beside(self._read, self._addresses, self._asked, glyphs(self.ascii_only))
        top = int(self._area.scroll_y)
        lines = range(top + 1, top + 1 + self._area.size.height)
        self.query_one("#beside", Rows).update([[said[line]] if line in said else [] for line in lines])

    def action_edit(self) -> None:
        self.set_focus(self._area)

    def action_save(self) -> None:
        text, found = self._area.text, self._found
        target = target_of(found, self.workspace)

        def save() -> str:
            previous = save_hostfile(target, text, self.workspace, found)
            return f"{target} is written." + (f" The previous one: {previous.name}" if previous else "")

        def saved(words: str) -> None:
            self.mdk.tell(words)
            self.in_background(self._find, self._saved)

        self.in_background(save, saved)

    def _saved(self, found: FoundHostfile | None) -> None:
        self._found, self._written = found, found.text if found else ""
        self._show_hostfile()

    # The nodes.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("probe", "all_reduce"):
            return self._probing is None
        if action == "copy":
            return bool(self._verdicts)
        return True

    def action_probe(self) -> None:
        self._ask(together=False)

    def action_all_reduce(self) -> None:
        self._ask(together=True)

    def _ask(self, *, together: bool) -> None:
        text, found = self._area.text, self._found

        def items() -> Iterator[Answer]:
            from backends.nodes.survey import probe
            from backends.setup.step import site_of

            site = site_of(self.workspace)
            nodes = _nodes(site, text, found)
            verdicts: Sequence[NodeVerdict] = ()
            yield Answer(nodes.names, (), None, over=False)
            for verdicts in probe(site, nodes):
                yield Answer(nodes.names, verdicts, None, over=False)
            finding = None
            if together:
                from backends.nodes.allreduce import tried

                yield Answer(nodes.names, verdicts, nodes_view.trying(len(nodes.names)), over=False)
                finding = tried(site, nodes, verdicts)
            yield Answer(nodes.names, verdicts, finding, over=True)

        self._names, self._verdicts, self._together = (), (), None
        listing = self.query_one(Listing)
        listing.empty = " asking mpirun which nodes it takes"
        listing.update([])
        self._probing = Bridge(self, items, self._answered, failed=self._probe_failed).start()
        self.refresh_bindings()

    def _probe_failed(self, error: Exception) -> None:
        self._probing = None
        self.query_one(Listing).empty = " p asks every node"
        self.query_one(Listing).update([])
        self.refresh_bindings()
        self.mdk.tell_failure(error)

    def _answered(self, answer: Answer) -> None:
        self._names, self._verdicts, self._together = answer.names, answer.verdicts, answer.together
        if answer.over:
            self._probing = None
        sign = glyphs(self.ascii_only)
        listed = nodes_view.rows(self._names, self._verdicts, sign)
        self.query_one(Listing).update([*listed, *nodes_view.together_row(self._together, self._names, sign)])
        self._show_details()
        self.refresh_bindings()

    def on_listing_marked(self) -> None:
        self._show_details()

    @property
    def _marked(self) -> NodeVerdict | None:
        """The marked node; the row for all nodes counts as a node."""
        marked = self.query_one(Listing).marked
        if self._together is not None and marked == nodes_view.TOGETHER:
            return nodes_view.as_node(self._together)
        return next((verdict for verdict in self._verdicts if verdict.name == marked), None)

    def _show_details(self) -> None:
        panel = self.query_one("#details", Rows)
        panel.update(nodes_view.details(self._marked, panel.body_size[0]))

    def action_copy(self) -> None:
        if verdict := self._marked:
            lines = [f"{c.name}: {c.verdict}. {c.evidence} {c.remedy}".rstrip() for c in verdict.checks]
            copy(self.app, "\n".join([verdict.name, *lines]))


def _nodes(site: Site, text: str, found: FoundHostfile | None) -> Nodes:
    """The nodes of the text; if it is empty, those that mpirun takes by itself. Raises UserError for a wrong line."""
    from backends.launch.hostfile_source import hosts_of
    from backends.nodes.survey import Nodes, own_allocation

    if not text.strip():
        return own_allocation(site)
    shown = FoundHostfile("asked for", found.path if found else None, text)
    hosts_of(shown)
    return Nodes(parse(text).hosts, "the hostfile", shown)
