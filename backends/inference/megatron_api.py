"""PUT /api, the protocol of Megatron-LM's text server since core_r0.8.0 and before.

Success is only a reply that is an object with "text": most refusals come as HTTP 200 with a bare JSON string.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

from backends.inference.exchange import Exchange, Reply, base_url
from backends.inference.refusals import refusal
from backends.inference.request import WAIT, Answered, Completion, Request, Token, cut_at_stop
from backends.text import clean

PLACE = "/api"


class MegatronClient:
    """The server at `url` ("http://127.0.0.1:8028", or "127.0.0.1:8028"). `wait`: s for an answer, queue included."""

    dialect = "Megatron-LM"

    def __init__(self, url: str, wait: float = WAIT) -> None:
        self.url = base_url(url)
        self._http = Exchange(self.url, wait)

    def answer(self, request: Request) -> Iterator[Answered]:
        """One completion, at once: this protocol does not stream. Raises UserError."""
        began = time.monotonic()
        reply = self._http.ask("PUT", PLACE, body_of(request))
        yield read_reply(request, reply, time.monotonic() - began)

    def score(self, text: str) -> tuple[Token, ...]:
        """The tokens of `text` behind the mark that begins a document (add_BOS), so the first is scored too."""
        body = {"prompts": [text], "tokens_to_generate": 0, "logprobs": True, "add_BOS": True, "no_log": True}
        reply = self._http.ask("PUT", PLACE, body)
        return read_reply(Request(text), reply, 0.0).tokens[1:]


def body_of(request: Request) -> dict[str, Any]:
    """The JSON of the request: the server insists on floats where it wants floats.

    Of texts to stop at it knows one newline and two; others are cut away afterwards.
    """
    body: dict[str, Any] = {
        "prompts": [request.prompt],
        "tokens_to_generate": request.tokens,
        "temperature": float(request.temperature),
        "top_k": request.top_k,
        "top_p": float(request.top_p),
        "add_BOS": not request.prompt,
    }
    if request.seed is not None:
        body["random_seed"] = request.seed
    if request.logprobs:
        body["logprobs"] = True
    if "\n" in request.stop:
        body["stop_on_eol"] = True
    elif "\n\n" in request.stop:
        body["stop_on_double_eol"] = True
    return body


def read_reply(request: Request, reply: Reply, seconds: float) -> Completion:
    """A completion, or UserError with the server's own words."""
    value = reply.value()
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        texts = found.get("text")
        if isinstance(texts, list) and texts and isinstance(texts[0], str):
            return _completion(request, texts[0], found, seconds)
    raise refusal(reply, PLACE)


def _completion(request: Request, text: str, reply: dict[str, Any], seconds: float) -> Completion:
    tokens = _tokens(_first_list(reply.get("segments")) or [], _first_list(reply.get("logprobs")))
    whole = text[len(request.prompt) :] if text.startswith(request.prompt) else text
    made = _generated(tokens, clean(whole))
    continuation = cut_at_stop(whole, request.stop)
    kept = text[: len(text) - len(whole) + len(continuation)]
    cut = len(continuation) < len(whole)
    return Completion(
        prompt=request.prompt,
        text=clean(kept),
        continuation=clean(continuation),
        tokens=tokens,
        seconds=seconds,
        of_prompt=len(tokens) - made,
        generated=made or None,
        cut=cut,
    )


def _tokens(segments: list[Any], logprobs: list[Any] | None) -> tuple[Token, ...]:
    """`logprobs` begin with the second token: nothing comes before the first."""
    numbers: list[float | None] = [None]
    numbers += [value if isinstance(value, float) else None for value in logprobs or []]
    numbers += [None] * (len(segments) - len(numbers))
    return tuple(Token(clean(str(text)), number) for text, number in zip(segments, numbers, strict=False))


def _generated(tokens: tuple[Token, ...], continuation: str) -> int:
    """How many tokens at the end make up `continuation`: the reply does not say where the prompt ends."""
    made, rest = 0, len(continuation)
    for token in reversed(tokens):
        if rest <= 0:
            break
        made, rest = made + 1, rest - len(token.text)
    return made


def _first_list(value: Any) -> list[Any] | None:
    """The inner list of `[[…]]`, of which there is one a prompt."""
    outer = cast("list[Any]", value) if isinstance(value, list) else []
    return cast("list[Any]", outer[0]) if outer and isinstance(outer[0], list) else None
