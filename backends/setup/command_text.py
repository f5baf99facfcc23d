"""Commands as text: what is shown is what runs, and what was edited can be read back.

There is no shell behind it: a line is one command, its words quoted as a shell would want them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from backends.errors import UserError
from backends.setup.step import Action

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
OPERATORS = ";&|<>()"
NO_SHELL = "Write one command a line, without pipes and redirections; quote a word that holds such a sign."


def command_text(actions: Sequence[Action]) -> str:
    """A comment with the title, `cd` where the folder changes, and the command, for each action."""
    lines: list[str] = []
    folder: Path | None = None
    for action in actions:
        lines.append(f"# {action.title}")
        if action.cwd != folder:
            folder = action.cwd
            lines.append(shlex.join(["cd", str(folder)]))
        lines.append(action.shown)
    return "\n".join(lines)


def read_commands(text: str, folder: Path) -> list[Action]:
    """The commands in `text`, from `folder` on. Raises UserError, with the number of the line that cannot be read, and for
    a text without one."""
    actions: list[Action] = []
    title = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            title = line.lstrip(" #").strip()
            continue
        words = _words(line, number)
        if not words:
            continue
        if words[0] == "cd" and len(words) == 2:
            folder = (folder / Path(words[1]).expanduser()).resolve()
            continue
        actions.append(_action(words, title or words[0], folder, number))
        title = ""
    if not actions:
        raise UserError("There is no command.", NO_SHELL)
    return actions


def _words(line: str, number: int) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=OPERATORS)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError as error:
        raise UserError(f"Line {number} cannot be read: {error}.", "Close the quotation.") from None


def _action(words: list[str], title: str, folder: Path, number: int) -> Action:
    env: dict[str, str] = {}
    while words and ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    stdin = None
    if len(words) > 2 and words[-2] == "<":
        stdin = folder / words[-1]
        words = words[:-2]
    if operator := next((word for word in words if set(word) <= set(OPERATORS) and word), None):
        raise UserError(f"Line {number} holds {operator}, which only a shell knows.", NO_SHELL)
    if not words:
        raise UserError(f"Line {number} sets a variable and runs nothing.", NO_SHELL)
    return Action(title, tuple(words), folder, env, stdin)
