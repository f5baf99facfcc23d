"""The application's own colours: greys, and a colour only where it means something."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="mdk-dark",
    primary="#7aa2d6",
    secondary="#8f9bb3",
    accent="#7aa2d6",
    success="#86b97c",
    warning="#d9ae5f",
    error="#e06c6c",
    foreground="#d5dae1",
    background="#11151a",
    surface="#171c23",
    panel="#1c222b",
    dark=True,
)
LIGHT = Theme(
    name="mdk-light",
    primary="#2f5f9e",
    secondary="#5d6878",
    accent="#2f5f9e",
    success="#33762b",
    warning="#8f6400",
    error="#b32b2b",
    foreground="#22272e",
    background="#fbfbf9",
    surface="#f2f2ef",
    panel="#e8e8e4",
    dark=False,
)
THEMES = (DARK, LIGHT)
