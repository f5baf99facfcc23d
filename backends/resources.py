"""Where patches/ and singularity/ are: beside the packages in a checkout, below `backends/` in an installed wheel."""

from __future__ import annotations

from pathlib import Path


def resource_folder(name: str) -> Path:
    """The folder `name` ("patches" or "singularity") that this installation carries. Raises FileNotFoundError."""
    here = Path(__file__).resolve().parent
    for folder in (here / name, here.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"this installation of mdk-tui carries no folder {name!r}")
