"""OpenAI's completions and chat completions, as vLLM, llama.cpp and newer versions of Megatron-LM answer them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backends.errors import UserError
from backends.inference.exchange import Exchange, Reply
from backends.inference.openai_reply import Gathered
from backends.inference.refusals import refusal, words_of
from backends.inference.request import (
    WAIT,
    Answered,
    Completion,
    HalfAnswerError,
    Request,
    Token,
    cut_at_stop,
)
from backends.inference.spelling import tokens_before
from backends.inference.sse import event_data
from backends.text import clean, clean_line

DONE = "[DONE]"
# vLLM, llama.cpp and llama-cpp-python (by the owner of the model) cut the distribution by default: this turns that off.
WHOLE_DISTRIBUTION: Mapping[str, Mapping[str, float]] = {
    "vllm": {"top_k": -1, "top_p": 1.0},
    "llamacpp": {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "me": {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where completions are requested. `path`: such as "/v1/completions". `model`: the server's name for its model."""

    path: str
    model: str = ""
    owner: str = ""

    @property
    def chat(self) -> bool:
        return self.path.endswith("/chat/completions")


class OpenAiClient:
    """A client of the server at `base`. `wait`: s for an answer, and for silence within an answer."""

    def __init__(self, base: str, endpoint: Endpoint, wait: float = WAIT) -> None:
        self._base, self._endpoint = base, endpoint
        self._http = Exchange(base, wait)

    @property
    def url(self) -> str:
        return self._base + self._endpoint.path

    @property
    def dialect(self) -> str:
        kind = "chat" if self._endpoint.chat else "completions"
        return f"OpenAI {kind}{f', model {clean_line(self._endpoint.model, 100)}' if self._endpoint.model else ''}"

    def answer(self, request: Request) -> Iterator[Answered]:
        """The text so far as it arrives, and the completion at last. Raises UserError; HalfAnswerError for half an answer."""
        began = time.monotonic()
        gathered = Gathered(chat=self._endpoint.chat)
        body = body_of(request, self._endpoint)
        with self._http.open("POST", self._endpoint.path, body) as stream:
            if stream.status == 200 and Reply(200, b"", stream.headers).kind == "text/event-stream":
                yield from self._pieces(stream.chunks, gathered, request)
            else:
                self._take(stream.whole(), gathered)
        # llama-cpp-python ends a stream that it refuses without a reason; it gives one if asked not to stream.
        if gathered.empty:
            self._take(self._http.ask("POST", self._endpoint.path, body | {"stream": False}), gathered)
        yield self._completion(request, gathered, time.monotonic() - began)

    def _take(self, reply: Reply, gathered: Gathered) -> None:
        if reply.status != 200 or not gathered.add(reply.value()):
            raise refusal(reply, self._endpoint.path)

    def _pieces(self, chunks: Iterator[bytes], gathered: Gathered, request: Request) -> Iterator[str]:
        done = False
        try:
            for data in event_data(self._hanging_up(chunks)):
                done = data.strip() == DONE
                if done:
                    break
                content = data.encode()
                if not gathered.add(Reply(200, content, {}).value()):
                    raise refusal(Reply(400, content, {}), self._endpoint.path)
                yield clean(cut_at_stop(gathered.text, request.stop))
        except UserError as error:
            if not gathered.text:
                raise
            raise HalfAnswerError(clean(gathered.text), error.message, error.remedy) from None
        if not done and gathered.finish is None and not gathered.empty:
            raise HalfAnswerError(
                clean(gathered.text),
                "The answer broke off in the middle.",
                "The server may have died or been restarted; the prompt is still here: ask again.",
            )

    def _hanging_up(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """`chunks`, with failures of the network as UserError, so that half an answer can be kept."""
        with self._http.plain_words():
            yield from chunks

    def _completion(self, request: Request, gathered: Gathered, seconds: float) -> Completion:
        continuation = cut_at_stop(gathered.text, request.stop)
        shown = clean(continuation)
        return Completion(
            prompt=request.prompt,
            text=shown if self._endpoint.chat else clean(request.prompt) + shown,
            continuation=shown,
            tokens=tuple(gathered.tokens),
            seconds=seconds,
            generated=gathered.generated or len(gathered.tokens) or None,
            cut=len(continuation) < len(gathered.text),
        )

    def score(self, text: str) -> tuple[Token, ...]:
        """Scores with `echo`, which vLLM and Megatron-LM know. The one token that must be made is dropped."""
        if self._endpoint.chat:
            raise UserError(
                "A chat endpoint does not return the probabilities of a given text.",
                "Name the completions endpoint: --url http://HOST:PORT/v1/completions",
            )
        body = {"prompt": text, "max_tokens": 1, "temperature": 0.0, "echo": True, "logprobs": 1}
        reply = self._http.ask("POST", self._endpoint.path, _named(body, self._endpoint))
        gathered = Gathered(chat=False)
        if "echo" not in words_of(reply.value()):  # llama.cpp: "Only no echo is supported"
            self._take(reply, gathered)
        shown, made = clean(gathered.text), len(gathered.tokens) - 1
        tokens = gathered.tokens[: tokens_before(gathered.tokens, shown, len(clean(text)), made)]
        if not gathered.text.startswith(text) or not any(token.logprob is not None for token in tokens):
            raise UserError(
                "This server does not return the probabilities of a given text (it has no `echo`).",
                "Megatron-LM's own server and vLLM do.",
            )
        return tuple(tokens)


def body_of(request: Request, endpoint: Endpoint) -> dict[str, Any]:
    """The JSON of the request. Greedy is temperature 0. For parameters that are left out the server uses its defaults."""
    body: dict[str, Any] = {
        "max_tokens": request.tokens,
        "temperature": 0.0 if request.greedy else float(request.temperature),
        "stream": True,
    }
    body |= WHOLE_DISTRIBUTION.get(endpoint.owner, {})
    if request.top_k > 1:
        body["top_k"] = request.top_k
    if request.top_p > 0:
        body["top_p"] = float(request.top_p)
    if request.seed is not None:
        body["seed"] = request.seed
    if request.stop:
        body["stop"] = list(request.stop)
    alternatives = max(request.alternatives, 1)  # asked for 0, llama.cpp returns no log-probabilities
    if endpoint.chat:
        body["messages"] = [{"role": "user", "content": request.prompt}]
        if request.logprobs:
            body |= {"logprobs": True, "top_logprobs": alternatives}
    else:
        body["prompt"] = request.prompt
        if request.logprobs:
            body["logprobs"] = alternatives
    return _named(body, endpoint)


def _named(body: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    return {"model": endpoint.model, **body} if endpoint.model else body
