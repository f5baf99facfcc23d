"""What speaks against a plan, and how to mend it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

# Flags to set, each with its words (none for a switch); None takes a flag away. A key that is no flag is a choice beside
# the arguments: gpus, launcher, save.
Fix: TypeAlias = Mapping[str, tuple[str, ...] | None]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that speaks against a plan. `field` is the flag or the name in the plan; only an error forbids to start.

    `fix`, where there is one, are the arguments that the remedy's words stand for: one key away.
    """

    severity: Literal["warning", "error"]
    field: str
    message: str
    remedy: str
    fix: Fix | None = None

    def as_json(self) -> dict[str, str]:
        return {
            "severity": self.severity,
            "field": self.field,
            "message": self.message,
            "remedy": self.remedy,
        }
