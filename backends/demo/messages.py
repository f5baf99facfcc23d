"""Output of the demo's programs: lines that are flushed at once, errors as one sentence on stderr."""

from __future__ import annotations

import importlib.util
import sys


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def say_error(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def missing_libraries() -> str | None:
    """A sentence if numpy or autograd are missing. Called before anything that imports them."""
    missing = [name for name in ("numpy", "autograd") if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    return f"The demo computes with numpy and autograd, but {sys.executable} has no {' and no '.join(missing)}: pip install {' '.join(missing)}"
