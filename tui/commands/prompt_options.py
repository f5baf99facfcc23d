"""Which server is asked, and how the model is to answer, as options of a command."""

from __future__ import annotations

import click

from backends.errors import UserError
from backends.inference.parameters import unescaped
from backends.inference.request import Request
from tui.commands.options import grouped

URLS = click.option(
    "--url",
    "urls",
    multiple=True,
    help="The server, such as http://127.0.0.1:8028; may be repeated (default: the newest that can answer).",
)


def _request(
    tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    greedy: bool,
    seed: int | None,
    stop: tuple[str, ...],
) -> Request:
    """Without its prompt. Raises UserError for options that exclude each other."""
    if greedy and (top_k > 1 or top_p > 0):
        raise UserError("--greedy goes with neither --top-k nor --top-p.", status=2)
    if top_k and top_p:
        raise UserError("--top-k and --top-p exclude each other.", "Give one of them.", status=2)
    texts = tuple(text for word in stop if (text := unescaped(word)))
    return Request("", tokens, temperature, 1 if greedy else top_k, top_p, seed, texts)


# Gives a command its `request`, without a prompt.
sampling_options = grouped(
    "request",
    _request,
    click.option("--tokens", type=click.IntRange(1), default=64, show_default=True, help="Tokens to generate."),
    click.option("--temperature", type=click.FloatRange(0, 100, min_open=True), default=1.0, show_default=True),
    click.option("--top-k", type=click.IntRange(0, 1000), default=0, show_default=True),
    click.option("--top-p", type=click.FloatRange(0, 1), default=0.0, show_default=True),
    click.option("--greedy", is_flag=True, help="Always the most likely token."),
    click.option("--seed", type=click.IntRange(0, 2**31 - 1)),
    click.option("--stop", multiple=True, metavar="TEXT", help=r"End before this text; \n is a newline. May be repeated."),
)  # fmt: skip
