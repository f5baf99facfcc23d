"""Updates of a follower, merged on their way to the screen."""

from __future__ import annotations

from backends.megatron.events import LogLine
from backends.megatron.record import Record
from tui.screens.monitor_sources import News


def news(numbers: list[int], reset: bool = False) -> News:
    lines = tuple(LogLine(number, None, "info", f"line {number}") for number in numbers)
    return News(lines, Record(), True, False, None, None, reset)


def numbers(found: News) -> list[int]:
    return [line.number for line in found.lines]


def test_a_line_that_came_twice_stands_once():
    assert numbers(news([1, 2]).then(news([2, 3]))) == [1, 2, 3]


def test_lines_that_take_the_place_of_all_before_do_so_when_merged():
    merged = news([1, 2]).then(news([901, 902], reset=True)).then(news([903]))
    assert numbers(merged) == [901, 902, 903]
    assert merged.reset
