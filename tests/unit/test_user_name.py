"""The name of the user, in containers whose user has none too."""

from __future__ import annotations

import getpass
import os

import pytest

from backends.runs.processes import user_name


@pytest.mark.parametrize("error", [KeyError("uid not found"), OSError("No username set in the environment")])
def test_a_user_without_a_name_is_shown_by_its_id(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert user_name() == str(os.getuid())
