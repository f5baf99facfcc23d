"""How much of a run MLflow has, from the run's tracking.json, in a few words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from backends.files import read_json
from backends.runs.folder import RunFolder
from backends.text import clean_line

LAGS = 1000  # waiting points, as many as MLflow takes in one call


@dataclass(frozen=True, slots=True)
class Standing:
    """`sent` and `waiting`: points of the newest sender. `complete`: it sent everything up to the end of the run.

    `trouble`: why the last call failed.
    """

    address: str
    run_id: str | None
    sent: int
    waiting: int
    complete: bool
    trouble: str | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def words(self) -> str:
        """In a line."""
        if self.complete:
            return f"has everything ({self.address})"
        waits = f", {self.waiting:,} wait" if self.waiting else ""
        trouble = f"; away: {self.trouble}" if self.trouble else ""
        return f"{self.sent:,} points sent{waits}{trouble} ({self.address})"


def read_standing(folder: RunFolder) -> Standing | None:
    """None for a run that is not tracked, or not yet."""
    value = read_json(folder.tracking)
    if value is None or not isinstance(address := value.get("address"), str):
        return None

    def text(key: str) -> str | None:
        return clean_line(value[key]) if isinstance(value.get(key), str) and value[key] else None

    def count(key: str) -> int:
        return value[key] if type(value.get(key)) is int else 0

    complete = value.get("complete") is True
    return Standing(
        clean_line(address), text("run_id"), count("sent"), count("waiting"), complete, text("trouble")
    )


def lag_of(standing: Standing | None, *, over: bool) -> tuple[str, str] | None:
    """(problem, remedy) if MLflow does not keep up with a run; None if it does, or is not used."""
    if standing is None or standing.complete:
        return None
    behind = f": {standing.waiting:,} points wait" if standing.waiting else ""
    if standing.trouble and over:
        return (
            f"MLflow did not take everything ({standing.trouble}).",
            "mdk-tui track RUN sends the rest when it is back.",
        )
    if standing.trouble:
        return (
            f"MLflow is away{behind} ({standing.trouble}).",
            "The run goes on; what waits is sent when MLflow is back.",
        )
    if standing.waiting >= LAGS and not over:
        return f"MLflow lags{behind}.", "The run does not wait for it."
    return None
