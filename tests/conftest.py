from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture
def logs() -> Path:
    """Real logs of Megatron-LM, copied from the project's shared material."""
    return DATA / "logs"
