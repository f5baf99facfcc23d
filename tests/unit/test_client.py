"""The client of Megatron-LM's text server, with a server that answers in all the ways of core_r0.8.0 and of a bad network."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from text_server import TextServer, continuing, reply
from waiting import LIMIT

from backends.errors import UserError
from backends.inference.exchange import Reply
from backends.inference.megatron_api import MegatronClient, read_reply
from backends.inference.request import Completion, Request, TooLongError, complete
from backends.inference.spelling import pieces
from tui.cli import cli


@pytest.fixture
def server() -> Iterator[TextServer]:
    with TextServer(continuing(" lazy dog.")) as running:
        yield running


def refused(server: TextServer, answer: Any, wait: float = 20.0) -> UserError:
    server.answer = answer
    with pytest.raises(UserError) as caught:
        complete(MegatronClient(server.url, wait), Request("x"))
    return caught.value


def test_a_completion_is_separated_from_its_prompt(server: TextServer) -> None:
    found = complete(MegatronClient(server.url), Request("The quick", logprobs=True))
    assert (found.text, found.continuation) == ("The quick lazy dog.", " lazy dog.")
    assert "".join(token.text for token in found.tokens) == found.text
    assert [token.logprob for token in found.tokens] == [None, *[-0.5] * (len(found.text) - 1)]
    assert found.of_prompt == len("The quick")
    assert found.tokens_per_second == pytest.approx(len(" lazy dog.") / found.seconds)


def test_the_demos_server_names_the_checkpoint_that_answered(server: TextServer) -> None:
    assert complete(MegatronClient(server.url), Request("x")).iteration is None
    server.answer = reply({"text": ["xy"], "segments": [["x", "y"]], "logprobs": None, "iteration": 350})
    assert complete(MegatronClient(server.url), Request("x")).iteration == 350


def test_the_request_has_the_types_that_the_server_insists_on(server: TextServer) -> None:
    complete(MegatronClient(server.url), Request("x", tokens=5, temperature=1, top_p=1, seed=7))
    body = server.asked[-1]
    assert isinstance(body["top_p"], float) and isinstance(body["temperature"], float)
    assert json.dumps(body["top_p"]) == "1.0"
    assert (body["prompts"], body["tokens_to_generate"], body["random_seed"], body["add_BOS"]) == (
        ["x"],
        5,
        7,
        False,
    )
    complete(MegatronClient(server.url), Request(""))
    assert server.asked[-1]["add_BOS"] is True and "random_seed" not in server.asked[-1]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply("temperature must be a positive number less than or equal to 100.0"), "refuses: temperature must be"),
        (reply("Length of prompt + tokens_to_generate longer than allowed"), "longer than the model takes"),
        (reply("Too many tokens.  20000 is greater than 12000"), "20000 is greater than 12000"),
        (reply("prompts is empty", 400), "refuses: prompts is empty"),
        (reply({"message": "Internal Server Error"}, 500), "failed on this request (HTTP 500)"),
        (reply({"message": "The requested URL was not found on the server."}, 404), "has no /api"),
        (reply(b"<html>502 Bad Gateway</html>", 502), "HTTP 502"),
        (reply(b""), "is not a completion: nothing"),
        (reply(b"\xff\xfe\x00 not json"), "is not a completion"),
        (reply([1, 2]), "is not a completion"),
        (reply({"text": "a bare string"}), "is not a completion"),
        (reply({"text": []}), "is not a completion"),
        (reply({"text": [None]}), "is not a completion"),
        (reply(b"[" * 200_000), "is not a completion"),
    ],
)  # fmt: skip
def test_a_refusal_becomes_a_sentence_with_a_remedy(server: TextServer, answer: Any, said: str) -> None:
    error = refused(server, answer)
    assert said in error.message and error.remedy


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "prompts argument required"),
        (400, "max_len is no longer used.  Replace with tokens_to_generate"),
        (400, "prompts is not a list of strings"),
        (400, "Maximum number of prompts is 128"),
        (200, "tokens_to_generate must be an integer greater than or equal to 0"),
        (200, "tokens_to_generate=0 implies logprobs should be True"),
        (200, "top_k must be an integer equal to or greater than 0 and less than or equal to 1000"),
        (200, "top_p must be a positive float less than or equal to 1.0"),
        (200, "cannot set both top-k and top-p samplings."),
        (200, "Empty prompts require add_BOS=true"),
        (200, "random_seed must be a positive integer"),
        (200, "Overflow when unpacking long long"),  # a seed of 2**70
    ],
)
def test_refusals_of_core_r080_are_quoted(server: TextServer, status: int, words: str) -> None:
    """As its request handler answers on a CPU, most of them with HTTP 200."""
    assert refused(server, reply(words, status)).message == f"The server refuses: {words}"


def test_escape_codes_of_a_server_do_not_reach_the_terminal(server: TextServer) -> None:
    error = refused(server, reply("no \x1b]52;c;aGk=\x07\x1b[2J way"))
    assert "no  way" in error.message and "\x1b" not in error.message
    server.answer = reply(
        {"text": ["x\x1b[2J\ry"], "segments": [["x", "\x1b[2J", 7]], "logprobs": [[-1.0, "?"]]}
    )
    found = complete(MegatronClient(server.url), Request("x"))
    assert found.text == "xy"
    assert [(token.text, token.logprob) for token in found.tokens] == [("x", None), ("", -1.0), ("7", None)]


def test_an_answer_that_breaks_off_is_an_error(server: TextServer) -> None:
    def half(handler: BaseHTTPRequestHandler, _body: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"text": ["x and')

    assert "broke off" in refused(server, half).message


def test_a_server_that_dies_before_it_answers(server: TextServer) -> None:
    def die(handler: BaseHTTPRequestHandler, _body: Any) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)

    assert "broke off" in refused(server, die).message


def test_waiting_for_a_slow_server_is_limited(server: TextServer) -> None:
    never = threading.Event()
    error = refused(server, lambda _handler, _body: never.wait(LIMIT) and None, wait=0.2)
    never.set()
    assert "no answer within 0.2 s" in error.message and "one request at a time" in error.remedy


def test_waiting_for_a_server_that_sends_byte_by_byte_is_limited(server: TextServer) -> None:
    over = threading.Event()

    def dribble(handler: BaseHTTPRequestHandler, _body: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not over.wait(0.05):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    error = refused(server, dribble, wait=0.4)
    over.set()
    assert "no answer within 0.4 s" in error.message


def test_an_endless_answer_does_not_fill_the_memory(
    server: TextServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.inference.exchange.REPLY_LIMIT", 1000)
    assert "does not end" in refused(server, reply(b"x" * 100_000)).message


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(UserError, match=f"Nothing listens at http://127.0.0.1:{port}"):
            complete(MegatronClient(f"127.0.0.1:{port}"), Request("x"))


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://[::1", "http://", "http://a b\x00", "http://x:99999999", ""]
)
def test_an_invalid_address_is_an_error(url: str) -> None:
    with pytest.raises(UserError):
        complete(MegatronClient(url), Request("x"))


def test_a_proxy_of_the_environment_is_not_asked(server: TextServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert complete(MegatronClient(server.url), Request("x")).continuation == " lazy dog."


def read(content: bytes, request: Request | None = None) -> Completion:
    return read_reply(request or Request("x"), Reply(200, content, {}), 0.5)


def test_numbers_beyond_any_float_are_not_log_probabilities() -> None:
    found = read(
        b'{"text": ["xyz"], "segments": [["x", "y", "z"]], "logprobs": [[-1.5, 1' + b"0" * 400 + b"]]}"
    )
    assert [token.logprob for token in found.tokens] == [None, -1.5, None]


def test_tokens_per_second_counts_what_was_generated() -> None:
    assert read(b'{"text": ["xyz"], "segments": [["x", "y", "z"]]}').tokens_per_second == 4
    assert read(b'{"text": ["xyz"]}').tokens_per_second is None


BYTES = ["\ufffd"] * 6  # the first two letters as GPT-2's tokenizer has them, three bytes each


@pytest.mark.parametrize(
    ("prompt", "text", "segments", "of_prompt", "answer"),
    [
        ("日本", "日本の首都", [*BYTES, "の", *BYTES], 6, "の首都"),
        ("", "<|endoftext|>9Qi", ["<|endoftext|>", "9", "Q", "i"], 1, "9Qi"),
        ("The", "<|begin_of_text|>The cat", ["<|begin_of_text|>", "The", " cat"], 2, " cat"),
        (" The", "The cat\n!", ["<s>", "▁The", "▁cat", "<0x0A>", "!"], 2, " cat\n!"),
        ("a", "a\x1b[0mbc<|endoftext|>", ["a", "\x1b[0m", "b", "c", "<|endoftext|>"], 1, "bc<|endoftext|>"),
    ],
)
def test_the_end_of_the_prompt_is_found_for_each_tokenizer(
    prompt: str, text: str, segments: list[str], of_prompt: int, answer: str
) -> None:
    made = len(segments) - of_prompt
    value = {"text": [text], "segments": [segments], "logprobs": [[-0.5] * (len(segments) - 1)]}
    found = read(json.dumps(value).encode(), Request(prompt, tokens=made))
    assert (found.of_prompt, found.generated, found.continuation) == (of_prompt, made, answer)
    assert found.text == prompt + answer
    spelled = list(pieces(found.tokens[found.of_prompt :], found.continuation))
    assert "".join(piece.text for piece in spelled) == answer
    assert all(piece.logprob == -0.5 for piece in spelled)


def test_characters_split_into_tokens_on_both_sides_of_the_prompts_end() -> None:
    value = {"text": ["日本日本"], "segments": [[*BYTES, *BYTES]], "logprobs": [[-0.5] * 11]}
    found = read(json.dumps(value).encode(), Request("日本", tokens=6))
    assert (found.of_prompt, found.generated) == (6, 6)


def test_tokens_beyond_a_stop_text_are_not_shown(server: TextServer) -> None:
    server.answer = continuing(" one. two.")
    found = complete(MegatronClient(server.url), Request("x", stop=(". ",), logprobs=True))
    assert "".join(piece.text for piece in pieces(found.tokens[1:], found.continuation)) == " one"


def test_a_stop_text_ends_the_answer_and_the_server_stops_at_newlines(server: TextServer) -> None:
    server.answer = continuing(" one. two.")
    found = complete(MegatronClient(server.url), Request("x", stop=(". ", "two")))
    assert (found.text, found.continuation, found.cut) == ("x one", " one", True)
    assert "stop_on_eol" not in server.asked[-1]
    complete(MegatronClient(server.url), Request("x", stop=("\n",)))
    assert server.asked[-1]["stop_on_eol"] is True


def test_a_text_is_scored_token_by_token_from_the_mark_that_begins_a_document(server: TextServer) -> None:
    tokens = MegatronClient(server.url).score("abc")
    assert [(token.text, token.logprob) for token in tokens] == [("a", -0.5), ("b", -0.5), ("c", -0.5)]
    assert (server.asked[-1]["tokens_to_generate"], server.asked[-1]["add_BOS"]) == (0, True)
    own = {"text": ["<s>ab"], "segments": [["</s>", "<s>", "ab"]], "logprobs": [[-9.0, -0.5]]}
    server.answer = reply(own)  # Llama's tokenizers put a mark of their own behind it
    assert [(token.text, token.logprob) for token in MegatronClient(server.url).score("ab")] == [("ab", -0.5)]
    server.answer = reply("Length of prompt + tokens_to_generate longer than allowed")
    with pytest.raises(TooLongError):
        MegatronClient(server.url).score("abc")


# `mdk-tui ask`.


def ask(*words: str, stdin: bytes | None = None, folder: Path) -> Any:
    return CliRunner().invoke(cli, ["-w", str(folder), "ask", *words], input=stdin)


def test_ask_prints_prompt_and_continuation(server: TextServer, tmp_path: Path) -> None:
    found = ask("The", "--url", server.url, folder=tmp_path)
    assert (found.exit_code, found.output) == (0, "The lazy dog.\n")


def test_ask_reads_standard_input_whatever_it_holds(server: TextServer, tmp_path: Path) -> None:
    found = ask("--url", server.url, stdin=b"\xff and\n", folder=tmp_path)
    assert found.exit_code == 0 and server.asked[-1]["prompts"] == ["\ufffd and"]


def test_ask_prints_valid_json_for_infinite_log_probabilities(server: TextServer, tmp_path: Path) -> None:
    server.answer = reply(b'{"text": ["ab"], "segments": [["a", "b"]], "logprobs": null}')
    found = json.loads(ask("a", "--json", "--url", server.url, folder=tmp_path).output)
    assert (found["continuation"], found["logprobs"], found["url"]) == ("b", None, server.url)
    assert found["speaks"] == "Megatron-LM"
    server.answer = reply(
        b'{"text": ["abc"], "segments": [["a", "b", "c"]], "logprobs": [[-Infinity, -1.0]]}'
    )
    found = json.loads(ask("a", "--json", "--url", server.url, folder=tmp_path).output)
    assert (found["tokens"], found["logprobs"]) == (["a", "b", "c"], [None, None, -1.0])


def test_ask_greedy_is_top_k_one(server: TextServer, tmp_path: Path) -> None:
    ask("a", "--greedy", "--tokens", "3", "--url", server.url, folder=tmp_path)
    assert (server.asked[-1]["top_k"], server.asked[-1]["tokens_to_generate"]) == (1, 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "--top-k", "3", "--top-p", "0.5", "--url", "x"], "exclude each other"),
        (["a", "--greedy", "--top-k", "3", "--url", "x"], "--greedy goes with"),
        (["a"], "No text server runs"),
    ],
)
def test_ask_refuses_wrong_options(words: list[str], said: str, tmp_path: Path) -> None:
    error = ask(*words, folder=tmp_path).exception
    assert isinstance(error, UserError) and said in error.message and error.remedy + error.message


def test_several_prompts_from_a_file_to_several_servers(server: TextServer, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("one\n\ntwo\n")
    with TextServer(continuing("!")) as other:
        found = ask(
            "--file", str(tmp_path / "prompts.txt"), "--url", server.url, "--url", other.url, folder=tmp_path
        )
        assert server.asked[0]["random_seed"] == other.asked[0]["random_seed"]
    assert found.exit_code == 0
    assert found.output == (
        f"--- prompt 1 of 2, {server.url}\none lazy dog.\n\n--- prompt 1 of 2, {other.url}\none!\n".replace(
            "\n\n---", "\n---"
        )
        + f"\n--- prompt 2 of 2, {server.url}\ntwo lazy dog.\n\n--- prompt 2 of 2, {other.url}\ntwo!\n"
    )


def test_the_other_prompts_are_asked_if_one_fails(server: TextServer, tmp_path: Path) -> None:
    good = server.answer

    def sometimes(handler: BaseHTTPRequestHandler, body: Any) -> None:
        (reply("prompts is empty", 400) if body["prompts"] == ["bad"] else good)(handler, body)

    server.answer = sometimes
    (tmp_path / "p.jsonl").write_text('{"prompt": "bad"}\n{"text": "good"}\n')
    found = ask("--file", str(tmp_path / "p.jsonl"), "--json", "--url", server.url, folder=tmp_path)
    assert found.exit_code == 0  # click's runner sees main's result, not its status
    rows = [json.loads(line) for line in found.output.splitlines()]
    assert "refuses: prompts is empty" in rows[0]["error"] and rows[1]["continuation"] == " lazy dog."


def test_the_settings_name_a_server(server: TextServer, tmp_path: Path) -> None:
    (tmp_path / "mdk.toml").write_text(f'[prompt]\nurl = "{server.url}"\n')
    assert ask("The", folder=tmp_path).output == "The lazy dog.\n"
