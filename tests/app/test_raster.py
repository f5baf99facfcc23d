"""Lines in character cells: their ends, their crossings, and points outside."""

from __future__ import annotations

from tui.widgets.raster import Raster


def rows(raster: Raster) -> list[str]:
    return ["".join(character for character, _ in row) for row in raster.cells()]


def test_corners_are_where_they_belong():
    raster = Raster(3, 2)
    for corner in ((0.0, 0.0), (1.0, 1.0)):
        raster.draw([corner], "curve")
    assert rows(raster) == ["  ⠈", "⡀  "]


def test_a_line_has_no_gap_and_a_rise_is_drawn_in_the_column_where_it_is():
    flat, steep = Raster(4, 1), Raster(4, 3)
    flat.draw([(0.0, 0.6), (1.0, 0.6)], "curve")
    assert rows(flat) == ["⠒⠒⠒⠒"]
    steep.draw([(0.0, 0.0), (0.0, 1.0)], "curve")
    assert rows(steep) == ["⡇   "] * 3


def test_lines_that_meet_keep_their_dots_and_the_last_ones_colour():
    raster = Raster(2, 1)
    raster.draw([(0.0, 0.0), (1.0, 0.0)], "raw")
    raster.draw([(0.0, 1.0), (0.0, 1.0)], "curve")
    assert raster.cells() == [[("⣁", "curve"), ("⣀", "raw")]]


def test_points_outside_are_not_drawn_and_ascii_is_ascii():
    raster = Raster(3, 3, ascii_only=True)
    raster.draw([(-1.0, 0.5), (2.0, 0.5)], "curve")
    raster.draw([(0.5, -3.0), (0.5, 7.0)], "curve")
    assert rows(raster) == [" * ", "***", " * "]
