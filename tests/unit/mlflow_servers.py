"""A real MLflow server for tests, which can be killed and restarted with the same address and database."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
from scripted_jobs import wait_for

from backends.runs.ports import free_port


class MlflowServer:
    """`start` and `kill` it as often as needed. `folder` holds its database and its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port(0)
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        argv = (sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
                "--backend-store-uri", f"sqlite:///{self.folder}/server.db", "--artifacts-destination", str(self.folder / "files"))  # fmt: skip
        environment = {
            **os.environ,
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                argv, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        wait_for(self._answers, 300.0)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.uri}/health", timeout=1.0).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        """Kill it and its workers."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """Rows of its database."""
        connection = sqlite3.connect(f"file:{self.folder}/server.db?mode=ro", uri=True, timeout=120.0)
        with contextlib.closing(connection):
            return list(connection.execute(query))

    def points(self) -> list[tuple[str, int, int, float]]:
        """(metric, step, ms, value) of everything but system metrics, in order."""
        query = "SELECT key, step, timestamp, value FROM metrics WHERE key NOT LIKE 'system/%' ORDER BY key, step, timestamp"
        return self.rows(query)  # pyright: ignore[reportReturnType]


@contextlib.contextmanager
def mlflow_server(folder: Path) -> Iterator[MlflowServer]:
    folder.mkdir()
    server = MlflowServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
