"""The rows of Home: what runs, what to do next, what ran. They depend on the list of runs alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from rich.cells import cell_len, chop_cells

from tui.glyphs import Glyphs
from tui.run_words import cell, end, left, loss, progress, style_of, when, widest
from tui.widgets.listing import ListRow
from tui.widgets.panel import Span

if TYPE_CHECKING:
    from backends.runs.watching import SeenRun

Deed: TypeAlias = Literal["watch", "talk", "resume", "serve", "demo", "setup", "launch"]
NOTHING = "No runs yet. The demo needs no GPU and no network: press d."
PAST = 8  # most ended runs on Home; the screen Runs has all
BAR = 20  # cells
NAME = (12, 32)  # least and most cells of a run's title
WIDE = 100  # cells; from this width on a run takes one row
WORDS = (20, 56)  # least and most cells of a step's text, before its command


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do next, by its key or by `enter` on its row. `command` does the same in a shell."""

    key: str
    deed: Deed
    words: str
    command: str
    run: SeenRun | None = None


def steps(runs: Sequence[SeenRun], *, set_up: bool = True) -> list[Step]:
    """What to do next, the likeliest first. `set_up`: Megatron-LM is in the workspace."""
    alive = [seen for seen in runs if not seen.info.over]
    training = next((seen for seen in alive if seen.info.kind == "train"), None)
    server = next((seen for seen in alive if seen.info.kind == "serve"), None)
    last = next((seen for seen in runs if seen.info.kind == "train"), None)
    saved = next((seen for seen in runs if seen.checkpoint is not None), None)
    found: list[Step] = []
    if training is not None:
        found.append(
            Step("a", "watch", f"Watch {name_of(training)}", f"mdk-tui attach {training.info.run}", training)
        )
    ended_badly = last is not None and last.info.phase in ("failed", "lost")
    if last is not None and ended_badly and training is None:
        words = f"See why {name_of(last)} {'was lost' if last.info.phase == 'lost' else 'failed'}"
        found.append(Step("a", "watch", words, f"mdk-tui attach {last.info.run}", last))
    if last is not None and ended_badly and last.checkpoint is not None:
        words = f"Resume {name_of(last)} from iteration {last.checkpoint:,}"
        found.append(Step("r", "resume", words, _saved("resume", last), last))
    if server is not None and server.info.address:
        found.append(Step("t", "talk", f"Talk to {name_of(server)}", 'mdk-tui ask "…"', server))
    elif server is None and saved is not None:
        words = f"Talk to {name_of(saved)} at iteration {saved.checkpoint:,}"
        found.append(Step("v", "serve", words, _saved("serve", saved), saved))
    if training is None:
        found.append(Step("d", "demo", "Train a tiny GPT here and talk to it", "mdk-tui demo"))
    if not set_up:
        found.append(Step("s", "setup", "Set up Megatron-LM: clone, image, data", "mdk-tui setup"))
    found.append(
        Step("n", "launch", "Start another run" if runs else "Start a run", "mdk-tui launch --preset …")
    )
    return found


def name_of(seen: SeenRun) -> str:
    """The title up to the first punctuation mark, for use in a sentence."""
    info = seen.info
    return re.split("[:,;]", info.title, maxsplit=1)[0].strip() or info.run


def rows(
    runs: Sequence[SeenRun] | None, glyphs: Glyphs, today: datetime, width: int, *, set_up: bool = True
) -> list[ListRow]:
    """All rows, for `width` cells. `runs` is None before they were read."""
    if runs is None:
        return [ListRow("", (("reading the runs", "dim"),))]
    alive = sorted((seen for seen in runs if not seen.info.over), key=lambda seen: seen.info.kind == "serve")
    past = [seen for seen in runs if seen.info.over]
    lines: list[ListRow] = []
    if alive:
        lines += [
            _heading("running"),
            *(row for seen in alive for row in _running(seen, glyphs, width)),
            _blank(),
        ]
    found = steps(runs, set_up=set_up)
    words = widest([step.words for step in found], WORDS[0], min(WORDS[1], max(width - 24, WORDS[0])))
    if not runs:
        lines += [ListRow("", ((NOTHING, "text"),)), _blank()]
    lines += [_heading("next"), *(row for step in found for row in _step(step, glyphs, words, width))]
    if past:
        names = widest([name_of(seen) for seen in past[:PAST]], *NAME)
        done = widest([progress(seen.info) for seen in past[:PAST]], 0, 24)
        lines += [
            _blank(),
            _heading("before"),
            *(_past(seen, names, done, glyphs, today) for seen in past[:PAST]),
        ]
        if len(past) > PAST:
            lines.append(ListRow("", ((f"    and {len(past) - PAST} more (key 6)", "dim"),)))
    return lines


def _heading(text: str) -> ListRow:
    return ListRow("", ((text, "dim"),))


def _blank() -> ListRow:
    return ListRow("", ())


def _running(seen: SeenRun, glyphs: Glyphs, width: int) -> list[ListRow]:
    """One row; on a narrow screen a second one with its progress, or its address."""
    info = seen.info
    sign: Span = (f"  {glyphs.phase(info.phase)} ", style_of(info.phase))
    name = cell(name_of(seen), min(NAME[1], max(width // 3, NAME[0])))
    key = f"run:{info.path}"
    if info.kind == "serve":
        words = f"answers at {info.address}" if info.address else "waiting for a checkpoint to load"
        if width >= WIDE:
            return [ListRow(key, (sign, (name, "title"), (f"  {words}", "text")))]
        return [ListRow(key, (sign, (name, "title"))), ListRow("", ((f"    {words}", "text"),))]
    facts = "   ".join(filter(None, (progress(info), loss(seen), left(seen)))) or info.phase
    if info.phase == "stopping":
        facts = f"{facts}   {info.stopping or 'stopping'}"
    bar = _bar(seen, glyphs)
    first: tuple[Span, ...] = (sign, (name, "title"), ("  ", "text"), *bar)
    if width >= WIDE:
        return [ListRow(key, (*first, (f"  {facts}", "text")))]
    return [ListRow(key, first), ListRow("", ((f"    {facts}", "text"),))]


def _bar(seen: SeenRun, glyphs: Glyphs) -> tuple[Span, ...]:
    info = seen.info
    if info.iteration is None or not info.train_iters:
        return ()
    share = min(info.iteration / info.train_iters, 1.0)
    full = round(BAR * share)
    return (
        (glyphs.bar * full, "curve"),
        (glyphs.track * (BAR - full), "frame"),
        (f" {100 * share:3.0f} %", "text"),
    )


def _step(step: Step, glyphs: Glyphs, words: int, width: int) -> list[ListRow]:
    """One row; a command that has no room in it follows in rows of its own and is never cut."""
    command = step.command.replace("…", glyphs.dots)
    key = f"step:{step.deed}"
    sign: Span = (f"  {step.key} ", "focus")
    if words + cell_len(command) + 7 <= width:
        return [ListRow(key, (sign, (cell(step.words, words), "text"), (f"   {command}", "dim")))]
    parts = _lines(command, max(width - 6, 1))
    said = ListRow(key, (sign, (step.words, "text")))
    return [said, *(ListRow("", ((f"      {part}", "dim"),)) for part in parts)]


def _lines(command: str, width: int) -> list[str]:
    """`command` in lines of `width` cells that end at a space or a slash, where there is one."""
    lines = [""]
    for part in re.findall(r"[^ /]*[ /]?", command):
        for piece in chop_cells(part, width):
            if cell_len(lines[-1] + piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return lines


def _past(seen: SeenRun, names: int, done: int, glyphs: Glyphs, today: datetime) -> ListRow:
    info = seen.info
    style = style_of(info.phase)
    words: list[Span] = [
        (f"  {glyphs.phase(info.phase)} ", style),
        (cell(name_of(seen), names), "text"),
        (f"  {info.phase:<8}", style),
        (f"  {cell(when(info, today), 11)}", "dim"),
        (f"  {cell(progress(info), done, right=True)}", "text"),
        (f"   {end(info)}", "dim"),
    ]
    return ListRow(f"run:{info.path}", tuple(words))


def _saved(command: str, seen: SeenRun) -> str:
    return f"mdk-tui {command} {shlex.quote(seen.info.save or '')}"
