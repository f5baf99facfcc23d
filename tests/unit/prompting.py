"""Helpers for tests of the Prompt screen: ask, read and wait."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_runs import SERVER, listing
from textual.pilot import Pilot
from waiting import until_seen

from backends.runs.watching import SeenRun
from backends.workspace import Workspace
from tui.app import MdkApp, Opening
from tui.appearance import Appearance
from tui.screens.prompt import PromptScreen
from tui.widgets.exchanges import Exchanges
from tui.widgets.prompt_field import PromptField


def at(address: str | None, run: str = SERVER.info.run, **known: Any) -> SeenRun:
    """A text server that answers at `address`; None: it still loads."""
    return dataclasses.replace(
        SERVER, info=dataclasses.replace(SERVER.info, run=run, address=address, **known)
    )


class Prompting:
    """The application on its Prompt, in the workspace `folder`, with these runs."""

    def __init__(self, folder: Path, *runs: SeenRun) -> None:
        self.file = folder / "outputs" / "prompts.jsonl"
        self.app = MdkApp(Workspace(folder), Appearance(calm=True), Opening("prompt"), watch=listing(*runs))

    @property
    def screen(self) -> PromptScreen:
        assert isinstance(self.app.screen, PromptScreen)
        return self.app.screen

    @property
    def field(self) -> PromptField:
        return self.screen.query_one(PromptField)

    @property
    def text(self) -> str:
        return self.screen.query_one(Exchanges).plain

    def line(self, name: str) -> str:
        return "".join(part.text for part in self.screen.query_one(name).render_line(0))

    async def until(self, pilot: Pilot[Any], true: Callable[[], bool]) -> None:
        await until_seen(pilot, true)

    async def ask(self, pilot: Pilot[Any], prompt: str) -> None:
        await self.until(pilot, lambda: any(word in self.line("#server") for word in ("ready", "by address")))
        self.field.text = prompt
        await pilot.press("ctrl+j")
