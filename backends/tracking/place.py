"""Where runs are tracked: which MLflow, which experiment.

What a run's plan says comes first, then the environment, then the settings.
"""

from __future__ import annotations

import importlib.util
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backends.errors import UserError
from backends.settings import MlflowSettings
from backends.workspace import Workspace

URI, EXPERIMENT, RUN_ID = "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID"
SQLITE, SCHEME = "sqlite:///", re.compile(r"[a-z][a-z0-9+.\-]*:", re.IGNORECASE)
SWITCH = "MDK_MLFLOW"  # "0": no run is tracked, whatever the settings say
OFF = ("off", "none", "no")


@dataclass(frozen=True, slots=True)
class Place:
    """`artifacts`: where a new experiment keeps its files; None: the server decides."""

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


def chosen_environment(text: str) -> dict[str, str]:
    """What the choice `text` adds to a plan's environment: nothing for "", no tracking for "off", else the address.

    Raises UserError for an address with a password, since plan.json would keep it.
    """
    if not text:
        return {}
    if text in OFF:
        return {SWITCH: "0"}
    if "@" in urllib.parse.urlsplit(text).netloc:
        message = f"An address with a password is not written into a plan: {Place(text, '').shown}"
        raise UserError(message, f"Export it instead: {URI}.", status=2)
    return {URI: text}


def said_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of a plan's environment that says where the run is tracked; not the MLflow run, which a resume looks up."""
    return {name: environment[name] for name in (URI, EXPERIMENT, SWITCH) if name in environment}


def tracking_place(settings: MlflowSettings, workspace: Workspace, environment: Mapping[str, str]) -> Place:
    """MLFLOW_TRACKING_URI, else the settings, else a store of the workspace's own: one SQLite file and a folder.

    A relative path begins at the workspace: the program that sends may have another working folder than the user.
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
    """Whether every run is tracked: MLflow is installed and not switched off."""
    return not is_switched_off(settings, environment) and has_mlflow()


def is_switched_off(settings: MlflowSettings, environment: Mapping[str, str]) -> bool:
    """Whether the settings or the environment turn tracking off."""
    return not settings.enabled or environment.get(SWITCH) == "0"


def has_mlflow() -> bool:
    """Whether MLflow is installed here. It is not imported."""
    return importlib.util.find_spec("mlflow") is not None
