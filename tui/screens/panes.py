"""A screen of panes: tab moves between them, z shows one of them alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget


class PaneScreen(Screen[None]):
    """`PANES` are the ids in the order of tab. The stylesheet says what `-zoom` (screen) and `-zoomed` (pane) hide."""

    PANES: ClassVar[Sequence[str]] = ()
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("z", "zoom", "pane", id="panes.zoom", tooltip="Show the focused pane alone, or all panes again"),
        Binding("tab", "pane(1)", "next pane", id="panes.next", tooltip="Go to the next or the previous pane", show=False),
        Binding("shift+tab", "pane(-1)", "previous pane", id="panes.previous", tooltip="Go to the next or the previous pane", show=False),
    ]  # fmt: skip

    def panes(self) -> list[str]:
        """The panes that are shown now."""
        return list(self.PANES)

    def pane(self, name: str) -> Widget:
        return self.query_one(f"#{name}")

    @property
    def zoomed(self) -> str | None:
        return next((name for name in self.PANES if self.pane(name).has_class("-zoomed")), None)

    def zoom_pane(self, wanted: str | None) -> None:
        """Show one pane alone; None shows all again."""
        self.set_class(wanted is not None, "-zoom")
        for name in self.PANES:
            widget = self.pane(name)
            widget.set_class(name == wanted, "-zoomed")
            if isinstance(parent := widget.parent, Widget) and parent is not self:
                parent.set_class(any(child.has_class("-zoomed") for child in parent.children), "-zoomed")
        if wanted is not None:
            self.set_focus(self.pane(wanted))

    def action_zoom(self) -> None:
        if self.zoomed:
            self.zoom_pane(None)
        elif self.focused is not None and self.focused.id in self.PANES:
            self.zoom_pane(self.focused.id)

    def action_pane(self, step: int) -> None:
        """Go to another pane. On a narrow screen each is shown alone, and the overview is one of the stops."""
        panes = self.panes()
        if self.has_class("-narrow"):
            stations: list[str | None] = [None, *panes]
            wanted = stations[(stations.index(self.zoomed) + step) % len(stations)]
            self.zoom_pane(wanted)
            if wanted is None:
                self.set_focus(self.pane(panes[0]))
            return
        now = self.focused.id if self.focused is not None and self.focused.id in panes else panes[-1]
        following = panes[(panes.index(str(now)) + step) % len(panes)]
        if self.zoomed:
            self.zoom_pane(following)
        else:
            self.set_focus(self.pane(following))
