"""`mdk-tui perplexity FILE`: how well checkpoints predict a text."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from backends.errors import UserError
from backends.inference.likelihood import Likelihood
from backends.inference.perplexity import WINDOW, Progress, measure
from backends.inference.prompts_file import read_text, read_texts
from backends.inference.readiness import temporary_server
from backends.inference.request import TextClient
from backends.inference.server_title import label
from backends.inference.servers import clients, text_servers
from backends.inference.serving import serve_plan
from backends.runs.checkpoint_choice import checkpoint_meant
from backends.runs.ports import free_port
from backends.text import clean_line
from backends.workspace import Workspace
from tui.commands.options import PATH, json_option
from tui.commands.prompt_options import URLS

WHAT = (
    "Each window is scored as the beginning of a document, so perplexity is a little higher than with a sliding window, "
    "but comparable between checkpoints measured this way. Bits per byte compare different tokenizers, too."
)


@click.command()
@click.argument("file", type=PATH)
@URLS
@click.option(
    "--checkpoint",
    "folders",
    type=PATH,
    multiple=True,
    help="Serve this dated folder, or one iter_N in it, for the measurement. May be repeated.",
)
@click.option(
    "--window", type=click.IntRange(16), default=WINDOW, show_default=True, help="Characters in a window."
)
@click.option("--documents", type=click.IntRange(1), help="Only the first N documents.")
@json_option("One object a checkpoint.")
@click.pass_obj
def command(
    workspace: Workspace,
    file: Path,
    urls: tuple[str, ...],
    folders: tuple[Path, ...],
    window: int,
    documents: int | None,
    as_json: bool,
) -> int:
    """Measure perplexity and bits per byte of FILE ("-": standard input; .jsonl: the text of each line is a document).

    Running servers measure it, or, with --checkpoint, servers that are started for this and stopped again.
    """
    texts = _texts(file)[:documents]
    with contextlib.ExitStack() as stack:
        asked = [stack.enter_context(_served(workspace, folder)) for folder in folders]
        if urls or not folders:
            asked += clients(workspace, urls)
        last = _follow(asked, texts, window, quiet=as_json)
        names = {info.address: label(info) for info in text_servers(workspace) if info.address}
    if as_json:
        for client, score in zip(asked, last.scores, strict=True):
            click.echo(json.dumps(_object(client.url, score, last)))
    else:
        _print(asked, names, last, window)
    return 0


def _texts(file: Path) -> list[str]:
    if str(file) == "-":
        return [sys.stdin.buffer.read().decode(errors="replace")]
    return read_texts(file) if file.suffix in (".jsonl", ".json") else [read_text(file)]


@contextlib.contextmanager
def _served(workspace: Workspace, given: Path) -> Iterator[TextClient]:
    """A client of a text server on one checkpoint, which is stopped afterwards."""
    save, iteration, _ = checkpoint_meant(workspace, given)
    plan = serve_plan(workspace, save, port=free_port(), iteration=iteration)
    with temporary_server(plan, workspace) as (_, address):
        yield clients(workspace, (f"{address}/api",))[0]


def _follow(asked: Sequence[TextClient], texts: Sequence[str], window: int, *, quiet: bool) -> Progress:
    """The final progress. In a terminal, the progress is shown meanwhile."""
    shown = sys.stderr.isatty() and not quiet
    last: Progress | None = None
    for last in measure(asked, texts, window):
        if shown:
            click.echo(
                f"\rdocument {last.documents} of {len(texts)}, window {last.windows}", nl=False, err=True
            )
    if shown:
        click.echo("\r\x1b[K", nl=False, err=True)
    if last is None:
        raise UserError("There is no text to measure.", "Give a file that is not empty.", status=2)
    return last


def _object(url: str, score: Likelihood, last: Progress) -> dict[str, Any]:
    return {
        "url": url,
        "perplexity": score.perplexity,
        "bits_per_byte": score.bits_per_byte,
        "tokens": score.tokens,
        "nats": score.nats,
        "bytes": score.size,
        "documents": last.documents,
        "windows": last.windows,
        "window": last.window,
    }


def _print(asked: Sequence[TextClient], names: Mapping[str, str], last: Progress, window: int) -> None:
    click.echo(f"{'PERPLEXITY':>10}  {'BITS/BYTE':>9}  {'TOKENS':>8}  SERVER")
    for client, score in zip(asked, last.scores, strict=True):
        figures = f"{score.perplexity:>10.4g}  {score.bits_per_byte or 0:>9.4f}  {score.tokens:>8,}"
        click.echo(f"{figures}  {clean_line(client.url, 200)}  {names.get(client.url, '')}".rstrip())
    shorter = f" (a model took no more than {last.window})" if last.window < window else ""
    click.echo(
        f"\n{_counted(last.documents, 'document')} in {_counted(last.windows, 'window')} of up to "
        f"{last.window} characters{shorter}."
    )
    click.echo(WHAT)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
