"""Where things are. Below a workspace lies what the tutorial makes: `outputs/Megatron-LM/`, `outputs/runs/`, …"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SETTINGS = "mdk.toml"


@dataclass(frozen=True, slots=True)
class Workspace:
    """One folder that holds everything of one user's work. `root` is absolute."""

    root: Path

    @property
    def settings(self) -> Path:
        return self.root / SETTINGS

    @property
    def outputs(self) -> Path:
        return self.root / "outputs"

    @property
    def megatron(self) -> Path:
        """The clone of Megatron-LM; as in the tutorial it also holds the image and the data."""
        return self.outputs / "Megatron-LM"

    @property
    def runs(self) -> Path:
        return self.outputs / "runs"

    @property
    def checkpoints(self) -> Path:
        """Where the demo saves when no other base is named."""
        return self.outputs / "checkpoints"


def find_workspace(given: str | None, environment: Mapping[str, str], here: Path) -> Workspace:
    """`given` (`-w`), else MDK_WORKSPACE, else the nearest folder from `here` upwards with `mdk.toml`, else `here`."""
    named = given or environment.get("MDK_WORKSPACE")
    if named:
        return Workspace((here / Path(named).expanduser()).resolve())
    here = here.resolve()
    for folder in (here, *here.parents):
        if (folder / SETTINGS).is_file():
            return Workspace(folder)
    return Workspace(here)


def shell_command(workspace: Workspace, *words: str) -> str:
    """A command line of mdk-tui that means this workspace from any folder."""
    return shlex.join(["mdk-tui", "-w", str(workspace.root), *words])
