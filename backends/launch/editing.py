"""Takes a command that the user edited into the plan. It runs word for word, and the plan follows its arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backends.errors import UserError
from backends.launch.commands import commands
from backends.launch.launcher import Command
from backends.launch.local import MODULES
from backends.launch.mpirun import SCRIPTS, TAKEN
from backends.models.arguments import group_arguments, merge_arguments, value_of, without
from backends.runs.plan import RunPlan
from backends.workspace import Workspace

EXPORT = re.compile(r"[A-Za-z_]\w*")
QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|#.*""")
OPERATOR = re.compile(r"[;&|<>`$]")
SCRIPT = "#!"  # how a batch script begins
EXIT = '"$run/exit.json"'
COMMAND = re.compile(r"^command=\((.*)\)$", re.MULTILINE)
POSITIONAL = 5  # SAVE TENSORBOARD VOCAB MERGES DATA, of both scripts


@dataclass(frozen=True, slots=True)
class Written:
    """A command read from text. `cwd` is None without a `cd` line."""

    cwd: str | None
    env: Mapping[str, str]
    argv: tuple[str, ...]


def editable(command: Command) -> str:
    """`command` as text with one flag a line, which `read_shell` reads back; a batch script unchanged."""
    if command.batch:
        return command.batch
    *lines, _ = replace(command, argv=("",)).shell().split("\n")
    words = [shlex.quote(word) for word in command.argv]
    joined = "".join((" \\\n  " if word.startswith("-") else " ") + word for word in words)
    return "\n".join([*lines, joined.strip(), ""])


def check_edited(text: str) -> None:
    """Raises UserError for a command or batch script that `edited` cannot read."""
    if SCRIPT in text:
        _batch(text)
    else:
        read_shell(text)


def read_shell(text: str) -> Written:
    """Read `cd DIR`, `export NAME=VALUE` and one command, as `Command.shell` writes them. Comments are skipped.

    No shell runs this, so nothing is expanded. Raises UserError that names the unreadable part.
    """
    cwd: str | None = None
    env: dict[str, str] = {}
    argv: tuple[str, ...] = ()
    for words in _commands(text):
        if argv:
            raise UserError(
                "There is more than one command.", "A line that goes on ends with a backslash.", status=2
            )
        if words[0] == "cd" and len(words) == 2:
            cwd = words[1]
        elif words[0] == "export" and len(words) > 1:
            for word in words[1:]:
                name, equals, value = word.partition("=")
                if not equals or not EXPORT.fullmatch(name):
                    raise UserError(f"export {word}: no NAME=VALUE.", "Write: export NAME=VALUE", status=2)
                env[name] = value
        else:
            argv = tuple(words)
    if not argv:
        raise UserError("There is no command.", "Write one after the cd and export lines.", status=2)
    return Written(cwd, env, argv)


def _commands(text: str) -> list[list[str]]:
    """The words of each line. A trailing backslash or an open quotation continues the line."""
    found: list[list[str]] = []
    pending = ""
    for line in text.split("\n"):
        pending = f"{pending}\n{line}" if pending else line
        if pending.endswith("\\"):
            pending = pending[:-1] + " "
            continue
        try:
            words = shlex.split(pending, comments=True)
        except ValueError:
            continue  # within quotes
        if operator := OPERATOR.search(QUOTED.sub("", pending)):
            message = f"{operator[0]} is a shell's, and no shell runs this."
            raise UserError(message, "Write one plain command, or quote it.", status=2)
        pending = ""
        if words:
            found.append(words)
    if pending:
        raise UserError("A quotation is not closed.", "Close it.", status=2)
    return found


def edited(plan: RunPlan, workspace: Workspace, text: str) -> RunPlan:
    """`plan` as the edited `text` says. A text that equals the plan's own command changes nothing. Raises UserError."""
    own = commands(plan, workspace)
    if own.batch:
        batch = _batch(text)
        if batch == own.batch:
            return plan
        return replace(_as_said(plan, _batch_words(batch), Path(own.cwd)), batch=batch)
    written = read_shell(text)
    if written.cwd is not None and written.cwd != own.cwd:
        raise UserError(
            f"The job runs in {own.cwd}, not in {written.cwd}.", "Leave the cd line as it is.", status=2
        )
    if written.argv == own.argv and dict(written.env) == dict(own.env):
        return plan
    plan = replace(plan, command=written.argv, environment=dict(written.env))
    return _as_said(plan, written.argv, Path(own.cwd))


def _batch(text: str) -> str:
    """The script in `text` from its first line on. Raises UserError if it no longer writes the exit code."""
    _, begun, rest = text.partition(SCRIPT)
    if not begun:
        raise UserError(
            f"A batch script begins with {SCRIPT}, and this one does not.", "Leave that line.", status=2
        )
    if EXIT not in rest:
        message = f"The script no longer writes {EXIT}, by which the end of the run is known."
        raise UserError(message, "Leave its last lines as they are.", status=2)
    return f"{begun}{rest.rstrip()}\n"


def _batch_words(batch: str) -> list[str]:
    """The command that starts the ranks; [] when the script no longer has the line `command=(…)`."""
    found = COMMAND.search(batch)
    try:
        return shlex.split(found[1]) if found else []
    except ValueError:
        return []


def _as_said(plan: RunPlan, words: Sequence[str], cwd: Path) -> RunPlan:
    """`plan` with the arguments, folders and data of the words; unchanged if they run another program."""
    if plan.trainer == "demo":
        if MODULES[plan.kind] not in words:
            return plan
        said = tuple(words[words.index(MODULES[plan.kind]) + 1 :])
        save, load = value_of(said, "--save"), value_of(said, "--load")
        return replace(
            plan,
            arguments=without(said, "--save", "--load"),
            save=_folder(save, cwd),
            load=_folder(load, cwd),
        )
    if SCRIPTS[plan.kind] not in words:
        return plan
    rest = tuple(words[words.index(SCRIPTS[plan.kind]) + 1 :])
    given, flags = rest[:POSITIONAL], rest[POSITIONAL:]
    if len(given) < POSITIONAL or any(word.startswith("--") for word in given):
        message = f"{SCRIPTS[plan.kind]} needs {POSITIONAL} words before the flags."
        raise UserError(message, 'SAVE TENSORBOARD VOCAB MERGES DATA, "" for none.', status=2)
    kept = [(flag, values) for flag, values in group_arguments(plan.arguments) if flag in TAKEN]
    arguments = merge_arguments(
        [word for flag, values in kept for word in (flag, *values)], without(flags, "--load", "--save")
    )
    if plan.kind == "serve":
        return replace(plan, arguments=arguments, load=_folder(given[0], cwd))
    if given[4]:
        arguments = merge_arguments(arguments, ("--data-path", given[4]))
    return replace(
        plan,
        arguments=arguments,
        save=_folder(value_of(flags, "--save") or given[0], cwd),
        load=_folder(value_of(flags, "--load"), cwd),
        data=given[4] or None,
    )


def _folder(word: str | None, cwd: Path) -> str | None:
    return str(cwd / word) if word else None
