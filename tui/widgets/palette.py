"""The colours of a panel by their meaning, computed once for each theme.

Textual could do it by component classes, but then every panel has its own copy of a dozen styles that are computed again
whenever the screen is resized or the focus moves: half of the time to the first paint.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from rich.style import Style
from textual.color import Color

if TYPE_CHECKING:
    from textual.app import App
    from textual.widget import Widget

# name → (foreground, its share in percent, background over the panel's own, its share, bold); colours are the theme's.
COLOURS: Mapping[str, tuple[str, int, str, int, bool]] = {
    "text": ("foreground", 100, "", 0, False),
    "dim": ("foreground", 55, "", 0, False),
    "frame": ("foreground", 25, "", 0, False),
    "focus": ("primary", 100, "", 0, False),
    "title": ("foreground", 100, "", 0, True),
    "good": ("text-success", 100, "", 0, False),
    "warning": ("text-warning", 100, "", 0, False),
    "error": ("text-error", 100, "", 0, True),
    "info": ("text-primary", 100, "", 0, False),
    "curve": ("primary", 100, "", 0, False),
    "raw": ("primary", 45, "", 0, False),
    "past": ("primary", 70, "", 0, False),
    "selected": ("foreground", 100, "primary", 30, False),
    "match": ("foreground", 100, "warning", 40, True),
    # Curves beside each other: told apart on dark and on light ground, and by those who see no red or no green.
    "curve-1": ("primary", 100, "", 0, False),
    "curve-2": ("#e69f00", 100, "", 0, False),
    "curve-3": ("#009e73", 100, "", 0, False),
    "curve-4": ("#cc79a7", 100, "", 0, False),
    "curve-5": ("#56b4e9", 100, "", 0, False),
    "curve-6": ("#d55e00", 100, "", 0, False),
}
# For terminals that keep their own colours (NO_COLOR too): sixteen at most, and emphasis by bold and dim.
ANSI: Mapping[str, str] = {
    "text": "default", "dim": "dim default", "frame": "dim default", "focus": "bold default", "title": "bold default",
    "good": "green", "warning": "yellow", "error": "bold red", "info": "blue", "curve": "bold default",
    "raw": "dim default", "past": "default", "selected": "reverse default", "match": "bold reverse default", "curve-1": "bold default",
    "curve-2": "yellow", "curve-3": "green", "curve-4": "magenta", "curve-5": "cyan", "curve-6": "red",
}  # fmt: skip
USED = ("foreground", "primary", "warning", "text-success", "text-warning", "text-error", "text-primary")


def palette_of(widget: Widget) -> Mapping[str, Style]:
    """The style of each name, on the background of `widget`."""
    app = cast("App[Any]", widget.app)
    if app.native_ansi_color:
        return ansi_palette()
    variables = app.theme_variables
    return palette(widget.background_colors[1], tuple(variables[name] for name in USED))


@lru_cache(maxsize=8)
def ansi_palette() -> Mapping[str, Style]:
    return {name: Style.parse(f"{words} on default") for name, words in ANSI.items()}


@lru_cache(maxsize=8)
def palette(ground: Color, colours: tuple[str, ...]) -> Mapping[str, Style]:
    """`colours` are the theme's, in the order of `USED`."""
    theme: dict[str, str] = dict(zip(USED, colours, strict=True))

    def over(base: Color, name: str, percent: int) -> Color:
        colour = Color.parse(theme.get(name, name))
        return base.blend(colour.with_alpha(1.0), percent / 100 * colour.a, alpha=1.0)

    found: dict[str, Style] = {}
    for name, (front, share, back, back_share, bold) in COLOURS.items():
        behind = over(ground, back, back_share) if back else ground
        found[name] = Style(
            color=over(behind, front, share).rich_color, bgcolor=behind.rich_color, bold=bold or None
        )
    return found
