"""The acceleration choices of the launch form as options of `launch` and `estimate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import click

from backends.models.acceleration import ACCELERATIONS, RECOMPUTATIONS, accelerated
from backends.models.arguments import without
from tui.commands.options import grouped

# The arguments of a preset, with the choices made.
Accelerate: TypeAlias = Callable[[Sequence[str]], tuple[str, ...]]

NAMES = click.Choice([choice.name for choice in ACCELERATIONS])
LISTED = "; ".join(f"{choice.name}: {choice.note}" for choice in ACCELERATIONS)


def _accelerate(wanted: tuple[str, ...], unwanted: tuple[str, ...], recompute: str | None) -> Accelerate:
    flags = [name for name in unwanted if name.startswith("--")]
    names = [name for name in unwanted if name not in flags]
    for name in names:
        NAMES.convert(name, None, None)  # an unknown name is refused with the list of those there are
    return lambda words: accelerated(without(words, *flags), wanted, names, recompute)


# Gives a command its `accelerate`.
acceleration_options = grouped(
    "accelerate",
    _accelerate,
    click.option("--with", "wanted", type=NAMES, multiple=True, help=f"Turn it on. {LISTED}."),
    click.option("--without", "unwanted", multiple=True, metavar="NAME|--FLAG", help="Turn it off, or take this flag of the preset away."),
    click.option("--recompute", type=click.Choice(list(RECOMPUTATIONS)), help="Recompute activations, to save memory."),
)  # fmt: skip
