"""The remedy for a run that loads a checkpoint with other arguments: take all of the checkpoint's, by one key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backends.errors import UserError
from backends.models.arguments import EXIT_SIGNAL, group_arguments, without
from backends.models.presets import Preset, find
from backends.models.problem import Fix, Problem
from backends.runs.folder import RunFolder
from backends.runs.planning import ONE_LOAD, writer_of
from backends.runs.resuming import Resumption
from backends.workspace import Workspace

NAMED = 3  # arguments that a message names


def own_arguments(resumption: Resumption, workspace: Workspace) -> Problem | None:
    """The problem with its remedy; None when at most one argument differs. Each difference has a problem of its own."""
    wrong = [d for d in resumption.differences if d.verdict in ("refused", "changes")]
    if len(wrong) < 2:
        return None
    severity = "error" if any(d.verdict == "refused" for d in wrong) else "warning"
    more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
    message = f"The checkpoint has another {', '.join(d.flag for d in wrong[:NAMED])}{more}."
    writer = writer_of(workspace, resumption.source.save)
    preset = _preset_of(writer, workspace)
    if writer is not None and preset is not None:
        fix = _as_launched(writer, preset)
        return Problem(
            severity, "load", message, f"Take {preset.name} and the arguments of {writer.name}.", fix
        )
    union: dict[str, tuple[str, ...] | None] = {}
    for difference in wrong:
        union |= difference.fix or {}
    return Problem(severity, "load", message, "Take the checkpoint's own.", union) if union else None


def _preset_of(writer: RunFolder | None, workspace: Workspace) -> Preset | None:
    """None when the run is unknown or its preset no longer exists."""
    if writer is None:
        return None
    try:
        return find(writer.plan().preset, workspace)
    except UserError:
        return None


def _as_launched(writer: RunFolder, preset: Preset) -> Fix:
    """The changes that turn `preset` into the arguments of the run `writer`. Raises UserError for an unreadable plan."""
    own = _flags(without(writer.plan().arguments, EXIT_SIGNAL, *ONE_LOAD))
    of_preset = _flags(without(preset.arguments, EXIT_SIGNAL))
    changed = {flag: words for flag, words in own.items() if of_preset.get(flag) != words}
    return {"preset": (preset.name,), **changed, **{flag: None for flag in of_preset if flag not in own}}


def _flags(arguments: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    return dict(group_arguments(arguments))
