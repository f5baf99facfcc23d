"""Copies text through the terminal (OSC 52, which no terminal confirms) and also into a file, which is certain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from platformdirs import user_cache_path
from textual.app import App

from backends.errors import UserError
from backends.files import write_atomic
from backends.text import clean


def copy(app: App[Any], text: str) -> None:
    """Copy `text`; a toast says where it is."""
    app.copy_to_clipboard(text)
    app.notify(clean(_kept(text, user_cache_path("mdk-tui") / "copied.txt")), markup=False, timeout=6)


def _kept(text: str, path: Path) -> str:
    """Write `text` into `path`; what was done, as a sentence."""
    lines = text.count("\n") + 1
    what = f"{lines} line{'s' * (lines > 1)} copied"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text + "\n")
    except (OSError, UserError) as error:
        return f"{what} (not to a file: {error})."
    return f"{what}, also to {path}."
