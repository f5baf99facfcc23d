"""A request to a text server and its answer, independent of the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from backends.errors import UserError

WAIT = 600.0  # s for an answer; Megatron-LM's server answers one request at a time, and a large model is slow


@dataclass(frozen=True, slots=True)
class Request:
    """What to complete, and how. `top_k` 1 is greedy; `top_k` and `top_p` exclude each other; 0 turns either off.

    `stop`: the answer ends before the first of these texts. `alternatives`: how many of the likeliest tokens to return at
    each place, if the server can.
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
    """One token as text, cleaned. `logprob`: natural logarithm, given all tokens before it; None if unknown.

    `alternatives`: the likeliest tokens at this place with their log-probabilities, best first; empty if unknown.
    """

    text: str
    logprob: float | None = None
    alternatives: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """`text`: the prompt and its continuation (in a chat only the answer), cleaned.

    `tokens`: if the server returns the tokens of the prompt, they are the first `of_prompt`. `generated`: the number of
    tokens made, if known. `cut`: a stop text was cut off here, not by the server. `iteration`: of the checkpoint that
    answered, if the server says so (the demo's does).
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
    """A text server, whatever its protocol."""

    @property
    def url(self) -> str:
        """The server's address, with the path if one was given."""
        ...

    @property
    def dialect(self) -> str:
        """The protocol, in words for the user."""
        ...

    def answer(self, request: Request) -> Iterator[Answered]:
        """The continuation so far, each time it grows (if the server streams), and the completion at last.

        Leaving the iteration closes the connection. Raises UserError for anything that the server or the network does.
        """
        ...

    def score(self, text: str) -> tuple[Token, ...]:
        """The tokens of `text`, each with its log-probability given those before. Raises UserError."""
        ...


class HalfAnswerError(UserError):
    """The answer broke off. `said`: the continuation until then, cleaned."""

    def __init__(self, said: str, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.said = said


class TooLongError(UserError):
    """The request has more tokens than the model takes."""


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
