"""The demo's text: its tokenizer, its corpora, its samples."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.demo import corpus
from backends.demo.corpus import CorpusError
from backends.demo.tokenizer import Tokenizer, learn_merges

TEXTS = ["the cat and the hat and the bat", "thé çat\n\n  and ☃ the"]
TOKENIZER = Tokenizer(learn_merges(TEXTS, 20), 300)


@given(st.text())
def test_every_text_can_be_spelled_and_read_again(text: str) -> None:
    known = text.encode("utf-8", "replace").decode()  # lone surrogates are no text
    assert TOKENIZER.detokenize(TOKENIZER.tokenize(text)) == known


@given(st.lists(st.integers(-5, 400)))
def test_any_token_ids_can_be_detokenized(tokens: list[int]) -> None:
    assert isinstance(TOKENIZER.detokenize(tokens), str)


def test_frequent_pairs_are_merged_and_the_same_text_gives_the_same_merges() -> None:
    assert learn_merges(TEXTS, 20) == learn_merges(list(TEXTS), 20)
    assert learn_merges(["abab abab"], 1) == [(ord("a"), ord("b"))]
    assert len(TOKENIZER.tokenize("the cat and the hat")) < len("the cat and the hat")
    assert TOKENIZER.detokenize([TOKENIZER.eod]) == "<|endoftext|>"
    with pytest.raises(ValueError, match="no room"):
        Tokenizer(learn_merges(TEXTS, 20), 260)


def test_python_s_own_help_is_large_enough() -> None:
    text = corpus.read_corpus(None)
    assert len(text.documents) > 50 and sum(map(len, text.documents)) > 300_000


def test_where_a_distribution_left_the_help_out_docstrings_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    text = corpus.read_corpus(None)
    assert text.name == "docstrings"
    assert sum(map(len, text.documents)) > 300_000 and any(
        "heap queue" in document.lower() for document in text.documents
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no text"),
        (b'{"text": ""}\n', "holds no text"),
        (b'{"text": "a"}\n{"text": 3}\n', "line 2 is not a JSON object"),
        (b'{"words": "a"}\n', "line 1 is not a JSON object"),
        (b"\x00\xff\xfe binary", "line 1 is not a JSON object"),
        (b"[" * 100_000, "line 1 is not a JSON object"),
    ],
)
def test_a_file_that_is_no_jsonl_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=said):
        corpus.read_corpus(str(path))


def test_a_folder_or_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="Is a directory"):
        corpus.read_corpus(str(tmp_path))
    with pytest.raises(CorpusError, match="No such file"):
        corpus.read_corpus(str(tmp_path / "none"))


def test_of_a_large_file_only_the_beginning_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "READ_LIMIT", 100)
    path = tmp_path / "x.jsonl"
    path.write_text((json.dumps({"text": "word " * 10}) + "\n") * 10)
    text = corpus.read_corpus(str(path))
    assert text.cut and len(text.documents) == 3


def test_the_split_is_contiguous_and_whole() -> None:
    tokens = np.arange(1000)
    train, validation, test = corpus.split_tokens(tokens, "949,50,1")
    assert [len(train), len(validation), len(test)] == [949, 50, 1]
    assert np.array_equal(np.concatenate([train, validation, test]), tokens)
    for split in ("0,1,1", "-1,2,3", "a,b", "nan,1,1", ""):
        with pytest.raises(CorpusError, match="--split"):
            corpus.split_tokens(tokens, split)


def test_samples_follow_from_seed_and_number_alone() -> None:
    tokens = np.arange(1000)
    first = corpus.sample(tokens, 16, 1234, 7)
    assert len(first) == 17 and np.array_equal(first, corpus.sample(tokens, 16, 1234, 7))
    starts = {int(corpus.sample(tokens, 16, 1234, number)[0]) for number in range(50)}
    assert len(starts) > 40
    assert len(corpus.sample(np.arange(17), 16, 1, 1)) == 17
