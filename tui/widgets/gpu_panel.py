"""GPUs (or the host, where there are none), with Megatron's own word on memory beneath."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from backends.megatron.events import Memory
from backends.telemetry.readings import Snapshot
from tui.widgets.gpu_rows import ASCII, Glyphs, body, calm, megatron_line
from tui.widgets.panel import Panel, Row, Span


class GpuPanel(Panel):
    """A bar a GPU; too low for that, all GPUs in one line. `p` lists the processes on them.

    `user` is whose processes are one's own (others' stand out).
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "p", "processes", "processes", id="gpu.processes", tooltip="Show who uses the GPUs, or hide it"
        ),
    ]

    def __init__(
        self,
        *,
        id: str | None = None,
        classes: str | None = None,
        ascii_only: bool = False,
        user: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes, ascii_only=ascii_only)
        self._user = user or _whoami()
        self._snapshots: tuple[Snapshot, ...] = ()
        self._megatron = ""
        self._processes = False

    def show(
        self,
        snapshot: Snapshot | Sequence[Snapshot] | None = None,
        megatron_memory: Mapping[int | None, Memory] | None = None,
    ) -> None:
        """Show new readings (of several nodes, in their order) and Megatron's memory by rank. None: as before.

        Only rows that changed are written.
        """
        if snapshot is not None:
            fresh = (snapshot,) if isinstance(snapshot, Snapshot) else tuple(snapshot)
            shown = {old.host.host: old for old in self._snapshots}
            self._snapshots = tuple(calm(shown.get(new.host.host), new) for new in fresh)
        if megatron_memory is not None:
            self._megatron = megatron_line(megatron_memory)
        super().show()

    def title(self) -> tuple[Sequence[Span], Sequence[Span]]:
        what = "GPUs" if any(snapshot.gpus for snapshot in self._snapshots) else "host"
        hosts = " ".join(snapshot.host.host for snapshot in self._snapshots)
        return ((what, "title"), (f"  {hosts}" if hosts else "", "dim")), ()

    def foot(self) -> Sequence[Span]:
        return ((self._megatron, "text"),) if self._megatron else ()

    def body(self, width: int, height: int) -> Sequence[Row]:
        glyphs = ASCII if self.ascii_only else Glyphs()
        return body(self._snapshots, width, height, glyphs, processes=self._processes, user=self._user)

    def action_processes(self) -> None:
        self._processes = not self._processes
        super().show()


def _whoami() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return None
