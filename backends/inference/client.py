"""The text server's protocol, from the client's side: PUT /api of core_r0.8.0.

Success is only a reply that is an object with "text": most refusals come as HTTP 200 with a bare JSON string.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, cast

from backends.errors import UserError
from backends.text import clean, clean_line

CONNECT = 5.0  # s
WAIT = 600.0  # s for an answer: the server answers one request at a time, and a big model is slow
REPLY_LIMIT = 64 * 2**20  # bytes


@dataclass(frozen=True, slots=True)
class Request:
    """What to complete, and how. `top_k` 1 is greedy; `top_k` and `top_p` exclude each other; 0 turns either off."""

    prompt: str
    tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    seed: int | None = None
    logprobs: bool = False

    def body(self) -> dict[str, Any]:
        """The JSON of the request: the server insists on floats where it wants floats."""
        body: dict[str, Any] = {
            "prompts": [self.prompt],
            "tokens_to_generate": self.tokens,
            "temperature": float(self.temperature),
            "top_k": self.top_k,
            "top_p": float(self.top_p),
            "add_BOS": not self.prompt,
        }
        if self.seed is not None:
            body["random_seed"] = self.seed
        if self.logprobs:
            body["logprobs"] = True
        return body


@dataclass(frozen=True, slots=True)
class Completion:
    """`text` is the prompt and its continuation, cleaned. `tokens`: strings, prompt included; `logprobs`: one fewer, or None."""

    prompt: str
    text: str
    continuation: str
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...] | None
    seconds: float

    @property
    def tokens_per_second(self) -> float | None:
        """Generated tokens only, where the tokens of the prompt can be told from them."""
        made, rest = 0, len(self.continuation)
        for token in reversed(self.tokens):
            if rest <= 0:
                break
            made, rest = made + 1, rest - len(token)
        return made / self.seconds if made and self.seconds > 0 else None


class TextClient:
    """Talks to the server at `url` ("http://127.0.0.1:8028", or "127.0.0.1:8028"). `wait`: s for an answer, queue included."""

    def __init__(self, url: str, wait: float = WAIT) -> None:
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._wait = wait

    def complete(self, request: Request) -> Completion:
        """Raises UserError in plain words, whatever the server or the network does."""
        import httpx

        began = time.monotonic()
        try:
            status, content = self._put(request, began + self._wait)
        except httpx.ConnectTimeout:
            raise UserError(
                f"{self.url} does not answer the call.", "Check the address and the port forward."
            ) from None
        except httpx.ConnectError:
            raise UserError(
                f"Nothing listens at {self.url}.",
                "Is the server running? See `mdk-tui runs`; through SSH the port must be forwarded.",
            ) from None
        except httpx.TimeoutException:
            raise UserError(
                f"The server gave no answer within {self._wait:g} s.",
                "It answers one request at a time: somebody else's may be long.",
            ) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise UserError(
                f"{clean_line(self.url, 200)} is no address of a server.",
                "It looks like http://127.0.0.1:8028.",
                status=2,
            ) from None
        except httpx.HTTPError as error:
            words = clean_line(str(error), 200) or type(error).__name__
            raise UserError(
                f"The answer broke off: {words}",
                "The server may have died: `mdk-tui status` tells, and its log is in the monitor.",
            ) from None
        return read_reply(request.prompt, status, content, time.monotonic() - began)

    def _put(self, request: Request, deadline: float) -> tuple[int, bytes]:
        """(status, body). A server that dribbles is cut off at `deadline`, an endless one at REPLY_LIMIT."""
        import httpx

        body = json.dumps(request.body()).encode()
        headers = {"Content-Type": "application/json"}
        content = bytearray()
        # A proxy of the environment is for the world outside, not for a server at the end of an SSH tunnel;
        # certificates are read only where they are checked (0.1 s).
        secure = self.url.startswith("https:")
        timeout = httpx.Timeout(self._wait, connect=CONNECT)
        with (
            httpx.Client(timeout=timeout, trust_env=False, verify=secure) as client,
            client.stream("PUT", f"{self.url}/api", content=body, headers=headers) as reply,
        ):
            for chunk in reply.iter_bytes():
                content += chunk
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("the answer took too long")
                if len(content) > REPLY_LIMIT:
                    raise UserError(
                        f"{self.url} answers without end.", "Is this a text server? Check the address."
                    )
            return reply.status_code, bytes(content)


def read_reply(prompt: str, status: int, content: bytes, seconds: float) -> Completion:
    """A completion, or UserError with the server's own words."""
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        texts = found.get("text")
        if isinstance(texts, list) and texts and isinstance(texts[0], str):
            return _completion(prompt, texts[0], found, seconds)
    raise UserError(*_refusal(status, value, content))


def _completion(prompt: str, text: str, reply: dict[str, Any], seconds: float) -> Completion:
    tokens = _first_list(reply.get("segments")) or []
    logprobs = _first_list(reply.get("logprobs"))
    numbers = None if logprobs is None else tuple(v for v in logprobs if isinstance(v, float))
    continuation = text[len(prompt) :] if text.startswith(prompt) else text
    return Completion(
        prompt, clean(text), clean(continuation), tuple(clean(str(t)) for t in tokens), numbers, seconds
    )


def _first_list(value: Any) -> list[Any] | None:
    """The inner list of `[[…]]`, of which there is one a prompt."""
    outer = cast("list[Any]", value) if isinstance(value, list) else []
    return cast("list[Any]", outer[0]) if outer and isinstance(outer[0], list) else None


def _refusal(status: int, value: Any, content: bytes) -> tuple[str, str]:
    """(sentence, remedy)."""
    said = value if isinstance(value, str) else ""
    if isinstance(value, dict):
        said = str(cast("dict[str, Any]", value).get("message", ""))
    said = clean_line(said or content[:300].decode(errors="replace"), 300).strip() or "nothing"
    if "longer than allowed" in said:
        return (
            f"Prompt and tokens together are longer than the model takes ({said}).",
            "Ask for fewer tokens, or shorten the prompt.",
        )
    if "Too many tokens" in said:
        return f"The server refuses so much at once: {said}", "Ask for fewer tokens."
    if status == 500:
        return (
            "The server failed on this request (HTTP 500).",
            "core_r0.8.0 without its server fix fails on every one: mdk-tui setup patches, then restart it.",
        )
    if status == 404:
        return (
            "There is a server, but it has no /api: it is no text server of Megatron-LM.",
            "Check the address and the port.",
        )
    if status not in (200, 400):
        return f"The server answers HTTP {status}: {said}", "Check the address; see the server's log."
    if not isinstance(value, str):
        return f"The server's answer is no completion: {said}", "Is this a text server of Megatron-LM?"
    return f"The server refuses: {said}", "Change the request."
