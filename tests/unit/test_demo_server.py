"""The demo's text server speaks core_r0.8.0's protocol, errors that come as HTTP 200 included."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from demo_runs import run, write_corpus

from backends.demo import checkpoint, model
from backends.demo.answering import Answering
from backends.demo.http_server import Server
from backends.demo.protocol import read_request
from backends.demo.sampling import Gpt, Sampling, beam_search, choose, generate

LONG = ("--max-position-embeddings", "48", "--train-iters", "8")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of iterations 4 and 8."""
    folder = tmp_path_factory.mktemp("saved")
    text = write_corpus(folder / "corpus.jsonl")
    run("--data-path", text, "--save", folder / "ck", "--save-interval", "4", *LONG)
    return folder / "ck"


@pytest.fixture(scope="module")
def gpt(saved: Path) -> Gpt:
    state = checkpoint.load(saved, 8)
    return Gpt(state.weights, state.shape, state.tokenizer())


@pytest.fixture(scope="module")
def server(saved: Path) -> Iterator[str]:
    answering = Answering(saved, lambda _: None)
    answering.load(8)
    with Server(("127.0.0.1", 0), answering, follow=False) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def put(server: str, body: Any) -> httpx.Response:
    headers = {"Content-Type": "application/json"}
    return httpx.put(f"{server}/api", content=json.dumps(body), headers=headers, timeout=300)


def ask(server: str, **fields: Any) -> dict[str, Any]:
    reply = put(server, fields)
    assert reply.status_code == 200 and isinstance(reply.json(), dict), reply.text
    return reply.json()


# Answers


def test_greedy_answers_and_logprobs_are_those_of_the_weights(server: str, gpt: Gpt) -> None:
    answer = ask(server, prompts=["the c"], tokens_to_generate=12, logprobs=True, top_k=1)
    tokens = gpt.tokenizer.tokenize("the c")
    start = len(tokens)
    for _ in range(12):
        table = model.log_probabilities(gpt.weights, np.array(tokens), gpt.shape)
        tokens.append(int(np.argmax(table[-1])))
    table = model.log_probabilities(gpt.weights, np.array(tokens[:-1]), gpt.shape)
    assert answer["text"] == [gpt.tokenizer.detokenize(tokens)]
    assert len(answer["segments"][0]) == start + 12 and "".join(answer["segments"][0]) == answer["text"][0]
    assert answer["logprobs"][0] == pytest.approx([float(table[i, t]) for i, t in enumerate(tokens[1:])])


def test_two_checkpoints_answer_differently(saved: Path) -> None:
    answering = Answering(saved, lambda _: None)
    request = read_request({"prompts": ["the "], "tokens_to_generate": 4, "logprobs": True, "top_k": 1})
    answers = []
    for iteration in (4, 8):
        answering.load(iteration)
        answers.append(answering.answer(request)["logprobs"])
        assert answering.answer(request)["iteration"] == iteration
    assert answers[0] != answers[1]


def test_a_seed_repeats_an_answer_and_another_changes_it(server: str) -> None:
    fields = {"prompts": ["the "], "tokens_to_generate": 20}
    first, again, other = (ask(server, **fields, random_seed=seed)["text"] for seed in (1, 1, 2))
    assert first == again != other
    assert ask(server, **fields)["text"] != ask(server, **fields)["text"]


def test_scoring_adds_no_tokens(server: str) -> None:
    answer = ask(server, prompts=["the cat"], tokens_to_generate=0, logprobs=True)
    assert answer["text"] == ["the cat"]
    assert len(answer["logprobs"][0]) == len(answer["segments"][0]) - 1
    assert ask(server, prompts=["the cat"], tokens_to_generate=1)["logprobs"] is None


def test_several_prompts_end_at_the_same_length(server: str) -> None:
    """As in Megatron-LM: the longest prompt and the tokens to generate make the length of all."""
    answer = ask(server, prompts=["t", "the cat sat on"], tokens_to_generate=3, top_k=1)
    short, long = (len(segments) for segments in answer["segments"])
    assert short == long


def test_an_empty_prompt_begins_with_the_end_of_a_document(server: str) -> None:
    assert ask(server, prompts=[""], add_BOS=True, tokens_to_generate=2)["text"][0].startswith(
        "<|endoftext|>"
    )


def test_beams_are_scored_best_first_and_beat_greed(server: str, gpt: Gpt) -> None:
    answer = ask(server, prompts=["the "], tokens_to_generate=6, beam_width=4)
    assert set(answer) == {"text", "segments", "scores"} and len(answer["text"]) == 4
    assert answer["scores"] == sorted(answer["scores"], reverse=True)
    prompt = gpt.tokenizer.tokenize("the ")
    length = len(prompt) + 6
    greedy = gpt.score(generate(gpt, prompt, length, Sampling(top_k=1)))[len(prompt) - 1 :]
    best, tokens = beam_search(gpt, prompt, length, 4, gpt.tokenizer.eod, 1.0)[0]
    assert best >= sum(greedy) / 6 - 1e-9
    assert best == pytest.approx(sum(gpt.score(tokens)[len(prompt) - 1 :]) / (len(tokens) - len(prompt)))


def test_stops_and_bars_of_newlines(gpt: Gpt) -> None:
    newline, colon = gpt.tokenizer.tokenize("\n"), gpt.tokenizer.tokenize(":")
    eager = dict(gpt.weights)  # a model that always wants a newline
    eager["decoder.final_layernorm.weight"] = np.zeros(16, model.DTYPE)
    eager["decoder.final_layernorm.bias"] = 50 * eager["embedding.word_embeddings.weight"][newline[0]]
    wanting = Gpt(eager, gpt.shape, gpt.tokenizer)
    assert len(generate(wanting, colon, 20, Sampling(top_k=1))) == 20
    assert generate(wanting, colon, 20, Sampling(top_k=1, stop_on_eol=True)) == [*colon, *newline]
    assert generate(wanting, colon, 20, Sampling(top_k=1, stop_on_double_eol=True)) == [
        *colon,
        *newline,
        *newline,
    ]
    assert generate(wanting, colon, 2, Sampling(top_k=1, prevent_newline_after_colon=True))[1:] != newline


def test_sampling_respects_top_k_and_top_p() -> None:
    rng = np.random.default_rng(0)
    scores = np.log(np.array([0.5, 0.3, 0.15, 0.05]))

    def drawn(how: Sampling) -> set[int]:
        return {choose(scores, how, how.top_p, rng) for _ in range(300)}

    assert drawn(Sampling()) == {0, 1, 2, 3}
    assert drawn(Sampling(top_k=1)) == {0}
    assert drawn(Sampling(top_k=2)) == drawn(Sampling(top_p=0.6)) == {0, 1}
    assert drawn(Sampling(top_p=0.3)) == drawn(Sampling(temperature=0.01)) == {0}


# Refusals


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"prompts": None}, 400, "prompts is not a list of strings"),
        ({"prompts": []}, 400, "prompts is empty"),
        ({"prompts": ["x"] * 129}, 400, "Maximum number of prompts is 128"),
        ({"max_len": 3}, 400, "max_len is no longer used.  Replace with tokens_to_generate"),
        ({"sentences": 3}, 400, "sentences is no longer used.  Replace with prompts"),
        ({"tokens_to_generate": "5"}, 200, "tokens_to_generate must be an integer greater than 0"),
        ({"tokens_to_generate": -1}, 200, "tokens_to_generate must be an integer greater than or equal to 0"),
        ({"logprobs": 1}, 200, "logprobs must be a boolean value"),
        ({"tokens_to_generate": 0}, 200, "tokens_to_generate=0 implies logprobs should be True"),
        ({"temperature": 0}, 200, "temperature must be a positive number less than or equal to 100.0"),
        ({"temperature": True}, 200, "temperature must be a positive number less than or equal to 100.0"),
        (
            {"top_k": 1.0},
            200,
            "top_k must be an integer equal to or greater than 0 and less than or equal to 1000",
        ),
        ({"top_k": 1001}, 200, "top_k must be equal to or greater than 0 and less than or equal to 1000"),
        ({"top_p": 1}, 200, "top_p must be a positive float less than or equal to 1.0"),
        ({"top_p": 0.5, "top_k": 3}, 200, "cannot set both top-k and top-p samplings."),
        ({"top_p": 1.5}, 200, "top_p must be less than or equal to 1.0"),
        ({"top_p_decay": 1}, 200, "top_p_decay must be a positive float less than or equal to 1.0"),
        ({"top_p_decay": 0.5}, 200, "top_p_decay cannot be set without top_p"),
        ({"top_p_decay": 1.5, "top_p": 0.5}, 200, "top_p_decay must be less than or equal to 1.0"),
        ({"top_p_bound": 1}, 200, "top_p_bound must be a positive float less than or equal to top_p"),
        ({"top_p_bound": 0.5}, 200, "top_p_bound cannot be set without top_p"),
        ({"top_p_bound": 0.6, "top_p": 0.5}, 200, "top_p_bound must be greater than 0 and less than top_p"),
        ({"add_BOS": "yes"}, 200, "add_BOS must be a boolean value"),
        ({"prompts": [""]}, 200, "Empty prompts require add_BOS=true"),
        ({"stop_on_double_eol": 1}, 200, "stop_on_double_eol must be a boolean value"),
        ({"stop_on_eol": 1}, 200, "stop_on_eol must be a boolean value"),
        ({"prevent_newline_after_colon": 1}, 200, "prevent_newline_after_colon must be a boolean value"),
        ({"random_seed": "1"}, 200, "random_seed must be integer"),
        ({"random_seed": -1}, 200, "random_seed must be a positive integer"),
        ({"no_log": 1}, 200, "no_log must be a boolean value"),
        ({"beam_width": "2"}, 200, "beam_width must be integer"),
        ({"beam_width": 0}, 200, "beam_width must be an integer > 1"),
        ({"beam_width": 2, "prompts": ["x", "y"]}, 200, "When doing beam_search, batch size must be 1"),
        ({"stop_token": "x"}, 200, "stop_token must be an integer"),
        ({"length_penalty": 1}, 200, "length_penalty must be a float"),
        ({"tokens_to_generate": 48}, 200, "Length of prompt + tokens_to_generate longer than allowed"),
        ({"prompts": ["x" * 60], "beam_width": 2}, 200, "context length + tokens_to_generate too large"),
        ({"beam_width": 1000}, 200, "Too many tokens.  48000 is greater than 12000"),
    ],
)
def test_refusals_are_bare_strings_in_megatrons_words(
    server: str, change: dict[str, Any], status: int, said: str
) -> None:
    reply = put(server, {"prompts": ["x"], **change})
    assert (reply.status_code, reply.json()) == (status, said)


def test_the_real_servers_replies_byte_for_byte(server: str, logs: Path) -> None:
    """The refusals that core_r0.8.0 was seen to give (tests/data/logs/core_r0.8.0-api-replies.txt)."""
    real = (logs / "core_r0.8.0-api-replies.txt").read_text().split("\n\nHTTP ")
    seen = {reply.strip() for reply in re.findall(r'^(?:".*"|\{"message".*)$', "\n".join(real), re.M)}
    bodies = (b'{"prompts": [""]}', b'{"prompts": ["x"], "tokens_to_generate": 99}', b"{}", b"{")
    headers = {"Content-Type": "application/json"}
    ours = {httpx.put(f"{server}/api", content=body, headers=headers).text.strip() for body in bodies}
    assert ours == seen
    compact = put(server, {"prompts": ["x"], "tokens_to_generate": 1}).text
    assert compact.startswith('{"iteration":8,"logprobs":null,"segments":[["x",') and compact.endswith("\n")


def test_invalid_requests_are_refused(server: str) -> None:
    assert put(server, ["prompts"]).json() == "prompts argument required"
    assert put(server, {"prompts": [3]}).status_code == 500
    assert put(server, {"prompts": [["a"]]}).json() == {"message": "Internal Server Error"}
    assert httpx.get(f"{server}/api").status_code == 405
    assert (
        httpx.get(f"{server}/").status_code == httpx.put(f"{server}/other", content=b"{}").status_code == 404
    )
    assert httpx.put(f"{server}/api", content=b"[" * 100_000).status_code == 400
    host, port = server.removeprefix("http://").split(":")
    for hostile in (
        b"\x16\x03\x01\x00",
        b"PUT /api HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"\r\n" * 9,
    ):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(hostile)
    assert ask(server, prompts=["still"], tokens_to_generate=1)["text"]


def test_requests_wait_for_each_other(server: str) -> None:
    answers: list[list[str]] = []

    def request() -> None:
        answers.append(ask(server, prompts=["the "], tokens_to_generate=10, top_k=1)["text"])

    threads = [threading.Thread(target=request) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 6 and len({tuple(answer) for answer in answers}) == 1


# The program


def serve(*words: str | Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "backends.demo.serve", "--port", "0", *map(str, words)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ready(process: subprocess.Popen[str]) -> tuple[str, list[str]]:
    """The address, and what was said until then."""
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line.rstrip("\n"))
        if match := re.match(r" \* Running on (http://127\.0\.0\.1:\d+)$", said[-1]):
            return match[1], said
    raise AssertionError(f"never ready: {said}")


def test_the_server_prints_megatrons_lines_and_ends_on_term(saved: Path) -> None:
    with serve("--load", saved) as process:
        address, said = ready(process)
        assert f" loading checkpoint from {saved} at iteration 8" in said
        assert f"  successfully loaded checkpoint from {saved} [ t 0, p 0 ] at iteration 8" in said
        ask(address, prompts=["the\x1b[2J"], tokens_to_generate=1)
        put(address, {})
        process.terminate()
        out, error = process.communicate(timeout=300)
    assert process.returncode == 0 and error == ""
    assert (
        "request IP: 127.0.0.1\n" in out
        and '{"prompts": ["the\\u001b[2J"], "tokens_to_generate": 1}\n' in out
    )
    access = (
        r'^INFO:werkzeug:127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4} \d\d:\d\d:\d\d\] "PUT /api HTTP/1\.1" (\d+) -$'
    )
    assert re.findall(access, out, re.M) == ["200", "400"]


def test_the_server_waits_for_the_first_checkpoint_and_follows_the_newest(
    saved: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "ck"
    with serve("--load", folder, "--wait-for-checkpoint", "--follow-checkpoints") as process:
        assert process.stdout is not None and "Forcing" in process.stdout.readline()
        checkpoint.save(folder, checkpoint.load(saved, 4))
        address, said = ready(process)
        assert said[-4].endswith("at iteration 4")
        checkpoint.save(folder, checkpoint.load(saved, 8))
        assert ask(address, prompts=["the "], tokens_to_generate=1, no_log=True)["iteration"] == 8
        (folder / checkpoint.TRACKER).write_text("9")
        ask(address, prompts=["the "], tokens_to_generate=1, no_log=True)
        process.terminate()
        out, _ = process.communicate(timeout=300)
    assert f"successfully loaded checkpoint from {folder} [ t 0, p 0 ] at iteration 8" in out
    assert "WARNING: could not load the checkpoint" in out and "still answering from iteration 8" in out


def test_term_ends_the_wait_for_a_checkpoint(tmp_path: Path) -> None:
    with serve("--load", tmp_path, "--wait-for-checkpoint", "60") as process:
        assert process.stdout is not None and process.stdout.readline()
        process.terminate()
        process.communicate(timeout=300)
    assert process.returncode == 0


def test_without_a_checkpoint_nothing_is_served(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / checkpoint.TRACKER).write_text("3")
    for folder, words in (("none", ("--wait-for-checkpoint", "0.1")), ("none", ()), ("torn", ())):
        with serve("--load", tmp_path / folder, *words) as process:
            out, error = process.communicate(timeout=300)
        assert process.returncode == 1 and "Running on" not in out
        assert (
            "there is no checkpoint to serve" if folder == "none" else "could not load the checkpoint"
        ) in error


def test_a_taken_port_is_reported_in_one_sentence(saved: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serve("--load", saved, "--port", str(port)) as process:
            _, error = process.communicate(timeout=300)
    assert process.returncode == 1
    assert error == f"cannot listen on 127.0.0.1 port {port}: Address already in use\n"
