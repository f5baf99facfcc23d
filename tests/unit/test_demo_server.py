"""The demo's text server speaks core_r0.8.0's protocol, errors that come as HTTP 200 included."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

TRAIN = [
    "--num-layers",
    "1",
    "--hidden-size",
    "16",
    "--num-attention-heads",
    "2",
    "--seq-length",
    "32",
    "--micro-batch-size",
    "2",
    "--train-iters",
    "4",
    "--log-interval",
    "2",
    "--eval-interval",
    "100",
    "--eval-iters",
    "1",
    "--save-interval",
    "2",
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ck")
    subprocess.run(
        [sys.executable, "-m", "backends.demo.train", *TRAIN, "--save", str(folder)],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def server(saved: Path) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-m", "backends.demo.serve", "--load", str(saved), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if match := re.search(r"Running on (http://\S+)", line):
                break
        assert any("successfully loaded checkpoint" in line for line in lines)
        yield match[1]  # type: ignore[index]
        os.kill(process.pid, signal.SIGTERM)
        process.stdout.read()
        assert process.wait(20) == 0


def put(server: str, body: object) -> httpx.Response:
    return httpx.put(
        f"{server}/api", content=json.dumps(body), headers={"Content-Type": "application/json"}, timeout=30
    )


def test_a_completion_with_logprobs(server: str) -> None:
    reply = put(server, {"prompts": ["The "], "tokens_to_generate": 5, "logprobs": True, "top_k": 1})
    value = reply.json()
    assert reply.status_code == 200 and set(value) == {"text", "segments", "logprobs"}
    assert value["text"][0].startswith("The ")
    assert len(value["logprobs"][0]) == len(value["segments"][0]) - 1
    assert (
        value
        == put(server, {"prompts": ["The "], "tokens_to_generate": 5, "logprobs": True, "top_k": 1}).json()
    )


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 400, "prompts argument required"),
        ({"prompts": "x"}, 400, "prompts is not a list of strings"),
        ({"prompts": []}, 400, "prompts is empty"),
        ({"prompts": ["x"] * 129}, 400, "Maximum number of prompts is 128"),
        ({"prompts": ["x"], "max_len": 3}, 400, "max_len is no longer used"),
        ({"prompts": [""]}, 200, "Empty prompts require add_BOS=true"),
        ({"prompts": ["x"], "tokens_to_generate": 0}, 200, "implies logprobs should be True"),
        ({"prompts": ["x"], "tokens_to_generate": "5"}, 200, "must be an integer"),
        ({"prompts": ["x"], "top_p": 1}, 200, "top_p must be a positive float"),
        ({"prompts": ["x"], "top_p": 0.5, "top_k": 3}, 200, "cannot set both"),
        ({"prompts": ["x"], "temperature": 0}, 200, "temperature must be"),
        ({"prompts": ["x"], "random_seed": -1}, 200, "random_seed must be"),
        ({"prompts": ["x"], "logprobs": 1}, 200, "logprobs must be a boolean value"),
        (
            {"prompts": ["x"], "tokens_to_generate": 1000},
            200,
            "Length of prompt + tokens_to_generate longer than allowed",
        ),
    ],
)
def test_refusals_are_bare_strings(server: str, body: object, status: int, said: str) -> None:
    reply = put(server, body)
    assert reply.status_code == status
    assert isinstance(reply.json(), str) and said in reply.json()


def test_what_is_no_json_and_no_api(server: str) -> None:
    assert httpx.put(f"{server}/api", content=b"{", timeout=10).status_code == 400
    assert httpx.get(f"{server}/api", timeout=10).status_code == 404
    assert httpx.put(f"{server}/other", content=b"{}", timeout=10).status_code == 404


def test_without_a_checkpoint_nothing_is_served(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "backends.demo.serve", "--load", str(tmp_path), "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "there is no checkpoint to serve" in done.stderr
