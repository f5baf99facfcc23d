"""A log line as it is shown: the fields of an iteration line have short names, the important ones first."""

from __future__ import annotations

import re

ITERATION = re.compile(
    r" ?(?:\[?\d{4}-\d\d-\d\d (?P<clock>\d\d:\d\d:\d\d)\S* )?iteration +(?P<now>\d+)/ *(?P<all>\d+) +\|"
)
SHORT_NAMES = {
    "elapsed time per iteration (ms)": "{} ms",
    "throughput per GPU (TFLOP/s/GPU)": "{} TFLOP/s",
    "learning rate": "lr {}",
    "lm loss": "loss {}",
    "grad norm": "grad norm {}",
    "consumed samples": "{} samples",
    "global batch size": "batch {}",
    "loss scale": "scale {}",
    "number of skipped iterations": "{} skipped",
    "number of nan iterations": "{} nan",
}
SHORT = re.compile(f"^({'|'.join(map(re.escape, SHORT_NAMES))}): *(.*)$")
FIRST = ("loss ", " ms", "TFLOP/s", "lr ", "grad norm", "nan", "skipped")
BLANKS = re.compile(r"(?<=\S) {2,}")


def displayed(text: str) -> str:
    """A line as it is shown. Key enter shows the original."""
    match = ITERATION.match(text)
    if match is None:
        return BLANKS.sub(" ", text) if "iteration  " in text else text
    fields = [SHORT.sub(_short, BLANKS.sub(" ", part.strip())) for part in text[match.end() :].split("|")]
    fields = sorted(filter(None, fields), key=_importance)
    clock = f"{match['clock']} " if match["clock"] else ""
    return f"{clock}iteration {match['now']}/{match['all']} | " + " | ".join(fields)


def _short(match: re.Match[str]) -> str:
    return SHORT_NAMES[match[1]].format(match[2])


def _importance(words: str) -> int:
    return next((i for i, part in enumerate(FIRST) if part in words), len(FIRST))
