"""The checks of core_r0.8.0's text server, in its order and its words (megatron/inference/text_generation_server.py).

As there, six of them answer with HTTP 400, all others with 200 and a bare JSON string.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from backends.demo.sampling import Sampling


class RefusedError(Exception):
    """The request is refused with a bare string."""

    def __init__(self, text: str, status: int = 200) -> None:
        super().__init__(text)
        self.text, self.status = text, status


@dataclass(frozen=True, slots=True)
class Request:
    """`beam_width` None: sampling. `stop_token` None: the end of a document."""

    prompts: list[str]
    tokens_to_generate: int
    logprobs: bool
    add_bos: bool
    sampling: Sampling
    no_log: bool
    beam_width: int | None
    stop_token: int | None
    length_penalty: float


def read_request(content: Any) -> Request:
    """Raises RefusedError; TypeError where Megatron-LM's server fails, too (prompts without a length)."""
    body = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    prompts = _prompts(body)
    tokens, logprobs = _tokens_to_generate(body), _flag(body, "logprobs")
    if tokens == 0 and not logprobs:
        raise RefusedError("tokens_to_generate=0 implies logprobs should be True")
    temperature = _temperature(body)
    top_k, top_p = _cuts(body)
    decay, bound = _decay(body, top_p)
    add_bos = _flag(body, "add_BOS")
    if any(len(prompt) == 0 for prompt in prompts) and not add_bos:
        raise RefusedError("Empty prompts require add_BOS=true")
    double, single, colon = (
        _flag(body, name) for name in ("stop_on_double_eol", "stop_on_eol", "prevent_newline_after_colon")
    )
    seed = _integer(body, "random_seed", None, "random_seed must be integer")
    if seed is not None and seed < 0:
        raise RefusedError("random_seed must be a positive integer")
    no_log = _flag(body, "no_log")
    width = _beam_width(body, prompts)
    stop = _integer(body, "stop_token", None, "stop_token must be an integer")
    penalty = body.get("length_penalty", 1.0)
    if not isinstance(penalty, float):
        raise RefusedError("length_penalty must be a float")
    if not all(isinstance(prompt, str) for prompt in prompts):
        raise TypeError("prompts must be strings")
    how = Sampling(temperature, top_k, top_p, decay, bound, seed, single, double, colon)
    return Request(prompts, tokens, logprobs, add_bos, how, no_log, width, stop, penalty)


def _prompts(body: dict[str, Any]) -> list[Any]:
    if "prompts" not in body:
        raise RefusedError("prompts argument required", 400)
    if "max_len" in body:
        raise RefusedError("max_len is no longer used.  Replace with tokens_to_generate", 400)
    if "sentences" in body:
        raise RefusedError("sentences is no longer used.  Replace with prompts", 400)
    prompts = body["prompts"]
    if not isinstance(prompts, list):
        raise RefusedError("prompts is not a list of strings", 400)
    if not prompts:
        raise RefusedError("prompts is empty", 400)
    found = cast("list[Any]", prompts)
    if len(found) > 128:
        raise RefusedError("Maximum number of prompts is 128", 400)
    return found


def _tokens_to_generate(body: dict[str, Any]) -> int:
    tokens = _integer(body, "tokens_to_generate", 64, "tokens_to_generate must be an integer greater than 0")
    if tokens is None or tokens < 0:
        raise RefusedError("tokens_to_generate must be an integer greater than or equal to 0")
    return tokens


def _integer(body: dict[str, Any], name: str, default: int | None, refusal: str) -> int | None:
    if name not in body:
        return default
    if not isinstance(body[name], int):
        raise RefusedError(refusal)
    return int(body[name])


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise RefusedError(f"{name} must be a boolean value")
    return value


def _temperature(body: dict[str, Any]) -> float:
    value = body.get("temperature", 1.0)
    if type(value) not in (int, float) or not 0.0 < value <= 100.0:
        raise RefusedError("temperature must be a positive number less than or equal to 100.0")
    return float(value)


def _cuts(body: dict[str, Any]) -> tuple[int, float]:
    top_k = body.get("top_k", 0)
    if type(top_k) is not int:
        raise RefusedError(
            "top_k must be an integer equal to or greater than 0 and less than or equal to 1000"
        )
    if not 0 <= top_k <= 1000:
        raise RefusedError("top_k must be equal to or greater than 0 and less than or equal to 1000")
    return top_k, _share(body, "top_p", "1.0", top_k)


def _share(body: dict[str, Any], name: str, most: str, top_k: int = 0) -> float:
    value = body.get(name, 0.0)
    if type(value) is not float:
        raise RefusedError(f"{name} must be a positive float less than or equal to {most}")
    if value > 0.0 and top_k > 0:
        raise RefusedError("cannot set both top-k and top-p samplings.")
    if not 0 <= value <= 1.0:
        raise RefusedError(f"{name} must be less than or equal to 1.0")
    return value


def _decay(body: dict[str, Any], top_p: float) -> tuple[float, float]:
    """`top_p_decay` and `top_p_bound`: each needs `top_p`."""
    decay = body.get("top_p_decay", 0.0)
    if type(decay) is float and "top_p_decay" in body and top_p == 0.0:
        raise RefusedError("top_p_decay cannot be set without top_p")
    decay = _share(body, "top_p_decay", "1.0")
    if "top_p_bound" not in body:
        return decay, 0.0
    bound = body["top_p_bound"]
    if type(bound) is not float:
        raise RefusedError("top_p_bound must be a positive float less than or equal to top_p")
    if top_p == 0.0:
        raise RefusedError("top_p_bound cannot be set without top_p")
    if not 0.0 < bound <= top_p:
        raise RefusedError("top_p_bound must be greater than 0 and less than top_p")
    return decay, bound


def _beam_width(body: dict[str, Any], prompts: list[Any]) -> int | None:
    width = _integer(body, "beam_width", None, "beam_width must be integer")
    if width is not None and width < 1:
        raise RefusedError("beam_width must be an integer > 1")
    if width is not None and len(prompts) > 1:
        raise RefusedError("When doing beam_search, batch size must be 1")
    return width
