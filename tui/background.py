"""Runs work in a thread and delivers its result in the event loop, so that no disk or network blocks the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from textual.message_pump import MessagePump

from tui.bridge import Bridge

Result = TypeVar("Result")


def in_background(
    node: MessagePump,
    work: Callable[[], Result],
    done: Callable[[Result], None],
    failed: Callable[[Exception], None],
) -> Bridge[Result]:
    """`done` gets what `work` returns, `failed` what it raises. Neither is called after `close` of the returned object."""

    def once() -> Iterator[Result]:
        yield work()

    return Bridge(node, once, done, failed=failed).start()
