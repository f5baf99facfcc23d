"""`mdk-tui …`: the subcommands. Each lives in its own module of `tui/commands/` and is imported when it is called."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path

import click

from backends.errors import UserError
from backends.workspace import find_workspace
from tui.appearance import APPEARANCE, appearance

# name -> (module below tui.commands, one line for --help); the function in the module is called `command`.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "Train a tiny GPT on the CPU and talk to it."),
    "watch": ("watch", "The monitor on any Megatron log, or on event files."),
    "setup": ("setup", "The steps from a bare server to data: look, show, run."),
    "doctor": ("doctor", "Check this machine, with remedies."),
    "parse": ("parse", "The events of a log, one JSON object a line."),
    "summary": ("summary", "Last values, totals, alerts and diagnosis of a log or run."),
    "checkpoints": ("checkpoints", "What is there, complete or not, and why."),
    "prune": ("prune", "Make room: remove old checkpoints, after showing which."),
    "data": ("data", "Documents and tokens of a preprocessed data set."),
    "presets": ("presets", "The models by name, with their sizes."),
    "estimate": ("estimate", "Parameters, memory, tokens and time, before a start."),
    "probe": ("probe", "Every node, before a run waits for it."),
    "launch": ("launch", "Start a run, or print what would run."),
    "resume": ("resume", "Continue a run from its newest checkpoint."),
    "runs": ("runs", "What runs and what ran."),
    "status": ("status", "How one run does."),
    "attach": ("attach", "The monitor on a run."),
    "compare": ("compare", "Runs and logs side by side."),
    "stop": ("stop", "End a run: gracefully, or now."),
    "serve": ("serve", "Start the text server on a checkpoint."),
    "track": ("track", "A run or any log into MLflow."),
    "mlflow": ("mlflow", "MLflow's pages: start, reach through SSH, stop."),
    "tensorboard": ("tensorboard", "TensorBoard: start, reach through SSH, stop."),
    "perplexity": ("perplexity", "How well checkpoints predict a text."),
    "samples": ("samples", "How answers change over a run's checkpoints."),
    "ask": ("ask", "One completion from a running text server."),
}


class LazyGroup(click.Group):
    """Knows its commands by name; imports one only when it is called (`--help` of the group imports none)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"tui.commands.{COMMANDS[cmd_name][0]}").command

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
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters alone.")
@click.option("--theme", metavar="NAME", help="Colours of the application (ctrl+p lists them).")
@click.version_option(package_name="mdk-tui")
@click.pass_context
def cli(ctx: click.Context, workspace: str | None, ascii_only: bool, theme: str | None) -> None:
    """Pre-train language models with Megatron-LM, from a bare server to a model you can talk to."""
    ctx.obj = find_workspace(workspace, os.environ, Path.cwd())
    if ctx.obj.root.exists() and not ctx.obj.root.is_dir():
        raise UserError(
            f"{ctx.obj.root} is no folder.", "A workspace is one: -w DIR or MDK_WORKSPACE.", status=2
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
    except BrokenPipeError:
        # The reader went away (`… | head`): not an error, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    sys.exit(status if isinstance(status, int) else 0)
