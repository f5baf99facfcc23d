"""Finds out which protocol a server speaks, without asking its model anything."""

from __future__ import annotations

from typing import Any, cast

from backends.errors import UserError
from backends.inference.exchange import Exchange, Reply, base_url
from backends.inference.megatron_api import PLACE, MegatronClient
from backends.inference.openai_api import Endpoint, OpenAiClient
from backends.inference.refusals import refusal
from backends.inference.request import WAIT, TextClient
from backends.text import clean_line

PATHS = ("/v1/completions", "/completions", "/v1/chat/completions", "/chat/completions")
# Statuses that a server, or the proxy before it, gives on every route: moved, locked, busy, loading.
ANYWHERE = (301, 302, 303, 307, 308, 401, 403, 429, 502, 503, 504)


def connect(url: str, wait: float = WAIT) -> TextClient:
    """A client for the server at `url`, an address with or without the path to ask. Raises UserError.

    A path decides the protocol. Without a path, a list of models means vLLM or llama.cpp; otherwise the routes that refuse
    GET tell which version of Megatron-LM it is.
    """
    base = base_url(url)
    for path in sorted(PATHS, key=len, reverse=True):
        if base.endswith(path):
            root = base.removesuffix(path)
            return OpenAiClient(root, _named(Exchange(root, wait), path), wait)
    if base.endswith(PLACE):
        return MegatronClient(base.removesuffix(PLACE), wait)
    base = base.removesuffix("/v1")
    http = Exchange(base, wait)
    models = http.probe("/v1/models")
    if models.status in ANYWHERE:
        raise refusal(models, "/v1/models")
    if _models(models):
        return OpenAiClient(base, _with_models(http, models), wait)
    if _takes(http, "PUT", PLACE):
        return MegatronClient(base, wait)
    for path in PATHS:
        if _takes(http, "POST", path):
            return OpenAiClient(base, Endpoint(path), wait)
    raise UserError(
        f"The server at {clean_line(base, 200)} is not a known kind of text server "
        f"(neither {PLACE} nor /v1/completions).",
        "Check the address and the port, or name the whole path, such as http://HOST:PORT/v1/completions.",
    )


def _takes(http: Exchange, method: str, path: str) -> bool:
    """Whether `path` takes `method`: a GET is refused with 405, or OPTIONS names the method.

    core_r0.8.0's server answers a GET of any path by looking for a file, and then says 404.
    """
    if http.probe(path).status == 405:
        return True
    allowed = http.probe(path, "OPTIONS").headers.get("allow", "")
    return method in (word.strip().upper() for word in allowed.split(","))


def _with_models(http: Exchange, models: Reply) -> Endpoint:
    """Plain completions, because a pre-trained model continues its prompt; chat if the server has nothing else."""
    first = _models(models)[0]
    path = "/v1/completions"
    if (
        models.headers.get("server", "") != "llama.cpp"
    ):  # llama.cpp answers 404 to a GET of any of these routes
        without = http.probe(path).status == 404
        path = (
            "/v1/chat/completions" if without and http.probe("/v1/chat/completions").status != 404 else path
        )
    return Endpoint(path, *first)


def _named(http: Exchange, path: str) -> Endpoint:
    """The endpoint that the user named, with the model's name if the server tells it."""
    found = _models(http.probe("/v1/models"))
    return Endpoint(path, *found[0]) if found else Endpoint(path)


def _models(reply: Reply) -> list[tuple[str, str]]:
    """(name, owner) of each model listed."""
    value = reply.value() if reply.status == 200 else None
    listed: Any = cast("dict[str, Any]", value).get("data") if isinstance(value, dict) else None
    found: list[tuple[str, str]] = []
    for item in cast("list[Any]", listed) if isinstance(listed, list) else []:
        if isinstance(item, dict) and isinstance(name := cast("dict[str, Any]", item).get("id"), str):
            found.append((name, str(cast("dict[str, Any]", item).get("owned_by", ""))))
    return found
