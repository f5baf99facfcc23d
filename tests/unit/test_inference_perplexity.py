"""Perplexity: every token once, windows that a model can take, the same for all checkpoints; and the command."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from text_server import TextServer, continuing, reply

from backends.errors import UserError
from backends.inference.likelihood import Likelihood, likelihood
from backends.inference.perplexity import SMALLEST, Progress, measure, windows
from backends.inference.request import Answered, Request, Token, TooLongError
from tui.cli import cli


class Scorer:
    """A client that gives each letter the same log-probability, and takes `limit` letters at once."""

    url, dialect = "u", "d"

    def __init__(self, logprob: float, limit: int = 1000, *, mark: bool = True) -> None:
        self.logprob, self.limit, self.mark = logprob, limit, mark
        self.asked: list[str] = []

    def answer(self, request: Request) -> Iterator[Answered]:
        raise NotImplementedError

    def score(self, text: str) -> tuple[Token, ...]:
        self.asked.append(text)
        if len(text) > self.limit:
            raise TooLongError("longer than the model takes")
        numbers = [self.logprob if at or self.mark else None for at in range(len(text))]
        return tuple(Token(letter, number) for letter, number in zip(text, numbers, strict=True))


def last(steps: Iterator[Progress]) -> Progress:
    *_, found = steps
    return found


def test_every_token_counts_once_and_documents_are_separate() -> None:
    scorer = Scorer(-2.0)
    found = last(measure([scorer], ["ab cd", "ef"], 1000))
    assert scorer.asked == ["ab cd", "ef"]
    assert found.scores == (Likelihood(14.0, 7, 7),)
    assert found.scores[0].perplexity == pytest.approx(math.exp(2.0))
    assert (found.documents, found.windows) == (2, 2)


def test_a_window_too_long_for_one_model_is_cut_for_all() -> None:
    wide, narrow = Scorer(-1.0), Scorer(-3.0, limit=40)
    text = "word " * 30
    found = last(measure([wide, narrow], [text, text], 200))
    assert [score.tokens for score in found.scores] == [300, 300] and found.window <= 40
    assert [piece for piece in wide.asked if len(piece) <= 40] == [
        piece for piece in narrow.asked if len(piece) <= 40
    ]
    assert sum(len(piece) > 40 for piece in narrow.asked) <= 3, "what was too long once is not tried again"


def test_a_model_that_refuses_every_window_is_an_error() -> None:
    scorer = Scorer(-1.0, limit=SMALLEST - 1)
    with pytest.raises(TooLongError):
        last(measure([scorer], ["x" * 400], 200))
    assert len(scorer.asked) < 12


def test_a_first_token_without_a_probability_does_not_count() -> None:
    found = last(measure([Scorer(-2.0, mark=False)], ["あbc"], 100)).scores[0]
    assert (found.tokens, found.size, found.nats) == (2, 2, 4.0)
    assert likelihood([Token("あ"), Token("b", -1.0)], "あb") == Likelihood(1.0, 1, 1)


def test_an_empty_text_is_an_error() -> None:
    with pytest.raises(UserError, match="no text"):
        list(measure([Scorer(-1.0)], ["", ""]))


@given(st.text(max_size=200), st.integers(1, 50))
def test_windows_joined_are_the_text(text: str, size: int) -> None:
    pieces = windows(text, size)
    assert "".join(pieces) == text and all(0 < len(piece) <= size for piece in pieces)


def test_windows_are_cut_before_white_space() -> None:
    assert windows("one two three", 9) == ["one two", " three"]
    assert windows("abcdefghij", 4) == ["abcd", "efgh", "ij"]


# The command.


def run(folder: Path, *words: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(cli, ["-w", str(folder), "perplexity", *words], input=stdin)


def test_two_servers_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"text": "abc"}\n{"text": "de"}\n')
    with TextServer(continuing("")) as one, TextServer(continuing("")) as two:
        found = run(tmp_path, str(tmp_path / "d.jsonl"), "--url", one.url, "--url", two.url)
        assert found.exit_code == 0, found.output
        rows = [line.split() for line in found.output.splitlines()]
        assert rows[0][:3] == ["PERPLEXITY", "BITS/BYTE", "TOKENS"]
        assert rows[1] == ["1.649", "0.7213", "5", one.url] and rows[2][3] == two.url
        assert "2 documents in 2 windows" in found.output and "beginning of a document" in found.output
        found = run(tmp_path, str(tmp_path / "d.jsonl"), "--url", one.url, "--documents", "1", "--json")
    value = json.loads(found.output)
    assert (value["tokens"], value["bytes"], value["documents"]) == (3, 3, 1)
    assert value["perplexity"] == pytest.approx(math.exp(0.5))


def test_a_shorter_window_is_reported(tmp_path: Path) -> None:
    good = continuing("")

    def limited(handler: Any, body: dict[str, Any]) -> None:
        too_long = len(body["prompts"][0]) > 30
        (reply("Length of prompt + tokens_to_generate longer than allowed") if too_long else good)(
            handler, body
        )

    with TextServer(limited) as server:
        found = run(tmp_path, "-", "--url", server.url, "--window", "50", stdin="word " * 20)
    assert "(a model took no more than 24)" in found.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-", "--url", "u"], "no text"),
        (["nowhere.txt", "--url", "u"], "cannot be read"),
        (["-"], "No text server runs"),
    ],
)
def test_files_that_cannot_be_measured(words: list[str], said: str, tmp_path: Path) -> None:
    if "--url" in words:
        with TextServer(continuing("")) as server:
            words = [server.url if word == "u" else word for word in words]
            error = run(tmp_path, *words, stdin="").exception
    else:
        error = run(tmp_path, *words, stdin="x").exception
    assert isinstance(error, UserError) and said in error.message and error.remedy
