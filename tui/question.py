"""One question to one server or to two at once, asked in threads, and the answers so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from textual.message_pump import MessagePump

from backends.errors import UserError
from backends.inference.history import Turn
from backends.inference.request import Completion, HalfAnswerError, Request, TextClient, Token
from backends.inference.server_title import label_of_answer
from tui.bridge import Bridge

Said: TypeAlias = "str | Completion | tuple[Token, ...]"


@dataclass(frozen=True, slots=True)
class Answerer:
    """A server that can be asked. `connect` may look at the network; `name` says which checkpoint it is, in words."""

    url: str
    name: str
    connect: Callable[[], TextClient]


def completing(answerer: Answerer, request: Request) -> Iterator[Said]:
    yield from answerer.connect().answer(request)


def scoring(answerer: Answerer, request: Request) -> Iterator[Said]:
    yield answerer.connect().score(request.prompt)


class Question:
    """`changed` is called in the event loop of `node` after each part of an answer. `waiting` ends when all have answered."""

    def __init__(
        self,
        node: MessagePump,
        answerers: Sequence[Answerer],
        request: Request,
        changed: Callable[[Question], None],
        report: Callable[[Exception], str],
        *,
        parent: float | None = None,
        score: bool = False,
    ) -> None:
        self.request = request
        self.began = time.monotonic()
        at = time.time()
        self.turns = [
            Turn(at, each.url, request, answered_by=each.name, parent=parent, scored=score)
            for each in answerers
        ]
        self._open = set(range(len(answerers)))
        self._changed, self._report = changed, report
        ask = scoring if score else completing
        self._bridges = [self._start(node, at, each, ask) for at, each in enumerate(answerers)]

    def _start(self, node: MessagePump, at: int, answerer: Answerer, ask: Callable[[Answerer, Request], Iterator[Said]]) -> Bridge[Said]:  # fmt: skip
        return Bridge(
            node,
            lambda: ask(answerer, self.request),
            lambda said: self._heard(at, said),
            failed=lambda error: self._failed(at, error),
        ).start()

    @property
    def waiting(self) -> bool:
        return bool(self._open)

    @property
    def answered(self) -> bool:
        """Whether all have answered without an error."""
        return not self._open and not any(turn.error for turn in self.turns)

    def close(self) -> None:
        """Hang up. `turns` keeps what has come so far."""
        self._open = set()
        for bridge in self._bridges:
            bridge.close()

    def _heard(self, at: int, said: Said) -> None:
        turn = self.turns[at]
        if isinstance(said, str):
            turn = replace(turn, continuation=said, seconds=time.monotonic() - self.began)
        elif isinstance(said, Completion):
            turn = replace(
                turn,
                continuation=said.continuation,
                seconds=said.seconds,
                tokens_per_second=said.tokens_per_second,
                tokens=said.tokens,
                of_prompt=said.of_prompt,
                answered_by=label_of_answer(turn.answered_by, said.iteration),
            )
            self._open.discard(at)
        else:
            turn = replace(turn, tokens=said, of_prompt=len(said), seconds=time.monotonic() - self.began)
            self._open.discard(at)
        self.turns[at] = turn
        self._changed(self)

    def _failed(self, at: int, error: Exception) -> None:
        words = str(error) if isinstance(error, UserError) else self._report(error)
        said = error.said if isinstance(error, HalfAnswerError) else self.turns[at].continuation
        self.turns[at] = replace(self.turns[at], error=words, continuation=said)
        self._open.discard(at)
        self._changed(self)
