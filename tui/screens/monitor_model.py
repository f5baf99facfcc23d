"""What the monitor knows of a run or a log, and what each pane shows of it. Nothing is drawn here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from backends.megatron.diagnosis import diagnose
from backends.megatron.events import LogLine, Memory
from backends.megatron.record import Record
from backends.runs.catalog import RunInfo
from backends.tracking.standing import Standing, lag_of
from tui.run_words import end
from tui.screens import monitor_curves
from tui.screens.monitor_attention import entries
from tui.screens.monitor_curves import RunCurves
from tui.screens.monitor_headline import NO_TRAINING, activity, headline
from tui.screens.monitor_sources import News, Reading, Watched
from tui.widgets.attention import Entry
from tui.widgets.status_line import Headline

FLOOD, FLOOD_FROM = (
    "DotProductAttention",
    1000,
)  # Transformer Engine's notice, and the count from which it is an alert

# tools/preprocess_data.py: its progress, and the line before that.
PREPROCESSING = re.compile(r"Processed (\d+) documents \(([\d.]+) docs/s|Time to startup: ")


def flood_entry(line: LogLine, *, live: bool) -> Entry:
    message = f"Transformer Engine printed its attention-backend notice {line.count:,} times; the log pane shows it once."
    advice = "Stop it and start it again (R), as the tutorial advises." if live else "Start it again."
    return Entry(line.number, "warning", message, advice, line.text)


def preprocessing_words(match: re.Match[str]) -> str:
    done = f"{int(match[1]):,} documents so far, {float(match[2]):,.0f} documents/s. " if match[1] else ""
    return f"{done}This is the log of tools/preprocess_data.py, not of a training."


class MonitorModel:
    """Used in the event loop only. A thread fills the record, so its lock is held while it is read."""

    def __init__(self, wanted: Watched | None) -> None:
        self.wanted = wanted
        self.info: RunInfo | None = None
        self.tracking: Standing | None = None
        self.news: News | None = None  # the newest of the log
        self.caught_up = False  # whether the log was once read to its end
        self.record = Record()
        self.curves = RunCurves(self.record)
        self.diagnosis = diagnose(self.record)
        self._preprocessing: re.Match[str] | None = None
        self._flood: LogLine | None = None  # a notice that came often enough for an alert

    def take(self, news: News) -> None:
        self.news = news
        self.caught_up |= news.caught_up
        self.record = self.curves.record = news.record
        floods = [line for line in news.lines if line.count >= FLOOD_FROM and FLOOD in line.text]
        found = [match for line in news.lines if (match := PREPROCESSING.match(line.text))]
        self._preprocessing = found[-1] if found else None if news.reset else self._preprocessing
        self._flood = floods[-1] if floods else None if news.reset else self._flood

    def take_reading(self, reading: Reading) -> None:
        if reading.timeline is not None:
            self.curves.timeline = reading.timeline
        self.curves.timeline.add(reading.snapshots)

    @property
    def version(self) -> tuple[int, int, bool, bool]:
        """Changes whenever there is more to show of the log."""
        return id(self.record), self.record.version, self._flood is not None, self.caught_up

    def look(self) -> list[Entry]:
        """Diagnose the record again; the entries of the attention pane."""
        info = self.info
        with self.record.lock:
            self.diagnosis = diagnose(self.record)
            if self.diagnosis.phase == "unknown" and not self._read_in_vain:
                self.diagnosis = replace(self.diagnosis, advice="")  # it has only just begun
            found = entries(
                self.record,
                self.diagnosis,
                run_phase=info.phase if info else None,
                reason=(info.stopping or end(info)) if info else None,
            )
        if lag := lag_of(self.tracking, over=info is not None and info.over):
            news = (at for at, entry in enumerate(found) if entry.severity not in ("error", "warning"))
            found.insert(next(news, len(found)), Entry(0, "warning", *lag))
        if self._preprocessing and self.diagnosis.phase == "unknown":
            found = [Entry(0, "info", preprocessing_words(self._preprocessing))]
        if self._flood:
            found.append(flood_entry(self._flood, live=info is not None and not info.over))
        return found

    def memory(self) -> tuple[Mapping[int | None, Memory], Memory | None]:
        """The memory that Megatron reported by rank, and its estimate before the start."""
        with self.record.lock:
            return dict(self.record.memory), self.record.theoretical

    @property
    def _read_in_vain(self) -> bool:
        """Whether a log that no run of ours writes was read to its end, and holds no training."""
        foreign = self.wanted is not None and self.wanted.run is None
        return foreign and self.caught_up and self.news is not None and bool(self.news.lines)

    @property
    def may_plot(self) -> bool:
        """Whether there is something to plot, now or later."""
        phase = self.diagnosis.phase
        may_begin = phase in ("starting", "running") or (phase == "unknown" and not self.diagnosis.advice)
        has_curves = any(map(self.default_metric, ("loss", "speed")))
        return has_curves or (may_begin and activity(self.record) != "serving")

    def headline(self, now: float) -> Headline:
        info, name = self.info, self.wanted.name if self.wanted else ""
        with self.record.lock:
            head = headline(
                self.record,
                self.diagnosis,
                name,
                run_phase=info.phase if info else None,
                started=info.started if info else None,
                ended=info.ended if info else None,
                written=self.news.written if self.news else None,
                caught_up=self.caught_up,
                now=now,
            )
        if self._preprocessing and head.phase == NO_TRAINING:
            return replace(head, phase="preprocessing")
        return head

    def empty_words(self, pane: str) -> str:
        if not self.caught_up:
            return "reading the log"
        return monitor_curves.empty_words(pane, self.record, self.diagnosis)

    def readout(self, pane: str, marker: str) -> str:
        """The text after the newest value of a plot."""
        with self.record.lock:
            if pane == "loss":
                return monitor_curves.loss_words(self.record, marker)
            return monitor_curves.speed_words(self.record)

    def default_metric(self, pane: str) -> str:
        choose = monitor_curves.loss_metric if pane == "loss" else monitor_curves.throughput_metric
        return choose(self.curves.metrics())

    @property
    def waiting_for(self) -> str:
        """The name of a log that does not exist yet, else ""."""
        log = self.wanted.log if self.wanted else 0
        return log.name if isinstance(log, Path) and not log.exists() else ""
