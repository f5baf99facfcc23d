"""Models by name. A preset is Megatron's own arguments, nothing else; paths and the number of processes are not part of it.

Users' own are in TOML: `[preset.NAME]` in mdk.toml, or a file presets/NAME.toml with the same keys:

    base = "gpt3-7b"                # start from this one
    title = "7B, longer context"
    arguments = "--seq-length 8192 --max-position-embeddings 8192"
    # or a table, where false takes a flag of the base away:  arguments = { seq-length = 8192, fp8-format = false }
    gpus = 4                        # when nothing else is said; default: all
    throughput = 650                # TFLOP/s a GPU as measured, for the time of an estimate
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from backends.errors import UserError
from backends.models.arguments import group_arguments
from backends.models.layout import apply_fix
from backends.models.megatron_presets import GPUS, MEGATRON_PRESETS, THROUGHPUTS
from backends.models.problem import Fix
from backends.settings import PRESET_SECTION, read_tables
from backends.workspace import Workspace

KEYS = ("arguments", "base", "gpus", "throughput", "title", "trainer")
TRAINERS = ("demo", "megatron")
NAME = re.compile(r"[\w][\w.\-]*")
FOLDER = "presets"


@dataclass(frozen=True, slots=True)
class Preset:
    """A model by name, with Megatron's arguments for it."""

    name: str
    title: str
    trainer: Literal["demo", "megatron"]
    arguments: tuple[str, ...]
    gpus: int | None = None  # default number of GPUs; None: all of the machine
    source: str | None = None  # the user's file that defines it
    throughput: float | None = None  # measured TFLOP/s a GPU, if known


# About a minute on one core, the first checkpoint after some seconds; the batch can be shared by two ranks.
_TINY = """
    --num-layers 2 --hidden-size 96 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128
    --init-method-std 0.06 --micro-batch-size 2 --global-batch-size 4 --train-iters 1000
    --lr 3e-3 --min-lr 3e-4 --lr-decay-style cosine --lr-warmup-fraction 0.02 --weight-decay 0.1 --adam-beta2 0.98
    --log-interval 5 --save-interval 50 --eval-interval 100 --eval-iters 4 --exit-signal-handler
"""
TINY = Preset("tiny", "a tiny GPT on the CPU, trained on Python's own help", "demo", tuple(_TINY.split()))
PRESETS: dict[str, Preset] = {
    TINY.name: TINY,
    **{
        name: Preset(name, title, "megatron", arguments, GPUS.get(name), throughput=THROUGHPUTS.get(name))
        for name, (title, arguments) in MEGATRON_PRESETS.items()
    },
}


def all_presets(workspace: Workspace) -> dict[str, Preset]:
    """mdk-tui's own, then the user's. Raises UserError naming file, key and the nearest valid one."""
    found = dict(PRESETS)
    written = _written(workspace)
    for name in written:
        _add(name, written, found, ())
    return found


def find(name: str, workspace: Workspace | None = None) -> Preset:
    """The preset called `name`. Raises UserError naming the nearest."""
    known = PRESETS if workspace is None or name in PRESETS else all_presets(workspace)
    if name in known:
        return known[name]
    raise UserError(f"There is no preset {name!r}.", _nearest(name, known), status=2)


@dataclass(frozen=True, slots=True)
class _Table:
    """A preset as written, not yet checked. `where` names its file and section."""

    source: Path
    where: str
    values: Mapping[str, Any]


def _written(workspace: Workspace) -> dict[str, _Table]:
    """By name. Raises UserError for what is no table, for a name twice, and for mdk-tui's own names."""
    tables: list[tuple[str, _Table]] = []
    section = read_tables(workspace.settings).get(PRESET_SECTION, {})
    if not isinstance(section, dict):
        raise UserError(f"{workspace.settings}: preset must be a section.", "Write [preset.NAME].", status=2)
    for name, values in cast("dict[str, Any]", section).items():
        where = f"{workspace.settings}: [preset.{name}]"
        if not isinstance(values, dict):
            raise UserError(f"{where} must be a section.", f"Write [preset.{name}].", status=2)
        tables.append((name, _Table(workspace.settings, where, cast("dict[str, Any]", values))))
    for path in sorted((workspace.root / FOLDER).glob("*.toml")):
        tables.append((path.stem, _Table(path, f"{path}", read_tables(path))))
    found: dict[str, _Table] = {}
    for name, table in tables:
        if name in PRESETS or name in found or not NAME.fullmatch(name):
            other = "mdk-tui has one of this name" if name in PRESETS else "it is there twice"
            why = other if NAME.fullmatch(name) else "a name is letters, digits, dots, dashes"
            raise UserError(
                f"{table.where}: {name!r} cannot be used: {why}.", "Give it another name.", status=2
            )
        found[name] = table
    return found


def _add(
    name: str, written: Mapping[str, _Table], found: dict[str, Preset], on_the_way: tuple[str, ...]
) -> Preset:
    """`name` and what it is based on, into `found`."""
    if name in found:
        return found[name]
    table = written[name]
    for key in table.values:
        if key not in KEYS:
            near = _nearest(key, KEYS)
            remedy = near if near.startswith("Did") else f"{near} Megatron's own go into arguments."
            raise UserError(f"{table.where}: unknown key {key!r}.", remedy, status=2)
    base_name = _value(table, "base", str, "the name of a preset")
    if base_name in (*on_the_way, name):
        raise UserError(f"{table.where}: it is based on itself.", "Name another base.", status=2)
    if base_name is not None and base_name not in found and base_name not in written:
        known = [*found, *written]
        raise UserError(
            f"{table.where}: there is no preset {base_name!r}.", _nearest(base_name, known), status=2
        )
    base = _add(base_name, written, found, (*on_the_way, name)) if base_name is not None else None
    found[name] = _preset(name, table, base)
    return found[name]


def _preset(name: str, table: _Table, base: Preset | None) -> Preset:
    trainer = _value(table, "trainer", str, "demo or megatron") or (base.trainer if base else "megatron")
    if trainer not in TRAINERS:
        raise UserError(f"{table.where}: trainer must be demo or megatron, not {trainer!r}.", status=2)
    gpus = _value(table, "gpus", int, "a whole number above 0")
    if gpus is not None and gpus < 1:
        raise UserError(f"{table.where}: gpus must be a whole number above 0, not {gpus}.", status=2)
    throughput = _value(table, "throughput", (int, float), "a number of TFLOP/s above 0")
    if throughput is not None and not 0 < throughput < math.inf:
        raise UserError(f"{table.where}: throughput must be above 0, not {throughput}.", status=2)
    return Preset(
        name,
        _value(table, "title", str, "a text") or (f"{base.title}, changed" if base else name),
        trainer,
        apply_fix(base.arguments if base else (), _fix(table)),
        gpus if gpus is not None else base.gpus if base else None,
        str(table.source),
        throughput if throughput is not None else base.throughput if base else None,
    )


def _value(table: _Table, key: str, kind: type[Any] | tuple[type[Any], ...], words: str) -> Any:
    value = table.values.get(key)
    if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    raise UserError(f"{table.where}: {key} must be {words}, not {value!r}.", status=2)


def _fix(table: _Table) -> Fix:
    """The flags that `arguments` sets or takes away: a text, a list of words, or a table."""
    value = table.values.get("arguments", "")
    wrong: Callable[[str], UserError] = lambda why: UserError(  # noqa: E731
        f"{table.where}: arguments {why}.",
        'Write "--flag value …", a list of words, or { flag = value }.',
        status=2,
    )
    if isinstance(value, dict):
        return {f"--{key}": _words(item, wrong) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list) and all(isinstance(word, str) for word in cast("list[Any]", value)):
        words = cast("list[str]", value)
    elif isinstance(value, str):
        try:
            words = shlex.split(value, comments=True)
        except ValueError as error:
            raise wrong(f"cannot be read ({error})") from None
    else:
        raise wrong(f"must be a text, a list or a table, not {value!r}")
    groups = group_arguments(words)
    if groups and not groups[0][0]:
        raise wrong(f"begin with {words[0]!r}, which is no flag")
    return dict(groups)


def _words(item: Any, wrong: Callable[[str], UserError]) -> tuple[str, ...] | None:
    """The words of one flag in a table; None takes it away."""
    if isinstance(item, bool):
        return () if item else None
    items = cast("list[Any]", item) if isinstance(item, list) else [item]
    if not all(isinstance(word, (str, int, float)) and not isinstance(word, bool) for word in items):
        raise wrong(f"hold {item!r}, which is no value")
    return tuple(str(word) for word in items)


def _nearest(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
