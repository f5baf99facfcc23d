"""Cleaning text that others wrote, once, at the edge: log lines, paths, model output, host names."""

from __future__ import annotations

import re

# CSI, OSC (ended by BEL or ST, or never), DCS/SOS/PM/APC strings, other two- and three-byte escapes.
ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)
# C0 except tab and newline, DEL, C1, and the marks that turn the direction of text round.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: str, *, tab_width: int = 8) -> str:
    """`text` without escape sequences and control characters; tabs expanded, newlines kept.

    The result is safe to write to a terminal. It is still data: it may hold what looks like markup.
    """
    if text.isprintable():  # most is, and that is quick to see
        return text
    if CONTROLS.search(text):
        text = CONTROLS.sub("", ESCAPES.sub("", text))
    return text.expandtabs(tab_width) if "\t" in text else text


def clean_line(text: str, limit: int = 2000) -> str:
    """`clean`, on one line of at most `limit` characters (newlines become blanks, the rest is cut with an ellipsis)."""
    text = clean(text[: 4 * limit]).replace("\n", " ")
    return text if len(text) <= limit else text[: limit - 1] + "…"
