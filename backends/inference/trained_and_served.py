"""The demo as two runs: the preset tiny trains, and a text server answers as soon as there is a checkpoint."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from backends.inference.serving import serve_plan
from backends.launch.prospect import Prospect, prospect_of
from backends.launch.start import start
from backends.models.arguments import int_of
from backends.models.presets import TINY
from backends.runs.folder import RunFolder, dated_name, moment_of
from backends.runs.plan import RunPlan
from backends.runs.planning import new_save_folder, train_plan
from backends.runs.ports import free_port
from backends.workspace import Workspace, shell_command


def tiny_plan(base: Path, now: datetime, iterations: int | None = None) -> RunPlan:
    """The preset tiny, saving below `base`. `iterations` (default: the preset's): at least two of them are printed."""
    changes: tuple[str, ...] = ()
    if iterations is not None:
        interval = min(int_of(TINY.arguments, "--log-interval") or 1, max(1, iterations // 2))
        changes = ("--train-iters", str(iterations), "--log-interval", str(interval))
    save = new_save_folder(base, now)
    return train_plan(TINY.trainer, TINY.arguments, changes, save, preset=TINY.name, title=TINY.title)


def demo_prospect(workspace: Workspace) -> Prospect:
    """Train the preset tiny, with a text server that answers from its first checkpoint on."""
    return prospect_of(
        workspace,
        tiny_plan(workspace.checkpoints, datetime.now()),
        "demo",
        shell_command(workspace, "demo"),
        begin=lambda plan: start_both(workspace, plan),
    )


def start_both(workspace: Workspace, plan: RunPlan) -> RunFolder:
    """Start the training `plan` and a text server that waits for its first checkpoint. Returns the training run. Raises UserError.

    The server's folder is dated a second earlier, so that the training is the newest run, which `attach`, `stop` and
    `resume` take by default.
    """
    train = start(plan, workspace)
    before = moment_of(train.name) - timedelta(seconds=1)
    while (workspace.runs / dated_name(before)).exists():
        before -= timedelta(seconds=1)
    save = Path(train.plan().save or "")  # as claimed: another run may have taken this second
    start(serve_plan(workspace, save, port=free_port(), wait=True), workspace, now=before)
    return train
