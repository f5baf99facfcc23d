"""Faults of a Singularity definition file that only show after half an hour of building, or never.

The published definition of the tutorial has four of them (unquoted `>=`, a dead git protocol, unbounded `make -j`,
a forced NCCL_ALGO); a user's own file may have them too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a definition file, at `line` (from 1), which reads `text`."""

    line: int
    text: str
    message: str
    remedy: str


SECTION = re.compile(r"^%(\w+)")
SHELL_SECTIONS = {"post", "setup", "test", "runscript", "startscript", "environment", "pre", "appinstall"}
RULES: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"\b(?:pip[\d.]*|conda|mamba)\s+install\b[^#;&|]*?\s(?![\"'])[\w.\[\],-]+(>=?|<=?)\d"),
        "An unquoted < or > is a redirection: the version limit is lost and a stray file appears.",
        "Quote the requirement: 'package>=1.2'.",
    ),
    (
        re.compile(r"git\+git://|\bgit\s+clone\b[^#]*\sgit://"),
        "The git:// protocol is no longer served by the big hosts.",
        "Use https://.",
    ),
    (
        re.compile(r"\bmake\b[^#|;&]*\s-j(?!\s*[\d$`\"'{])"),
        "make -j without a number starts as many compilers as there are files and runs out of memory.",
        'Bound it: make -j"$(nproc)".',
    ),
    (
        re.compile(r"\bNCCL_(ALGO|PROTO)\s*="),
        "A forced NCCL algorithm holds for every cluster and every size, and is slow or wrong on most.",
        "Leave the choice to NCCL.",
    ),
)
MISSING_FROM = "Without From: there is nothing to build on."


def lint(definition: str) -> list[Fault]:
    """The faults of a definition file, in the order of its lines."""
    faults: list[Fault] = []
    section = ""
    keys: set[str] = set()
    scratch = re.search(r"(?im)^bootstrap:\s*scratch\s*$", definition) is not None  # needs no base
    for number, line in _whole_lines(definition):
        if match := SECTION.match(line):
            section = match[1].lower()
        elif not section and ":" in line:
            keys.add(line.split(":")[0].strip().lower())
        elif section in SHELL_SECTIONS and not line.lstrip().startswith("#"):
            for rule, message, remedy in RULES:
                if found := rule.search(line):
                    at = line[: found.end()].count("\n")
                    faults.append(Fault(number + at, line.split("\n")[at].strip(), message, remedy))
    if "bootstrap" not in keys:
        message = "There is no Bootstrap: line, so this is not a definition file."
        faults.append(Fault(1, "", message, "Begin with Bootstrap: and From:."))
    elif "from" not in keys and "mirrorurl" not in keys and not scratch:
        faults.append(Fault(1, "", MISSING_FROM, "Add a From: line."))
    return faults


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; one that a backslash continues holds all of its pieces, their ends kept."""
    pending, begun = "", 1
    for number, line in enumerate(text.splitlines(), 1):
        begun = begun if pending else number
        if line.endswith("\\"):
            pending += f"{line[:-1]}\n"
            continue
        yield begun, pending + line
        pending = ""
    if pending:
        yield begun, pending
