"""How the application looks in this terminal: decided once from the options and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Its place in the context of click: commands open the application without knowing of it.
APPEARANCE = "tui.appearance"
DEFAULT_THEME = "mdk-dark"
NO_COLOUR_THEME = "ansi-dark"  # NO_COLOR alone still leaves greys


@dataclass(frozen=True, slots=True)
class Appearance:
    """`calm`: no animations, as over SSH, where each of their frames travels."""

    theme: str = DEFAULT_THEME
    ascii_only: bool = False
    calm: bool = False
    no_color: bool = False


def appearance(
    environment: Mapping[str, str], *, theme: str | None = None, ascii_only: bool = False
) -> Appearance:
    """NO_COLOR decides over a chosen theme: a user who wants no colours set it for all programs."""
    no_color = "NO_COLOR" in environment  # set to anything, as Textual reads it
    over_ssh = bool(environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"))
    return Appearance(
        theme=NO_COLOUR_THEME if no_color else theme or DEFAULT_THEME,
        ascii_only=ascii_only,
        calm=over_ssh or ascii_only or no_color,
        no_color=no_color,
    )
