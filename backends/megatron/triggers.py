"""Which lines may mean something: a quick look at their words, long before any pattern is tried.

Most of a long log is noise, and much of it never repeats. A line means something by itself only when it holds one word
of those that the patterns of `plain_events`, `known_errors`, `errors`, `timers` and `iteration` insist on.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

from backends.megatron.known_errors import KNOWN_ERRORS
from backends.megatron.plain_events import RULES

OTHERS = (
    "iteration",
    "ms",  # of timers
    "process name",
    "noticed that process rank",
    "will not load any checkpoints",
    "recent",  # of a traceback, whose first word is glued to anything, such as the ^C that caused it
    "ray",  # of Ray's tracebacks
    "local",  # of torchrun's list of failures
)
# Names of arguments may be any; an escape sequence may stand in the middle of a word.
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
    """False only for a raw line that means nothing, unless something is open that it belongs to."""
    words = line.translate(TO_WORDS, DELETED).split()
    return not TRIGGERS.isdisjoint(words) or any(part in line for part in ANYWHERE)
