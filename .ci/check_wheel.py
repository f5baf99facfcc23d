"""Fail unless a wheel holds what an installation needs besides Python modules. Usage: check_wheel.py WHEEL"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]


def expected() -> set[str]:
    """Every file of the two packages, and patches/ and singularity/ below backends/."""
    names: set[str] = set()
    for folder, below in (
        ("tui", ""),
        ("backends", ""),
        ("patches", "backends/"),
        ("singularity", "backends/"),
    ):
        for path in (TOP / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
                names.add(below + path.relative_to(TOP).as_posix())
    return names


if missing := sorted(expected() - set(zipfile.ZipFile(sys.argv[1]).namelist())):
    sys.exit("missing in the wheel:\n" + "\n".join(missing))
