"""The state of the steps: what was found, what would run, and what is running."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from backends.errors import UserError
from backends.setup.job_watch import JobView
from backends.setup.step import Action, Finding, Site, Step

AT_ONCE = 8  # threads; most calls wait for other programs
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Standing:
    """One step: what was found and what would run; `refusal` replaces the actions when the step cannot be done now."""

    finding: Finding
    actions: tuple[Action, ...] = ()
    refusal: UserError | None = None

    @property
    def weight(self) -> str:
        """The warnings of its long or large commands; "" for none."""
        return " ".join(action.weight for action in self.actions if action.weight)


def standing_of(step: Step, site: Site) -> Standing:
    """Never raises: an error is a finding, too."""
    finding = looked_at(step.name, lambda: step.look(site))
    try:
        return Standing(finding, tuple(step.actions(site)))
    except UserError as refusal:
        return Standing(finding, refusal=refusal)
    except OSError as error:
        return Standing(finding, refusal=UserError(_words(error), "Check its permissions."))


def looked_at(name: str, look: Callable[[], Finding]) -> Finding:
    """What `look` finds; its errors become findings."""
    try:
        return look()
    except UserError as error:
        return Finding(name, "failed", error.message, error.remedy)
    except OSError as error:
        return Finding(name, "failed", _words(error), "Check its permissions, and whether the disk answers.")


def in_parallel(calls: Sequence[Callable[[], Answer]]) -> Iterator[Answer]:
    """The results of `calls` in their order, each as soon as it and those before it are available."""
    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="look") as pool:
        for future in [pool.submit(call) for call in calls]:
            yield future.result()


def with_job(finding: Finding, job: JobView | None) -> Finding:
    """`finding` with its job: the progress while it runs, the reason after it failed."""
    if job is None or finding.verdict == "ok":
        return finding
    state = job.state
    if state.phase == "running":
        return replace(finding, verdict="running", evidence=progress_words(job), remedy="")
    if state.phase == "failed":
        return replace(finding, verdict="failed", evidence=state.message, remedy=state.remedy)
    return finding


def progress_words(job: JobView) -> str:
    """`clone core_r0.8.0: receiving objects 410 of 1,000   41 %   3.2 MiB/s`"""
    progress = job.progress
    if progress is None:
        return job.title
    share = "" if progress.fraction is None else f"{100 * progress.fraction:.0f} %"
    return "   ".join(filter(None, (f"{job.title}: {progress.text}", share, progress.rate)))


def _words(error: OSError) -> str:
    return f"{error.filename or 'A file'}: {error.strerror or error}"
