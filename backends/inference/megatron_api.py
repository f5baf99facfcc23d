"""PUT /api, the protocol of Megatron-LM's text server in core_r0.8.0, and in versions before and after it.

Only an object with "text" is a success: most refusals arrive as HTTP 200 with a bare JSON string.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

from backends.inference.exchange import Exchange, Reply, base_url
from backends.inference.refusals import refusal
from backends.inference.request import WAIT, Answered, Completion, Request, Token, cut_at_stop
from backends.inference.spelling import HALF, tokens_before
from backends.text import clean

PLACE = "/api"
MARK, LONGEST_MARK = re.compile(r"<[^<>\s]+>"), 32  # begins a document: "<s>", "<|begin_of_text|>"
BLANK, BYTE = "\u2581", re.compile(r"<0x([0-9A-F]{2})>")


class MegatronClient:
    """The server at `url` ("http://127.0.0.1:8028", or "127.0.0.1:8028"). `wait`: s for an answer, queue included."""

    dialect = "Megatron-LM"

    def __init__(self, url: str, wait: float = WAIT) -> None:
        self.url = base_url(url)
        self._http = Exchange(self.url, wait)

    def answer(self, request: Request) -> Iterator[Answered]:
        """One completion in one piece, because this protocol does not stream. Raises UserError."""
        began = time.monotonic()
        reply = self._http.ask("PUT", PLACE, body_of(request))
        yield read_reply(request, reply, time.monotonic() - began)

    def score(self, text: str) -> tuple[Token, ...]:
        """The tokens of `text`. It is sent behind the mark that begins a document (add_BOS), so that the first is scored too."""
        body = {"prompts": [text], "tokens_to_generate": 0, "logprobs": True, "add_BOS": True, "no_log": True}
        reply = self._http.ask("PUT", PLACE, body)
        _, *tokens = read_reply(Request(text), reply, 0.0).tokens or (None,)
        # Llama's tokenizers add a mark of their own behind it.
        own = MARK.fullmatch(tokens[0].text) if tokens else None
        return tuple(tokens[1:] if own and not text.startswith(own[0]) else tokens)


def body_of(request: Request) -> dict[str, Any]:
    """The JSON of the request. The server refuses an integer for temperature and top-p.

    It can stop at one newline or at two; for other stop texts the answer is cut afterwards.
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
    tokens = _tokens(text, _first_list(reply.get("segments")) or [], _first_list(reply.get("logprobs")))
    begin = _begin(text, request.prompt, tokens)
    continuation = cut_at_stop(text[begin:], request.stop)
    # Unless the model ends early, as many tokens are made as were asked for.
    before = tokens_before(tokens, clean(text), len(clean(text[:begin])), len(tokens) - request.tokens)
    return Completion(
        prompt=request.prompt,
        text=clean(request.prompt + continuation if begin else continuation),
        continuation=clean(continuation),
        tokens=tokens,
        seconds=seconds,
        of_prompt=before,
        generated=len(tokens) - before or None,
        cut=len(continuation) < len(text) - begin,
        iteration=iteration if type(iteration := reply.get("iteration")) is int else None,
    )


def _begin(text: str, prompt: str, tokens: Sequence[Token]) -> int:
    """Where the continuation begins in `text`; 0 if the prompt is not in it.

    Llama's tokenizers put the mark that begins a document before the prompt and drop a blank at its start. For an empty
    prompt (add_BOS) every tokenizer writes a mark.
    """
    if not prompt:
        return len(tokens[0].text) if tokens and text.startswith(tokens[0].text) else 0
    known = prompt.lstrip()
    at = text.find(known, 0, len(known) + LONGEST_MARK)
    return at + len(known) if at >= 0 else 0


def _tokens(text: str, segments: Sequence[Any], logprobs: Sequence[Any] | None) -> tuple[Token, ...]:
    """`logprobs` begin with the second token, because the first has no context."""
    numbers: list[float | None] = [None]
    numbers += [value if isinstance(value, float) else None for value in logprobs or []]
    numbers += [None] * (len(segments) - len(numbers))
    spelled = [_spelled(str(segment), text) for segment in segments]
    return tuple(Token(clean(each), number) for each, number in zip(spelled, numbers, strict=False))


def _spelled(segment: str, text: str) -> str:
    """The part of `text` for a segment: SentencePiece writes a sign for a blank, and "<0x0A>" for a byte."""
    if segment in text:
        return segment
    if byte := BYTE.fullmatch(segment):
        return chr(int(byte[1], 16)) if int(byte[1], 16) < 128 else HALF
    return segment.replace(BLANK, " ")


def _first_list(value: Any) -> list[Any] | None:
    """The first inner list of `[[…]]`, which has one for each prompt."""
    outer = cast("list[Any]", value) if isinstance(value, list) else []
    return cast("list[Any]", outer[0]) if outer and isinstance(outer[0], list) else None
