"""The launch form: its rows, what they show, and how a changed row changes the choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.widget import Widget

from backends.models.acceleration import ACCELERATIONS, RECOMPUTATIONS
from backends.models.presets import Preset
from backends.models.problem import Problem
from tui.screens import launch_words
from tui.screens.launch_rows import Changed, Entry, Form, Heading, LaunchButton, LineRow, OneOf, OnOff

if TYPE_CHECKING:
    from backends.launch.choices import Choices
    from tui.screens.launch_answer import Answer

ENTRIES: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    ("where", (
        ("gpus", "GPUs", "How many, or which: 4 or 0,1,2,3"),
        ("hosts", "hostfile", "Nodes, one a line: NAME slots=GPUS"),
        ("image", "image", "Run inside this .sif; none: without"),
    )),
    ("batch and parallel sizes", (
        ("tensor", "tensor par.", "--tensor-model-parallel-size: GPUs that share each layer"),
        ("pipeline", "pipeline par.", "--pipeline-model-parallel-size: GPUs with some of the layers each"),
        ("context", "context par.", "--context-parallel-size: GPUs that share each sequence"),
        ("micro", "micro batch", "--micro-batch-size: sequences of a GPU at a time"),
        ("batch", "global batch", "--global-batch-size: sequences of an iteration"),
        ("sequence", "sequence", "--seq-length in tokens"),
        ("iterations", "iterations", "--train-iters"),
    )),
    ("data", (
        ("data", "data prefix", "--data-path: the .idx file without its ending; several with weights: 0.3 a 0.7 b"),
        ("split", "split", "--split: training, validation, test"),
        ("tokenizer", "tokenizer", "--tokenizer-type"),
        ("tokenizer_model", "its model", "--tokenizer-model: file, folder or name"),
    )),
    ("checkpoints", (
        ("save", "save base", "Checkpoints go to a dated folder below it"),
        ("interval", "save interval", "--save-interval in iterations"),
        ("load", "resume from", "Begin with this checkpoint: a save folder, its base, or iter_N"),
    )),
)  # fmt: skip
LAST = (
    (
        "mlflow",
        "MLflow",
        "Address of the tracking server for this run, or off; empty: as MLFLOW_TRACKING_URI or mdk.toml say",
    ),
    ("less", "without flags", "Flags of the preset to take away"),
    ("more", "more arguments", "Megatron's own, as on a command line"),
)
RECOMPUTE = "activations, to save memory for time"
NO_HOME = "--no-home: the image does not see your home folder"
NAMES = frozenset(choice.name for choice in ACCELERATIONS)


class LaunchForm(Form):
    """Posts `Changed` when the user changes a row."""

    def __init__(self, *, id: str, ascii_only: bool) -> None:
        super().__init__(id=id)
        self._ascii_only = ascii_only

    def compose(self) -> ComposeResult:
        from backends.launch.form_fields import MEGATRON_ONLY

        def entry(name: str, label: str, tip: str) -> Entry:
            row = Entry(name, label, tip, ascii_only=self._ascii_only)
            row.set_class(name in MEGATRON_ONLY, "megatron")
            return row

        yield OneOf("preset", "preset", ascii_only=self._ascii_only)
        yield OneOf("launcher", "launcher", ascii_only=self._ascii_only)
        for heading, entries in ENTRIES:
            yield Heading(heading)
            yield from (entry(*words) for words in entries)
        yield Heading("faster, smaller", "megatron")
        yield from self._accelerations()
        yield Heading("more")
        yield from (entry(*words) for words in LAST)
        yield OnOff("no_home", "no home", note=NO_HOME, ascii_only=self._ascii_only)
        yield LaunchButton("start", ascii_only=self._ascii_only)

    def _accelerations(self) -> list[Widget]:
        rows: list[Widget] = [
            OnOff(choice.name, choice.label, note=choice.note, ascii_only=self._ascii_only)
            for choice in ACCELERATIONS
        ]
        rows.append(OneOf("recompute", "recompute", note=RECOMPUTE, ascii_only=self._ascii_only))
        for row in rows:
            row.add_class("megatron")
        return rows

    def offer(
        self, presets: Mapping[str, Preset], chosen: str, launchers: Sequence[str], *, mlflow: bool
    ) -> None:
        """Set what can be chosen. `mlflow`: it is installed."""
        self.query_one("#row-mlflow").display = mlflow
        self._one_of("preset").offer([(name, preset.title) for name, preset in presets.items()], chosen)
        self._one_of("launcher").offer([(name, "") for name in launchers], launchers[0])
        self._one_of("recompute").offer(list(RECOMPUTATIONS.items()), "none")

    def show(self, choices: Choices, answer: Answer) -> None:
        """Show the choices, and below each its problem."""
        from backends.launch.choices import chosen_launcher, value_without
        from backends.launch.form_fields import field_of

        beside: dict[str, Problem] = {}
        for problem in answer.problems:
            beside.setdefault(field_of(problem.field), problem)
        for row in self.query(Entry):
            row.write(choices.texts.get(row.row, ""))
            row.show(value_without(choices, row.row), beside.get(row.row))
        self._one_of("preset").show(choices.preset.name, beside.get("preset"))
        self._one_of("launcher").show(chosen_launcher(choices), beside.get("launcher"))
        self._one_of("recompute").show(answer.recompute, beside.get("recompute"))
        self.query_one("#row-no_home", OnOff).show(choices.no_home, "", None)
        for name in NAMES:
            effect = launch_words.effect_text(answer.effects.get(name), "-")
            self.query_one(f"#row-{name}", OnOff).show(answer.on.get(name, False), effect, beside.get(name))

    def _one_of(self, name: str) -> OneOf:
        return self.query_one(f"#row-{name}", OneOf)

    @property
    def marked(self) -> str | None:
        """The name of the row that has the focus."""
        for node in self.app.focused.ancestors_with_self if self.app.focused is not None else ():
            if isinstance(node, Entry | LineRow):
                return node.row
        return None


def changed(choices: Choices, presets: Mapping[str, Preset], event: Changed) -> Choices:
    """`choices` after the user changed one row."""
    name, value = event.name, event.value
    if name == "preset":
        return dataclasses.replace(choices, preset=presets[value])
    if name == "no_home":
        return dataclasses.replace(choices, no_home=bool(value))
    if name == "recompute":
        return dataclasses.replace(choices, recompute=value)
    if name in NAMES:
        return dataclasses.replace(choices, accelerations={**choices.accelerations, name: bool(value)})
    return choices.changed(name, value)
