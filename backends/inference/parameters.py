"""The parameters of an answer (tokens, temperature, top-k, top-p, seed, stop): checks, words, presets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from backends.errors import UserError
from backends.inference.request import Request

ESCAPED = re.compile(r"\\(.)", re.S)
SEEDS = 2**31
ESCAPES = {"n": "\n", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Field:
    """One number. `low` and `high`: the limits of core_r0.8.0's server."""

    name: str
    label: str
    note: str
    low: float
    high: float
    whole: bool = True
    may_be_empty: bool = False


FIELDS = (
    Field("tokens", "tokens", "to generate, at most", 1, 100_000),
    Field("temperature", "temperature", "lower is more careful; up to 100", 0, 100, whole=False),
    Field("top_k", "top-k", "0 off, 1 greedy, or how many", 0, 1000),
    Field("top_p", "top-p", "0 off, or the likeliest's share", 0, 1, whole=False),
    Field("seed", "seed", "empty: each time another answer", 0, SEEDS - 1, may_be_empty=True),
)
# A preset leaves the number of tokens, the seed and the stop texts as they are.
PRESETS: Mapping[str, Request] = {
    "greedy": Request("", temperature=1.0, top_k=1),
    "careful": Request("", temperature=0.7, top_p=0.9),
    "balanced": Request("", temperature=0.8, top_k=40),
    "as trained": Request("", temperature=1.0),
    "wild": Request("", temperature=1.3, top_p=0.98),
}


def words(request: Request, dot: str = "·") -> str:
    """ "64 tokens · temperature 0.8 · top-k 40 · seed 7", or "64 tokens · greedy"."""
    parts = [f"{request.tokens} tokens"]
    if request.greedy:
        parts.append("greedy")
    else:
        parts.append(f"temperature {request.temperature:g}")
        parts += [f"top-k {request.top_k}"] if request.top_k else []
        parts += [f"top-p {request.top_p:g}"] if request.top_p else []
        parts += [f"seed {request.seed}"] if request.seed is not None else []
    if request.stop:
        parts.append(f"stop {stop_words(request.stop)}")
    return f" {dot} ".join(parts)


def toggled_greedy(request: Request) -> Request:
    """Turns greedy (top-k 1, no top-p) on, or back to plain sampling."""
    return replace(request, top_k=0) if request.greedy else replace(request, top_k=1, top_p=0.0)


def for_several(request: Request, seed: int) -> Request:
    """`request` for several servers that are compared: with one seed for all, `seed` unless it has its own."""
    return request if request.greedy or request.seed is not None else replace(request, seed=seed)


def with_preset(request: Request, name: str) -> Request:
    """`request` with the preset `name`."""
    way = PRESETS[name]
    return replace(request, temperature=way.temperature, top_k=way.top_k, top_p=way.top_p)


def preset_of(request: Request) -> str | None:
    """The name of the preset that `request` has, if any."""
    return next((name for name in PRESETS if with_preset(request, name) == request), None)


def request_of(texts: Mapping[str, str]) -> Request:
    """The parameters from the texts of the fields, by name. Raises UserError outside the server's limits."""
    values: dict[str, float | int | None] = {}
    for field in FIELDS:
        text = texts[field.name].strip()
        if not text and field.may_be_empty:
            values[field.name] = None
            continue
        try:
            value = int(text) if field.whole else float(text)
        except ValueError:
            kind = "a whole number" if field.whole else "a number"
            raise UserError(f"{field.label}: {text[:40]!r} is not {kind}.") from None
        if not field.low <= value <= field.high or (field.name == "temperature" and value == 0):
            above = "above 0" if field.name == "temperature" else f"{field.low:g}"
            raise UserError(f"{field.label} is from {above} to {field.high:g}.")
        values[field.name] = value
    if values["top_k"] and values["top_p"]:
        raise UserError("top-k and top-p exclude each other: set one of them to 0.")
    stop = stop_texts(texts.get("stop", ""))
    return Request("", stop=stop, **values)  # pyright: ignore[reportArgumentType]


def stop_texts(written: str) -> tuple[str, ...]:
    r"""The texts between commas, where `\n` is a newline, `\t` a tab, `\,` a comma and `\\` a backslash."""
    parts = re.findall(r"(?:\\.|[^,\\])+", written.strip())
    return tuple(text for part in parts if (text := unescaped(part.strip())))


def unescaped(text: str) -> str:
    return ESCAPED.sub(lambda found: ESCAPES.get(found[1], found[1]), text)


def stop_words(stop: tuple[str, ...]) -> str:
    """The opposite of `stop_texts`."""
    signs = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", ",": "\\,"}
    return ", ".join("".join(signs.get(letter, letter) for letter in text) for text in stop)
