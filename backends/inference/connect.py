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
            model = _model(Exchange(root, wait).probe("/v1/models")) or ("", "")
            return OpenAiClient(root, Endpoint(path, *model), wait)
    if base.endswith(PLACE):
        return MegatronClient(base.removesuffix(PLACE), wait)
    base = base.removesuffix("/v1")
    http = Exchange(base, wait)
    models = http.probe("/v1/models")
    if models.status in ANYWHERE:
        raise refusal(models, "/v1/models")
    if (model := _model(models)) is not None:
        return OpenAiClient(base, _with_model(http, model), wait)
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


def _with_model(http: Exchange, model: tuple[str, str]) -> Endpoint:
    """Plain completions, because a pre-trained model continues its prompt; chat if the server has nothing else."""
    plain, chat = PATHS[0], PATHS[2]
    # llama.cpp answers 404 to a GET of any of these routes, and has both.
    missing = http.probe(plain)
    only_chat = missing.status == 404 and missing.headers.get("server", "") != "llama.cpp"
    return Endpoint(chat if only_chat and http.probe(chat).status != 404 else plain, *model)


def _model(reply: Reply) -> tuple[str, str] | None:
    """(name, owner) of the first model in the list; None if `reply` is not such a list."""
    value = reply.value() if reply.status == 200 else None
    listed: Any = cast("dict[str, Any]", value).get("data") if isinstance(value, dict) else None
    for item in cast("list[Any]", listed) if isinstance(listed, list) else []:
        known = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        if isinstance(name := known.get("id"), str):
            return name, str(known.get("owned_by", ""))
    return None
