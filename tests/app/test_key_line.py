"""The last line shows the keys that work now, as many as fit, and always help."""

from __future__ import annotations

from typing import ClassVar

import pytest
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType

from tui.widgets.key_line import Key, KeyLine, arranged

KEYS = (Key("m", "m", "metric"), Key("x", "x", "axis"), Key("question_mark", "?", "help", keep=True))


def shown(keys: tuple[Key, ...], width: int) -> str:
    row = ""
    for column, key in arranged(keys, width):
        row = row.ljust(column) + f"{key.display} {key.description}"
    return row


@pytest.mark.parametrize(
    ("width", "row"),
    [
        (80, "m metric  x axis  ? help"),
        (24, "m metric  x axis  ? help"),
        (23, "m metric  ? help"),
        (15, "x axis  ? help"),
        (8, "? help"),
        (5, ""),
    ],
)
def test_keys_without_room_are_left_out_except_help(width: int, row: str):
    assert shown(KEYS, width) == row


class Keys(App[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "again", "again"),
        Binding("left", "left", "look", key_display="←→"),
        Binding("s", "secret", "secret", show=False),
    ]
    pressed = 0

    def compose(self) -> ComposeResult:
        self.add_class("-ascii")
        yield KeyLine()

    def action_again(self) -> None:
        self.pressed += 1

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "left" or self.pressed == 0


async def test_it_follows_the_bindings_and_a_click_presses_a_key():
    app = Keys()
    async with app.run_test(size=(60, 3), tooltips=False) as pilot:
        await pilot.pause()
        line = app.query_one(KeyLine)
        assert line.render_line(0).text.strip() == "a again  left/right look"
        await pilot.click(line, offset=(3, 0))
        app.refresh_bindings()
        await pilot.pause()
        assert app.pressed == 1
        assert line.render_line(0).text.strip() == "a again"


async def test_a_line_that_was_composed_anew_shows_the_keys_too():
    app = Keys()
    async with app.run_test(size=(60, 3)) as pilot:
        await pilot.pause()
        before = app.query_one(KeyLine)
        await app.recompose()
        await pilot.pause()
        line = app.query_one(KeyLine)
        assert line is not before and line.render_line(0).text.strip() == "a again  left/right look"
