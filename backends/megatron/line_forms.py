"""Remembers what lines meant, so that lines which differ in their numbers only are not read again.

A form is a line, or all text between two iteration lines, with its numbers made equal. Lines of a form without meaning
are skipped, whole blocks at a time if every line is known. For other forms the rules that read their lines are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import NamedTuple, TypeAlias

from backends.megatron.events import Alert, Checkpoint, Event, Memory, Timers, Validation
from backends.megatron.line_reader import LineReader
from backends.megatron.lines import DIGITS_TO_0, decode, strip_prefixes
from backends.megatron.plain_events import RULES, Rule, find_rule
from backends.megatron.timers import TimerTexts, kind_of
from backends.megatron.triggers import may_mean_something

PIECE = 2**14  # bytes whose lines are looked up together; they fit into the processor's cache
KNOWN = 20_000  # forms of lines that are remembered
PLANS = 2_000  # forms of gaps that are remembered
LEARNT = (
    256  # forms that are learnt from one block: lines that never repeat cost more to remember than to read
)
LOOK = 16  # lines that are looked up together
SHORT = 400  # bytes; longer lines are not remembered
LONGEST = 4_000  # bytes; longer gaps are not remembered
NUMBERS_MATTER = b"loss scale"  # whether such a line means something depends on its numbers
# In a line without a trigger word, addresses and ids are as irrelevant as numbers.
HEX_TO_0 = bytes.maketrans(b"123456789abcdef", b"0" * 15)

Plan: TypeAlias = "tuple[Step, ...]"


class Step(NamedTuple):
    """Lines `start` … `stop` - 1 of a gap: read by `rule`, or timers if there is none."""

    start: int
    stop: int
    rule: Rule | None


class LineForms:
    """The forms of lines that `reader` has read. Use it only while the reader is idle."""

    def __init__(self, reader: LineReader) -> None:
        self._reader = reader
        self._meaningless: set[bytes] = set()
        self._rules: dict[bytes, Rule] = {}
        self._plans: dict[bytes, Plan] = {}

    # Single lines

    def noise(self, block: bytes) -> int:
        """The number of lines in `block` if all of them are known to mean nothing; else 0."""
        known = self._meaningless
        line = block[: block.index(b"\n") + 1]
        if line in known:
            times, rest = divmod(len(block), len(line))
            if not rest and block == line * times:
                return times
            if times := _count_of(block, known):
                return times
        return _count_of(block.translate(HEX_TO_0), known) if line.translate(HEX_TO_0) in known else 0

    def candidates(self, lines: Sequence[bytes]) -> Iterator[int]:
        """The indices of those `lines`, each with its newline, that may mean something by themselves."""
        known = self._meaningless
        learnt = 0
        for start in range(0, len(lines), LOOK):
            some = lines[start : start + LOOK]
            block = b"".join(some)
            if learnt >= LEARNT and not may_mean_something(block):
                continue
            forms = BytesIO(block.translate(HEX_TO_0)).readlines()
            if known.issuperset(forms):
                continue
            for i, (line, form) in enumerate(zip(some, forms, strict=True)):
                if form in known or line.translate(DIGITS_TO_0) in known:
                    continue
                if may_mean_something(line):
                    yield start + i
                elif learnt < LEARNT:
                    learnt += 1
                    self._ignore(line, form)

    def read(self, line: bytes, number: int) -> list[Event]:
        """The events of one line with its newline: by the rule that read this form before, else by the reader."""
        form = line.translate(DIGITS_TO_0)
        if rule := self._rules.get(form):
            return self._reader.read_by(rule, line[:-1], number)
        events = self._reader.read(line[:-1], number)
        if self._reader.idle and NUMBERS_MATTER not in line:
            if self._reader.meant_nothing:
                self._ignore(line, form)
            elif len(line) <= SHORT and _is_repeated(events):
                if len(self._rules) > KNOWN:
                    self._rules.clear()
                if rule := find_rule(strip_prefixes(decode(line[:-1]))[0]):
                    self._rules[form] = rule
        return events

    def _ignore(self, line: bytes, form: bytes) -> None:
        """Remember that `line`, and all lines of its `form`, mean nothing."""
        if len(line) <= SHORT:
            if len(self._meaningless) > KNOWN:
                self._meaningless.clear()
            self._meaningless.update((line, form))

    # Gaps between iteration lines

    def read_text(self, form: bytes, text: bytes, number: int) -> list[Event] | None:
        """The events of the gap `text`, which begins with line `number`; None if its form is not known."""
        plan = self._plans.get(form)
        if not plan:
            return plan if plan is None else []
        lines, events = BytesIO(text).readlines(), list[Event]()
        for start, stop, rule in plan:
            if rule is not None:
                events += self._reader.read_by(rule, lines[start][:-1], number + start)
            else:
                rank = strip_prefixes(decode(lines[start][:-1]))[1]
                events.append(Timers([number + start], rank, TimerTexts([b"".join(lines[start:stop])])))
        return events

    def learn(self, form: bytes, text: bytes) -> None:
        """Remember how to read gaps of the form `form` after `text`, one of them, was read, if every line allows it."""
        if len(text) <= LONGEST and (plan := self._plan(BytesIO(text).readlines())) is not None:
            if len(self._plans) > PLANS:
                self._plans.clear()
            self._plans[form] = plan

    def _plan(self, lines: list[bytes]) -> Plan | None:
        steps, i = list[Step](), 0
        while i < len(lines):
            kind, start, line = kind_of(lines[i].translate(DIGITS_TO_0)), i, lines[i]
            i += 1
            if kind in ("block", "line"):
                while (
                    kind == "block" and i < len(lines) and kind_of(lines[i].translate(DIGITS_TO_0)) == "row"
                ):
                    i += 1
                steps.append(Step(start, i, None))
            elif rule := self._rules.get(line.translate(DIGITS_TO_0)):
                text = decode(line[:-1])
                if next(other for other in RULES if other.words in text) is not rule:
                    return None  # with more or fewer digits an earlier rule may read the line
                steps.append(Step(start, i, rule))
            elif may_mean_something(line):
                return None
        return tuple(steps)


def _is_repeated(events: Sequence[Event]) -> bool:
    """Whether `events` come from a line with one event of a kind that repeats; alerts may follow from it."""
    if not events or any(isinstance(event, Checkpoint) and event.action == "failed" for event in events):
        return False  # the line of a failed checkpoint may be an error too
    others = [event for event in events if not isinstance(event, Alert)]
    return len(others) <= 1 and all(isinstance(event, (Validation, Memory, Checkpoint)) for event in others)


def forms_of(texts: Sequence[bytes]) -> list[bytes]:
    """The form of each text: every number, however many digits it has, becomes 0."""
    joined = b"\0".join(texts).translate(DIGITS_TO_0)
    for some in (b"0000", b"000", b"00", b"00"):
        joined = joined.replace(some, b"0")
    forms = joined.split(b"\0")
    return forms if len(forms) == len(texts) else list(texts)


def _count_of(block: bytes, known: set[bytes]) -> int:
    """The number of lines in `block` if all are `known`, else 0."""
    file, count = BytesIO(block), 0
    while lines := file.readlines(PIECE):
        if not known.issuperset(lines):
            return 0
        count += len(lines)
    return count
