"""The commands that start the web pages of MLflow and TensorBoard."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from backends.errors import UserError
from backends.models.arguments import value_of
from backends.runs.folder import RunFolder
from backends.tracking.place import Place, has_mlflow
from backends.tracking.web_server import LOOPBACK

MLFLOW_PORT, TENSORBOARD_PORT = 5000, 6006  # their own defaults, and the tutorial's


# Turns off job execution and telemetry, which the pages do not need.
QUIET = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}


def mlflow_command(place: Place) -> Callable[[int], Sequence[str]]:
    """`mlflow ui` for the store of `place`. Raises UserError if MLflow is not installed."""
    if not has_mlflow():
        raise UserError("MLflow is not installed.", "pip install 'mdk-tui[mlflow]'")
    words = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", place.uri]
    words += ["--default-artifact-root", place.artifacts] if place.artifacts else []
    return lambda port: (*words, "--host", LOOPBACK, "--port", str(port), "--workers", "1")


def tensorboard_command(
    logs: Path, singularity: str | None, image: Path, *, in_image: bool
) -> Callable[[int], Sequence[str]]:
    """TensorBoard of this Python, else (or with `in_image`) of the image, started without the home folder as in the tutorial.

    Raises UserError if there is neither.
    """
    tail = ("--logdir", str(logs), "--host", LOOPBACK)
    if not in_image and importlib.util.find_spec("tensorboard") is not None:
        return lambda port: (sys.executable, "-m", "tensorboard.main", *tail, "--port", str(port))
    if singularity is None or not image.exists():
        missing = "singularity" if singularity is None else f"image {image}"
        raise UserError(
            f"There is no {missing} whose TensorBoard could be started{'' if in_image else ', and none in this Python'}.",
            "pip install 'mdk-tui[tensorboard]', or build the image: mdk-tui setup image",
        )
    contained = (singularity, "exec", "--no-home", "-B", str(logs), "--pwd", str(logs), str(image))
    return lambda port: (*contained, "tensorboard", *tail, "--port", str(port))


def tensorboard_folder(folder: RunFolder) -> Path:
    """Where the trainer of a run writes event files, by its plan. Raises UserError if it writes none."""
    plan = folder.plan()
    named = value_of(plan.arguments, "--tensorboard-dir")
    if plan.kind != "train" or plan.trainer != "megatron" or not (named or plan.save):
        raise UserError(
            f"{folder.name} writes nothing for TensorBoard.",
            "Name a run of Megatron-LM that trains, or a folder with event files.",
        )
    return Path(named) if named else Path(plan.save or "") / "tensorboard"
