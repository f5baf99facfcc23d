"""The application's own colours: quiet greys, and a colour only where it says something."""

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
    variables={
        "footer-background": "#11151a",
        "footer-item-background": "#11151a",
        "footer-key-background": "#11151a",
        "footer-description-background": "#11151a",
        "footer-key-foreground": "#7aa2d6",
        "footer-description-foreground": "#8a929e",
    },
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
    variables={
        "footer-background": "#fbfbf9",
        "footer-item-background": "#fbfbf9",
        "footer-key-background": "#fbfbf9",
        "footer-description-background": "#fbfbf9",
        "footer-key-foreground": "#2f5f9e",
        "footer-description-foreground": "#5d6878",
    },
)
THEMES = (DARK, LIGHT)
