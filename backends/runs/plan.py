"""What is to run, decided before anything is started: a `RunPlan`, and what is wrong with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from backends.errors import UserError
from backends.models.arguments import data_prefixes, int_of, value_of
from backends.models.problem import Problem
from backends.runs.checkpoints import read_tracker

Kind: TypeAlias = Literal["train", "serve"]
Trainer: TypeAlias = Literal["demo", "megatron", "server"]

KINDS = ("train", "serve")
TRAINERS = ("demo", "megatron", "server")
COUNTS = ("--train-iters", "--micro-batch-size", "--global-batch-size", "--num-layers", "--hidden-size",
          "--num-attention-heads", "--seq-length", "--save-interval", "--log-interval")  # fmt: skip
NO_DATA = "Give the prefix of an .idx file, as `mdk-tui data PREFIX` finds it."


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run as it is launched; `plan.json` holds exactly this.

    `arguments` are Megatron's, without `--load` and `--save`: those follow from `load` and `save` (absolute paths).
    `trainer` with kind "serve" is "demo" (the demo's text server) or "server" (Megatron-LM's).
    `layout` holds sizes by Megatron's names (tp, pp, cp, dp); `environment` what is added to the environment. `data` is
    the value of `--data-path`. `command`, where there is one, is what the user made of the launcher's: it runs instead,
    with `environment` as all that is added; `batch` is what was made of its batch script.
    """

    kind: Kind
    trainer: Trainer
    launcher: str = "local"
    preset: str = ""
    title: str = ""
    image: str | None = None
    image_options: tuple[str, ...] = ()  # of `singularity exec`, before those of the settings
    arguments: tuple[str, ...] = ()
    processes: int = 1
    gpus: tuple[int, ...] | None = None  # None: all that are visible
    hosts: tuple[str, ...] = ()
    layout: Mapping[str, int] = field(default_factory=dict[str, int])
    data: str | None = None
    load: str | None = None
    save: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    commit: str | None = None
    patches: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    batch: str = ""
    parent: str | None = None  # the run that this one continues, or branched from
    attempt: int = 0  # how many automatic resumes in a row have led to this run

    @property
    def train_iters(self) -> int | None:
        return int_of(self.arguments, "--train-iters")

    @property
    def save_interval(self) -> int | None:
        """Iterations between two saves."""
        return int_of(self.arguments, "--save-interval")

    @property
    def begins_anew(self) -> bool:
        """Whether it counts iterations from 0, whatever it loads."""
        return value_of(self.arguments, "--finetune") is not None

    def check(self) -> list[Problem]:
        """What is wrong, as far as the plan and the disk can tell. A launcher has its own checks on top."""
        problems = [*_check_words(self), *_check_load(self)]
        return problems + (_check_training(self) if self.kind == "train" else [])

    def moved(self, old: str, new: str) -> RunPlan:
        """What was edited by hand, with the folder `new` in the place of `old`."""
        words = tuple(word.replace(old, new) for word in self.command)
        return dataclasses.replace(self, command=words, batch=self.batch.replace(old, new))

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any], source: object) -> RunPlan:
        """The plan in `value`, whatever others wrote there. Raises UserError naming `source` and the key that is wrong.

        Unknown keys are left out: a newer version may have written them.
        """
        known = {f.name: f for f in dataclasses.fields(cls)}
        taken: dict[str, Any] = {}
        for name, item in value.items():
            if name in known:
                taken[name] = _typed(name, known[name].type, item, source)
        if taken.get("kind") not in KINDS or taken.get("trainer") not in TRAINERS:
            raise _unreadable(source, "kind or trainer")
        return cls(**taken)


def _typed(name: str, declared: object, item: Any, source: object) -> Any:
    kind = str(declared)
    if item is None and "None" in kind:
        return None
    if kind.startswith("tuple"):
        inner = int if "int" in kind else str
        if isinstance(item, list) and all(type(word) is inner for word in cast("list[Any]", item)):
            return tuple(cast("list[Any]", item))
    elif kind.startswith("Mapping"):
        inner = int if "int" in kind else str
        if isinstance(item, dict) and all(type(v) is inner for v in cast("dict[str, Any]", item).values()):
            return cast("dict[str, Any]", item)
    elif type(item) is (int if kind == "int" else str):
        return item
    raise _unreadable(source, name)


def _unreadable(source: object, key: str) -> UserError:
    return UserError(
        f"{source} is not a plan of mdk-tui: {key} is missing or of the wrong kind.",
        "Launch a new run; its log can still be read with `mdk-tui watch`.",
    )


def _check_words(plan: RunPlan) -> list[Problem]:
    problems: list[Problem] = []
    if (plan.kind, plan.trainer) in (("train", "server"), ("serve", "megatron")):
        wanted = "demo or megatron" if plan.kind == "train" else "demo or server"
        problems.append(
            Problem("error", "trainer", f"{plan.trainer} does not {plan.kind}.", f"Choose trainer {wanted}.")
        )
    for flag, field_name, instead in (
        ("--save", "save", "Name the base before the `--`: --save BASE. The dated folder below it is chosen once."),
        ("--load", "load", "Name the folder before the `--`: --load DIR, or use `mdk-tui resume DIR`; both look at it before they start."),
    ):  # fmt: skip
        if value_of(plan.arguments, flag) is not None:
            problems.append(Problem("error", field_name, f"{flag} is among the Megatron arguments.", instead))
    if any("\0" in word for word in plan.arguments):
        problems.append(Problem("error", "arguments", "An argument holds a zero byte.", "Take it out."))
    return problems


def _check_load(plan: RunPlan) -> list[Problem]:
    """Never a silent start from random weights: Megatron-LM itself does not stop for a missing tracker file."""
    if plan.load is None or value_of(plan.arguments, "--wait-for-checkpoint") is not None:
        return []
    problem = read_tracker(Path(plan.load)).problem
    if problem is None:
        return []
    message = f"{plan.load} holds no checkpoint to load. {problem}"
    return [
        Problem("error", "load", message, "Name a dated folder that `mdk-tui checkpoints` shows as tracked.")
    ]


def _check_training(plan: RunPlan) -> list[Problem]:
    problems: list[Problem] = []
    for flag in COUNTS:
        value = value_of(plan.arguments, flag)
        if value is not None and not (value.isascii() and value.isdigit() and int(value) > 0):
            problems.append(
                Problem(
                    "error",
                    flag,
                    f"{flag} {value!r} is no positive whole number.",
                    "Give it a number above 0.",
                )
            )
    if plan.trainer == "demo":  # Megatron's sizes are checked with its layout, by models/layout_checks.py
        problems += _check_sizes(plan)
    if plan.save is not None and value_of(plan.arguments, "--save-interval") is None:
        message = (
            "--save without --save-interval: core_r0.8.0 fails after training and loses the last checkpoint."
        )
        fix = {"--save-interval": ("1000",)}
        problems.append(Problem("error", "--save-interval", message, "Add --save-interval 1000.", fix))
    if (
        value_of(plan.arguments, "--train-iters") is None
        and value_of(plan.arguments, "--train-samples") is None
    ):
        problems.append(
            Problem("error", "--train-iters", "It is not said how long to train.", "Add --train-iters N.")
        )
    for prefix in data_prefixes(plan.arguments):
        if not any(Path(prefix + end).exists() for end in ("", ".idx")):
            problems.append(Problem("error", "--data-path", f"There is no data at {prefix}.", NO_DATA))
    return problems


def _check_sizes(plan: RunPlan) -> list[Problem]:
    problems: list[Problem] = []
    hidden, heads = (int_of(plan.arguments, flag) for flag in ("--hidden-size", "--num-attention-heads"))
    if hidden and heads and hidden % heads:
        message = f"--hidden-size {hidden} is not divisible by --num-attention-heads {heads}."
        near = max(1, round(hidden / heads)) * heads
        fix = {"--hidden-size": (str(near),)}
        problems.append(Problem("error", "--hidden-size", message, f"Try --hidden-size {near}.", fix))
    micro, batch = (int_of(plan.arguments, flag) for flag in ("--micro-batch-size", "--global-batch-size"))
    ranks = plan.layout.get("dp", 1)
    if micro and batch and batch % (micro * ranks):
        message = f"--global-batch-size {batch} is not divisible by --micro-batch-size {micro} × {ranks} data-parallel ranks."
        near = max(1, round(batch / (micro * ranks))) * micro * ranks
        fix = {"--global-batch-size": (str(near),)}
        problems.append(
            Problem("error", "--global-batch-size", message, f"Try --global-batch-size {near}.", fix)
        )
    return problems
