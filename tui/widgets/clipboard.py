"""Copying: through the terminal (OSC 52, which nothing confirms) and into a file, so that it is surely somewhere."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_cache_path
from textual.app import App

from backends.errors import UserError
from backends.files import write_atomic


def copy(app: App[object], text: str, folder: Path | None = None) -> str:
    """Copy `text`; a sentence that says where it is. `folder`: instead of the user's cache folder."""
    app.copy_to_clipboard(text)
    path = (folder or user_cache_path("mdk-tui")) / "copied.txt"
    lines = text.count("\n") + 1
    what = f"{lines} line{'s' * (lines > 1)} copied"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text + "\n")
    except (OSError, UserError) as error:
        return f"{what} (not to a file: {error})."
    return f"{what}, also to {path}."
