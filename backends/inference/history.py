"""Prompts and answers on disk, one JSON object a line."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from backends.files import append_json_lines, read_json_lines
from backends.inference.request import Request, Token

KEPT = 500  # turns read back
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Turn:
    """One server's answer to one prompt. `at`: s since the epoch, the same for all answers to one question.

    `error` is the sentence shown instead of an answer, or after half of one. `answered_by` names the checkpoint in words.
    `parent`: the `at` of the turn that this one was regenerated, edited or branched from. `scored`: only the
    probabilities of the prompt's tokens were asked for.
    """

    at: float
    server: str
    request: Request
    continuation: str = ""
    error: str = ""
    seconds: float = 0.0
    tokens_per_second: float | None = None
    tokens: tuple[Token, ...] = ()
    of_prompt: int = 0
    answered_by: str = ""
    parent: float | None = None
    scored: bool = False

    @property
    def prompt(self) -> str:
        return self.request.prompt

    @property
    def answer_tokens(self) -> tuple[Token, ...]:
        """The tokens of the continuation, or all tokens of a scored text."""
        return self.tokens if self.scored else self.tokens[self.of_prompt :]

    def as_json(self) -> dict[str, Any]:
        value = asdict(self)
        value["parameters"] = value.pop("request")
        value["prompt"] = value["parameters"].pop("prompt")
        value["tokens"] = [[token.text, token.logprob, token.alternatives] for token in self.tokens]
        return value


def append(path: Path, turns: Sequence[Turn]) -> None:
    """Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    append_json_lines(path, [turn.as_json() for turn in turns])


def read(path: Path) -> list[Turn]:
    """The newest turns, oldest first. Damaged lines are skipped; a missing file is an empty history."""
    return [turn for known in read_json_lines(path, KEPT) if (turn := _turn(known)) is not None]


def exchanges(turns: Sequence[Turn]) -> list[tuple[Turn, ...]]:
    """The turns grouped by question, in the order of the file."""
    return [tuple(answers) for _, answers in itertools.groupby(turns, key=lambda turn: turn.at)]


def _turn(known: Mapping[str, Any]) -> Turn | None:
    texts = {name: known.get(name, "") for name in ("server", "continuation", "error", "answered_by")}
    at, prompt = _number(known.get("at"), float), known.get("prompt")
    if at is None or not isinstance(prompt, str) or not all(isinstance(text, str) for text in texts.values()):
        return None
    tokens = known.get("tokens")
    return Turn(
        at=at,
        request=_request(prompt, known.get("parameters")),
        seconds=_number(known.get("seconds"), float) or 0.0,
        tokens_per_second=_number(known.get("tokens_per_second"), float),
        tokens=tuple(map(_token, cast("list[Any]", tokens))) if isinstance(tokens, list) else (),
        of_prompt=_number(known.get("of_prompt"), int) or 0,
        parent=_number(known.get("parent"), float),
        scored=known.get("scored") is True,
        **texts,
    )


def _request(prompt: str, parameters: Any) -> Request:
    """The parameters that make sense; the others have their defaults."""
    given = cast("dict[str, Any]", parameters) if isinstance(parameters, dict) else {}
    default = Request(prompt)
    values: dict[str, Any] = {}
    for name in (field.name for field in fields(Request) if field.name not in ("prompt", "stop")):
        usual: Any = getattr(default, name)
        item = given.get(name)
        whole = name == "seed" or type(usual) is int
        fits = item if type(item) is (int if whole else bool) else None
        fits = _number(item, float) if type(usual) is float else fits
        values[name] = usual if fits is None else fits
    stop = given.get("stop")
    listed = cast("list[Any]", stop) if isinstance(stop, list) else []
    return Request(prompt, stop=tuple(text for text in listed if isinstance(text, str)), **values)


def _token(value: Any) -> Token:
    parts = cast("list[Any]", value) if isinstance(value, list) else [value]
    others = cast("list[Any]", parts[2]) if len(parts) > 2 and isinstance(parts[2], list) else []
    return Token(
        str(parts[0]) if parts else "",
        _number(parts[1], float) if len(parts) > 1 else None,
        tuple(pair for item in others if (pair := _pair(item)) is not None),
    )


def _pair(item: Any) -> tuple[str, float] | None:
    pair = cast("list[Any]", item) if isinstance(item, list) else []
    number = _number(pair[1], float) if len(pair) == 2 else None
    return None if number is None else (str(pair[0]), number)


def _number(value: Any, kind: type[Number]) -> Number | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return kind(value)
    except (OverflowError, ValueError):  # a number of a thousand digits; an infinity as a whole number
        return None
