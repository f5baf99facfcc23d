"""Runs the command of [notify] when a run ends, fails or needs attention.

Also when it waits in a queue for long, when its nodes are silent, and when it is resumed automatically or is not.
"""

from __future__ import annotations

import contextlib
import math
import subprocess
import time
from collections.abc import Callable, Iterator

from backends.runs.plan import RunPlan
from backends.runs.state import RunState
from backends.settings import NotifySettings
from backends.text import clean, clean_line

LIMIT = 60.0  # s that the command may take
SUBJECT = "{subject}"  # in an argument of the command: the news in a line
LONGEST = 200  # characters of a subject


def news(before: RunState, now: RunState) -> Iterator[str]:
    """What changed between `before` and `now` that a person wants to know, the most important last."""
    if now.signs.error and now.signs.error != before.signs.error and not now.over:
        yield f"an error is in the log: {now.signs.error}"
    if now.signs.nan_alert and now.signs.nan_alert != before.signs.nan_alert:
        yield now.signs.nan_alert
    if now.reason and now.reason != before.reason and not now.over:
        yield now.reason
    if now.over and not before.over:
        iteration = f" at iteration {now.iteration:,}" if now.iteration is not None else ""
        if now.phase == "finished":
            yield f"finished{iteration}"
        else:
            again = f" {now.again.words()}" if now.again else ""
            yield f"{now.phase}{iteration}: {now.reason or 'no reason is known'}{again}"
    elif now.again and now.again != before.again:
        yield now.again.words()


class Standing:
    """A notice that is told once, when it has lasted for `patience` s."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: float | None = None
        self._told = False

    def look(self, words: str | None, now: float) -> Iterator[str]:
        """Yield `words` if they are due. They may change while the notice lasts. It is told again only after it was gone."""
        if not words:
            self._since, self._told = None, False
            return
        if self._since is None:
            self._since = now
        if not self._told and now - self._since >= self._patience:
            self._told = True
            yield words


class Notifier:
    """Runs the command for each piece of news, one at a time, without waiting for it."""

    def __init__(
        self,
        run: str,
        plan: RunPlan,
        state: RunState,
        settings: NotifySettings,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        nodes: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`nodes` returns what is wrong with the nodes now. It is called at each look."""
        self._run, self._title, self._before = run, plan.title, state
        self._settings, self._say, self._clock = settings, say, clock
        self._nodes = nodes
        self._queue = Standing(60 * settings.queue_minutes if settings.queue_minutes > 0 else math.inf)
        self._silence = Standing(0.0)  # the nodes were asked after a limit of their own
        self._waiting: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0

    def look(self, state: RunState) -> None:
        self._gather(state)
        if self._process is not None and not self._over(self._process):
            return
        if self._waiting:
            self._send([self._waiting.pop(0)])

    def close(self, final: RunState) -> None:
        """Send all remaining news in one message: the supervisor exits after this."""
        self._gather(final)
        if self._waiting:
            self._send(self._waiting)

    def _gather(self, state: RunState) -> None:
        now = self._clock()
        if not state.over:
            self._waiting += [*self._queue.look(state.note, now), *self._silence.look(self._nodes(), now)]
        self._waiting += news(self._before, state)
        self._before = state

    def _over(self, process: subprocess.Popen[bytes]) -> bool:
        status = process.poll()
        if status is None and self._clock() - self._started > LIMIT:
            process.kill()
            status = process.wait()
        if status is None:
            return False
        if status != 0:
            self._say(f"the command of [notify] ended with status {status}")
        self._process = None
        return True

    def _send(self, items: list[str]) -> None:
        subject = clean_line(f"mdk-tui: {self._run} {items[-1]}", LONGEST)
        lines = [f"{self._run}  {self._title}", *map(clean, items), f"mdk-tui attach {self._run}"]
        words = [word.replace(SUBJECT, subject) for word in self._settings.command]
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self._say(f"the command of [notify] could not be started: {error.strerror}")
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # the command need not read its input; the text fits into a pipe
            process.stdin.write(("\n".join(lines) + "\n").encode()[:4000])
            process.stdin.close()
        self._process, self._started = process, self._clock()
