"""`mdk-tui ask ["PROMPT" …]`: completions from a running text server."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from random import randrange

import click

from backends.errors import UserError
from backends.inference.parameters import SEEDS, for_several
from backends.inference.prompts_file import read_prompts
from backends.inference.request import Completion, HalfAnswerError, Request, TextClient
from backends.inference.servers import clients
from backends.text import clean, clean_line
from backends.workspace import Workspace
from tui.commands.options import PATH, json_option
from tui.commands.prompt_options import URLS, sampling_options


@click.command()
@click.argument("prompts", nargs=-1, metavar='["PROMPT" …]')
@click.option(
    "--file", type=PATH, help="Prompts, one per line, or .jsonl with a prompt or text in each line."
)
@URLS
@sampling_options
@json_option("One object per prompt: text, continuation, tokens, logprobs, seconds.")
@click.pass_obj
def command(
    workspace: Workspace,
    prompts: tuple[str, ...],
    file: Path | None,
    urls: tuple[str, ...],
    request: Request,
    as_json: bool,
) -> int:
    """Complete each PROMPT (none, or "-": standard input) and print it with its continuation.

    If the server streams, the answer appears as it is generated. Several servers answer one after the other.
    """
    request = replace(request, logprobs=as_json)
    asked = [*read_prompts(file)] if file else []
    asked += [_standard_input() if prompt == "-" else prompt for prompt in prompts]
    asked = asked or [_standard_input()]
    servers = clients(workspace, urls)
    if len(servers) > 1:
        request = for_several(request, randrange(SEEDS))
    alone = len(asked) * len(servers) == 1
    failed = 0
    for at, prompt in enumerate(asked):
        for client in servers:
            if not alone and not as_json:
                _head(at, len(asked), client, len(servers))
            try:
                _answer(client, replace(request, prompt=prompt), as_json=as_json)
            except UserError as error:
                if alone:
                    raise
                failed += 1
                _say_failure(error, prompt, client, as_json=as_json)
    return 1 if failed else 0


def _standard_input() -> str:
    if sys.stdin.isatty():
        raise UserError("There is no prompt.", 'Write it as an argument: mdk-tui ask "PROMPT".', status=2)
    # Bytes that are not UTF-8 are replaced; the newline at the end of the last line is not part of the prompt.
    return sys.stdin.buffer.read().decode(errors="replace").removesuffix("\n")


def _answer(client: TextClient, request: Request, *, as_json: bool) -> None:
    answers = client.answer(request)
    if as_json:
        click.echo(as_object(_last(answers), client))
    elif sys.stdout.isatty():
        _show_as_it_comes(request.prompt, answers)
    else:
        click.echo(_last(answers).text)


def _last(answers: Iterator[str | Completion]) -> Completion:
    *_, last = answers
    if isinstance(last, str):
        raise UserError("The server ended without an answer.", "See its log.")
    return last


def _show_as_it_comes(prompt: str, answers: Iterator[str | Completion]) -> None:
    """Print the prompt dim and the answer bright. Printed text stays, even if a stop text later cuts the end."""
    click.echo(click.style(clean(prompt), dim=True), nl=False)
    shown = ""
    try:
        for said in answers:
            text = said if isinstance(said, str) else said.continuation
            if text.startswith(shown):
                click.echo(text[len(shown) :], nl=False)
                shown = text
    finally:
        click.echo()


def _head(at: int, prompts: int, client: TextClient, servers: int) -> None:
    parts = [f"prompt {at + 1} of {prompts}"] if prompts > 1 else []
    parts += [clean_line(client.url, 200)] if servers > 1 else []
    click.echo(("" if at == 0 else "\n") + f"--- {', '.join(parts)}")


def _say_failure(error: UserError, prompt: str, client: TextClient, *, as_json: bool) -> None:
    said = error.said if isinstance(error, HalfAnswerError) else ""
    if as_json:
        failure = {"prompt": prompt, "url": client.url, "error": error.message, "remedy": error.remedy}
        click.echo(json.dumps({**failure, "continuation": said}))
        return
    click.echo(f"{clean(prompt)}{said}" if said else clean(prompt))
    click.echo(f"mdk-tui: {error}", err=True)


def as_object(found: Completion, client: TextClient) -> str:
    """One line of JSON. A log-probability of -inf becomes null, because JSON has no infinities."""
    value = asdict(found) | {
        "url": client.url,
        "speaks": client.dialect,
        "tokens_per_second": found.tokens_per_second,
    }
    value["tokens"] = [token.text for token in found.tokens]
    numbers = [token.logprob for token in found.tokens]
    told = any(number is not None for number in numbers)
    value["logprobs"] = [_finite(number) for number in numbers] if told else None
    return json.dumps(value)


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
