"""The files of the Prompt screen: prompts to ask, samples while training, export as Markdown."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tui.background import in_background

if TYPE_CHECKING:
    from tui.screens.prompt import PromptScreen


class PromptFiles:
    """The prompts of a file are asked one after the other, also after a refusal, until waiting is stopped."""

    def __init__(self, screen: PromptScreen) -> None:
        self._screen = screen
        self._queue: list[str] = []
        self._total = 0

    @property
    def words(self) -> str:
        """ "prompt 3 of 10   ", while a file is being asked."""
        return f"prompt {self._total - len(self._queue)} of {self._total}   " if self._total else ""

    def ask_for_file(self) -> None:
        from backends.inference.prompts_file import read_prompts
        from tui.screens.one_line import OneLine

        def named(name: str | None) -> None:
            if name:
                path = self._path(name)
                self._screen.in_background(lambda: read_prompts(path), self._came)

        note = 'One prompt a line, or .jsonl with a "prompt" or "text" each. All are asked with the same parameters.'
        self._screen.app.push_screen(OneLine("prompts from a file", note), named)

    def _came(self, prompts: list[str]) -> None:
        self._queue, self._total = prompts, len(prompts)
        self.next()

    def next(self) -> None:
        """Ask the next prompt. Call it whenever a question has ended."""
        if not self._queue or not self._screen.ask(self._queue.pop(0)):
            self.forget()

    def forget(self) -> None:
        self._queue, self._total = [], 0

    def show_samples(self) -> None:
        """Show the samples of the newest training run that has some."""
        from backends.inference.samples import NAME, read
        from tui.screens.samples import SamplesScreen

        screen = self._screen
        trained = [seen.info for seen in screen.mdk.runs or () if seen.info.kind == "train"]

        def newest() -> Path | None:
            return next((info.path for info in trained if (info.path / NAME).exists()), None)

        def show(run: Path | None) -> None:
            if run is None:
                why = 'No run has samples: name prompts in mdk.toml before it starts, [samples] prompts = ["Once"].'
                screen.mdk.tell(why, warning=True)
            else:
                name = f"{run.parent.name}/{run.name}"
                screen.app.push_screen(SamplesScreen(name, lambda: read(run), screen.mdk.tell_failure))

        screen.in_background(newest, show)

    def export(self) -> None:
        from tui.screens.one_line import OneLine

        default = self._screen.workspace.outputs / f"prompts-{datetime.now():%Y-%m-%d-%H%M}.md"
        note = "All questions and answers, as Markdown. A file that is there already is not written over."
        self._screen.app.push_screen(OneLine("export", note, str(default)), self._write)

    def _write(self, name: str | None) -> None:
        from backends.inference.markdown import as_markdown

        if not name:
            return
        path, turns = self._path(name), list(self._screen.past.turns)

        def write() -> int:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", errors="replace") as file:
                return file.write(as_markdown(turns))

        def failed(error: Exception) -> None:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self._screen.mdk.tell(f"{path} was not written: {why}.", warning=True)

        in_background(
            self._screen, write, lambda _: self._screen.mdk.tell(f"{len(turns)} answers in {path}."), failed
        )

    def _path(self, name: str) -> Path:
        """The path that the user wrote; a relative one begins in the workspace."""
        return self._screen.workspace.root / Path(name).expanduser()
