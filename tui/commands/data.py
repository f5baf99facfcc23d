"""`mdk-tui data PREFIX`: documents, tokens, dtype, and whether the files are whole."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from backends.errors import UserError
from backends.megatron.indexed_dataset import find_prefix, read_indexed_dataset
from backends.text import clean_line


@click.command()
@click.argument("prefix", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--check", is_flag=True, help="Exit 3 when the data set is not complete.")
def command(prefix: Path, as_json: bool, check: bool) -> int:
    """Documents, tokens and dtype of a preprocessed data set, and whether it is complete, from the .idx header.

    PREFIX is the value of --data-path: the path without .bin and .idx.
    """
    found = read_indexed_dataset(find_prefix(prefix))
    if found.size is None and found.sequences is None and not as_json:
        raise UserError(
            f"There is no data set at {clean_line(found.prefix)}.",
            "Give the prefix without suffix, such as ./arxiv_text_document.",
        )
    if as_json:
        click.echo(json.dumps({**asdict(found), "complete": found.complete}))
    else:
        click.echo(f"{'prefix':<12}{clean_line(found.prefix)}")
        for name in ("documents", "sequences", "tokens"):
            value = getattr(found, name)
            click.echo(f"{name:<12}{'unknown' if value is None else f'{value:,}'}")
        click.echo(f"{'dtype':<12}{found.dtype or 'unknown'}")
        click.echo(f"{'complete':<12}{'yes' if found.complete else f'no: {found.reason}'}")
    return 3 if check and not found.complete else 0
