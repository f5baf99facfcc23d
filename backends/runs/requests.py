"""`request.json`: a request to a run's supervisor. It is renamed into place, so it also works over a shared disk."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import asdict, dataclass

from backends.errors import UserError
from backends.files import plain_fields, read_json, write_json
from backends.runs.folder import RunFolder
from backends.runs.judgement import withheld
from backends.runs.signs import Signs

DEFAULT_LIMIT = 15 * 60.0  # s


@dataclass(frozen=True, slots=True)
class StopRequest:
    """End the job. `now`: without saving. `force`: save even if that would do harm. `limit`: s to save and exit.

    `hung`: at once, because it hangs. Its end then counts as a crash, so an automatic resume may follow.
    """

    now: bool = False
    force: bool = False
    hung: bool = False
    limit: float = DEFAULT_LIMIT


class StopWithheld(UserError):
    """A graceful stop would do harm now. The user may insist with `force`, or stop without saving with `now`."""


def request_stop(folder: RunFolder, wish: StopRequest) -> None:
    """Ask for the end of a run and return at once. Raises StopWithheld, or UserError if the request cannot be written.

    The supervisor looks twice a second and decides again from its own, newer reading of the log.
    """
    state = folder.state()
    over = state is not None and state.over  # then the request calls off an automatic resume
    if (
        not over
        and not (wish.now or wish.hung or wish.force)
        and (why := withheld(folder.plan(), state.signs if state else Signs()))
    ):
        raise StopWithheld(
            f"{folder.name} was not stopped. {why}",
            "End it without saving: --now. Save all the same: --force.",
        )
    try:
        write_json(folder.request_file, {"action": "stop", **asdict(wish)})
    except OSError as error:
        raise UserError(
            f"{folder.request_file} cannot be written: {error.strerror}.",
            "Ask as the user who started the run, or make room on the disk.",
        ) from None


def waiting_request(folder: RunFolder) -> StopRequest | None:
    """The waiting request, None if there is no valid one. It stays until `drop_request`, also for a new supervisor."""
    value = read_json(folder.request_file) or {}
    if value.get("action") != "stop":
        return None
    request = StopRequest(**plain_fields(StopRequest, value))
    return request if request.limit > 0 else dataclasses.replace(request, limit=DEFAULT_LIMIT)


def drop_request(folder: RunFolder) -> None:
    """Remove the waiting request, if there is one."""
    with contextlib.suppress(OSError):
        folder.request_file.unlink(missing_ok=True)
