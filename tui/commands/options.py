"""Options that several commands have, and options that reach a command as one value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import click

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

DRY_RUN = click.option("--dry-run", is_flag=True, help="Only print the command.")


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
    """What click's decorators have noted at `function` so far."""
    return getattr(function, "__click_params__", [])
