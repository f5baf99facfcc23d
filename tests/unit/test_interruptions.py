"""A training that is killed at random moments, also during a save, never restarts silently and loses no saved checkpoint.

MDK_INTERRUPTIONS says how often (24), MDK_SEED how (a number that is printed); `interruptions.py` prints a table.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from interruptions import interrupted


def test_random_interruptions_lose_nothing_and_restart_nothing(tmp_path: Path) -> None:
    count, seed = (
        int(os.environ.get("MDK_INTERRUPTIONS", "24")),
        int(os.environ.get("MDK_SEED", secrets.randbelow(10**6))),
    )
    print(f"MDK_SEED={seed}")
    chain = interrupted(tmp_path, count, seed, print)
    assert sum(chain.counts.values()) == count and len(chain.losses) > count
