"""MLflow as a store of runs, on a server or in a database. Importing MLflow takes seconds, so only separate programs do."""

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
# Exceptions of the requests library below MLflow, the most specific first, and their meaning in words.
AWAY = {
    "ConnectTimeoutError": "{} cannot be reached",
    "ReadTimeoutError": "{} gives no answer",
    "ConnectionRefusedError": "nothing listens at {}",
    "ConnectionResetError": "{} closed the connection",
    "RemoteDisconnected": "{} closed the connection",
    "gaierror": "the name {} is unknown",
    "ConnectionError": "{} cannot be reached",
}
# MLflow tries once; retries are up to the caller.
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
    """The store at `place`, connected when first used. Time limits are put into `environment` before MLflow reads it."""

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
            # RunData.metrics has only the values; the steps are in the entities behind it.
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
        """Lock the database: two programs that make it, or an experiment in it, at the same time fail."""
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
        """Turn any failure of MLflow, its database or the network into a StoreError with one line."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            code = str(getattr(error, "error_code", ""))
            raise StoreError(_words(error, self._place), refused=code in REFUSALS) from error


def _words(error: BaseException, place: Place) -> str:
    """The failure in one line; MLflow's own message for a network failure has three."""
    kinds: set[str] = set()
    cause: BaseException | None = error
    while cause is not None:
        kinds.add(type(cause).__name__)
        cause = cause.__cause__ or cause.__context__
    if words := next((words for kind, words in AWAY.items() if kind in kinds), None):
        return words.format(place.shown)
    return clean_line(str(error).strip().splitlines()[0] if str(error).strip() else repr(error), 300)
