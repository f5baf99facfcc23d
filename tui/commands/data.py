"""`mdk-tui data PREFIX`: prints what a data set holds and whether it is complete; checks a .jsonl."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from backends.errors import UserError
from backends.files import named_errors
from backends.megatron.indexed_dataset import find_prefix, read_indexed_dataset
from backends.setup.jsonl import SAMPLE, check_corpus
from backends.setup.jsonl import preview as preview_of
from backends.text import clean, clean_line
from tui.commands.options import ATTENTION, PATH, json_option


@click.command()
@click.argument("prefix", metavar="PREFIX|FILE.jsonl", type=PATH)
@json_option("One JSON object.")
@click.option("--check", is_flag=True, help="Exit 3 when the data set is not complete, or a line is bad.")
@click.option(
    "--key", default="text", show_default=True, help="For a .jsonl: the key that holds a document's text."
)
@click.option("--whole", is_flag=True, help="For a .jsonl: read all of it, not a sample.")
@click.option(
    "--preview", type=click.IntRange(0), default=0, help="For a .jsonl: show the first N documents."
)
def command(prefix: Path, as_json: bool, check: bool, key: str, whole: bool, preview: int) -> int:
    """Print documents, tokens and dtype of a preprocessed data set, and whether it is complete, from its .idx header.

    PREFIX is the value of --data-path: the path without .bin and .idx. For a .jsonl, count the good and bad lines.
    """
    if prefix.suffix == ".jsonl" and prefix.is_file():
        return _corpus(prefix, key, None if whole else SAMPLE, preview, as_json, check)
    found = read_indexed_dataset(find_prefix(prefix))
    if found.size is None and found.sequences is None and not as_json:
        raise UserError(
            f"There is no file {clean_line(str(prefix))}."
            if prefix.suffix == ".jsonl"
            else f"There is no data set at {clean_line(found.prefix)}.",
            "Give a .jsonl, or the prefix of a data set without suffix, such as ./arxiv_text_document.",
            status=2,
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
    return ATTENTION if check and not found.complete else 0


def _corpus(path: Path, key: str, sample: int | None, documents: int, as_json: bool, check: bool) -> int:
    with named_errors(path):
        found = check_corpus(path, key, sample)
        texts = preview_of(path, key, documents)
    if as_json:
        about = {**asdict(found), "estimated_documents": found.estimated_documents, "preview": texts}
        click.echo(json.dumps(about))
        return ATTENTION if check and found.bad_count else 0
    number = found.estimated_documents
    rows = {
        "file": clean_line(str(path)),
        "read": "all of it" if found.whole else f"a sample of {found.documents + found.bad_count:,} lines",
        "documents": "unknown" if number is None else f"{number:,}" if found.whole else f"about {number:,}",
        "empty": f"{found.empty:,}",
        "bad lines": f"{found.bad_count:,}",
    }
    for name, value in rows.items():
        click.echo(f"{name:<12}{value}")
    for bad in found.bad:
        click.echo(clean_line(bad.words))
    for at, text in enumerate(texts, 1):
        click.echo(f"\ndocument {at}\n{clean(text)}")
    return ATTENTION if check and found.bad_count else 0
