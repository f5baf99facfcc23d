"""Resolves many host names at once within a time limit, so that a dead name server delays nothing."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping

LIMIT = 3.0  # s for all names together
TOGETHER = 32


def look_up(name: str) -> str:
    """The first address of `name`. Raises OSError (UnicodeError for what cannot be a name)."""
    return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])


def resolve(
    names: Iterable[str], limit: float = LIMIT, look: Callable[[str], str] = look_up
) -> Mapping[str, str | None]:
    """Name → address, None for an unknown name. A name without an answer within `limit` s is missing."""
    wanted = list(dict.fromkeys(names))
    todo: queue.SimpleQueue[str] = queue.SimpleQueue()
    found: queue.SimpleQueue[tuple[str, str | None]] = queue.SimpleQueue()
    for name in wanted:
        todo.put(name)

    def work() -> None:
        while True:
            try:
                name = todo.get_nowait()
            except queue.Empty:
                return
            try:
                found.put((name, look(name.rpartition("@")[2])))
            except (OSError, UnicodeError):
                found.put((name, None))

    for _ in range(min(len(wanted), TOGETHER)):
        threading.Thread(target=work, daemon=True, name="resolve").start()
    answers: dict[str, str | None] = {}
    deadline = time.monotonic() + limit
    while len(answers) < len(wanted):
        try:
            name, address = found.get(timeout=max(deadline - time.monotonic(), 0.0))
        except queue.Empty:
            break
        answers[name] = address
    return answers
