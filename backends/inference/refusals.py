"""Refusals of Megatron-LM, vLLM and llama.cpp, in plain words with a remedy."""

from __future__ import annotations

from typing import Any, cast

from backends.errors import UserError
from backends.inference.exchange import Reply
from backends.inference.request import TooLongError
from backends.text import clean_line

# core_r0.8.0, its beam search; vLLM; llama.cpp
TOO_LONG = (
    "longer than allowed",
    "too large",
    "maximum context length",
    "maximum model length",
    "context size",
    "context length",
    "Too many tokens",
)


def refusal(reply: Reply, place: str) -> UserError:
    """The error for a reply that is not a completion. `place`: the path that was asked, such as "/api"."""
    value = reply.value()
    said = (
        clean_line(words_of(value) or reply.content[:300].decode(errors="replace"), 300).strip() or "nothing"
    )
    if any(sign.lower() in said.lower() for sign in TOO_LONG):
        return TooLongError(
            f"Prompt and tokens together are longer than the model takes ({said}).",
            "Ask for fewer tokens, or shorten the prompt.",
        )
    if 300 <= reply.status < 400:
        place = (
            clean_line(reply.headers.get("location", ""), 200) or "another address, which it does not name"
        )
        return UserError(f"The server redirects to {place}.", "If that is a text server, name its address.")
    if reply.status in (401, 403):
        return UserError(
            f"The server requires a key (HTTP {reply.status}).",
            "mdk-tui sends no key: start the server without one, on 127.0.0.1.",
        )
    if reply.status == 404 and "model" not in said.lower():
        return UserError(
            f"There is a server, but it has no {place}.",
            "Check the address and the port, or name the whole path: --url http://HOST:PORT/v1/chat/completions.",
        )
    if reply.status == 429:
        return UserError("The server is overloaded (HTTP 429).", "Wait a little and ask again.")
    if reply.status == 503:
        return UserError(f"The server cannot answer yet (HTTP 503: {said}).", "It may still be loading; try again soon.")  # fmt: skip
    return _others(reply.status, value, said, place)


def _others(status: int, value: Any, said: str, place: str) -> UserError:
    if status == 500 and place == "/api":
        return UserError(
            "The server failed on this request (HTTP 500).",
            "Its log says why. core_r0.8.0 without its fix fails on every one: mdk-tui setup patches, then restart it.",
        )
    if status not in (200, 400, 404, 405, 422):
        return UserError(
            f"The server answers HTTP {status}: {said}", "Check the address; see the server's log."
        )
    if status == 200 and not isinstance(value, str):
        return UserError(
            f"The server's answer is not a completion: {said}", "Is this a text server? Check the address."
        )
    return UserError(f"The server refuses: {said}", "Change the request.")


def words_of(value: Any) -> str:
    """The sentence in an error of any known shape; "" if there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        return words_of(cast("list[Any]", value)[0])
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        for key in ("error", "message", "detail", "msg"):
            if words := words_of(known.get(key)):
                return words
    return ""
