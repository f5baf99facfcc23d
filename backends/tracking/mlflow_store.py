"""MLflow as a store of runs: a server, or a database. Importing it takes seconds, so only programs of their own do."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from backends.text import clean_line
from backends.tracking.place import Place
from backends.tracking.points import Point
from backends.tracking.store import LINEAGE, PARENT, Opened, Status, StoreError, Wanted

REFUSALS = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST"}
MOST = 100  # parameters or tags in one call
# Names of what requests, underneath MLflow, raises, the most telling first, and what that is in words.
AWAY = {
    "ConnectTimeoutError": "{} does not answer the call",
    "ReadTimeoutError": "{} gives no answer",
    "ConnectionRefusedError": "nothing listens at {}",
    "ConnectionResetError": "{} closed the connection",
    "RemoteDisconnected": "{} closed the connection",
    "gaierror": "{} is not known by that name",
    "ConnectionError": "{} cannot be reached",
}
# A server that does not answer costs one try; the retries are ours.
PATIENCE = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}


class MlflowStore:
    """`place` is connected to when it is first asked. `environment` gets our time limits before MLflow reads it."""

    def __init__(self, place: Place, environment: MutableMapping[str, str] = os.environ) -> None:
        self._place = place
        self._environment = environment
        self._client: Any = None
        self._mlflow: Any = None

    def open(self, wanted: Wanted) -> Opened:
        with self._errors(), self._alone():
            client = self._connect()
            experiment = self._experiment(client)
            run_id = self._living(client, wanted.run_id) or self._find(client, experiment, wanted.lineage)
            if run_id is None:
                tags = {LINEAGE: wanted.lineage, "mlflow.source.name": "mdk-tui"}
                if wanted.parent_lineage and (
                    parent := self._find(client, experiment, wanted.parent_lineage)
                ):
                    tags[PARENT] = parent
                run = client.create_run(experiment, int(1000 * wanted.began), tags, wanted.name)
                run_id = run.info.run_id
            else:
                client.set_tag(run_id, LINEAGE, wanted.lineage)
        return self.look(run_id)

    def look(self, run_id: str) -> Opened:
        with self._errors():
            run = self._connect().get_run(run_id)
            # RunData.metrics has values alone; the steps stand in the entities behind it.
            latest = {metric.key: int(metric.step) for metric in run.data._metric_objs}
            return Opened(run_id, dict(run.data.params), dict(run.data.tags), latest)

    def send(self, run_id: str, points: Sequence[Point], tags: Mapping[str, str]) -> None:
        with self._errors():
            entities = self._entities()
            metrics = [entities.Metric(p.key, p.value, p.time, p.step) for p in points]
            marks = [entities.RunTag(key, value) for key, value in tags.items()]
            for start in range(0, max(1, len(marks)), MOST):
                self._connect().log_batch(run_id, metrics=metrics, tags=marks[start : start + MOST])
                metrics = []

    def parameters(self, run_id: str, values: Mapping[str, str]) -> None:
        with self._errors():
            entities = self._entities()
            rows = [entities.Param(key, value) for key, value in values.items()]
            for start in range(0, len(rows), MOST):
                self._connect().log_batch(run_id, params=rows[start : start + MOST])

    def history(self, run_id: str, key: str) -> set[tuple[int, int]]:
        with self._errors():
            found = self._connect().get_metric_history(run_id, key)
            return {(int(metric.step), int(metric.timestamp)) for metric in found}

    def file(self, run_id: str, path: Path) -> None:
        with self._errors():
            self._connect().log_artifact(run_id, str(path))

    def text(self, run_id: str, name: str, content: str) -> None:
        with self._errors():
            self._connect().log_text(run_id, content, name)

    def status(self, run_id: str, status: Status, ended: float | None = None) -> None:
        with self._errors():
            if status == "RUNNING":
                self._connect().update_run(run_id, status=status)
            else:
                self._connect().set_terminated(run_id, status, None if ended is None else int(1000 * ended))

    def _connect(self) -> Any:
        if self._client is None:
            self._environment.update(PATIENCE)
            import mlflow

            self._mlflow = mlflow
            self._client = mlflow.MlflowClient(tracking_uri=self._place.uri)
        return self._client

    def _entities(self) -> Any:
        self._connect()
        import mlflow.entities

        return mlflow.entities

    def _experiment(self, client: Any) -> str:
        found = client.get_experiment_by_name(self._place.experiment)
        if found is None:
            return client.create_experiment(self._place.experiment, artifact_location=self._place.artifacts)
        if found.lifecycle_stage != "active":
            raise StoreError(
                f"The experiment {self._place.experiment} was deleted in MLflow; restore or rename it."
            )
        return found.experiment_id

    def _living(self, client: Any, run_id: str | None) -> str | None:
        """`run_id`, unless that run was deleted."""
        if run_id is None:
            return None
        try:
            return run_id if client.get_run(run_id).info.lifecycle_stage == "active" else None
        except Exception as error:
            if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise

    def _find(self, client: Any, experiment: str, lineage: str) -> str | None:
        found = client.search_runs([experiment], f"tags.`{LINEAGE}` = '{lineage}'", max_results=1)
        return found[0].info.run_id if found else None

    @contextlib.contextmanager
    def _alone(self) -> Generator[None, None, None]:
        """Two programs that make the same new database, or the same new experiment, would be in each other's way."""
        path = self._place.uri.removeprefix("sqlite:///")
        if path == self._place.uri:
            yield
            return
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.with_name(f".{file.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError("Another program is opening the store.") from None
            except OSError:
                pass  # a file system without locks
            yield

    @contextlib.contextmanager
    def _errors(self) -> Generator[None, None, None]:
        """Whatever goes wrong in MLflow, its database or its network, as a StoreError with one line."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            code = str(getattr(error, "error_code", ""))
            raise StoreError(_words(error, self._place), refused=code in REFUSALS) from error


def _words(error: BaseException, place: Place) -> str:
    """One line: MLflow's own of a network's failure is three, about the library's inside."""
    kinds: set[str] = set()
    cause: BaseException | None = error
    while cause is not None:
        kinds.add(type(cause).__name__)
        cause = cause.__cause__ or cause.__context__
    if words := next((words for kind, words in AWAY.items() if kind in kinds), None):
        return words.format(place.shown)
    return clean_line(str(error).strip().splitlines()[0] if str(error).strip() else repr(error), 300)
