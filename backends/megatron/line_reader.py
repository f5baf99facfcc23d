"""Reads a log one line at a time. This defines what a log means; `parser` only makes it faster."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence

from backends.megatron.alerts import Alarm, check_validation
from backends.megatron.errors import ErrorCollector
from backends.megatron.events import (
    Alert,
    Argument,
    Checkpoint,
    Error,
    Event,
    Exit,
    IterationBatch,
    Memory,
    Milestone,
    Parameters,
    Validation,
    Value,
)
from backends.megatron.iteration import IterationLine, continues, join, read_iteration
from backends.megatron.lines import decode, is_quiet, strip_prefixes
from backends.megatron.plain_events import Rule, read_argument, read_plain
from backends.megatron.timers import TimerReader
from backends.megatron.triggers import may_mean_something

FAILED_RANK = re.compile(r"noticed that process rank (\d{1,7}) |^\s*Process name: \[.*[,@](\d{1,7})\]\s*$")
CANCELLING = re.compile("CANCELLED|PBS: job killed|TERM_RUNLIMIT")
# (words of a scheduler, what they mean, what to do); the last row applies when no words are found
CANCELLED = (
    *(
        (
            words,
            "The scheduler ended the job: its time was up.",
            "Resume it. Ask for more time, or let it save and end in time with --exit-duration-in-mins.",
        )
        for words in ("TIME LIMIT", "walltime", "TERM_RUNLIMIT")
    ),
    (
        "PREEMPTION",
        "The scheduler took the nodes away for another job.",
        "Resume it. sbatch --requeue with --signal and --exit-signal-handler lets it save first.",
    ),
    (
        "NODE FAILURE",
        "The scheduler lost a node of the job.",
        "Resume it without that node (--exclude); ask its administrators about the node.",
    ),
    ("", "The scheduler ended the job: somebody cancelled it.", "Resume it if it is still wanted."),
)
# A memory report that another rank printed into the middle of a line.
GLUED = re.compile(r"(?<=\S)(?=\[Rank \d{1,7}\] \(after )")
LONGEST = 4096  # characters of an iteration line that is joined from wrapped lines
RANDOM_WEIGHTS = "will not load any checkpoints and will start from random"


class LineReader:
    """Keeps the state between lines: open timer and argument blocks, tracebacks, a wrapped line."""

    def __init__(self) -> None:
        self.errors = ErrorCollector()
        self.iteration = -1  # the newest of this attempt
        self._rank: int | None = None  # the rank that printed it
        self._alarm = Alarm()
        self._timers = TimerReader()
        self._in_arguments = False
        # An iteration line that may continue in the next line: text, line number, rank.
        self._wrapped: tuple[str, int, int | None] | None = None
        self.never_wrapped = False  # iteration lines of this log that end in an unknown way are whole
        self._failed_rank: int | None = None
        self._load: tuple[str, str] = ("", "")  # --load and --save of this attempt
        self._alerted = set[str]()  # kinds of alerts that single lines of this attempt have raised
        self._trained_at = 0  # the first line that only a run with finished iterations prints
        self._had_iterations = False
        self._attempts = 0
        self.meant_nothing = True  # whether the line last read had no effect
        self._quiet = False  # whether the logger of the line calls it a warning, or less

    @property
    def idle(self) -> bool:
        """Whether nothing is open that the next line could belong to."""
        return not (
            self._in_arguments
            or self._timers.reading
            or self.errors.reading
            or self._wrapped
            or self._failed_rank is not None
        )

    def read(self, raw: bytes, line: int) -> list[Event]:
        """The events of one raw line without its newline. Sets `meant_nothing`."""
        self.meant_nothing = True
        if self.idle and not may_mean_something(raw):
            return []
        whole = decode(raw)
        text, rank = strip_prefixes(whole)
        self._quiet = is_quiet(whole, text)
        if self._wrapped is not None and len(self._wrapped[0]) < LONGEST and continues(text):
            (start, first, first_rank), self._wrapped = self._wrapped, None
            return self._text(join(start, text), first, first_rank)
        return [*self.unwrap(), *self._text(text, line, rank)]

    def read_by(self, rule: Rule, raw: bytes, line: int) -> list[Event]:
        """The events of a line of a form that `rule` has read before. The reader must be idle."""
        text, rank = strip_prefixes(decode(raw))
        event = rule.read(text, line, rank)
        return self._noticed(event) if event else self.read(raw, line)

    def finish(self) -> list[Event]:
        """The log ends here."""
        events = self.before_rows()
        events += self._alarm.finish()
        if self._attempts and self._trained_at and not self._had_iterations:
            events.append(_no_iterations(self._trained_at))
        return sorted(events, key=lambda event: event.line)

    def before_rows(self) -> list[Event]:
        """An iteration line follows: end what is open, and return the events that were held back."""
        if self.idle and not self.errors.holding:
            return []
        events = self.unwrap()
        self._failed_rank, self._in_arguments = None, False
        return [*events, *self._timers.finish(), *self.errors.flush()]

    def unwrap(self) -> list[Event]:
        """The line that waits for a continuation is whole, and so are later lines like it: its events."""
        if self._wrapped is None:
            return []
        (text, line, rank), self._wrapped, self.never_wrapped = self._wrapped, None, True
        return self._text(text, line, rank)

    def take(self, batch: IterationBatch) -> list[Event]:
        """`batch`, whose iterations rise, with the alerts that it raises."""
        first, newest = batch.iterations[0], self.iteration
        again = first < newest or (first == newest and batch.ranks[0] == self._rank)
        ended: list[Alert] = self._alarm.finish() if again else []
        self.iteration, self._rank, self._had_iterations = int(batch.iterations[-1]), batch.ranks[-1], True
        return [*ended, batch, *self._alarm.check(batch)]

    def _text(self, text: str, line: int, rank: int | None) -> list[Event]:
        events: list[Event] = []
        texts = GLUED.split(text)[::-1]
        while texts:
            found = read_iteration(text := texts.pop())
            if found is None or (self.never_wrapped and not found.values):
                events += self._other(text, line, rank)
                continue
            self.meant_nothing = False
            if not (found.whole or self.never_wrapped or texts):
                self._wrapped = (text, line, rank)
                return events
            if found.before:
                events += self._other(found.before, line, rank)
            events += self.before_rows()
            events += self.take(_one(found, line, rank))
            if found.rest:
                texts.append(found.rest)
        return events

    def _other(self, text: str, line: int, rank: int | None) -> list[Event]:
        timers = self._timers.read(text, line, rank)
        if timers is not None:
            self.meant_nothing = False
            return list(timers)
        events: list[Event] = list(self._timers.finish())
        if self._in_arguments and (argument := read_argument(text, line, rank)):
            self._argued(argument)
            return [*events, argument]
        event = None if self.errors.reading else read_plain(text, line, rank)
        if event is not None and not _may_be_error(event):
            self.meant_nothing = False
            return events + self._noticed(event)
        was_reading = self.errors.reading
        of_error = self.errors.read(text, line, rank, self._quiet)
        if was_reading and not (of_error and text.startswith(" ")):
            event = read_plain(text, line, rank)
        if match := FAILED_RANK.search(text):
            self._failed_rank = int(match[1] or match[2])
        if event is not None:
            events += self._noticed(event)
        elif RANDOM_WEIGHTS in text:
            events.append(_random_weights(line, rank, *self._load))
        # Text that is glued to an iteration line does not decide for the whole line.
        self.meant_nothing = self.meant_nothing and not events and not of_error
        return events

    def _argued(self, argument: Argument) -> None:
        load, save = self._load
        if argument.name == "load":
            self._load = (argument.value, save)
        elif argument.name == "save":
            self._load = (load, argument.value)

    def _noticed(self, event: Event) -> list[Event]:
        """`event` with the events that follow from it. Updates the state that later lines depend on."""
        match event:
            case Milestone(name="arguments" | "arguments end"):
                self._in_arguments = event.name == "arguments"
                return [event] if self._in_arguments else []
            case Milestone(name="distributed"):
                # In the first attempt another rank may fail before rank 0 prints this line.
                errors = self.errors.flush() if self._attempts else []
                self._attempts += 1
                self.iteration, self._load = -1, ("", "")
                self._alerted.clear()
                return [*errors, *self._alarm.finish(), event]
            case Alert():  # DeepSpeed repeats the line at every step
                if event.kind in self._alerted:
                    return []
                self._alerted.add(event.kind)
            case Validation():
                return [event, *check_validation(event)]
            case Milestone(name="done") | Checkpoint(action="saved") | Memory(iteration=int()) | Parameters():
                if not isinstance(event, Parameters) or "total" in event.values:
                    self._trained_at = self._trained_at or event.line
            case Exit() if CANCELLING.search(event.reason):
                return [event, *self._noticed(_cancelled(event))]  # one alert for the job and its step
            case Exit() if self._failed_rank is not None:
                rank, self._failed_rank = self._failed_rank, None
                return [Exit(event.line, rank, event.reason, event.status, event.signal)]
            case _:
                pass
        return [event]

    def pending_errors(self, unfinished: bytes, line: int) -> list[Error]:
        """The errors that are held back, with that of an `unfinished` line."""
        errors = copy.deepcopy(self.errors)
        text, rank = strip_prefixes(whole := decode(unfinished))
        errors.read(text, line, rank, is_quiet(whole, text))
        return errors.pending()


def _may_be_error(event: Event) -> bool:
    """Whether the line of `event` may also report an error."""
    return isinstance(event, Exit) or (isinstance(event, Checkpoint) and event.action == "failed")


def _one(found: IterationLine, line: int, rank: int | None) -> IterationBatch:
    columns: dict[str, Sequence[Value]] = {name: [value] for name, value in found.values.items()}
    return IterationBatch([line], [rank], [found.time], [found.iteration], [found.train_iters], columns)


def _random_weights(line: int, rank: int | None, load: str, save: str) -> Alert:
    """Megatron found no tracker file. That is normal if load and save are one folder; else a resume did not happen."""
    message = "No checkpoint was loaded: training starts from random weights."
    remedy = "--load must point at the folder that holds latest_checkpointed_iteration.txt."
    if load not in ("", "None", save):
        return Alert(
            line,
            rank,
            "random-weights",
            f"{message} --load asked for {load}.",
            f"Stop it. {remedy}",
            None,
            "error",
        )
    return Alert(
        line,
        rank,
        "random-weights",
        message,
        f"Normal for a first run. If a resume was meant, stop it: {remedy}",
    )


def _cancelled(end: Exit) -> Alert:
    """The alert that says why the scheduler ended the job."""
    message, remedy = next(said for words, *said in CANCELLED if words in end.reason)
    return Alert(end.line, end.rank, "cancelled", message, remedy)


def _no_iterations(line: int) -> Alert:
    return Alert(
        line,
        None,
        "no-iteration-lines",
        "This log shows a run that trained, but no iteration line.",
        "The last rank prints them: open the log of the last node.",
        None,
        "info",
    )
