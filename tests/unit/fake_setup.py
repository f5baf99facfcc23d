"""Programs with prepared answers and steps with a given state: a set-up without git, images and corpora."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.errors import UserError
from backends.programs import Answer
from backends.settings import Settings
from backends.setup.step import Action, Choices, Finding, Site
from backends.workspace import Workspace


class FakePrograms:
    """Answers by the words of the command: the first key that is contained in it wins."""

    def __init__(self, installed: Sequence[str] = (), answers: Mapping[str, Answer] | None = None) -> None:
        self.installed, self.answers = installed, answers or {}
        self.asked: list[str] = []

    def find(self, name: str) -> str | None:
        return name if name in self.installed else None

    def ask(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 20,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Answer:
        command = " ".join(argv)
        self.asked.append(command)
        for words, answer in self.answers.items():
            if words in command:
                return answer
        return Answer(1, "", "unexpected question")


def says(text: str) -> Answer:
    return Answer(0, text, "")


def fake_site(root: Path, programs: FakePrograms | None = None, settings: Settings | None = None) -> Site:
    return Site(Workspace(root), settings or Settings(), {}, programs or FakePrograms(), Choices())


@dataclass
class FakeStep:
    """Finds what it is told to find. `actions_` is what it would run; `refusal` instead of that."""

    name: str
    finding: Finding
    actions_: Sequence[Action] = ()
    refusal: UserError | None = None
    looks: int = 0

    @property
    def title(self) -> str:
        return self.name

    def look(self, site: Site) -> Finding:
        self.looks += 1
        return self.finding

    def actions(self, site: Site) -> Sequence[Action]:
        if self.refusal is not None:
            raise self.refusal
        return self.actions_
