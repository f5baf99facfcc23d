"""Definition files, corpora, progress and failures: read from text alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.setup.definition_lint import lint
from backends.setup.explain import explain
from backends.setup.jsonl import check_corpus, preview, read_document
from backends.setup.progress import read_progress

GOOD = "Bootstrap: docker\nFrom: base\n%post\n  pip install 'mlflow>=2.1' flask==3.0\n  make -j\"$(nproc)\" all\n  make -j8\n"


def test_a_good_definition_has_no_fault() -> None:
    assert lint(GOOD) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("pip install mlflow>=2.1", "redirection"),
        ("pip install -U flask 'a>=1' b<2", "redirection"),
        ("pip install git+git://host/x", "git://"),
        ("make -j all", "as many compilers"),
        ("make -j", "as many compilers"),
        ("export NCCL_ALGO=Ring", "every cluster"),
    ],
)
def test_the_known_faults_are_found_in_a_users_own_file(line: str, words: str) -> None:
    faults = lint(f"Bootstrap: docker\nFrom: base\n%post\n  {line}\n")
    assert [fault.line for fault in faults] == [4]
    assert words in faults[0].message


def test_comments_and_other_sections_are_left_alone() -> None:
    assert lint("Bootstrap: docker\nFrom: x\n%help\n  make -j\n%post\n  # make -j\n") == []


def test_a_file_that_is_no_definition_is_reported() -> None:
    assert "not a definition file" in lint("hello")[0].message
    assert "From" in lint("Bootstrap: docker\n%post\n  true\n")[0].message


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"text": "x"}\n', ""),
        (b"\xff\xfe\n", "is not UTF-8"),
        (b'{"text": \n', "is not JSON"),
        (b"[1]\n", "is not a JSON object"),
        (b'{"content": "x"}\n', "has no key 'text' (it has: content)"),
        (b'{"text": 3}\n', "has a int under 'text'"),
        (rb'{"text": "\ud83d"}', "holds one half of a surrogate pair"),
        (rb'{"text": "\ud83d\ude00"}', ""),
        (b"[" * 200_000, "is n"),
    ],
)
def test_a_bad_line_is_described(line: bytes, problem: str) -> None:
    found, _ = read_document(line, "text")
    assert found.startswith(problem) and bool(found) == bool(problem)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_line_or_a_problem(line: bytes) -> None:
    problem, text = read_document(line, "text")
    assert problem or isinstance(text, str)


def test_a_sample_and_the_whole_corpus(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_bytes(b'{"text": "abcd"}\n' * 100 + b'{"text": ""}\n' + b"broken\n")
    sample = check_corpus(corpus, sample=50)
    assert (sample.documents, sample.whole, sample.bad_count) == (50, False, 1), "the last line"
    assert sample.estimated_documents == pytest.approx(102, abs=2)
    whole = check_corpus(corpus, sample=None)
    assert (whole.documents, whole.empty, whole.whole) == (101, 1, True)
    assert [bad.number for bad in whole.bad] == [102]
    assert preview(corpus, documents=2) == ["abcd", "abcd"] and preview(corpus, documents=0) == []


@pytest.mark.parametrize("last", [b'{"text": "cut', b'{"text": "' + b"x" * 200_000, b'{"text": "cut\n'])
def test_the_end_of_a_cut_file_is_seen_in_a_sample(tmp_path: Path, last: bytes) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_bytes(b'{"text": "abcd"}\n' * 100 + last)
    found = check_corpus(corpus, sample=50)
    assert [bad.words[:25] for bad in found.bad] == ["the last line is not JSON"]


@pytest.mark.parametrize(
    ("line", "text", "fraction", "rate"),
    [
        (
            "Receiving objects:  41% (410/1000), 12.00 MiB | 3.21 MiB/s",
            "receiving objects 410 of 1,000",
            0.41,
            "3.21 MiB/s",
        ),
        ("remote: Counting objects: 100% (5/5), done.", "counting objects 5 of 5", 1.0, ""),
        (
            "Processed 1000 documents (213.2 docs/s, 12.9 MB/s).",
            "1,000 documents",
            0.5,
            "213 documents/s, 12.9 MiB/s",
        ),
        ("downloaded 5242880 of 10485760 bytes, 2.5 MiB/s", "5 MiB of 10 MiB", 0.5, "2.5 MiB/s"),
        ("downloaded 5242880 of ? bytes, 2.5 MiB/s", "5 MiB", None, "2.5 MiB/s"),
        ("INFO:    Creating SIF file...", "Creating SIF file...", 0.9, ""),
        ("I: running apt-get update...", "running apt-get update", None, ""),
        ("checked 500 of 1000 bytes, 4000 documents", "4,000 documents read", 0.5, ""),
    ],
)
def test_progress_in_the_programs_own_words(line: str, text: str, fraction: float | None, rate: str) -> None:
    found = read_progress(line, documents=2000)
    assert found and (found.text, found.fraction, found.rate) == (text, fraction, rate)


def test_other_lines_are_no_progress() -> None:
    assert read_progress("hello") is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fatal: unable to access 'x': Could not resolve host: github.com", "does not reach"),
        ("fatal: Remote branch nope not found in upstream origin", "no such branch"),
        (
            "FATAL:   could not use fakeroot: no mapping entry found in /etc/subuid for ann",
            "range of user ids",
        ),
        ("error: write failed: No space left on device", "full"),
        ("NameError: name 'nltk' is not defined", "lacks nltk"),
        ("1 out of 1 hunk FAILED", "was edited"),
        ("fatal: Unable to create '/x/.git/index.lock': File exists.", "git command was killed"),
    ],
)
def test_failures_are_explained(line: str, words: str) -> None:
    found = explain(["before", line, "after"], 1)
    assert words in found.message and found.remedy


def test_an_unknown_failure_gives_its_last_words() -> None:
    assert explain(["a", "it broke", ""], 7).message == "The command ended with status 7: it broke"
