"""The progress of a set-up command, from its output: git, singularity, preprocess_data.py and mdk-tui's download."""

from __future__ import annotations

import re
from dataclasses import dataclass

from backends.ticks import size_words


@dataclass(frozen=True, slots=True)
class Progress:
    """`fraction` is of the present command, 0…1, None where it cannot be known; `rate` is in the words of the program."""

    text: str
    fraction: float | None = None
    rate: str = ""


GIT = re.compile(
    r"^(?:remote: )?(Counting|Compressing|Receiving|Updating|Resolving|Checking out)( \w+)?: +(\d+)% \((\d+)/(\d+)\)(.*)"
)
GIT_RATE = re.compile(r"\| ([\d.]+ [KMG]?i?B/s)")
DOCUMENTS = re.compile(r"^Processed (\d+) documents \(([\d.]+) docs/s, ([\d.]+) MB/s\)\.")
DOWNLOAD = re.compile(r"^downloaded (\d+) of (\d+|\?) bytes, ([\d.]+) MiB/s")
CHECKED = re.compile(r"^checked (\d+) of (\d+) bytes, (\d+) documents")
MMDEBSTRAP = re.compile(r"^I: (.+)")  # what cpu.def's image is made with, in its %setup
# Milestones of `singularity build` in order; the longest silence follows the last but one.
MILESTONES = (
    ("Starting build", 0.02),
    ("Extracting", 0.1),
    ("Running post scriptlet", 0.2),
    ("Adding ", 0.85),
    ("Creating SIF file", 0.9),
    ("Build complete", 1.0),
)


def read_progress(line: str, documents: int | None = None) -> Progress | None:
    """What `line` (cleaned, one rewrite of a `\\r` line) says of the progress, or None.

    `documents`: how many the corpus has, where known, for the share of a preprocessing.
    """
    if match := GIT.match(line):
        rate = GIT_RATE.search(match[6])
        what = f"{match[1].lower()}{match[2] or ''}"
        return Progress(
            f"{what} {int(match[4]):,} of {int(match[5]):,}", int(match[3]) / 100, rate[1] if rate else ""
        )
    if match := DOCUMENTS.match(line):
        done = int(match[1])
        share = min(1.0, done / documents) if documents else None
        return Progress(
            f"{done:,} documents", share, f"{float(match[2]):.0f} documents/s, {float(match[3]):.1f} MiB/s"
        )
    if match := DOWNLOAD.match(line):
        done, total = int(match[1]), None if match[2] == "?" else int(match[2])
        text = size_words(done) + (f" of {size_words(total)}" if total else "")
        return Progress(text, done / total if total else None, f"{match[3]} MiB/s")
    if match := CHECKED.match(line):
        return Progress(f"{int(match[3]):,} documents read", int(match[1]) / max(int(match[2]), 1))
    if match := MMDEBSTRAP.match(line):
        return Progress(match[1].rstrip("."))
    if line.startswith("INFO:"):
        for words, fraction in MILESTONES:
            if words in line:
                return Progress(line.removeprefix("INFO:").strip(), fraction)
    return None
