"""The choices of a launch as typed into a form: texts and switches. They become a plan, and remedies change them."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from backends.errors import UserError
from backends.launch.form_fields import BESIDE, DEFAULTS, DEMO_DEFAULTS, FIELD_OF, FLAGS, MEGATRON_ONLY
from backends.launch.placement import Placement, default_launcher, placed
from backends.models.acceleration import (
    ACCELERATIONS,
    RECOMPUTATION_FLAGS,
    RECOMPUTATIONS,
    Effect,
    accelerated,
    effect,
    recomputation,
)
from backends.models.arguments import group_arguments, merge_arguments, without
from backends.models.configuration import ArgumentError, Arguments
from backends.models.layout import apply_fix
from backends.models.presets import Preset
from backends.models.problem import Fix
from backends.runs.plan import RunPlan
from backends.runs.planning import new_save_folder, train_plan
from backends.runs.resuming import Resumption, loading
from backends.tracking.place import chosen_environment
from backends.workspace import Workspace

NO_IMAGE = "none"


@dataclass(frozen=True, slots=True)
class Choices:
    """`texts` by the names of FLAGS and of the fields below; "" or a missing one means the preset's value.

    More texts: launcher, gpus (a number or a list), hosts (a hostfile), image (a .sif, or none), save (a base), load (a checkpoint), mlflow (an
    address, or off), more (Megatron's arguments), less (flags of the preset that are taken away). `accelerations` holds those
    that are to differ from the preset, `recompute` a kind of recomputation.
    """

    preset: Preset
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    accelerations: Mapping[str, bool] = field(default_factory=dict[str, bool])
    recompute: str | None = None
    no_home: bool = False

    @property
    def demo(self) -> bool:
        return self.preset.trainer == "demo"

    def text(self, name: str) -> str:
        """The text of a field; "" if the trainer has no such option."""
        return "" if self.demo and name in MEGATRON_ONLY else self.texts.get(name, "").strip()

    def words(self, name: str) -> tuple[str, ...]:
        """Raises UserError for an unclosed quotation."""
        try:
            return tuple(shlex.split(self.text(name)))
        except ValueError as error:
            raise UserError(f"{self.text(name)!r} cannot be read: {error}.", "Close the quotation.") from None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Megatron's arguments. Raises UserError for unreadable text."""
        return merge_arguments(self._base(), self._changes())

    def changed(self, name: str, text: str) -> Choices:
        return dataclasses.replace(self, texts={**self.texts, name: text})

    def _base(self) -> tuple[str, ...]:
        taken = without(self.preset.arguments, *self.words("less"))
        if self.demo:
            return taken
        wanted = [name for name, on in self.accelerations.items() if on]
        unwanted = [name for name, on in self.accelerations.items() if not on]
        return accelerated(taken, wanted, unwanted, self.recompute)

    def _changes(self) -> tuple[str, ...]:
        changes: list[str] = []
        for name, flag in FLAGS.items():
            if words := self.words(name):
                changes += [flag, *words]
        more = self.words("more")
        if more and not more[0].startswith("--"):
            raise UserError(f"{more[0]!r} is no flag.", "Write Megatron's arguments: --flag value …")
        return (*changes, *more)


def gpus_of(text: str) -> tuple[int, ...] | None:
    """ "4": the first four; "0,2": these; "": not said. Raises UserError."""
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isascii() and word.isdigit() and len(word) < 6 for word in words):
        raise UserError(
            f"{text!r} is neither a number of GPUs nor a list such as 0,1.", "Write 4, or 0,1,2,3.", status=2
        )
    numbers = tuple(int(word) for word in words)
    chosen = tuple(range(numbers[0])) if len(numbers) == 1 and "," not in text else numbers
    if text and (not chosen or len(set(chosen)) != len(chosen)):
        raise UserError(f"{text!r} names no GPU, or one twice.", "Write 4, or 0,1,2,3.", status=2)
    return chosen or None


def plan_of(
    choices: Choices, workspace: Workspace, now: datetime, present: int | None = None
) -> tuple[RunPlan, Resumption | None]:
    """The plan of a new run, and the resumption if it loads a checkpoint. `present`: the number of GPUs of this machine.

    Raises UserError for what cannot be read.
    """
    preset = choices.preset
    launcher = chosen_launcher(choices)
    gpus = gpus_of(choices.text("gpus"))
    base = Path(choices.text("save")).expanduser() if choices.text("save") else workspace.checkpoints
    image = choices.text("image")
    hosts = Path(choices.text("hosts")) if choices.text("hosts") else None
    wish = Placement(
        launcher=launcher,
        gpus=None if choices.demo else gpus,
        processes=len(gpus) if choices.demo and gpus else None,
        image=Path(image) if image and image != NO_IMAGE else None,
        in_image=image != NO_IMAGE,
        no_home=choices.no_home,
        hostfile=hosts,
    )
    plan = train_plan(
        preset.trainer,
        choices.arguments,
        (),
        new_save_folder(base, now),
        preset=preset.name,
        title=preset.title,
        launcher=launcher,
    )
    plan = placed(plan, workspace, wish, present=present, usual=preset.gpus)
    tracked = {**plan.environment, **chosen_environment(choices.text("mlflow"))}
    plan = dataclasses.replace(plan, environment=tracked)
    if choices.text("load"):
        resumption = loading(workspace, plan, Path(choices.text("load")))
        return resumption.plan, resumption
    return plan, None


def chosen_launcher(choices: Choices) -> str:
    return choices.text("launcher") or default_launcher(choices.preset.trainer)


def with_preset(choices: Choices, preset: Preset) -> Choices:
    """Choose another preset. Texts about Megatron's arguments are dropped: they belonged to the old one."""
    kept = {
        name: text
        for name, text in choices.texts.items()
        if name not in FLAGS and name not in ("more", "less")
    }
    return dataclasses.replace(choices, preset=preset, texts=kept, accelerations={}, recompute=None)


def with_remedy(choices: Choices, fix: Fix, presets: Mapping[str, Preset] | None = None) -> Choices:
    """`choices` with a remedy applied: written into the fields that it concerns, the rest into the extra arguments.

    `presets`: those that a remedy may name.
    """
    if (named := fix.get("preset")) and named[0] in (presets or {}):
        choices = with_preset(choices, (presets or {})[named[0]])
    fix = {key: words for key, words in fix.items() if key != "preset"}
    texts = dict(choices.texts)
    switched = dict(choices.accelerations)
    recompute = choices.recompute
    rest: dict[str, tuple[str, ...] | None] = {}
    for key, words in fix.items():
        if key in FIELD_OF:
            texts[FIELD_OF[key]] = " ".join(words or ())
            rest |= {} if words else {key: None}
        elif key == "processes" and words:
            texts["gpus"] = words[0]
        elif key in ("gpus", "launcher", "save") and words:
            texts[key] = words[0]
        elif (name := BESIDE.get(key)) in {choice.name for choice in ACCELERATIONS}:
            switched[str(name)] = words is not None
        elif key in RECOMPUTATION_FLAGS:
            recompute = _recompute(choices, fix)
        else:
            rest[key] = words
    changed = dataclasses.replace(choices, texts=texts, accelerations=switched, recompute=recompute)
    # Flags with a field of their own are removed from the extra arguments.
    more = without(merge_arguments(changed.words("more"), ()), *(flag for flag in fix if flag not in rest))
    return _with_flags(changed.changed("more", shlex.join(more)), rest)


def _recompute(choices: Choices, fix: Fix) -> str:
    """The kind of recomputation that the remedy results in; "none" for one that the form does not offer."""
    after = recomputation(Arguments(apply_fix(choices.arguments, fix)))
    return after if after in RECOMPUTATIONS else "none"


def _with_flags(choices: Choices, fix: Fix) -> Choices:
    """Apply flags that have no field: set them in the extra arguments, or remove them there and from the preset."""
    if not fix:
        return choices
    more = merge_arguments(choices.words("more"), ())
    less = list(choices.words("less"))
    of_preset = {flag for flag, _ in group_arguments(choices.preset.arguments)}
    for flag, words in fix.items():
        more = merge_arguments(more, (flag, *words)) if words is not None else without(more, flag)
        if words is None and flag in of_preset and flag not in less:
            less.append(flag)
        if words is not None and flag in less:
            less.remove(flag)
    return choices.changed("more", shlex.join(more)).changed("less", shlex.join(less))


def value_without(choices: Choices, name: str) -> str:
    """The placeholder of an empty field: the preset's value, or the default."""
    if name in FLAGS and (words := Arguments(choices.preset.arguments).words(FLAGS[name])):
        return " ".join(words)
    return DEMO_DEFAULTS[name] if choices.demo and name in DEMO_DEFAULTS else DEFAULTS.get(name, "")


def accelerations_of(arguments: Sequence[str]) -> tuple[dict[str, bool], str]:
    """The state of each choice in `arguments`, and the kind of recomputation."""
    given = Arguments(arguments)
    return {choice.name: choice.is_on(given) for choice in ACCELERATIONS}, recomputation(given)


def effects_of(arguments: Sequence[str], gpus: int, vocab_size: int | None) -> dict[str, Effect]:
    """What each choice saves, or would save if it were on. Empty when the arguments cannot be read."""
    found: dict[str, Effect] = {}
    for choice in ACCELERATIONS:
        with_it, without_it = (apply_fix(arguments, choice.fix(on)) for on in (True, False))
        try:
            found[choice.name] = effect(without_it, with_it, gpus, vocab_size)
        except ArgumentError:
            return {}
    return found
