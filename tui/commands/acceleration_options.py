"""The acceleration choices as options: the same ones for `launch` and `estimate`, and the same as in the launch form."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import click

from backends.models.acceleration import ACCELERATIONS, RECOMPUTATIONS, accelerated
from backends.models.arguments import without

# The arguments of a preset, with the choices made.
Accelerate: TypeAlias = Callable[[Sequence[str]], tuple[str, ...]]

NAMES = click.Choice([choice.name for choice in ACCELERATIONS])
LISTED = "; ".join(f"{choice.name}: {choice.note}" for choice in ACCELERATIONS)
OPTIONS = (
    click.option("--with", "wanted", type=NAMES, multiple=True, help=f"Use it. {LISTED}."),
    click.option("--without", "unwanted", multiple=True, metavar="NAME|--FLAG", help="Not, whatever the preset says."),
    click.option("--recompute", type=click.Choice(list(RECOMPUTATIONS)), help="Of activations, to save memory."),
)  # fmt: skip


def acceleration_options(function: Callable[..., int]) -> Callable[..., int]:
    """Adds the options to a command, which gets what they do to a preset's arguments as `accelerate`."""

    @functools.wraps(function)
    def command(
        *arguments: Any,
        wanted: tuple[str, ...],
        unwanted: tuple[str, ...],
        recompute: str | None,
        **others: Any,
    ) -> int:
        flags = [name for name in unwanted if name.startswith("--")]
        names = [name for name in unwanted if name not in flags]
        for name in names:
            NAMES.convert(name, None, None)  # or click says which there are

        def accelerate(words: Sequence[str]) -> tuple[str, ...]:
            return accelerated(without(words, *flags), wanted, names, recompute)

        return function(*arguments, accelerate=accelerate, **others)

    for option in reversed(OPTIONS):
        command = option(command)
    return command
