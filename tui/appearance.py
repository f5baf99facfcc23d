"""How the application looks in this terminal: decided once from the options and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The key under which click's context holds it, for commands that open the application.
APPEARANCE = "tui.appearance"
DEFAULT_THEME = "mdk-dark"
TERMINALS_COLOURS = "ansi-dark"  # the theme that uses the terminal's own colours
FEW_COLOURS = (
    "ansi",
    "linux",
    "screen",
    "vt100",
    "vt220",
    "xterm",
)  # TERM of terminals with eight or sixteen


@dataclass(frozen=True, slots=True)
class Appearance:
    """`calm`: no animations, as over SSH, where each of their frames travels. `own_colours`: those of the terminal."""

    theme: str = DEFAULT_THEME
    ascii_only: bool = False
    calm: bool = False
    own_colours: bool = False


def appearance(
    environment: Mapping[str, str], *, theme: str | None = None, ascii_only: bool = False
) -> Appearance:
    """NO_COLOR overrides a chosen theme, since users set it for all programs; a chosen theme overrides the terminal's few colours."""
    no_color = "NO_COLOR" in environment  # set to anything, as Textual reads it
    few = environment.get("TERM") in FEW_COLOURS and not environment.get("COLORTERM")
    over_ssh = bool(environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"))
    own_colours = no_color or (few and theme is None)
    return Appearance(
        theme=TERMINALS_COLOURS if own_colours else theme or DEFAULT_THEME,
        ascii_only=ascii_only,
        calm=over_ssh or ascii_only or no_color,
        own_colours=own_colours,
    )
