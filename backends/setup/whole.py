"""`python -m backends.setup.whole PREFIX`: checks from .idx and .bin whether a preprocessed data set is complete."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from backends.megatron.indexed_dataset import read_indexed_dataset


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m backends.setup.whole PREFIX\n")
        return 2
    data = read_indexed_dataset(Path(arguments[0]))
    if data.complete:
        sys.stdout.write(f"whole: {data.documents:,} documents, {data.tokens:,} tokens of {data.dtype}\n")
        return 0
    sys.stdout.write(f"not whole: {data.reason}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
