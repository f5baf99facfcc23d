"""Where and how a run starts, as options of `launch` and `serve`."""

from __future__ import annotations

from pathlib import Path

import click

from backends.launch.choices import gpus_of
from backends.launch.placement import Placement
from tui.commands.options import PATH, grouped


def _placement(
    launcher: str | None,
    gpus: str | None,
    processes: int | None,
    image: Path | None,
    no_image: bool,
    no_home: bool,
    hostfile: Path | None,
) -> Placement:
    return Placement(launcher, gpus_of(gpus or ""), processes, image, not no_image, no_home, hostfile)


# Gives a command its `wish`, a `Placement`.
placement_options = grouped(
    "wish",
    _placement,
    click.option("--launcher", help="How it starts (default: local for the demo, mpirun for Megatron-LM)."),
    click.option("--gpus", metavar="N|LIST", help="The first N GPUs, or a list such as 0,1 (default: all)."),
    click.option("--np", "processes", type=click.IntRange(1), help="Processes (default: one per GPU, or what the model needs)."),
    click.option("--image", type=PATH, help="Run inside this .sif (default for Megatron-LM: the workspace's)."),
    click.option("--no-image", is_flag=True, help="Run without an image, whatever the workspace has."),
    click.option("--no-home", is_flag=True, help="Hide the home folder from the image."),
    click.option("--hostfile", type=PATH, help="Nodes, one per line: NAME [slots=N]."),
)  # fmt: skip
