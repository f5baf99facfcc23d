"""The rows of Resume: lineages with their checkpoints, and how a resume of the marked one would differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backends.ticks import number, size_words
from tui.glyphs import Glyphs
from tui.run_words import cell, style_of
from tui.save_words import forecast_words, written_words
from tui.widgets.attention import wrapped
from tui.widgets.listing import ListRow
from tui.widgets.panel import Span

if TYPE_CHECKING:
    from backends.runs.difference import Difference
    from backends.runs.lineages import Lineage, SavedPoint

FEW = 4  # checkpoints of a lineage that are shown unless all are asked for; the tracked one always is
STYLES = {"refused": "error", "changes": "warning", "flag": "info", "harmless": "dim"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a resume of the marked checkpoint would differ, or why it is not possible."""

    differences: tuple[Difference, ...] = ()
    compared_with: str | None = None
    refusal: str = ""


def key_of(lineage: Lineage, point: SavedPoint) -> str:
    return f"{lineage.save}\n{point.checkpoint.iteration}"


def find(lineages: Sequence[Lineage], key: str | None) -> tuple[Lineage, SavedPoint] | None:
    """The lineage and checkpoint of the row `key`."""
    for lineage in lineages:
        for point in lineage.points:
            if key_of(lineage, point) == key:
                return lineage, point
    return None


def rows(lineages: Sequence[Lineage], sign: Glyphs, *, everything: bool) -> list[ListRow]:
    found: list[ListRow] = []
    for lineage in lineages:
        if found:
            found.append(ListRow("", ()))
        found.append(_heading(lineage, sign))
        shown = [p for at, p in enumerate(lineage.points) if everything or at < FEW or p.checkpoint.tracked]
        found += [_row(lineage, point, sign) for point in shown]
        if hidden := len(lineage.points) - len(shown):
            found.append(ListRow("", ((f"      and {hidden} earlier: x", "dim"),)))
    return found


def _heading(lineage: Lineage, sign: Glyphs) -> ListRow:
    name = f"{lineage.save.parent.name}/{lineage.save.name}"
    spans: list[Span] = [(name, "title")]
    if lineage.phase:
        spans.append((f"  {sign.phase(lineage.phase)} {lineage.phase}", style_of(lineage.phase)))
    if lineage.branch_of is not None:
        spans.append((f"  branch of {lineage.branch_of.parent.name}/{lineage.branch_of.name}", "info"))
    if lineage.trouble:
        spans.append((f"  {lineage.trouble}", "warning"))
    if lineage.run is None:
        spans.append(("  of no run here", "dim"))
    spans.append((f"  {lineage.title}", "dim"))
    return ListRow("", tuple(spans))


def _row(lineage: Lineage, point: SavedPoint, sign: Glyphs) -> ListRow:
    c = point.checkpoint
    at = f"{c.iteration:,}" if isinstance(c.iteration, int) else c.iteration
    mark = (f"  {sign.good} ", "good") if c.complete else (f"  {sign.failed} ", "error")
    loss = f"loss {number(point.loss)}" if point.loss is not None else ""
    facts = f"  {cell(written_words(c), 11)}  {cell(loss, 11)}  {cell(size_words(c.size), 8, right=True)}  {c.layout}"
    told = "newest" if c.tracked else ""
    verdict = (f"  {told}", "info") if c.complete else (f"  {c.reason}", "error")
    return ListRow(
        key_of(lineage, point), (mark, (cell(at, 10, right=True), "text"), (facts, "text"), verdict)
    )


def details(
    found: tuple[Lineage, SavedPoint] | None,
    comparison: Comparison | None,
    changes: Sequence[str],
    width: int,
    height: int,
) -> list[list[Span]]:
    """At most `height` rows of `width` cells on the marked checkpoint: its path, the next save, the differing arguments."""
    if found is None:
        return []
    lineage, point = found
    lines: list[list[Span]] = [[(point.checkpoint.path, "dim")]]
    if point.checkpoint.reason:
        lines.append([(point.checkpoint.reason, "error")])
    if lineage.busy:
        lines.append([(f"{lineage.run} still trains and saves here.", "info")])
    if point.seconds is not None:
        lines.append([(f"saved in {point.seconds:.1f} s", "text")])
    if lineage.forecast is not None:
        lines += [
            [(words, "warning" if warns else "text")] for words, warns in forecast_words(lineage.forecast)
        ]
    if changes:
        lines.append([("changed: ", "dim"), (" ".join(changes), "text")])
    lines += [[("comparing the arguments", "dim")]] if comparison is None else _comparison(comparison, width)
    return lines[:height]


def _comparison(comparison: Comparison, width: int) -> Iterator[list[Span]]:
    if comparison.refusal:
        yield from ([(line, "warning")] for line in wrapped(comparison.refusal, max(width, 20), 4))
        return
    if comparison.compared_with is None:
        yield [("The stored arguments cannot be read: they are not compared.", "warning")]
        return
    if not comparison.differences:
        yield [(f"Its arguments are those of {comparison.compared_with}.", "good")]
        return
    from backends.runs.difference import VERDICTS

    flags = max(len(difference.flag) for difference in comparison.differences)
    for difference in comparison.differences:
        values = f"{cell(difference.stored, 10, right=True)} > {cell(difference.planned, 10)}"
        style = STYLES[difference.verdict]
        words = f"{VERDICTS[difference.verdict]:<14}{difference.message} {difference.remedy}"
        yield [(f"{difference.flag:<{flags}} ", "text"), (f"{values} ", "text"), (words, style)]
