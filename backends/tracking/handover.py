"""Keeps a trainer with training_mlflow.patch from writing to another MLflow run than the companion.

If MLflow is a server, the companion's run is found or made before the job starts, and the trainer is given its id. If
MLflow is a database, or the server does not answer within a moment, the trainer is told to leave MLflow alone: the library
takes seconds to open a database, which may lie where another node or a container cannot write. The companion sends
everything in either case. An MLFLOW_RUN_ID of the user's environment is never joined: it may name any old run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from backends.errors import UserError
from backends.files import write_json
from backends.models.problem import Problem
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.settings import read_settings
from backends.text import clean_line
from backends.tracking.lineage import wanted_of_run
from backends.tracking.place import (
    EXPERIMENT,
    RUN_ID,
    URI,
    Place,
    is_switched_off,
    is_tracked,
    tracking_place,
)
from backends.tracking.store import LINEAGE, PARENT, Wanted
from backends.workspace import Workspace

if TYPE_CHECKING:
    import httpx

MOMENT = 2.0  # s for everything that is asked of the server
# "0": the patched trainer leaves them to the companion; without RUN_ID all else too.
METRICS = "MDK_MLFLOW_METRICS"
TRAINING = Path("megatron") / "training" / "training.py"
NOT_THERE = "RESOURCE_DOES_NOT_EXIST"


def with_mlflow_run(
    plan: RunPlan,
    folder: RunFolder,
    workspace: Workspace,
    environment: Mapping[str, str],
    transport: httpx.BaseTransport | None = None,
) -> RunPlan:
    """`plan` with the environment in which a patched trainer joins the companion's MLflow run; tracking.json names that run.

    If there is no run to join, or tracking is switched off, the trainer tells MLflow nothing. If MLflow is not installed
    here, there is no companion: the trainer makes a run of its own.
    """
    try:
        settings = read_settings(workspace.settings).mlflow
    except UserError:
        return plan
    if not _tells_mlflow(plan, workspace):
        return plan
    added = {RUN_ID: ""} if environment.get(RUN_ID) else {}
    if is_tracked(settings, environment):
        place = tracking_place(settings, workspace, environment)
        wanted = wanted_of_run(plan, folder, workspace, time.time())
        run_id = _run_id(place, wanted, environment, transport) if place.is_server else None
        added |= {METRICS: "0", **(_joined(place, run_id, folder) if run_id else {})}
    elif is_switched_off(settings, environment):
        added |= {METRICS: "0"}
    return dataclasses.replace(plan, environment={**plan.environment, **added})


def run_id_problems(
    plan: RunPlan, workspace: Workspace, environment: Mapping[str, str] = os.environ
) -> list[Problem]:
    """A warning if the environment names an MLflow run that the trainer would join without mdk-tui."""
    run_id = environment.get(RUN_ID)
    if not run_id or not _tells_mlflow(plan, workspace):
        return []
    message = f"{RUN_ID} of the environment ({clean_line(run_id, 40)}) is ignored: mdk-tui makes the MLflow run of a training itself."
    return [Problem("warning", RUN_ID, message, f"To silence this: unset {RUN_ID}")]


def _tells_mlflow(plan: RunPlan, workspace: Workspace) -> bool:
    return plan.kind == "train" and plan.trainer == "megatron" and is_patched(workspace.megatron)


def _joined(place: Place, run_id: str, folder: RunFolder) -> dict[str, str]:
    with contextlib.suppress(OSError):
        write_json(
            folder.tracking, {"run_id": run_id, "address": place.shown, "experiment": place.experiment}
        )
    added = {RUN_ID: run_id, EXPERIMENT: place.experiment}
    if place.shown == place.uri:  # plan.json keeps no password; the job inherits that address from us
        added[URI] = place.uri
    return added


def is_patched(megatron: Path) -> bool:
    """Whether training_mlflow.patch is applied there."""
    try:
        return METRICS in (megatron / TRAINING).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _run_id(
    place: Place, wanted: Wanted, environment: Mapping[str, str], transport: httpx.BaseTransport | None
) -> str | None:
    import httpx

    try:
        with httpx.Client(
            transport=transport, auth=_login(environment), headers=_token(environment)
        ) as client:
            return _Server(place, client).run_id(wanted)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return None


def _login(environment: Mapping[str, str]) -> tuple[str, str] | None:
    name = environment.get("MLFLOW_TRACKING_USERNAME")
    return (name, environment.get("MLFLOW_TRACKING_PASSWORD", "")) if name else None


def _token(environment: Mapping[str, str]) -> dict[str, str]:
    token = environment.get("MLFLOW_TRACKING_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


class _Server:
    """MLflow's REST interface, as far as it takes to find or make a run. Every method may raise httpx.HTTPError,
    or ValueError, KeyError, TypeError for answers of another server."""

    def __init__(
        self, place: Place, client: httpx.Client, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._place, self._client, self._clock = place, client, clock
        self._until = clock() + MOMENT

    def run_id(self, wanted: Wanted) -> str:
        experiment = self._experiment()
        if found := self._find(experiment, wanted.lineage):
            return found
        parent = self._find(experiment, wanted.parent_lineage) if wanted.parent_lineage else None
        tags = {
            LINEAGE: wanted.lineage,
            "mlflow.source.name": "mdk-tui",
            **({PARENT: parent} if parent else {}),
        }
        answer = self._ask(
            "POST",
            "runs/create",
            experiment_id=experiment,
            run_name=wanted.name,
            start_time=int(1000 * wanted.began),
            tags=[{"key": key, "value": value} for key, value in tags.items()],
        )
        return str(answer["run"]["info"]["run_id"])

    def _experiment(self) -> str:
        name = self._place.experiment
        answer = self._ask("GET", "experiments/get-by-name", experiment_name=name)
        if answer.get("error_code") == NOT_THERE:
            return str(self._ask("POST", "experiments/create", name=name)["experiment_id"])
        return str(answer["experiment"]["experiment_id"])

    def _find(self, experiment: str, lineage: str) -> str | None:
        query = f"tags.`{LINEAGE}` = '{lineage}'"
        answer = self._ask("POST", "runs/search", experiment_ids=[experiment], filter=query, max_results=1)
        runs: list[Any] = answer.get("runs") or []
        return str(runs[0]["info"]["run_id"]) if runs else None

    def _ask(self, method: str, path: str, **values: Any) -> dict[str, Any]:
        left = max(0.05, self._until - self._clock())
        body: dict[str, Any] = {"params": values} if method == "GET" else {"json": values}
        answer = self._client.request(
            method, f"{self._place.uri.rstrip('/')}/api/2.0/mlflow/{path}", timeout=left, **body
        )
        value = answer.json()
        if not isinstance(value, dict):
            raise ValueError("no answer of MLflow")
        value = cast("dict[str, Any]", value)
        if answer.is_error and value.get("error_code") != NOT_THERE:
            answer.raise_for_status()
        return value
