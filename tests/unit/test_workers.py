"""Which tests may run at the same time: those of two files may, two hpc tests may not."""

from __future__ import annotations

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is only one worker")
def test_a_file_stays_on_one_worker_and_so_do_all_hpc_tests(request: pytest.FixtureRequest) -> None:
    """They share an image, the names of their nodes and a Slurm: two at once would be in each other's way."""
    groups = [
        (item.nodeid, "hpc" if item.get_closest_marker("hpc") else item.path)
        for item in request.session.items
    ]
    assert [nodeid for nodeid, group in groups if not nodeid.endswith(f"@{group}")] == []
