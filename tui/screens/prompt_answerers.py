"""The servers that answer on the Prompt screen, one or two side by side: choosing, starting and showing them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from backends.inference.exchange import base_url
from backends.settings import PromptSettings
from tui.glyphs import glyphs
from tui.question import Answerer
from tui.screens import prompt_servers, run_actions
from tui.screens.choose import Chooser
from tui.screens.one_line import OneLine
from tui.screens.prompt_servers import ADDRESS, NEWEST, NOBODY, SERVE, Servers
from tui.widgets.line import Line

if TYPE_CHECKING:
    from backends.runs.checkpoints import Checkpoint
    from backends.runs.folder import RunFolder
    from backends.runs.watching import SeenRun
    from tui.screens.prompt import PromptScreen


class PromptAnswerers:
    """The screen has a line `#server` for the first, and `#second` below it for the second if there is one."""

    def __init__(self, screen: PromptScreen) -> None:
        self._screen = screen
        self.servers = Servers()
        self._first, self._second = NEWEST, NOBODY

    @property
    def names(self) -> tuple[str, ...]:
        first = self.servers.chosen(self._first, self._second)
        return (first,) if self._second == NOBODY else (first, self._second)

    def ready(self) -> list[Answerer]:
        """The servers among `names` that can be asked now."""
        found = [self.servers.named(name) for name in self.names]
        return [who for who in found if isinstance(who, Answerer)]

    @property
    def may_serve(self) -> bool:
        """Whether there is a checkpoint to serve and no server yet."""
        return not self.servers.running and bool(self.servers.trained)

    def settings_came(self, settings: PromptSettings) -> None:
        self.servers = replace(self.servers, settings=settings)
        if settings.url:
            self._add_url(settings.url)
        self.show()

    def runs_came(self, runs: tuple[SeenRun, ...]) -> None:
        self.servers = prompt_servers.servers_of(runs, self.servers)
        self.show()

    def tick(self) -> None:
        """Once a second: show how long the answer takes, and how far a server has loaded."""
        if self._screen.asked_at is not None:
            self.show()
        if self.servers.loading:
            servers = self.servers
            self._screen.in_background(lambda: prompt_servers.look_at_logs(servers), self._progress_came)

    def _progress_came(self, progress: tuple[tuple[str, str], ...]) -> None:
        self.servers = replace(self.servers, progress=progress)
        self.show()

    def show(self) -> None:
        screen, sign = self._screen, glyphs(self._screen.ascii_only)
        waited = None if screen.asked_at is None else time.monotonic() - screen.asked_at
        lines = [prompt_servers.words(self.servers, name, waited, sign) for name in self.names]
        before = screen.files.words
        screen.query_one("#server", Line).update(*(((before, "info"),) if before else ()), *lines[0])
        screen.set_class(len(lines) > 1, "-two")
        if len(lines) > 1:
            screen.query_one("#second", Line).update(*lines[1])

    def choose(self, *, second: bool) -> None:
        """Ask for the server that answers first, or beside the first; it may be started for a checkpoint."""
        screen, servers = self._screen, self.servers
        title, current = ("beside it", self._second) if second else ("who answers", self._first)

        def show(found: list[tuple[SeenRun, list[Checkpoint]]]) -> None:
            listed = prompt_servers.choices(servers, found, second=second)
            screen.app.push_screen(
                Chooser(title, listed, current), lambda key: self._take(key, second=second)
            )

        screen.in_background(lambda: prompt_servers.servable(servers.trained), show)

    def _take(self, key: str | None, *, second: bool) -> None:
        if key is None:
            return
        if key.startswith(f"{SERVE}\n"):
            _, save, iteration = key.split("\n")
            self._serve(Path(save), int(iteration), lambda run: self._take(run.name, second=second))
        elif key == ADDRESS:
            note = "http://HOST:PORT, or with the path to ask, such as http://HOST:PORT/v1/chat/completions"
            named = lambda url: self._take(self._add_url(url) if url else None, second=second)  # noqa: E731
            self._screen.app.push_screen(OneLine("the server's address", note), named)
        elif second:
            self._second = key
        else:
            self._first = key
        self.show()

    def _add_url(self, url: str) -> str:
        """The name of the server at `url`, which can be chosen from now on."""
        url = base_url(url.strip())
        self.servers = replace(self.servers, urls=tuple(dict.fromkeys((*self.servers.urls, url))))
        return url

    def serve_newest(self) -> None:
        newest = next(iter(self.servers.trained), None)
        if newest is not None and newest.info.save:
            self._serve(Path(newest.info.save), None, lambda run: None)

    def _serve(self, save: Path, iteration: int | None, then: Callable[[RunFolder], None]) -> None:
        screen = self._screen

        def started(run: RunFolder) -> None:
            screen.mdk.tell(f"The text server {run.name} is loading.")
            then(run)

        run_actions.serve(screen.mdk, save, iteration, then=started)
