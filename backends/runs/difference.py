"""One argument that differs between a checkpoint and a run: the consequence, and the change that undoes the difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, cast

from backends.models.problem import Fix, Problem
from backends.runs.argument_values import NEGATIVE, flag_of

Verdict: TypeAlias = Literal["harmless", "flag", "changes", "refused"]
VERDICTS: Mapping[Verdict, str] = {"harmless": "harmless", "flag": "needs a flag", "changes": "another model",
                                   "refused": "cannot load"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """One argument that differs. `stored` and `planned` are text; `fix` is the change of the plan's arguments."""

    flag: str
    stored: str
    planned: str
    verdict: Verdict
    message: str
    remedy: str = ""
    fix: Fix | None = None

    def as_json(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if name != "fix"}

    def as_problem(self) -> Problem | None:
        """None if it is harmless. A needed flag is a problem only while it is not given."""
        if self.verdict == "harmless":
            return None
        severity = "warning" if self.verdict == "changes" else "error"
        words = f"{self.flag} is {self.planned} here and {self.stored} in the checkpoint. {self.message}"
        return Problem(severity, self.flag, words, self.remedy, self.fix)


def same(stored: Any, planned: Any) -> bool:
    """Whether two values are equal: 6e-05 and 6.0e-5 are, and so are a list and a tuple of the same words."""
    if isinstance(stored, list | tuple) or isinstance(planned, list | tuple):
        return [_plain(v) for v in _listed(stored)] == [_plain(v) for v in _listed(planned)]
    return _plain(stored) == _plain(planned)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    return float(value) if isinstance(value, int | float) else str(value)


def _listed(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else (value,)


def shown(value: Any) -> str:
    """A value as text for a sentence or a table."""
    if isinstance(value, list | tuple):
        return " ".join(map(shown, cast("Sequence[Any]", value)))
    return {"True": "on", "False": "off", "None": "not set"}.get(str(value), str(value))


def pairs(
    stored: Mapping[str, Any], planned: Mapping[str, Any], names: Iterable[str]
) -> Iterator[tuple[str, Any, Any]]:
    """(name, stored, planned) of the arguments that both sides have and that differ."""
    for name in names:
        if name in stored and name in planned and not same(stored[name], planned[name]):
            yield name, stored[name], planned[name]


def differing(
    name: str, old: Any, new: Any, verdict: Verdict, message: str, remedy: str | None = None
) -> Difference:
    """`remedy` None means: train with the value of the checkpoint."""
    fix = _back(name, old)
    if remedy is None and fix is not None:
        flag, words = next(iter(fix.items()))
        remedy = f"Remove {flag}." if words is None else f"Give {' '.join((flag, *words))}."
    return Difference(flag_of(name), shown(old), shown(new), verdict, message, remedy or "", fix)


def _back(name: str, old: Any) -> Fix | None:
    """The change of arguments that gives `name` the value `old`."""
    flag = flag_of(name)
    if isinstance(old, bool):
        wanted = not old if flag in NEGATIVE else old
        return {flag: () if wanted else None}
    if old is None:
        return {flag: None}
    return {flag: tuple(map(str, _listed(old)))}
