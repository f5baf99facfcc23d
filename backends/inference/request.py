"""What is asked of a text server and what it answers, whichever protocol it speaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from backends.errors import UserError

WAIT = 600.0  # s for an answer: Megatron-LM's server answers one request at a time, and a big model is slow


@dataclass(frozen=True, slots=True)
class Request:
    """What to complete, and how. `top_k` 1 is greedy; `top_k` and `top_p` exclude each other; 0 turns either off.

    `stop`: the answer ends before the first of these texts. `alternatives`: so many likeliest tokens are asked for at
    each place, where the server tells them.
    """

    prompt: str
    tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    alternatives: int = 0

    @property
    def greedy(self) -> bool:
        return self.top_k == 1


@dataclass(frozen=True, slots=True)
class Token:
    """One token as text, cleaned. `logprob`: natural, given all tokens before it; None: not told.

    `alternatives`: the likeliest tokens at its place with theirs, best first; none where they are not told.
    """

    text: str
    logprob: float | None = None
    alternatives: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """`text` is the prompt and its continuation (of a chat: the answer alone), cleaned.

    `tokens` are those of the prompt too where the server tells them; the first `of_prompt` are. `generated`: how many
    tokens were made, where it is known. `cut`: a stop text was cut away here, not by the server. `iteration`: of the
    checkpoint that answered, where the server says so (the demo's does).
    """

    prompt: str
    text: str
    continuation: str
    tokens: tuple[Token, ...]
    seconds: float
    of_prompt: int = 0
    generated: int | None = None
    cut: bool = False
    iteration: int | None = None

    @property
    def tokens_per_second(self) -> float | None:
        return self.generated / self.seconds if self.generated and self.seconds > 0 else None


Answered: TypeAlias = "str | Completion"


class TextClient(Protocol):
    """One text server, whatever it speaks."""

    @property
    def url(self) -> str:
        """Where the server is, with what was said of its path."""
        ...

    @property
    def dialect(self) -> str:
        """What it speaks, in words for people."""
        ...

    def answer(self, request: Request) -> Iterator[Answered]:
        """The continuation so far, again and again where the server streams, and the whole completion at last.

        Leaving the iteration hangs up. Raises UserError in plain words, whatever the server or the network does.
        """
        ...

    def score(self, text: str) -> tuple[Token, ...]:
        """The tokens of `text`, each with its log-probability given those before. Raises UserError."""
        ...


class HalfAnswerError(UserError):
    """The answer broke off; `said` is the continuation that had come, cleaned."""

    def __init__(self, said: str, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.said = said


class TooLongError(UserError):
    """The model does not take so many tokens at once."""


def complete(client: TextClient, request: Request) -> Completion:
    """The whole answer. Raises UserError."""
    for said in client.answer(request):
        if isinstance(said, Completion):
            return said
    raise UserError(f"{client.url} ended without an answer.", "See the server's log.")


def cut_at_stop(continuation: str, stop: tuple[str, ...]) -> str:
    """`continuation` up to the first of the `stop` texts."""
    places = [at for text in stop if text and (at := continuation.find(text)) >= 0]
    return continuation[: min(places)] if places else continuation
