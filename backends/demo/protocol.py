"""The checks of core_r0.8.0's text server, in its order and its words (megatron/inference/text_generation_server.py).

Six of them answer 400 with a bare text; all others answer 200 with a bare JSON string, and so does this server.
"""

# pyright: standard, reportMissingTypeStubs=false, reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backends.demo.sampling import Sampling


class Refused(Exception):
    """A request that is not answered with text."""

    def __init__(self, text: str, status: int = 200) -> None:
        super().__init__(text)
        self.text, self.status = text, status


@dataclass(frozen=True, slots=True)
class Request:
    prompts: list[str]
    sampling: Sampling
    logprobs: bool
    quiet: bool


def read_request(body: Any) -> Request:
    """Raises Refused."""
    if not isinstance(body, dict) or "prompts" not in body:
        raise Refused("prompts argument required", 400)
    for old, words in (("max_len", "max_len is no longer used.  Replace with tokens_to_generate"), ("sentences", "sentences is no longer used.  Replace with prompts")):  # fmt: skip
        if old in body:
            raise Refused(words, 400)
    prompts = body["prompts"]
    if not isinstance(prompts, list):
        raise Refused("prompts is not a list of strings", 400)
    if not prompts:
        raise Refused("prompts is empty", 400)
    if len(prompts) > 128:
        raise Refused("Maximum number of prompts is 128", 400)
    tokens = body.get("tokens_to_generate", 64)
    if type(tokens) is not int:
        raise Refused("tokens_to_generate must be an integer greater than 0")
    if tokens < 0:
        raise Refused("tokens_to_generate must be an integer greater than or equal to 0")
    logprobs = _flag(body, "logprobs")
    if tokens == 0 and not logprobs:
        raise Refused("tokens_to_generate=0 implies logprobs should be True")
    temperature = _temperature(body)
    top_k, top_p = _cuts(body)
    add_bos = _flag(body, "add_BOS")
    if any(not isinstance(prompt, str) for prompt in prompts) or (
        any(not prompt for prompt in prompts) and not add_bos
    ):
        raise Refused("Empty prompts require add_BOS=true")
    double, single = _flag(body, "stop_on_double_eol"), _flag(body, "stop_on_eol")
    _flag(body, "prevent_newline_after_colon")
    seed = body.get("random_seed")
    if "random_seed" in body and (type(seed) is not int or seed < 0):
        raise Refused(
            "random_seed must be a positive integer" if type(seed) is int else "random_seed must be integer"
        )
    quiet = _flag(body, "no_log")
    if "beam_width" in body:
        raise Refused(
            "beam_width must be integer"
            if type(body["beam_width"]) is not int
            else "beam search is not supported by the demo's server"
        )
    return Request(
        [str(p) for p in prompts],
        Sampling(tokens, temperature, top_k, top_p, seed, single, double),
        logprobs,
        quiet,
    )


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise Refused(f"{name} must be a boolean value")
    return value


def _temperature(body: dict[str, Any]) -> float:
    value = body.get("temperature", 1.0)
    if type(value) not in (int, float):
        raise Refused("temperature must be a positive number less than or equal to 100.0")
    if not 0.0 < value <= 100.0:
        raise Refused("temperature must be a positive number less than or equal to 100.0")
    return float(value)


def _cuts(body: dict[str, Any]) -> tuple[int, float]:
    top_k, top_p = body.get("top_k", 0), body.get("top_p", 0.0)
    if type(top_k) is not int:
        raise Refused("top_k must be an integer equal to or greater than 0 and less than or equal to 1000")
    if not 0 <= top_k <= 1000:
        raise Refused("top_k must be equal to or greater than 0 and less than or equal to 1000")
    if type(top_p) is not float:
        raise Refused("top_p must be a positive float less than or equal to 1.0")
    if top_p > 0.0 and top_k > 0:
        raise Refused("cannot set both top-k and top-p samplings.")
    if not 0 <= top_p <= 1.0:
        raise Refused("top_p must be less than or equal to 1.0")
    return top_k, top_p
