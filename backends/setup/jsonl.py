"""Checks whether a .jsonl is a corpus: bad lines by number, missing keys, empty texts, encoding.

`python -m backends.setup.jsonl FILE [KEY]` reads all of it, with progress; status 1 when a line is bad.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

LINE_LIMIT = 256 * 2**20  # bytes; a longer line is no document but a file without newlines
SAMPLE = 1000  # lines that are read where not all are asked for
KEPT = 20  # bad lines that are named one by one


@dataclass(frozen=True, slots=True)
class BadLine:
    """`number` counts from 1; None for the last line of a file whose middle was not read."""

    number: int | None
    problem: str

    @property
    def words(self) -> str:
        return f"line {self.number} {self.problem}" if self.number else f"the last line {self.problem}"


@dataclass(slots=True)
class Corpus:
    """What was read. `documents` counts good lines; `whole` is False when only a sample was read."""

    path: str
    size: int  # bytes
    documents: int = 0
    characters: int = 0
    empty: int = 0
    bytes_read: int = 0
    bad: list[BadLine] = field(default_factory=list[BadLine])
    bad_count: int = 0
    whole: bool = False

    def refuse(self, number: int | None, problem: str) -> None:
        self.bad_count += 1
        if len(self.bad) < KEPT:
            self.bad.append(BadLine(number, problem))

    @property
    def estimated_documents(self) -> int | None:
        """Documents in the whole file, scaled up from the sample; None when nothing was read."""
        if self.whole:
            return self.documents
        return round(self.documents * self.size / self.bytes_read) if self.bytes_read else None


def check_corpus(
    path: Path,
    key: str = "text",
    sample: int | None = SAMPLE,
    told: Callable[[Corpus], None] = lambda corpus: None,
) -> Corpus:
    """Read the first `sample` lines (None: all) of a .jsonl, and the last one, which an interrupted download cuts. Raises
    OSError for a file that cannot be read.

    `told` gets the counts so far after every thousandth line, if that line is good.
    """
    corpus = Corpus(str(path), path.stat().st_size)
    for number, line in _lines(path):
        if sample is not None and number > sample:
            if problem := read_document(_last_line(path), key)[0]:
                corpus.refuse(None, problem)
            break
        corpus.bytes_read += len(line)
        problem, text = read_document(line, key)
        if problem:
            corpus.refuse(number, problem)
            continue
        corpus.documents += 1
        corpus.characters += len(text)
        corpus.empty += not text.strip()
        if number % 1000 == 0:
            told(corpus)
    else:
        corpus.whole = True
    return corpus


def read_document(line: bytes, key: str) -> tuple[str, str]:
    """(problem, text) of one line: the problem is "" for a document that preprocess_data.py can read."""
    if len(line) >= LINE_LIMIT:
        return f"is longer than {LINE_LIMIT // 2**20} MiB; is this really one document a line?", ""
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return f"is not UTF-8 (byte {error.start})", ""
    except ValueError as error:
        return f"is not JSON ({error})", ""
    except RecursionError:
        return "is nested too deeply", ""
    if not isinstance(value, dict):
        return "is not a JSON object", ""
    document = cast("dict[str, Any]", value)
    if key not in document:
        return f"has no key {key!r} (it has: {', '.join(list(document)[:5]) or 'none'})", ""
    text = document[key]
    if not isinstance(text, str):
        return f"has a {type(text).__name__} under {key!r} where a text belongs", ""
    if rb"\u" in line and _has_surrogate(text):
        return "holds one half of a surrogate pair, on which GPT-2's tokenizer fails", ""
    return "", text


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def preview(path: Path, key: str = "text", documents: int = 3, characters: int = 400) -> list[str]:
    """The beginnings of the first good documents, raw: the caller cleans what it shows."""
    found: list[str] = []
    for number, line in _lines(path):
        if len(found) >= documents or number > SAMPLE:
            break
        problem, text = read_document(line, key)
        if not problem and text.strip():
            found.append(text[:characters])
    return found


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LINE_LIMIT):
            number += 1
            yield number, line


def _last_line(path: Path) -> bytes:
    """At most `LINE_LIMIT` bytes of it. It is read, not mapped: a file may shrink meanwhile."""
    with path.open("rb") as file:
        size, block = file.seek(0, 2), 2**16
        while True:
            file.seek(max(0, size - block))
            tail = file.read(block)
            begin = tail.rfind(b"\n", 0, len(tail) - 1) + 1
            if begin or block >= min(size, LINE_LIMIT):
                return tail[begin:]
            block *= 8


def main(arguments: Sequence[str]) -> int:
    if not 1 <= len(arguments) <= 2:
        sys.stderr.write("usage: python -m backends.setup.jsonl FILE [KEY]\n")
        return 2
    last = 0.0

    def told(corpus: Corpus) -> None:
        nonlocal last
        if time.monotonic() - last >= 1:
            last = time.monotonic()
            sys.stdout.write(
                f"checked {corpus.bytes_read} of {corpus.size} bytes, {corpus.documents} documents\n"
            )
            sys.stdout.flush()

    try:
        corpus = check_corpus(Path(arguments[0]), *arguments[1:], sample=None, told=told)
    except OSError as error:
        sys.stderr.write(f"{arguments[0]} cannot be read: {error.strerror}\n")
        return 1
    for bad in corpus.bad:
        sys.stdout.write(f"{bad.words}\n")
    sys.stdout.write(
        f"{corpus.documents:,} documents, {corpus.empty:,} empty, {corpus.bad_count:,} bad lines\n"
    )
    return 1 if corpus.bad_count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
