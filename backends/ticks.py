"""Numbers as people read them, and steps that axes take: for screens, pictures and tables alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


def drawable(value: float) -> bool:
    """Whether a plot can show `value`: it is finite and so far from the largest float that the limits of its axis are, too."""
    return abs(value) < 1e300


def nice_step(span: float, most: int) -> float:
    """The smallest of 1, 2, 2.5, 5 × 10^k that cuts `span` into at most `most` pieces."""
    rough = span / max(most, 1)
    magnitude = 10.0 ** math.floor(math.log10(rough))
    return next(nice * magnitude for nice in NICE if nice * magnitude >= rough * (1 - 1e-9))


def number(value: float, *, digits: int = 4) -> str:
    """A reading: four digits that matter, thousands with commas, always as many decimals; exponents only for the very small and very large."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    size = abs(value)
    if size != 0 and (size < 1e-3 or size >= 1e12):
        return f"{value:.2e}"
    decimals = max(digits - 1 - math.floor(math.log10(size)), 0) if size > 0 else 0
    return f"{value:,.{min(decimals, digits)}f}"


def compact(value: float) -> str:
    """A count for a narrow place: 950, 12k, 1.5M, 3.2B."""
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scaled = value / (1e3 if unit == "k" else limit)
            return f"{scaled:.3g}{unit}"
    return f"{value:,.0f}"


def tick_labels(ticks: Sequence[float], step: float, *, log: bool = False) -> list[str]:
    """Labels with as many decimals as the step needs, the same for all of them."""
    if log:
        return [f"{tick:.0e}" if tick < 1e-3 or tick >= 1e5 else f"{tick:,g}" for tick in ticks]
    largest = max((abs(tick) for tick in ticks), default=0.0)
    if largest >= 1e5:
        return [compact(tick) for tick in ticks]
    if largest and largest < 1e-2:
        return [f"{tick:.1e}" if abs(tick) > step / 1e3 else "0" for tick in ticks]
    decimals = 0
    while decimals < 6 and abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6:
        decimals += 1
    return [f"{tick:,.{decimals}f}" for tick in ticks]


def duration(seconds: float) -> str:
    """ "41 s", "2 h 13 m", "69 d 10 h"."""
    seconds = max(int(seconds), 0)
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60 % 60, seconds // 3600 % 24, seconds // 86400
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} m" if hours else f"{minutes} m {seconds % 60} s"


def rounded(seconds: float) -> str:
    """A remaining time, to the minute: a countdown of seconds would be redrawn every second and tell nothing more."""
    return "under a minute" if seconds < 60 else duration(seconds // 60 * 60).removesuffix(" 0 s")


def size_words(size: float) -> str:
    """Bytes with three digits: "81.2 GiB". Memory, disks and rates are counted in powers of 1024 everywhere."""
    for scale, unit in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= scale:
            value = size / scale
            return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{size:.0f} B"


def count_words(count: float) -> str:
    """Parameters, tokens: "6.44 B", "354.9 M", "1,024"."""
    for scale, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if count >= scale:
            return f"{count / scale:,.2f} {unit}"
    return f"{count:,.0f}"
