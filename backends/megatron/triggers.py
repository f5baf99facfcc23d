"""Decides quickly, by words alone, which lines may mean something.

Most of a long log is noise, and much of it never repeats. A line means something by itself only if it holds a word that
a pattern of `plain_events`, `known_errors`, `errors`, `timers` or `iteration` requires. Splitting lines into words and
looking them up costs 7 to 10 ns a byte; one regular expression of all words costs 300 to 500, a `find` for each word 110.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

from backends.megatron.known_errors import KNOWN_ERRORS
from backends.megatron.plain_events import RULES

OTHERS = (
    "iteration",
    "ms",  # timers
    "process name",
    "noticed that process rank",
    "will not load any checkpoints",
    "recent",  # tracebacks; their first word may be glued to anything, such as the ^C that caused them
    "ray",  # Ray's tracebacks
    "local",  # torchrun's list of failures
)
# An argument can have any name, and an escape sequence may stand in the middle of a word.
ANYWHERE = (b"...", b"\x1b")
LETTERS = string.ascii_letters.encode()
TO_WORDS = bytes(c + 32 if c in LETTERS[26:] else c if c in LETTERS else 32 for c in range(256))
DELETED = bytes(c for c in range(32) if c not in b"\t\n\r") + b"\x7f"  # as `text.clean` does


def _longest_words(phrases: Iterable[str]) -> frozenset[bytes]:
    found = (max(re.findall("[a-z]+", phrase.lower()), key=len, default="") for phrase in phrases)
    return frozenset(word.encode() for word in found if word)


TRIGGERS = _longest_words(
    [
        *(words for words, _, _ in RULES),
        *(pieces[0] for row in KNOWN_ERRORS if not row.raised for pieces in row.phrases),
        *OTHERS,
    ]
)


def may_mean_something(line: bytes) -> bool:
    """False only if the raw line means nothing by itself. It may still belong to something open."""
    words = line.translate(TO_WORDS, DELETED).split()
    return not TRIGGERS.isdisjoint(words) or any(part in line for part in ANYWHERE)
