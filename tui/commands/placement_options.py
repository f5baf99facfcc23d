"""Where a run is to run, as options: the same ones for `launch` and `serve`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)
OPTIONS = (
    click.option("--launcher", help="How it is started (default: local for the demo, mpirun for Megatron-LM)."),
    click.option("--gpus", metavar="N|LIST", help="The first N GPUs, or a list such as 0,1."),
    click.option("--np", "processes", type=click.IntRange(1), help="Processes (default: one a GPU, or what the model needs)."),
    click.option("--image", type=PATH, help="Run inside this .sif (default for Megatron-LM: the workspace's)."),
    click.option("--no-image", is_flag=True, help="Run without an image, whatever the workspace has."),
    click.option("--no-home", is_flag=True, help="Do not show the home folder to the image."),
    click.option("--hostfile", type=PATH, help="Nodes, one a line: NAME [slots=N]."),
)  # fmt: skip


def placement_options(function: Function) -> Function:
    """Adds launcher, gpus, processes, image, no_image, no_home and hostfile to a command's parameters."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function
