"""Checks whether a clone of Megatron-LM has a text server that works, and finds the faults of core_r0.8.0 before a start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backends.models.arguments import value_of
from backends.models.problem import Problem

TOKENIZATION = "megatron/inference/text_generation/tokenization.py"
SERVER = "tools/run_text_generation_server.py"
DEFAULT_ROTARY_BASE = "10000"
REMEDY = "Run: mdk-tui setup patches"


def server_problems(megatron: Path, arguments: Sequence[str]) -> list[Problem]:
    """Faults in the source in `megatron` that concern a server with `arguments`. Missing files are ignored."""
    problems: list[Problem] = []
    if "get_tokenizer(args)" in _text(megatron / TOKENIZATION):
        message = (
            "The text server would fail on every request, and with several ranks hang after the first: this clone "
            "lacks the fix of commit af51a153 (get_tokenizer)."
        )
        problems.append(Problem("error", "server_tokenizer", message, REMEDY))
    server = _text(megatron / SERVER)
    if server and '"--host"' not in server and "'--host'" not in server:
        message = (
            "The text server would listen on every interface and ask nobody who they are: it knows no --host."
        )
        problems.append(Problem("error", "server_host", message, REMEDY))
    base = value_of(arguments, "--rotary-base")
    if server and base not in (None, DEFAULT_ROTARY_BASE) and "rotary_base" not in server:
        message = (
            f"The text server would build its model with rotary base {DEFAULT_ROTARY_BASE} instead of {base}."
        )
        problems.append(Problem("error", "server_rotary_base", message, REMEDY))
    return problems


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
