"""A problem of a plan, and the change that solves it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

# Flags to set, each with its words (none for a switch); None removes a flag. A key that is no flag is a choice beside the
# arguments: gpus, launcher, save.
Fix: TypeAlias = Mapping[str, tuple[str, ...] | None]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a plan. `field` is the flag or the name in the plan. Only an error prevents the start.

    `fix` holds the changes of arguments that the remedy describes, if a key of the launch form can apply them.
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
