"""The servers that can answer a prompt: those among the runs, and those named by their address; their state in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from backends.inference.connect import connect
from backends.inference.exchange import base_url
from backends.inference.megatron_api import MegatronClient
from backends.inference.server_title import label
from backends.settings import PromptSettings
from tui.glyphs import Glyphs
from tui.question import Answerer
from tui.screens.choose import Choice
from tui.widgets.panel import Span

if TYPE_CHECKING:
    from backends.runs.catalog import RunInfo
    from backends.runs.checkpoints import Checkpoint
    from backends.runs.watching import SeenRun

NEWEST, NOBODY, SERVE, ADDRESS = "newest", "nobody", "serve", "address"
SERVABLE = 3  # training runs whose checkpoints are offered


@dataclass(frozen=True, slots=True)
class Servers:
    """What is known of all text servers at one moment.

    `running`: the servers of the workspace that are not over, newest first. `failed`: its newest server, if that failed.
    `urls`: servers named by their address, in the settings or on the screen. `progress`: how far each server that is
    loading has come, by its run. `read`: whether the runs have been looked at.
    """

    running: tuple[RunInfo, ...] = ()
    failed: RunInfo | None = None
    trained: tuple[SeenRun, ...] = ()  # runs with a checkpoint, newest first
    settings: PromptSettings = field(default_factory=PromptSettings)
    urls: tuple[str, ...] = ()
    progress: tuple[tuple[str, str], ...] = ()
    read: bool = False

    def chosen(self, name: str, besides: str = NOBODY) -> str:
        """The run or address that `name` stands for now: the newest is one that can answer, if possible not `besides`."""
        if name != NEWEST:
            return name
        if self.settings.url:
            return base_url(self.settings.url)
        others = [info for info in self.running if info.run != besides] or list(self.running)
        found = next((info for info in others if info.address), None) or next(iter(others), None)
        return found.run if found else NEWEST

    def named(self, name: str) -> Answerer | RunInfo | None:
        """The server called `name`: an Answerer can be asked, a RunInfo is still loading, None does not exist."""
        name = self.chosen(name)
        if "://" in name:
            return self._at(name)
        found = next((info for info in self.running if info.run == name), None)
        return self._of(found) if found is not None and found.address else found

    def _at(self, url: str) -> Answerer:
        return Answerer(url, url, lambda: connect(url, 60 * self.settings.wait_minutes))

    def _of(self, info: RunInfo) -> Answerer:
        address = info.address or ""
        return Answerer(
            address, label(info), lambda: MegatronClient(address, 60 * self.settings.wait_minutes)
        )

    @property
    def loading(self) -> tuple[RunInfo, ...]:
        return tuple(info for info in self.running if not info.address)


def servers_of(runs: Sequence[SeenRun], before: Servers) -> Servers:
    """`before` with what the runs say now."""
    served = [seen.info for seen in runs if seen.info.kind == "serve"]
    newest = next(iter(served), None)
    return replace(
        before,
        running=tuple(info for info in served if not info.over),
        failed=newest if newest is not None and newest.phase == "failed" else None,
        trained=tuple(seen for seen in runs if seen.checkpoint is not None),
        read=True,
    )


def words(servers: Servers, name: str, waited: float | None, sign: Glyphs) -> tuple[Span, ...]:
    """A server and its state, for one line. `waited`: s since the question, None if there is none."""
    who = servers.named(name)
    if isinstance(who, Answerer):
        state: Span = (f"{sign.running} ready", "good")
        if waited is not None:
            state = (f"{sign.waiting} busy {waited:3.0f} s", "warning")
        elif who.url == who.name:  # no supervisor watches it, so it may be unreachable
            state = ("by address", "text")
        return (state, (f"   {who.name}", "text"), (f"   {who.url}" if who.url != who.name else "", "dim"))
    if who is not None:
        stage = dict(servers.progress).get(who.run, "")
        return (
            (f"{sign.waiting} loading", "info"),
            (f"   {stage}" if stage else "", "text"),
            (f"   {who.title}: it answers once its checkpoint is loaded", "dim"),
        )
    if not servers.read:
        return (("looking for a text server", "dim"),)
    if servers.failed is not None:
        why = servers.failed.reason or "see its log"
        return ((f"{sign.failed} the text server {servers.failed.run} failed: ", "error"), (why, "text"))
    offer = (
        "ctrl+r serves the newest checkpoint" if servers.trained else "esc, then 1 shows what to start first"
    )
    return ((f"{sign.waiting} no text server runs: ", "warning"), (offer, "text"))


def choices(
    servers: Servers, found: Sequence[tuple[SeenRun, Sequence[Checkpoint]]], *, second: bool
) -> list[Choice]:
    """The choices for an answerer: servers, an address to be asked for, checkpoints to serve. `second`: beside another."""
    listed = (
        [Choice(NOBODY, "none: one answer to each prompt")]
        if second
        else [Choice(NEWEST, "the newest that can answer")]
    )
    listed += [Choice(info.run, label(info), info.address or "loading") for info in servers.running]
    listed += [Choice(url, url) for url in servers.urls]
    listed.append(Choice(ADDRESS, "a server at another address", "vLLM, llama.cpp, Megatron-LM"))
    for seen, checkpoints in found:
        listed += [
            Choice(
                f"{SERVE}\n{Path(each.path).parent}\n{each.iteration}",
                f"serve iteration {each.iteration}",
                seen.info.title,
            )
            for each in checkpoints
            if each.complete and isinstance(each.iteration, int)
        ]
    return listed


def servable(trained: Sequence[SeenRun]) -> list[tuple[SeenRun, list[Checkpoint]]]:
    """The checkpoints of the newest runs, read from disk."""
    from backends.runs.checkpoints import checkpoints

    return [(seen, checkpoints(Path(save))) for seen, save in _saves(trained)]


def _saves(trained: Sequence[SeenRun]) -> Iterator[tuple[SeenRun, str]]:
    known: set[str] = set()
    for seen in trained:
        if seen.info.save and seen.info.save not in known and len(known) < SERVABLE:
            known.add(seen.info.save)
            yield seen, seen.info.save


def look_at_logs(servers: Servers) -> tuple[tuple[str, str], ...]:
    """How far each loading server has come, from its log."""
    from backends.inference.readiness import loading_words
    from backends.runs.folder import RunFolder

    return tuple((info.run, loading_words(RunFolder(info.path).log)) for info in servers.loading)
