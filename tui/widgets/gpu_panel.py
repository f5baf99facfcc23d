"""Memory: the GPUs (or the host, where there are none) with what Megatron reports beneath, or that report alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from backends.runs.processes import user_name
from tui.glyphs import glyphs
from tui.widgets.panel import Panel, Row, Span

if TYPE_CHECKING:
    from backends.megatron.events import Memory
    from backends.telemetry.readings import Snapshot
    from tui.widgets.calm_readings import CalmReadings


class GpuPanel(Panel):
    """One bar for each GPU, or all GPUs in one line where there is little room. `p` lists the processes on them.

    `user` is whose processes are one's own (others' stand out).
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "processes", "processes", id="gpu.processes", tooltip="Show or hide the processes on the GPUs"),
    ]  # fmt: skip

    def __init__(
        self,
        *,
        id: str | None = None,
        classes: str | None = None,
        ascii_only: bool = False,
        user: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes, ascii_only=ascii_only)
        self._user = user or user_name()
        self.forget()

    def forget(self) -> None:
        """Forget all readings before something else is shown."""
        self._snapshots: tuple[Snapshot, ...] = ()
        self._calm: CalmReadings | None = None
        self._memory: Mapping[int | None, Memory] = {}
        self._expected: Memory | None = None
        self.note: str | None = None  # why there are no (newer) readings
        self._processes = False

    def show(
        self,
        snapshots: Sequence[Snapshot] | None = None,
        megatron_memory: Mapping[int | None, Memory] | None = None,
        expected: Memory | None = None,
        note: str | None = None,
    ) -> None:
        """Show new readings (of several nodes, in their order), Megatron's memory by rank and what it expected, and why
        there are no newer readings. None: as before.

        Only rows that changed are written.
        """
        if snapshots is not None:
            from tui.widgets.calm_readings import CalmReadings

            self._calm = self._calm or CalmReadings()
            self._snapshots = tuple(map(self._calm.settle, snapshots))
        if megatron_memory is not None:
            self._memory, self._expected = megatron_memory, expected
        if note is not None:
            self.note = note
        super().show()

    def title(self) -> tuple[Sequence[Span], Sequence[Span]]:
        if not self._snapshots:
            return (("memory", "title"), ("  from the log" if self.note else "", "dim")), ()
        what = "GPUs" if any(snapshot.gpus for snapshot in self._snapshots) else "host"
        hosts = " ".join(snapshot.host.host for snapshot in self._snapshots)
        right = ((self.note, "dim"),) if self.note else ()
        return ((what, "title"), (f"  {hosts}" if hosts else "", "dim")), right

    def foot(self) -> Sequence[Span]:
        from tui.widgets.gpu_rows import megatron_line

        words = megatron_line(self._memory) if self._snapshots else ""
        return ((words, "dim"),) if words else ()

    def body(self, width: int, height: int) -> Sequence[Row]:
        if not self._snapshots and self.note is None:
            return ()
        from tui.widgets.gpu_rows import body
        from tui.widgets.memory_rows import memory_rows

        signs = glyphs(self.ascii_only)
        if not self._snapshots:
            return memory_rows(self._memory, self._expected, self.note or "", width, height, signs)
        return body(self._snapshots, width, height, signs, processes=self._processes, user=self._user)

    def action_processes(self) -> None:
        self._processes = not self._processes
        super().show()
