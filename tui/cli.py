"""`mdk-tui …`: the commands. Each is a module of `tui/commands/`, imported only when it is called."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from backends.errors import UserError
from backends.workspace import find_workspace
from tui.appearance import APPEARANCE, appearance

# name -> (module below tui.commands, its line in --help); the click command in the module is called `command`.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "Train a tiny GPT on the CPU and prompt it."),
    "watch": ("watch", "Open the monitor on a Megatron-LM log or on event files."),
    "setup": ("setup", "Set up a server, from the clone to the data."),
    "doctor": ("doctor", "Check this machine and name remedies."),
    "parse": ("parse", "Print the events of a log."),
    "summary": ("summary", "Print last values, totals, alerts and diagnosis of a log or run."),
    "checkpoints": ("checkpoints", "List checkpoints and say which are complete."),
    "prune": ("prune", "Remove old checkpoints, after showing which."),
    "data": ("data", "Print documents and tokens of a data set, or check a corpus."),
    "presets": ("presets", "List the models by name, with their sizes."),
    "estimate": ("estimate", "Compute parameters, memory, tokens and time of a training."),
    "probe": ("probe", "Ask every node whether a run can start on it."),
    "launch": ("launch", "Start a run, or print what would run."),
    "resume": ("resume", "Continue from a checkpoint, or branch from an earlier one."),
    "runs": ("runs", "List the runs."),
    "status": ("status", "Print the state of a run."),
    "attach": ("attach", "Open the monitor on a run."),
    "compare": ("compare", "Compare runs and logs."),
    "stop": ("stop", "Save a checkpoint and end a run, or end it now."),
    "serve": ("serve", "Start a text server on a checkpoint."),
    "track": ("track", "Send a run or a log to MLflow."),
    "mlflow": ("mlflow", "Start MLflow's web pages, or stop them."),
    "tensorboard": ("tensorboard", "Start TensorBoard, or stop it."),
    "perplexity": ("perplexity", "Measure how well checkpoints predict a text."),
    "samples": ("samples", "Print how answers change during a training."),
    "ask": ("ask", "Complete prompts with a running text server."),
}


class LazyGroup(click.Group):
    """Imports a command only when it is called; `mdk-tui --help` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"tui.commands.{COMMANDS[cmd_name][0]}").command

    def invoke(self, ctx: click.Context) -> Any:
        """A reader that went away (`… | head`) is no error; click would end with status 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "-w",
    "--workspace",
    metavar="DIR",
    help="The workspace folder (default: MDK_WORKSPACE, mdk.toml upwards, here).",
)
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters only.")
@click.option("--theme", metavar="NAME", help="Colours of the application (ctrl+p lists them).")
@click.version_option(package_name="mdk-tui")
@click.pass_context
def cli(ctx: click.Context, workspace: str | None, ascii_only: bool, theme: str | None) -> None:
    """Pre-train language models with Megatron-LM, from a bare server to a model you can talk to."""
    ctx.obj = find_workspace(workspace, os.environ, Path.cwd())
    if ctx.obj.root.exists() and not ctx.obj.root.is_dir():
        raise UserError(
            f"{ctx.obj.root} is not a folder.", "Name a folder with -w DIR or MDK_WORKSPACE.", status=2
        )
    ctx.meta[APPEARANCE] = appearance(os.environ, theme=theme, ascii_only=ascii_only)
    if ctx.invoked_subcommand is None:
        from tui.application import run_application

        run_application(ctx.obj)


def main(arguments: list[str] | None = None) -> None:
    """The `mdk-tui` program. Ends the process: 0 done, 1 the thing itself failed, 2 wrong usage."""
    try:
        status = cli.main(args=arguments, prog_name="mdk-tui", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(128 + signal.SIGINT)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UserError as error:
        click.echo(f"mdk-tui: {error.message}", err=True)
        if error.remedy:
            click.echo(f"hint: {error.remedy}", err=True)
        sys.exit(error.status)
    sys.exit(status if isinstance(status, int) else 0)
