"""`mdk-tui ask ["PROMPT"]`: one completion from a running text server."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict

import click

from backends.errors import UserError
from backends.inference.client import Completion, Request, TextClient
from backends.inference.servers import ready_server
from backends.workspace import Workspace


@click.command()
@click.argument("prompt", required=False)
@click.option("--url", help="The server, such as http://127.0.0.1:8028 (default: the newest ready one).")
@click.option("--tokens", type=click.IntRange(0), default=64, show_default=True, help="Tokens to generate.")
@click.option("--temperature", type=click.FloatRange(0, 100, min_open=True), default=1.0, show_default=True)
@click.option("--top-k", type=click.IntRange(0, 1000), default=0, show_default=True)
@click.option("--top-p", type=click.FloatRange(0, 1), default=0.0, show_default=True)
@click.option("--greedy", is_flag=True, help="Always the most likely token.")
@click.option("--seed", type=click.IntRange(0))
@click.option(
    "--json", "as_json", is_flag=True, help="One object: text, continuation, tokens, logprobs, seconds."
)
@click.pass_obj
def command(
    workspace: Workspace,
    prompt: str | None,
    url: str | None,
    tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    greedy: bool,
    seed: int | None,
    as_json: bool,
) -> None:
    """Complete PROMPT (left out, or "-": standard input) and print prompt and continuation."""
    if greedy and (top_k > 1 or top_p > 0):
        raise UserError("--greedy goes with neither --top-k nor --top-p.", status=2)
    if top_k and top_p:
        raise UserError("--top-k and --top-p exclude each other.", "Give one of them.", status=2)
    if prompt is None or prompt == "-":
        if sys.stdin.isatty():
            raise UserError("There is no prompt.", 'Write it as an argument: mdk-tui ask "PROMPT".', status=2)
        # Bytes that are no UTF-8 are a prompt too; the newline that ends the last line is not meant.
        prompt = sys.stdin.buffer.read().decode(errors="replace").removesuffix("\n")
    address = url or ready_server(workspace).address or ""
    request = Request(str(prompt), tokens, temperature, 1 if greedy else top_k, top_p, seed, logprobs=as_json)
    found = TextClient(address).complete(request)
    click.echo(as_object(found, address) if as_json else found.text)


def as_object(found: Completion, address: str) -> str:
    """One line of JSON, which knows no infinities: a log-probability of -inf becomes null."""
    value = asdict(found) | {"url": address, "tokens_per_second": found.tokens_per_second}
    if found.logprobs is not None:
        value["logprobs"] = [number if math.isfinite(number) else None for number in found.logprobs]
    return json.dumps(value)
