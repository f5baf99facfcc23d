"""The answers to the same prompts from all checkpoints of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from backends.inference.samples import Sample, of_prompt, prompts_of
from backends.text import clean, clean_line
from tui.background import in_background
from tui.screens.dialog import Dialog

LOOK = 2.0  # s between two looks at the file
DIM = "$foreground 55%"


class SamplesScreen(Dialog[None]):
    """`read` returns the samples of one run. It is called repeatedly, in a thread."""

    DEFAULT_CSS = """
    SamplesScreen > #box { width: 94%; height: 90%; max-height: 90%; padding: 0 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,n", "turn(1)", "next prompt", key_display="→", id="samples.next", tooltip="Show another prompt"),
        Binding("left,p", "turn(-1)", "prompt before", key_display="←", id="samples.before", tooltip="Show another prompt"),
        Binding("escape,q", "dismiss", "close", key_display="esc", id="samples.close", tooltip="Close this window"),
    ]  # fmt: skip

    def __init__(
        self, run: str, read: Callable[[], list[Sample]], failed: Callable[[Exception], None]
    ) -> None:
        super().__init__(f"samples of {run}")
        self._run, self._read, self._failed = run, read, failed
        self._samples: list[Sample] = []
        self._at = 0

    def content(self) -> Iterable[Widget]:
        yield Static("", markup=False)

    def on_mount(self) -> None:
        self._look()
        self.set_interval(LOOK, self._look)

    def _look(self) -> None:
        in_background(self, self._read, self._came, self._failed)

    def _came(self, samples: list[Sample]) -> None:
        if samples == self._samples:
            return
        self._samples = samples
        self._show()
        self.query_one(VerticalScroll).scroll_end(animate=False)

    def action_turn(self, step: int) -> None:
        prompts = prompts_of(self._samples)
        if prompts:
            self._at = (self._at + step) % len(prompts)
            self._show()

    def _show(self) -> None:
        prompts = prompts_of(self._samples)
        prompt = prompts[min(self._at, len(prompts) - 1)] if prompts else ""
        box = self.query_one(VerticalScroll)
        of = f"   prompt {self._at + 1} of {len(prompts)}" if len(prompts) > 1 else ""
        box.border_subtitle = Text(clean_line(f"{prompt}{of}", 200))  # pyright: ignore[reportAttributeAccessIssue]
        self.query_one(Static).update(samples_text(of_prompt(self._samples, prompt), prompt))


def samples_text(samples: Sequence[Sample], prompt: str) -> Content:
    """Oldest first: the iteration, the perplexity of the answer for the model itself, prompt dim, continuation bright."""
    pieces: list[tuple[str, str]] = []
    for sample in samples:
        sure = f"   perplexity {math.exp(min(-sample.mean, 700)):.3g}" if sample.mean is not None else ""
        pieces.append((f"\niteration {sample.iteration:,}{sure}\n", f"{DIM} italic"))
        if sample.skipped:
            pieces.append((f"none: {clean(sample.skipped)}\n", "$text-warning"))
        else:
            pieces += [(clean(prompt), DIM), (f"{clean(sample.continuation)}\n", "")]
    return Content.assemble(*pieces)
