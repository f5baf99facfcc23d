"""The title of a text server: made when it is planned, parsed when it is shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.runs.catalog import RunInfo

ITERATION = re.compile(r"^iteration \d+ of ")
SERVED = re.compile(r" \(server(?:, iteration \d+)?\)$")


def server_title(trained: str, iteration: int | str | None) -> str:
    """The title of a server on the model `trained`, with the `iteration` of its checkpoint if that is a number."""
    return f"{trained} (server{f', iteration {iteration}' if isinstance(iteration, int) else ''})"


def label(info: RunInfo) -> str:
    """Which checkpoint a server answers from: "iteration 200 of gpt3-7b: the recipe"."""
    title = SERVED.sub("", info.title)
    return title if info.iteration is None else f"iteration {info.iteration} of {title}"


def label_of_answer(label: str, iteration: int | None) -> str:
    """`label`, corrected by the `iteration` that the answer names: the server may have moved on to a newer checkpoint."""
    return label if iteration is None else ITERATION.sub(f"iteration {iteration} of ", label)
