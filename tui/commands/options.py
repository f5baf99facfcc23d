"""Options that several commands have, and options that reach a command as one value."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click

from backends.errors import UserError

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

PATH = click.Path(path_type=Path)
DRY_RUN = click.option("--dry-run", is_flag=True, help="Only print the command.")
CHECK = click.option("--check", is_flag=True, help="Exit 3 when something needs attention.")
ATTENTION = 3  # exit status with --check

# After the `--` these would go to Megatron-LM: a run would start that was only to be shown.
NOT_MEGATRONS = frozenset(
    ("--dry-run", "--json", "--preset", "--trainer", "--launcher", "--gpus", "--hostfile")
)


def json_option(says: str) -> Decorator:
    """`--json`, as `as_json`; `says` describes what is printed."""
    return click.option("--json", "as_json", is_flag=True, help=says)


def grouped(name: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Gives a command all `options`, and passes it `name` = `make(**their values)` instead of each of them."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **values: Any) -> Any:
            own = {key: values.pop(key) for key in keys}
            return function(*arguments, **{name: make(**own)}, **values)

        command: Callable[..., Any] = call
        before = len(_parameters(call))
        for option in reversed(options):
            command = option(command)
        keys = [parameter.name for parameter in _parameters(call)[before:]]
        return command

    return decorate


def _parameters(function: Callable[..., Any]) -> list[click.Parameter]:
    """The parameters that click's decorators have recorded at `function`."""
    return getattr(function, "__click_params__", [])


def megatron_arguments(words: Sequence[str]) -> tuple[str, ...]:
    """What follows `--`. Raises click.UsageError for a stray word and for an option of mdk-tui."""
    if words and not words[0].startswith("--"):
        raise click.UsageError(f"{words[0]!r} is no option. Megatron's arguments follow a `--`.")
    if ours := [word for word in words if word.partition("=")[0] in NOT_MEGATRONS]:
        raise click.UsageError(f"{ours[0]} is no argument of Megatron-LM: write it before the `--`.")
    return tuple(words)


MEGATRON_ARGUMENTS = click.argument(
    "arguments",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[-- MEGATRON ARGUMENTS]",
    callback=lambda context, parameter, words: megatron_arguments(words),
)


def ask(question: str, *, nothing: str, remedy: str) -> None:
    """Returns when the user agrees; a no ends the program.

    Raises UserError where there is no terminal to ask on; `nothing` is what was not done, as in "Nothing was removed".
    """
    if not sys.stdin.isatty():
        raise UserError(f"{nothing}: there is no terminal to ask on.", remedy, status=2)
    click.confirm(question, abort=True)
