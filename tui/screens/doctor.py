"""The check-up of Set-up: every check with its verdict, and the details of the marked one below."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from backends.setup.doctor import check_up
from backends.setup.step import Finding, Site
from backends.text import clean
from tui.bridge import Bridge
from tui.glyphs import glyphs
from tui.screens.setup_view import STYLES, finding_words, plain, sign
from tui.widgets.clipboard import copy
from tui.widgets.key_line import KeyLine
from tui.widgets.listing import Listing, ListRow
from tui.widgets.text_pane import TextPane
from tui.widgets.top_line import TopLine

if TYPE_CHECKING:
    from tui.app import MdkApp

NAME = 15  # cells


class DoctorScreen(Screen[None]):
    """`check` yields the findings one by one; the default checks this machine."""

    CSS = """
    DoctorScreen Listing { height: 2fr; margin: 0 1; }
    DoctorScreen TextPane { height: 1fr; min-height: 6; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "verify", "verify", id="doctor.verify", tooltip="Check everything again"),
        Binding("y", "copy", "copy", id="doctor.copy", tooltip="Copy the report"),
        Binding(
            "escape", "dismiss", "back", key_display="esc", id="doctor.back", tooltip="Go back to Set-up"
        ),
    ]

    def __init__(
        self,
        site: Callable[[], Site],
        *,
        ascii_only: bool = False,
        check: Callable[[Site], Iterator[Finding]] = check_up,
    ) -> None:
        super().__init__()
        self.ascii_only = ascii_only
        self._site = site
        self._check = check
        self._findings: tuple[Finding, ...] = ()
        self._checking: Bridge[tuple[Finding, ...]] | None = None

    def compose(self) -> ComposeResult:
        yield TopLine("Set-up", "doctor", ascii_only=self.ascii_only)
        yield Listing(ascii_only=self.ascii_only, empty="checking")
        yield TextPane(ascii_only=self.ascii_only)
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one(TopLine).show()
        self.query_one(Listing).focus()
        self.action_verify()

    def on_unmount(self) -> None:
        if self._checking is not None:
            self._checking.close()

    def action_verify(self) -> None:
        if self._checking is not None:
            self._checking.close()
        failed = cast("MdkApp", self.app).tell_failure
        self._checking = Bridge(self, self._findings_so_far, self._came, failed=failed).start()

    def _findings_so_far(self) -> Iterator[tuple[Finding, ...]]:
        found: tuple[Finding, ...] = ()
        for finding in self._check(self._site()):
            found = (*found, finding)
            yield found

    def _came(self, findings: tuple[Finding, ...]) -> None:
        self._findings = findings
        signs = glyphs(self.ascii_only)
        self.query_one(Listing).update(
            [
                ListRow(
                    finding.name,
                    (
                        (f"  {sign(finding.verdict, signs)} ", STYLES[finding.verdict]),
                        (f"{finding.name:<{NAME}} ", "title"),
                        (plain(finding.evidence, self.ascii_only).replace("\n", " "), "text"),
                    ),
                )
                for finding in findings
            ]
        )
        self._show_marked()

    def on_listing_marked(self, message: Listing.Marked) -> None:
        message.stop()
        self._show_marked()

    def _show_marked(self) -> None:
        marked = self.query_one(Listing).marked
        finding = next((finding for finding in self._findings if finding.name == marked), None)
        if finding is not None:
            pane = self.query_one(TextPane)
            pane.back_to_start()
            words = finding_words(finding, ascii_only=self.ascii_only)
            pane.update(((finding.name, "title"),), words, ((finding.verdict, "dim"),))

    def action_copy(self) -> None:
        lines = [
            f"{finding.verdict:<8} {finding.name:<{NAME}} {finding.evidence} {finding.remedy}".rstrip()
            for finding in self._findings
        ]
        copy(self.app, clean("\n".join(lines)))
