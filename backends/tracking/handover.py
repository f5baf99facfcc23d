"""How a trainer with training_mlflow.patch is kept from an MLflow run of its own beside the companion's.

Where MLflow is a server, it is given the companion's run before the job starts. A database is opened by a library that
takes seconds to import, and lies where another node or a container may not write; a server may not answer within a moment:
then the trainer is told to leave MLflow alone. The companion sends all that it would have.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from backends.errors import UserError
from backends.files import write_json
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.settings import read_settings
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
    """`plan` with the environment that has a patched trainer join the companion's MLflow run, which tracking.json names.

    Where there is none to join, and where tracking is switched off, the trainer tells MLflow nothing. Without MLflow here
    it is left to the trainer alone.
    """
    try:
        settings = read_settings(workspace.settings).mlflow
    except UserError:
        return plan
    if plan.kind != "train" or plan.trainer != "megatron" or not is_patched(workspace.megatron):
        return plan
    added: dict[str, str] = {}
    if is_tracked(settings, environment):
        place = tracking_place(settings, workspace, environment)
        wanted = wanted_of_run(plan, folder, workspace, time.time())
        run_id = _run_id(place, wanted, environment, transport) if place.is_server else None
        added = {METRICS: "0", **(_joined(place, run_id, folder) if run_id else {})}
    elif is_switched_off(settings, environment):
        added = {METRICS: "0"}
    return dataclasses.replace(plan, environment={**plan.environment, **added})


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
