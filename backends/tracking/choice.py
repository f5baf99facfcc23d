"""Where one run is tracked, when its plan says so: it decides before the environment and the settings."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from backends.errors import UserError
from backends.tracking.place import EXPERIMENT, SWITCH, URI, Place

OFF = ("off", "none", "no")
SAID = (URI, EXPERIMENT, SWITCH)  # not the run's id: a run that goes on has another one


def chosen_environment(text: str) -> dict[str, str]:
    """What a plan adds to its environment: nothing for "", "off" that the run is not tracked, else the address.

    Raises UserError for an address with a password: plan.json would keep it.
    """
    if not text:
        return {}
    if text in OFF:
        return {SWITCH: "0"}
    if "@" in urllib.parse.urlsplit(text).netloc:
        message = f"An address with a password is not written into a plan: {Place(text, '').shown}"
        raise UserError(message, f"Export it instead: {URI}.", status=2)
    return {URI: text}


def said_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of a plan's environment that says where the run is tracked."""
    return {name: environment[name] for name in SAID if name in environment}
