"""The facts from a job's log that its supervisor needs: loaded or not, saved, ended, address, errors."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from backends.files import plain_fields
from backends.megatron.diagnosis import ENDINGS, SURVIVED
from backends.megatron.events import Alert, Checkpoint, Error, Event, Exit, IterationBatch, Milestone

ADDRESS = re.compile(rb"\* Running on (https?://[\w.:\[\]-]{1,200})")
MAX_PENDING = 65536  # bytes of an unfinished line that may still become an address
# Slurm ends the job or a step of it. The reason follows as "DUE TO …", unless a person cancelled it.
CANCELLED = "CANCELLED AT"
# Exit messages that are no end mark: torch's remark at any exit, a cancelled job, a job that found no checkpoint.
NO_END = ("destroy_process_group", CANCELLED, "exit-on-missing-checkpoint")
SOMEBODY_CANCELLED = re.compile(rf"\*\*\* JOB \S+ .*{CANCELLED} (?!.*DUE TO )")
MAX_READ = 4 << 20  # bytes per reading


class EventSource(Protocol):
    """The part of `backends.megatron.parser.Parser` that is used here."""

    def feed(self, data: bytes) -> list[Event]: ...
    def finish(self) -> list[Event]: ...
    def pending_errors(self) -> list[Error]: ...


@dataclass(slots=True)
class Signs:
    """Facts from the log up to byte `read`, the end of a line. None or False: not said yet."""

    read: int = 0
    iteration: int | None = None
    train_iters: int | None = None
    working: bool = False  # the training loop was reached, or the server listens
    loaded: bool = False  # "successfully loaded checkpoint"
    loaded_iteration: int | None = None  # iteration of the newest loaded checkpoint
    random_start: bool = False  # "will start from random"
    saved: int | None = None  # iteration of the newest "successfully saved checkpoint"
    ended: bool = False  # an end mark: training is done, or the program says that it exits
    address: str | None = None
    nan_alert: str | None = None  # a critical alert, until a healthy iteration follows
    interrupted: bool = False  # a person interrupted it (ctrl+c, scancel) since the newest iteration
    error: str | None = None
    # Of the first error since the newest iteration: later ones are often its consequences.
    error_kind: str | None = None
    # An error that may have more lines: the last output of a hanging job.
    pending: str | None = None
    pending_kind: str | None = None

    @property
    def last_error(self) -> tuple[str, str] | None:
        """(kind, message) of the error since the newest iteration."""
        kind, words = (self.error_kind, self.error) if self.error_kind else (self.pending_kind, self.pending)
        return (kind, words or kind) if kind and kind not in SURVIVED else None

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            self._apply(event)

    def _apply(self, event: Event) -> None:
        match event:
            case IterationBatch() if len(event):
                self.iteration, self.train_iters = int(event.iterations[-1]), int(event.train_iters[-1])
                self.working, self.ended = True, False
                self.interrupted, self.error_kind = False, None
                loss = event.columns.get("lm loss")
                if loss is not None and isinstance(loss[-1], float | int) and math.isfinite(loss[-1]):
                    self.nan_alert = None
            case Checkpoint(action="loaded"):
                self.loaded = True
                self.loaded_iteration = event.iteration
            case Checkpoint(action="missing") | Alert(kind="random-weights"):
                self.random_start = True
            case Checkpoint(action="saved"):
                self.saved = event.iteration if event.iteration is not None else self.iteration
            case Milestone(name="loop" | "training" | "training skipped"):
                self.working = True
            case Milestone(name="done"):
                self.ended = True
            case Exit(status=None, signal=None):
                self.ended |= not any(words in event.reason for words in NO_END)
                self.interrupted |= bool(SOMEBODY_CANCELLED.search(event.reason))
            case Alert(severity="critical"):
                self.nan_alert = event.message
            case Error():
                self._take_error(event)
            case _:
                pass

    def _take_error(self, event: Error) -> None:
        self.interrupted |= event.kind == "interrupted"
        only_ends = self.error_kind is None or self.error_kind in ENDINGS
        if only_ends or event.kind not in ENDINGS:
            self.error = event.message
        if only_ends:
            self.error_kind = event.kind

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: object) -> Signs:
        """Reads what `as_json` wrote. Anything else gives empty signs, so the log is read again."""
        found = cls(**plain_fields(cls, value))
        return found if found.read >= 0 else cls()


class SignReader:
    """Turns bytes of a log into `signs`, chunk by chunk. `position` is the next byte to read."""

    def __init__(self, signs: Signs, events: EventSource) -> None:
        self.signs = signs
        self.position = signs.read
        self._events = events
        self._pending = b""

    def feed(self, data: bytes) -> None:
        self.position += len(data)
        if (newline := data.rfind(b"\n")) >= 0:
            self.signs.read = self.position - len(data) + newline + 1
        self.signs.apply(self._events.feed(data))
        pending = next(iter(self._events.pending_errors()), None)
        self.signs.pending, self.signs.pending_kind = (
            (pending.message, pending.kind) if pending else (None, None)
        )
        if self.signs.address is None:
            text = self._pending + data
            if found := ADDRESS.search(text, 0, text.rfind(b"\n") + 1):
                self.signs.address, self.signs.working = found[1].decode(), True
            self._pending = text[text.rfind(b"\n") + 1 :][-MAX_PENDING:]

    def finish(self) -> None:
        """Take an unfinished last line too: the log has ended."""
        self.signs.apply(self._events.finish())
        # An earlier supervisor of this run saw the pending error.
        if self.signs.error_kind is None and self.signs.pending_kind is not None:
            self.signs.error, self.signs.error_kind = self.signs.pending, self.signs.pending_kind
        self.signs.pending = self.signs.pending_kind = None

    def read_from(self, log: Path, limit: int = MAX_READ) -> int:
        """Feed at most `limit` bytes of `log` from `position` on and return their number; 0 for a missing log.

        A log that was emptied to make room is read from its beginning.
        """
        try:
            with log.open("rb") as file:
                if file.seek(0, 2) < self.position:
                    self.position = self.signs.read = 0
                file.seek(self.position)
                data = file.read(limit)
        except OSError:
            return 0
        if data:
            self.feed(data)
        return len(data)


def read_signs(log: Path, known: Signs) -> Signs:
    """The signs of a log that has ended; `known` are those of its beginning."""
    from backends.megatron.parser import Parser  # reading only state.json must not cost this import

    reader = SignReader(dataclasses.replace(known), Parser())
    while reader.read_from(log):
        pass
    reader.finish()
    return reader.signs
