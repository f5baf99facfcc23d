"""Megatron-LM's 175B example, for tests of what patches make of it.

Without a clone it is what the patch itself knows of it, with lines of our own in the gaps: enough for ranks, signals
and status. test_patches.py looks at all of its flags, on the real one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from backends.resources import resource_folder

CLONE = Path(os.environ.get("MDK_MEGATRON") or Path(__file__).parents[2] / "third_party" / "Megatron-LM")
EXAMPLE = CLONE / "examples/gpt3/train_gpt3_175b_distributed.sh"
GAPS = {
    1: "#!/bin/bash", 15: "CHECKPOINT_PATH=$1", 16: "TENSORBOARD_LOGS_PATH=$2", 17: "VOCAB_FILE=$3", 18: "MERGE_FILE=$4",
    52: ")", 64: ")",
}  # fmt: skip


def example() -> str:
    if EXAMPLE.is_file():
        return EXAMPLE.read_text()
    lines, number = dict(GAPS), 0
    for line in (resource_folder("patches") / "pretrain_7b_mpi.patch").read_text().splitlines()[2:]:
        if hunk := re.match(r"@@ -(\d+)", line):
            number = int(hunk[1])
        elif not line.startswith("+"):
            lines[number] = line[1:]
            number += 1
    return "".join(lines.get(number, "") + "\n" for number in range(1, max(lines) + 1))
