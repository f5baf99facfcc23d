"""What the log itself reports of memory, as rows of spans, for jobs whose GPUs cannot be read from here."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from backends.megatron.events import Memory
from backends.ticks import MIB, size_words
from tui.glyphs import Glyphs
from tui.widgets.gpu_rows import SHORTEST_BAR, bar
from tui.widgets.panel import Row

# Names of the used memory, and of the memory reserved from the driver.
PEAKS = (
    ("max allocated", "max reserved"),
    ("allocated", "reserved"),
)


def memory_rows(
    memory: Mapping[int | None, Memory],
    expected: Memory | None,
    note: str,
    width: int,
    height: int,
    glyphs: Glyphs,
) -> list[Row]:
    """A row for each rank that reported, then Megatron's estimate, then `note`; at most `height` rows."""
    ranks = [
        _rank_row(rank, event, width, glyphs)
        for rank, event in sorted(memory.items(), key=lambda item: (item[0] is not None, item[0] or 0))
    ]
    rows = [row for row in ranks if row]
    if expected is not None and (total := expected.values.get("total")) is not None:
        parts = [
            f"{name} {size_words(expected.values[name] * MIB)}"
            for name in ("weight and optimizer", "activation")
            if name in expected.values
        ]
        words = f"expected {size_words(total * MIB)}" + (f" ({', '.join(parts)})" if parts else "")
        rows.append(((words, "dim"),))
    if not rows:
        rows.append((("The log has no memory figures.", "dim"),))
    notes: list[Row] = [((line, "dim"),) for line in textwrap.wrap(note, max(width, 20))]
    if len(rows) + len(notes) > height:
        notes = []
    if len(rows) > height > 0:
        rows = (
            [*rows[: height - 1], ((f"{len(rows) - height + 1} more ranks", "dim"),)]
            if height > 1
            else rows[:1]
        )
    return [*rows, *notes][: max(height, 0)]


def _rank_row(rank: int | None, event: Memory, width: int, glyphs: Glyphs) -> Row:
    """ "rank 0 ━━━─ max allocated 73.3 GiB": the bar is the share of the reserved memory."""
    who = "" if rank is None else f"rank {rank} "
    for used_name, whole_name in PEAKS:
        used, whole = event.values.get(used_name), event.values.get(whole_name)
        if used is None:
            continue
        words = f"{used_name} {size_words(used * MIB)}"
        if whole and width >= 64:
            words += f" of {size_words(whole * MIB)} reserved"
        room = width - len(who) - len(words) - 1
        if not whole or room < SHORTEST_BAR:
            return ((who, "dim"), (words, "text"))
        return ((who, "dim"), *bar(used / whole, room, glyphs), (f" {words}", "text"))
    return ()
