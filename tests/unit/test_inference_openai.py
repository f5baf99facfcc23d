"""Servers of OpenAI's kind: streams whole and torn, shapes of log-probabilities, refusals, and telling them apart."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_server import MODELS, TextServer, continuing, events, piece, reply
from waiting import LIMIT

from backends.errors import UserError
from backends.inference.connect import connect
from backends.inference.megatron_api import MegatronClient
from backends.inference.openai_api import WHOLE_DISTRIBUTION, Endpoint, OpenAiClient, body_of
from backends.inference.request import Completion, HalfAnswerError, Request, TooLongError, complete
from backends.inference.sse import event_data

PATH, CHAT = "/v1/completions", "/v1/chat/completions"
WHOLE = (piece(" lazy"), piece(" dog", -1.5), piece("", finish="length"), "[DONE]")
CHATTING = ({"choices": [{"delta": {"content": " lazy dog"}, "finish_reason": "stop"}]}, "[DONE]")


@pytest.fixture
def server() -> Iterator[TextServer]:
    with TextServer(events(*WHOLE), routes=(PATH, CHAT), pages={"/v1/models": MODELS}) as running:
        yield running


def client(server: TextServer, path: str = PATH, wait: float = 20.0) -> OpenAiClient:
    return OpenAiClient(server.url, Endpoint(path, "tiny", "vllm"), wait)


def refused(server: TextServer, answer: Any, wait: float = 20.0) -> UserError:
    server.answer = answer
    with pytest.raises(UserError) as caught:
        complete(client(server, wait=wait), Request("x"))
    return caught.value


def test_an_answer_arrives_in_pieces_and_then_complete(server: TextServer) -> None:
    *pieces, whole = client(server).answer(Request("The", logprobs=True, alternatives=2))
    assert pieces == [" lazy", " lazy dog", " lazy dog"] and isinstance(whole, Completion)
    assert (whole.text, whole.continuation, whole.of_prompt) == ("The lazy dog", " lazy dog", 0)
    assert [(token.text, token.logprob) for token in whole.tokens[:2]] == [(" lazy", -0.5), (" dog", -1.5)]
    assert whole.tokens[1].alternatives == ((" dog", -1.5), ("?", -3.0))


def test_the_first_piece_does_not_wait_for_the_last(server: TextServer) -> None:
    go = threading.Event()
    server.answer = events(piece("a"), piece("b"), "[DONE]", pause=go)
    answers = client(server).answer(Request("x"))
    assert next(answers) == "a" and next(answers) == "ab"
    go.set()
    assert isinstance(next(answers), Completion)


def test_the_request_for_each_kind_of_server(server: TextServer) -> None:
    request = Request("x", 5, 0.5, top_p=0.25, seed=7, stop=("\n",), logprobs=True, alternatives=3)
    assert body_of(request, Endpoint(PATH)) == {
        "prompt": "x", "max_tokens": 5, "temperature": 0.5, "top_p": 0.25, "seed": 7, "stop": ["\n"],
        "logprobs": 3, "stream": True,
    }  # fmt: skip
    for owner, whole in WHOLE_DISTRIBUTION.items():  # its own defaults would cut
        assert body_of(Request("x"), Endpoint(PATH, "m", owner)).items() >= {"model": "m", **whole}.items()
        asked = body_of(Request("x", top_k=40), Endpoint(PATH, "m", owner))
        assert (asked["top_k"], asked["top_p"]) == (40, 1.0)
    assert body_of(Request("x", top_k=1), Endpoint(PATH))["temperature"] == 0.0
    chat = body_of(Request("x", logprobs=True, alternatives=3), Endpoint(CHAT))
    assert chat["messages"] == [{"role": "user", "content": "x"}] and chat["top_logprobs"] == 3


def test_a_server_that_does_not_stream(server: TextServer) -> None:
    server.answer = reply(
        {"choices": [{"text": " all at once", "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}
    )
    whole = complete(client(server), Request("x"))
    assert (whole.continuation, whole.generated) == (" all at once", 3)


def test_chat_and_llama_cpps_shape_of_log_probabilities(server: TextServer) -> None:
    entry = {
        "token": "Hi",
        "logprob": -0.1,
        "top_logprobs": [{"token": "Ho", "logprob": -2}, {"token": "Hi", "logprob": -0.1}],
    }
    chunk = {
        "choices": [{"delta": {"content": "Hi"}, "logprobs": {"content": [entry]}, "finish_reason": None}]
    }
    first = {"choices": [{"delta": {"role": "assistant", "content": None}}]}
    server.answer = events(first, chunk, {"choices": [{"delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": {"completion_tokens": 1}}, "[DONE]")  # fmt: skip
    whole = complete(client(server, CHAT), Request("x"))
    assert (whole.text, whole.continuation, whole.generated) == ("Hi", "Hi", 1)
    assert whole.tokens[0].alternatives == (("Hi", -0.1), ("Ho", -2.0))


# The chunks of vLLM and llama-server with all their keys, and a ping as sse-starlette sends it.
def vllm(text: str, logprob: float, finish: str | None = None) -> dict[str, Any]:
    top = [{text: logprob, " cat": -9999.0}]
    logprobs = {"text_offset": [3], "token_logprobs": [logprob], "tokens": [text], "top_logprobs": top}
    choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish, "stop_reason": None}
    return {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "tiny", "choices": [choice], "usage": None}  # fmt: skip


def llama(text: str, logprob: float) -> dict[str, Any]:
    token = {"id": 7, "token": text, "bytes": list(text.encode()), "logprob": logprob}
    top = [token, {"id": 8, "token": " cat", "bytes": [32], "logprob": -3.4028234663852886e38}]
    choice = {"text": text, "index": 0, "logprobs": {"content": [{**token, "top_logprobs": top}]}, "finish_reason": None}  # fmt: skip
    return {"choices": [choice], "created": 1, "model": "tiny.gguf", "system_fingerprint": "b1", "object": "text_completion", "id": "chatcmpl-1"}  # fmt: skip


LLAMA_END = {
    "choices": [{"text": "", "index": 0, "logprobs": None, "finish_reason": "length"}],
    "usage": {"completion_tokens": 2, "prompt_tokens": 1, "total_tokens": 3}, "timings": {"predicted_n": 2},
}  # fmt: skip


@pytest.mark.parametrize(
    "stream",
    [
        (b": ping - 2026-11-30 12:00:00\r\n\r\n", vllm(" lazy", -0.25), vllm(" dog", -1.5, "length"), "[DONE]"),
        (llama(" lazy", -0.25), llama(" dog", -1.5), LLAMA_END, "[DONE]"),
    ],
)  # fmt: skip
def test_the_streams_of_vllm_and_llama_server(server: TextServer, stream: tuple[Any, ...]) -> None:
    server.answer = events(*stream)
    found = complete(client(server), Request("The", logprobs=True))
    assert (found.continuation, found.generated) == (" lazy dog", 2)
    assert [token.logprob for token in found.tokens] == [-0.25, -1.5]
    assert found.tokens[0].alternatives == ((" lazy", -0.25), (" cat", -math.inf))
    assert server.asked[0]["logprobs"] == 1, "llama-server tells none when asked for 0"


def test_a_stop_text_that_the_server_ignored_is_cut(server: TextServer) -> None:
    *pieces, whole = client(server).answer(Request("x", stop=("dog",)))
    assert pieces[-1] == " lazy " and isinstance(whole, Completion)
    assert (whole.continuation, whole.cut) == (" lazy ", True)


def test_half_an_answer_is_kept_and_reported(server: TextServer) -> None:
    for answer in (
        events(piece("half \x1b[2J"), tear=True),
        events(piece("half "), '{"choices": [{"te', tear=True),
        events(piece("half ")),
        events(piece("half "), {"error": {"message": "the engine died", "code": 500}}, tear=True),
    ):
        error = refused(server, answer)
        assert isinstance(error, HalfAnswerError) and error.said == "half " and error.remedy
    assert "the engine died" in error.message


def test_silence_in_the_middle_is_half_an_answer(server: TextServer) -> None:
    go = threading.Event()
    error = refused(server, events(piece("half"), "[DONE]", pause=go), wait=0.3)
    go.set()
    assert isinstance(error, HalfAnswerError) and "no answer within 0.3 s" in error.message


def test_an_empty_stream_is_asked_again_for_its_reason(server: TextServer) -> None:
    """llama-cpp-python 0.3.36 answers a prompt that is too long with HTTP 200 and no event."""
    why = "This model's maximum context length is 256 tokens, however you requested 310 tokens (302 in your prompt; 8 for the completion)."

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        told = reply({"error": {"message": why, "code": "context_length_exceeded"}}, 400)
        (events() if body["stream"] else told)(handler, body)

    error = refused(server, answer)
    assert isinstance(error, TooLongError) and why in error.message
    assert [body["stream"] for body in server.asked] == [True, False]


def test_an_empty_stream_is_not_half_an_answer(server: TextServer) -> None:
    assert refused(server, events(tear=True)).message.endswith("the server closed the connection.")
    assert "is not a completion" in refused(server, events()).message
    error = refused(server, events({"error": {"message": "no such thing"}}))
    assert "refuses: no such thing" in error.message and not isinstance(error, HalfAnswerError)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply({"error": {"message": "This model's maximum context length is 512 tokens."}}, 400), "longer than the model takes"),
        (reply({"object": "error", "message": "The model `x` does not exist."}, 404), "refuses: The model `x`"),
        (reply({"detail": "Not Found"}, 404), "it has no /v1/completions"),
        (reply({"detail": [{"loc": ["body"], "msg": "field required"}]}, 422), "refuses: field required"),
        (reply({"error": {"message": "Loading model", "code": 503}}, 503), "cannot answer yet"),
        (reply({"error": "Invalid API Key"}, 401), "requires a key"),
        (reply({}, 429), "is overloaded"),
        (reply({"error": "boom"}, 500), "HTTP 500: boom"),
        (reply(b"<html>", 502), "HTTP 502"),
        (reply({"choices": "none"}), "is not a completion"),
        (reply({"choices": [{"text": 3}]}), "is not a completion"),
        (reply(b"\xff"), "is not a completion"),
    ],
)  # fmt: skip
def test_a_refusal_becomes_a_sentence_with_a_remedy(server: TextServer, answer: Any, said: str) -> None:
    error = refused(server, answer)
    assert said in error.message and error.remedy


def test_a_text_is_scored_with_echo(server: TextServer) -> None:
    echoed = {"tokens": ["a", "b", "c", "X"], "token_logprobs": [None, -1.0, -2.0, -9.0]}
    server.answer = reply({"choices": [{"text": "abcX", "logprobs": echoed}]})
    assert [token.logprob for token in client(server).score("abc")] == [None, -1.0, -2.0]
    # SentencePiece's first token has a blank that the text has not, so llama-cpp-python's offsets are one too high.
    echoed = {"tokens": [" the", " cat", " ", "日", ""], "token_logprobs": [None, -10.5, -11.5, -9.5, -0.2],
              "text_offset": [0, 4, 8, 9, 10]}  # fmt: skip
    server.answer = reply({"choices": [{"text": "the cat 日", "logprobs": echoed}]})
    assert [token.logprob for token in client(server).score("the cat 日")] == [None, -10.5, -11.5, -9.5]
    server.answer = reply(
        {"choices": [{"text": "X", "logprobs": {"tokens": ["X"], "token_logprobs": [-9.0]}}]}
    )
    for answer in (
        server.answer,
        reply({"error": {"code": 400, "message": "Only no echo is supported"}}, 400),
    ):
        server.answer = answer
        with pytest.raises(UserError, match="has no `echo`"):
            client(server).score("abc")
    server.answer = reply({"error": {"message": "maximum context length"}}, 400)
    with pytest.raises(TooLongError):
        client(server).score("abc")
    with pytest.raises(UserError, match="chat"):
        client(server, CHAT).score("abc")


# Which one a URL speaks.


def test_megatrons_server_is_recognised_by_its_route() -> None:
    with TextServer(continuing("!")) as server:
        for url in (server.url, f"{server.url}/api", server.url.removeprefix("http://")):
            assert isinstance(connect(url), MegatronClient)
        assert complete(connect(server.url), Request("x")).text == "x!"
        assert server.asked[0]["prompts"] == ["x"], "finding out asks the model nothing"


def test_core_r080s_server_is_recognised_although_it_answers_get_with_404() -> None:
    with TextServer(continuing("!"), files=True) as server:
        assert isinstance(connect(server.url), MegatronClient)
    with (
        TextServer(continuing("!"), routes=(), files=True) as server,
        pytest.raises(UserError, match="neither /api"),
    ):
        connect(server.url)


@pytest.mark.parametrize(
    ("routes", "pages", "named", "path"),
    [
        ((PATH, CHAT), {"/v1/models": MODELS}, "", PATH),
        ((CHAT,), {"/v1/models": MODELS}, "", CHAT),
        ((PATH, CHAT), {"/v1/models": MODELS}, CHAT, CHAT),
        ((PATH, CHAT), {"/v1/models": MODELS}, "/v1", PATH),
        (("/completions",), {}, "", "/completions"),  # Megatron-LM from 0.10 on, without its /api
        ((PATH,), {"/v1/models": b"{"}, "", PATH),
    ],
)
def test_other_servers_are_recognised_by_their_models_and_routes(
    routes: Any, pages: Any, named: str, path: str
) -> None:
    answer = events(*(CHATTING if path == CHAT else WHOLE))
    with TextServer(answer, routes=routes, pages=pages) as server:
        found = connect(server.url + named)
        assert found.url == server.url + path and isinstance(found, OpenAiClient)
        assert complete(found, Request("x")).continuation == " lazy dog"
        assert server.paths == [path] and found.dialect.startswith(
            "OpenAI chat" if path == CHAT else "OpenAI completions"
        )
        assert server.asked[0].get("model") == ("tiny" if pages.get("/v1/models") == MODELS else None)


def test_another_kind_of_server_is_refused() -> None:
    with TextServer(continuing("!"), routes=()) as server, pytest.raises(UserError, match="not a known kind"):
        connect(server.url)


@pytest.mark.parametrize(
    ("status", "value", "said"),
    [
        (503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, "cannot answer yet"),
        (401, {"error": "Unauthorized"}, "requires a key"),
        (502, "<html>Bad Gateway</html>", "HTTP 502"),
        (302, "", "redirects to another address"),
    ],
)  # fmt: skip
def test_a_server_that_refuses_its_list_of_models_is_not_called_unknown(
    status: int, value: Any, said: str
) -> None:
    with TextServer(continuing("!"), routes=(), pages={"/v1/models": reply(value, status)}) as server:
        with pytest.raises(UserError) as caught:
            connect(server.url)
        assert said in caught.value.message and caught.value.remedy


# The stream's form.


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), max_size=5), st.data())
def test_events_do_not_depend_on_how_the_bytes_are_cut(texts: list[str], data: Any) -> None:
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    stream = "".join(f": a comment{end}event: x{end}data: {text}{end}{end}" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert list(event_data(chunks)) == texts


def test_events_of_several_lines_and_torn_events() -> None:
    assert list(event_data([b"data: a\ndata:b\n\n", b'error: {"x"}\n\ndata: torn\n'])) == ["a\nb", '{"x"}']


def test_an_event_may_contain_any_character(server: TextServer) -> None:
    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        events(json.dumps(piece("日本語"), ensure_ascii=False), "[DONE]")(handler, body)

    server.answer = answer
    assert complete(client(server), Request("x")).continuation == "日本語"


def test_in_a_terminal_the_answer_appears_as_it_comes(tmp_path: Path) -> None:
    go = threading.Event()
    answer = events(piece(" half"), piece(" and\x1b[2J whole"), "[DONE]", pause=go)
    with TextServer(answer, routes=(PATH,), pages={"/v1/models": MODELS}) as server:
        ours, theirs = os.openpty()
        words = [
            sys.executable,
            "-c",
            "from tui.cli import main; main()",
            "-w",
            str(tmp_path),
            "ask",
            "The",
            "--url",
            server.url,
        ]
        with subprocess.Popen(words, stdout=theirs) as asking:
            os.close(theirs)
            seen = b""
            while b"half and whole" not in seen:  # the server still holds the end back
                seen += os.read(ours, 1000)
            assert not go.is_set()
            go.set()
            assert asking.wait(LIMIT) == 0
        os.close(ours)
    assert b"The" in seen and b"\x1b[2J" not in seen
