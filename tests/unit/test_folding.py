"""Display lines: repeats become one line with a counter, and a flood shows its newest lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_lines import FLOOD, LOGS

from backends.megatron.folding import BURST, MOST, REMEMBERED, Folder, level_of


def texts(lines: list[tuple[int, str, int]]) -> list[tuple[str, int]]:
    return [(text, count) for _, text, count in lines]


def fold(folder: Folder, log: str) -> list[tuple[int, str, int]]:
    return [(line.number, line.text, line.count) for line in folder.feed(log.encode())]


def test_a_flood_of_one_line_is_one_line_with_a_counter_that_grows() -> None:
    folder = Folder()
    assert fold(folder, "start\n" + FLOOD * 300) == [(1, "start", 1), (2, FLOOD.strip(), 300)]
    assert fold(folder, FLOOD * 5) == [(2, FLOOD.strip(), 305)]
    assert (folder.lines, folder.folded) == (306, 304)


def test_repeats_of_many_ranks_between_other_lines_are_folded_and_their_ranks_kept() -> None:
    log = "".join(f"[1,{rank % 4}]<stdout>:{FLOOD}[1,0]<stdout>:step {rank}\n" for rank in range(12))
    lines = Folder().feed(log.encode())
    assert [line.text for line in lines] == [FLOOD.strip(), *(f"step {rank}" for rank in range(12))]
    assert (lines[0].count, lines[0].ranks, lines[0].rank) == (12, {0, 1, 2, 3}, 0)


def test_a_real_log_loses_no_line() -> None:
    log = (LOGS / "2xh200-mpirun-output-tag.log").read_bytes()
    folder = Folder()
    lines = folder.feed(log) + folder.finish()
    assert len({line.number for line in lines}) == len(lines)
    assert folder.hidden == 0
    assert folder.lines == len(log.splitlines())
    assert any("iteration       40/      40" in line.text for line in lines)
    assert not any("<stdout>" in line.text for line in lines)


def test_a_flood_shows_its_newest_lines_and_counts_the_rest() -> None:
    folder = Folder()
    first = fold(folder, "".join(f"line {n}\n" for n in range(20_000)))
    assert (len(first), first[0][1], first[-1]) == (
        BURST,
        f"line {20_000 - BURST}",
        (20_000, "line 19999", 1),
    )
    second = fold(folder, "".join(f"more {n}\n" for n in range(1000)))
    assert (len(second), second[-1][1]) == (MOST, "more 999")
    assert folder.hidden == 20_000 - BURST + 1000 - MOST


def test_a_line_hidden_by_a_flood_is_shown_when_it_repeats() -> None:
    folder = Folder()
    fold(folder, "".join(f"line {n}\n" for n in range(BURST)))
    hidden = "".join(f"other {n}\n" for n in range(MOST + 1))
    assert "other 0" not in [text for _, text, _ in fold(folder, hidden)]
    assert texts(fold(folder, "other 0\n")) == [("other 0", 1)]


def test_after_a_pause_a_full_burst_is_shown_again() -> None:
    folder = Folder()
    fold(folder, "".join(f"line {n}\n" for n in range(BURST)))
    for n in range(10):
        fold(folder, f"quiet {n}\n")
    assert len(fold(folder, "".join(f"  argument_{n} ... {n}\n" for n in range(1000)))) == 1000


def test_the_whole_line_replaces_the_half_that_was_shown() -> None:
    folder = Folder()
    folder.feed(b"one\ntwo\non")
    assert [(line.number, line.text) for line in folder.settle()] == [(3, "on")]
    assert [(line.number, line.text) for line in folder.feed(b"e\n")] == [(3, "one")]


def test_the_number_of_remembered_texts_is_bounded() -> None:
    folder = Folder()
    fold(folder, "first\n" + "".join(f"line {n}\n" for n in range(REMEMBERED)))
    assert texts(fold(folder, "first\nline 999\n")) == [("line 999", 2), ("first", 1)]


@given(st.lists(st.binary(max_size=20), max_size=12), st.integers(1, 7))
def test_every_line_of_any_bytes_is_counted_once(pieces: list[bytes], cut: int) -> None:
    log = b"\n".join(pieces)
    folder, counts = Folder(), dict[int, int]()
    for start in range(0, len(log), cut):
        counts.update((line.number, line.count) for line in folder.feed(log[start : start + cut]))
    counts.update((line.number, line.count) for line in folder.finish())
    whole = Folder()
    expected = {line.number: line.count for line in [*whole.feed(log), *whole.finish()]}
    assert counts == expected


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory.", "error"),
        ("[rank1]: Traceback (most recent call last):", "error"),
        ("prterun noticed that process rank 0 with PID 0 on node vm exited on", "error"),
        ("WARNING: Setting args.overlap_p2p_comm to False", "warning"),
        ("clip_grads.py:30: UserWarning: Transformer Engine", "warning"),
        ("DEBUG:urllib3:x", "debug"),
        (" iteration       20/  500000 | lm loss: 1.0E+01 |", "info"),
        ("  check_for_nan_in_loss_and_grad .................. True", "info"),
    ],
)
def test_levels(text: str, level: str) -> None:
    assert level_of(text) == level
