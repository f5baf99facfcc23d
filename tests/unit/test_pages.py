"""Pages of a log's file: every line is on one page, at its number, whatever happens to the file meanwhile."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.megatron.folding import BURST, may_hold_level
from backends.megatron.pages import PAGE, LogPages, Needle, Page, Wanted
from tui.widgets.log_buffer import KEPT, WHOLE

ALL = Wanted(lambda line: True)
LONG = 60_000  # lines: some twenty pages


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text("".join(f"step {number} {'x' * 70}\n" for number in range(1, LONG + 1)))
    return path


def indexed(path: Path, before: int = 0) -> LogPages:
    pages = LogPages(path, before)
    assert all(0 <= share <= 1 for share in pages.index())
    return pages


def texts(pages: Iterable[Page]) -> list[str]:
    return [line.text for page in pages for line in page.lines]


def test_every_line_is_there_with_its_number(log: Path):
    pages = indexed(log)
    lines = [line for page in pages.onward(0, 1, ALL, 10**9) for line in page.lines]
    assert [line.number for line in lines] == list(range(1, LONG + 1)) and pages.total == LONG
    assert all(line.text.startswith(f"step {line.number} ") for line in lines)
    assert len(pages) == -(-log.stat().st_size // PAGE)


def test_a_line_is_found_by_its_number(log: Path):
    pages = indexed(log, before=100)
    for number in (101, 3000, 40_000, LONG + 100):
        assert number in [line.number for line in pages.read(pages.place_of(number), ALL).lines]
    assert pages.place_of(1) == 0 and pages.place_of(10**9) == len(pages) - 1


def test_only_the_requested_pages_are_read(log: Path):
    pages = LogPages(log)
    list(pages.index(until=1))
    assert len(pages) == 1
    assert len(list(pages.onward(0, 1, ALL, 5000))) == len(pages) == 2


def test_repeats_are_folded_and_a_flood_hides_nothing(tmp_path: Path):
    path = tmp_path / "flood.log"
    path.write_text("".join(f"{n}\nnotice\n" for n in range(2 * BURST)))
    lines = [line for page in indexed(path).onward(0, 1, ALL, 10**9) for line in page.lines]
    assert {line.text for line in lines} >= {str(n) for n in range(2 * BURST)}
    assert sum(line.count for line in lines if line.text == "notice") == 2 * BURST
    assert len([line for line in lines if line.text == "notice"]) < 50


def test_a_search_goes_both_ways_and_wraps_around(log: Path):
    pages, wanted = indexed(log), ALL.holding("STEP 3000 ")
    for start, step in ((1, 1), (LONG + 1, -1), (5000, 1), (100, -1), (3000, 1)):
        *passed, found = pages.seek(start, step, wanted)
        assert [line.number for line in found.lines] == [3000] and not texts(passed)
    assert not texts(pages.seek(1, 1, ALL.holding("nowhere")))


def test_the_nearest_match_comes_first(log: Path):
    pages, wanted = indexed(log), ALL.holding("0000 ")
    *_, above = pages.seek(30_000, -1, wanted)
    *_, below = pages.seek(30_000, 1, wanted)
    assert (above.lines[-1].number, below.lines[0].number) == (20_000, 40_000)


@given(st.lists(st.sampled_from(["Loss\n", "loss LOSS\n", "é Straße\n", "\n", "ros"]), max_size=40))
def test_lines_are_counted_as_a_reader_would(pieces: list[str]):
    text = "".join(pieces)
    for needle in ("loss", "É", "SS", "s"):
        folded = (lambda word: word.casefold()) if not needle.isascii() else str.lower
        assert Needle(needle).lines(text.encode()) == sum(
            folded(needle) in folded(line) for line in text.split("\n")
        )


def test_lines_written_meanwhile_are_found(log: Path):
    pages = indexed(log)
    last = pages.read(len(pages) - 1, ALL).lines
    with log.open("a") as file:
        file.write("one more\nand half a")
    list(pages.index())
    grown = pages.read(pages.place_of(LONG), ALL).lines
    assert texts([Page(0, grown)]) == [*(line.text for line in last), "one more"]
    with log.open("a") as file:
        file.write(" line\n")
    list(pages.index())
    assert pages.total == LONG + 2 and texts([pages.read(len(pages) - 1, ALL)])[-1] == "and half a line"


def test_a_moved_file_is_still_read_and_a_truncated_one_is_reported(log: Path):
    pages = indexed(log)
    log.rename(log.with_suffix(".1"))
    log.write_text("another\n")
    assert texts([pages.read(0, ALL)])[0].startswith("step 1 ")
    log.with_suffix(".1").write_text("cut\n")
    with pytest.raises(EOFError):
        pages.read(3, ALL)
    with pytest.raises(EOFError):
        list(pages.index())


def test_a_line_longer_than_pages_takes_one_page_and_little_memory(tmp_path: Path):
    path = tmp_path / "long.log"
    path.write_bytes(b"first\n" + b"y" * (20 * PAGE) + b"\nlast\n")
    tracemalloc.start()
    pages = indexed(path)
    lines = [line for page in pages.onward(0, 1, ALL, 10**9) for line in page.lines]
    assert tracemalloc.get_traced_memory()[1] < 8 * PAGE
    tracemalloc.stop()
    assert [(line.number, line.text[:5]) for line in lines] == [(1, "first"), (2, "yyyyy"), (3, "last")]


def test_nothing_to_show_is_no_page(tmp_path: Path):
    path = tmp_path / "empty.log"
    path.write_text("no newline yet")
    pages = indexed(path)
    assert (len(pages), pages.total, pages.place_of(5)) == (0, 0, 0)
    assert list(pages.seek(1, -1, ALL)) == [] == list(pages.count(Needle("no"), 0))


def test_pages_without_a_level_are_known_by_their_bytes():
    assert not may_hold_level(b"all is well\n", "error") and may_hold_level(b"all is well\n", "debug")
    assert may_hold_level(b"Warning: x\n", "warning") and not may_hold_level(b"Warning: x\n", "error")
    assert may_hold_level(b"RuntimeError: x\n", "warning")


def test_a_log_that_is_kept_whole_lost_nothing_to_a_flood():
    assert WHOLE <= BURST and WHOLE < KEPT


def test_the_descriptor_is_released(log: Path):
    def open_logs() -> int:
        links = (entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
        return sum(link == log for link in links)

    pages = indexed(log)
    assert open_logs() == 1
    del pages
    assert open_logs() == 0
