"""The signs that the screens draw, and their ASCII forms for fonts without them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One cell each, except `dots` and `degrees`. `bar` and `track`: the full and the empty part of a bar; `missing`: no reading."""

    running: str
    good: str
    failed: str
    lost: str
    waiting: str
    marker: str
    bar: str
    track: str
    dot: str
    dots: str
    to: str
    missing: str
    degrees: str

    def phase(self, phase: str) -> str:
        """The sign of a run's phase."""
        return {
            "starting": self.waiting,
            "running": self.running,
            "stopping": self.waiting,
            "finished": self.good,
            "failed": self.failed,
        }.get(phase, self.lost)


UNICODE = Glyphs("●", "✓", "✗", "?", "○", "▶", "━", "─", "·", "…", "–", "–", " °C")
ASCII = Glyphs("*", "+", "X", "?", "o", ">", "=", "-", "-", "...", "-", "-", " C")


def glyphs(ascii_only: bool) -> Glyphs:
    return ASCII if ascii_only else UNICODE


# Pairs come before their parts.
KEYS = {
    "←→": "left/right",
    "↑": "up",
    "↓": "down",
    "←": "left",
    "→": "right",
    "⏎": "enter",
    "⇥": "tab",
    "⇧": "shift+",
    "…": "...",
}


def plain_key(display: str) -> str:
    """A key's display, or its description, in ASCII."""
    for sign, word in KEYS.items():
        display = display.replace(sign, word)
    return display
