"""Where runs are tracked: which MLflow, which experiment. The environment decides before the settings."""

from __future__ import annotations

import importlib.util
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backends.settings import MlflowSettings
from backends.workspace import Workspace

URI, EXPERIMENT, RUN_ID = "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID"
SQLITE, SCHEME = "sqlite:///", re.compile(r"[a-z][a-z0-9+.\-]*:", re.IGNORECASE)
SWITCH = "MDK_MLFLOW"  # "0": no run is tracked, whatever the settings say


@dataclass(frozen=True, slots=True)
class Place:
    """`artifacts`: where a new experiment keeps its files; None: where the server says."""

    uri: str
    experiment: str
    artifacts: str | None = None

    @property
    def is_server(self) -> bool:
        return self.uri.startswith(("http://", "https://"))

    @property
    def shown(self) -> str:
        """The address without a password."""
        parts = urllib.parse.urlsplit(self.uri)
        if not parts.hostname or "@" not in parts.netloc:
            return self.uri
        return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def tracking_place(settings: MlflowSettings, workspace: Workspace, environment: Mapping[str, str]) -> Place:
    """MLFLOW_TRACKING_URI, else the settings, else a store of the workspace's own: one SQLite file and a folder.

    Who sends has no working folder in common with who asked for it, so a relative path begins at the workspace.
    """
    experiment = environment.get(EXPERIMENT) or settings.experiment
    if uri := environment.get(URI) or settings.tracking_uri:
        return Place(anchored(uri, workspace.root), experiment)
    file, artifacts = workspace.outputs / "mlflow.db", workspace.outputs / "mlartifacts"
    return Place(f"sqlite:///{file}", experiment, artifacts.as_uri())


def anchored(uri: str, root: Path) -> str:
    """`uri` with the path of a folder or of an SQLite file made absolute."""
    sqlite = uri.removeprefix(SQLITE)
    if sqlite != uri:
        return f"{SQLITE}{root / sqlite}" if sqlite and not sqlite.startswith(("/", ":memory:", "?")) else uri
    return uri if SCHEME.match(uri) or uri == "databricks" else str(root / Path(uri).expanduser())


def is_tracked(settings: MlflowSettings, environment: Mapping[str, str]) -> bool:
    """Whether runs are tracked without being asked: MLflow is installed and not switched off."""
    return not is_switched_off(settings, environment) and has_mlflow()


def is_switched_off(settings: MlflowSettings, environment: Mapping[str, str]) -> bool:
    return not settings.enabled or environment.get(SWITCH) == "0"


def has_mlflow() -> bool:
    return importlib.util.find_spec("mlflow") is not None
