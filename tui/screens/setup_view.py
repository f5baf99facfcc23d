"""The words of Set-up: a row per step, and the details of the marked step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from backends.setup.command_text import command_text
from backends.setup.job_watch import JobView
from backends.setup.standing import Standing, progress_words, with_job
from backends.setup.step import Finding, Step, Verdict
from backends.text import clean
from backends.ticks import rounded
from tui.glyphs import Glyphs
from tui.widgets.listing import ListRow
from tui.widgets.panel import Span

TITLE = 12  # cells
STYLES: dict[Verdict, str] = {
    "ok": "good", "warning": "warning", "failed": "error", "skipped": "dim", "pending": "text", "running": "info",
}  # fmt: skip
PLAIN = str.maketrans({"·": "-", "×": "x", "…": "...", "→": "->", "↑": "^"})
LOST = {
    "megatron": "A cancelled clone starts from the beginning.",
    "image": "A cancelled build starts from the beginning.",
    "data": "A download continues where it ended; preprocessing starts from the beginning.",
}
NOTHING_LOST = "It can be run again at any time."


def plain(text: str, ascii_only: bool) -> str:
    """Outside text, cleaned, and in ASCII if that is wanted."""
    text = clean(text)
    return text.translate(PLAIN) if ascii_only else text


def sign(verdict: Verdict, glyphs: Glyphs) -> str:
    return {
        "ok": glyphs.good, "warning": "!", "failed": glyphs.failed, "skipped": "-", "pending": glyphs.waiting,
        "running": glyphs.marker,
    }[verdict]  # fmt: skip


def rows(
    steps: Sequence[Step],
    standings: Mapping[str, Standing],
    jobs: Mapping[str, JobView],
    glyphs: Glyphs,
    *,
    ascii_only: bool,
) -> list[ListRow]:
    """One row per step, also for those that are still being checked."""
    done = sum(standing.finding.verdict == "ok" for standing in standings.values())
    counted = f"{done} of {len(steps)} done" if len(standings) == len(steps) else f"looking{glyphs.dots}"
    lines = [ListRow("", ((counted, "dim"),))]
    for step in steps:
        standing = standings.get(step.name)
        title = (f"{step.title:<{TITLE}}  ", "title")
        if standing is None:
            lines.append(ListRow(step.name, ((f"  {glyphs.waiting} ", "dim"), title, ("looking", "dim"))))
            continue
        job = jobs.get(step.name)
        found = with_job(standing.finding, job)
        words = plain(found.evidence, ascii_only).replace("\n", " ")
        if job is not None and found.verdict == "running" and job.left is not None:
            words = f"{words}   in {rounded(job.left)}"
        style = STYLES[found.verdict]
        lines.append(
            ListRow(step.name, ((f"  {sign(found.verdict, glyphs)} ", style), title, (words, "text")))
        )
    return lines


def about(
    step: Step, standing: Standing | None, job: JobView | None, now: datetime, *, ascii_only: bool
) -> list[Span]:
    """Paragraphs: what was found, the remedy, and the commands that `enter` runs."""
    if standing is None:
        return [("Looking at the disk.", "dim")]
    found: list[Span] = []
    running = job is not None and job.state.phase == "running"
    if job is not None:
        found += _of_job(step, job, now, ascii_only=ascii_only)
    if not running:
        found += finding_words(standing.finding, ascii_only=ascii_only)
        found += _of_commands(standing, ascii_only=ascii_only)
    return found


def keys(standing: Standing | None, job: JobView | None) -> list[Span]:
    """The keys for the commands that are shown."""
    if job is not None and job.state.phase == "running":
        return [("x cancel  y copy", "dim")]
    return [("enter run  e edit  y copy", "dim")] if standing is not None and standing.actions else []


def finding_words(finding: Finding, *, ascii_only: bool) -> list[Span]:
    style = STYLES[finding.verdict] if finding.verdict in ("warning", "failed") else "text"
    words: list[Span] = [(plain(finding.evidence, ascii_only), style)]
    words += [(plain(detail, ascii_only), "dim") for detail in finding.details]
    if finding.remedy and finding.verdict != "ok":
        words += [("", "text"), (plain(finding.remedy, ascii_only), "text")]
    return words


def _of_commands(standing: Standing, *, ascii_only: bool) -> list[Span]:
    if standing.refusal is not None:
        words = f"{standing.refusal.message} {standing.refusal.remedy}"
        if standing.refusal.message in standing.finding.evidence:
            return []
        return [("", "text"), (plain(words, ascii_only), "warning")]
    if not standing.actions:
        return []
    found: list[Span] = [("", "text"), ("enter runs", "info")]
    found += [
        (plain(line, ascii_only), "dim" if line.startswith("#") else "text")
        for line in command_text(standing.actions).split("\n")
    ]
    if standing.weight:
        found += [("", "text"), (plain(standing.weight, ascii_only), "warning")]
    return found


def _of_job(step: Step, job: JobView, now: datetime, *, ascii_only: bool) -> list[Span]:
    """The newest job of the step, unless it ended well."""
    state = job.state
    at = datetime.fromtimestamp(state.ended or state.started, now.tzinfo)
    when = f"{at:%H:%M}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}"
    blank: Span = ("", "text")
    if state.phase == "running":
        left = "" if job.left is None else f"   in {rounded(job.left)}"
        number = f"command {state.action + 1} of {len(job.actions)}, since {when}"
        leaving = (
            "It goes on when you leave or the connection is lost; x cancels it."
            if state.detached
            else "It runs in another terminal, and ends with that; x cancels it."
        )
        return [
            (plain(progress_words(job), ascii_only) + left, "info"),
            (number, "dim"),
            blank,
            (f"{leaving} {LOST.get(step.name, '')}".rstrip(), "text"),
        ]
    if state.phase == "failed":
        return [(f"failed at {when}: {plain(state.message, ascii_only)}", "error"), (plain(state.remedy, ascii_only), "text"), blank]  # fmt: skip
    if state.phase in ("cancelled", "interrupted"):
        what = "Cancelled" if state.phase == "cancelled" else "Interrupted (killed, or the machine went down)"
        return [(f"{what} at {when}. {LOST.get(step.name, NOTHING_LOST)}", "warning"), blank]
    return []
