"""The text and tokens in replies of OpenAI's protocol, which arrive whole or piece by piece."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

from backends.inference.request import Token
from backends.text import clean

IMPOSSIBLE = -9999.0  # a log-probability that means 0


class Gathered:
    """Everything that has arrived so far. `text` is not cleaned yet."""

    def __init__(self, *, chat: bool) -> None:
        self.text = ""
        self.tokens: list[Token] = []
        self.finish: str | None = None
        self.generated: int | None = None  # tokens, if the server counts them
        self._chat = chat

    def add(self, value: Any) -> bool:
        """Take a reply or a piece of one; False if it is neither (an error)."""
        reply = _dict(value)
        if reply is None or "choices" not in reply:
            return False
        used = (_dict(reply.get("usage")) or {}).get("completion_tokens")
        if type(used) is int:
            self.generated = used
        choices = reply["choices"]
        choice = _dict(cast("list[Any]", choices)[0]) if isinstance(choices, list) and choices else None
        if choice is None:
            return isinstance(choices, list)  # a last piece that only counts tokens has no choices
        text = self._text_of(choice)
        if text is None:
            return False
        self._take_tokens(_dict(choice.get("logprobs")) or {})
        self.text += text
        finish = choice.get("finish_reason")
        self.finish = finish if isinstance(finish, str) else self.finish
        return True

    @property
    def empty(self) -> bool:
        """Whether nothing has arrived, not even a reason to finish."""
        return not self.text and not self.tokens and self.finish is None

    def _text_of(self, choice: dict[str, Any]) -> str | None:
        if not self._chat:
            text = choice.get("text")
            return text if isinstance(text, str) else None
        message = _dict(choice.get("delta")) if "delta" in choice else _dict(choice.get("message"))
        content = (message or {}).get("content")
        return content if isinstance(content, str) else "" if message is not None else None

    def _take_tokens(self, logprobs: dict[str, Any]) -> None:
        if isinstance(logprobs.get("content"), list):  # the shape of chat, which llama.cpp always uses
            for entry in _dicts(logprobs["content"]):
                best = (
                    (each.get("token"), each.get("logprob")) for each in _dicts(entry.get("top_logprobs"))
                )
                self._token(entry.get("token"), entry.get("logprob"), best)
            return
        texts, numbers = logprobs.get("tokens"), logprobs.get("token_logprobs")
        if not isinstance(texts, list) or not isinstance(numbers, list):
            return
        best = logprobs.get("top_logprobs")
        tops: list[Any] = cast("list[Any]", best) if isinstance(best, list) else []
        for at, (text, number) in enumerate(
            zip(cast("list[Any]", texts), cast("list[Any]", numbers), strict=False)
        ):
            top = _dict(tops[at]) if at < len(tops) else None
            self._token(text, number, (top or {}).items())

    def _token(self, text: Any, number: Any, best: Iterable[tuple[Any, Any]]) -> None:
        told = ((clean(str(word)), _logprob(value)) for word, value in best)
        others = [(word, value) for word, value in told if value is not None]
        others.sort(key=lambda other: -other[1])
        self.tokens.append(Token(clean(str(text)), _logprob(number), tuple(others)))


def _logprob(value: Any) -> float | None:
    """JSON knows no infinity: vLLM writes -9999 for it, llama.cpp the lowest number of 32 bits."""
    if not isinstance(value, float) and not (type(value) is int and abs(value) < 2**53):
        return None
    return -math.inf if value <= IMPOSSIBLE else float(value)


def _dict(value: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _dicts(value: Any) -> list[dict[str, Any]]:
    found = cast("list[Any]", value) if isinstance(value, list) else []
    return [each for item in found if (each := _dict(item)) is not None]
