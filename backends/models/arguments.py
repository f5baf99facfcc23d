"""Megatron's command-line arguments as a sequence: looked up, replaced, compared. A flag begins with `--`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

EXIT_SIGNAL = "--exit-signal-handler"  # TERM saves a checkpoint and exits


def group_arguments(arguments: Iterable[str]) -> list[tuple[str, tuple[str, ...]]]:
    """(flag, its values) in order. `--flag=value` is split; words before the first flag get the flag ""."""
    groups: list[tuple[str, tuple[str, ...]]] = []
    for word in arguments:
        if word.startswith("--") and len(word) > 2:
            flag, equals, value = word.partition("=")
            groups.append((flag, (value,) if equals else ()))
        elif groups:
            flag, values = groups[-1]
            groups[-1] = (flag, (*values, word))
        else:
            groups.append(("", (word,)))
    return groups


def merge_arguments(base: Iterable[str], changes: Iterable[str]) -> tuple[str, ...]:
    """`base` with the flags of `changes` replaced in place, or added at the end. One flag appears once."""
    merged: dict[str, tuple[str, ...]] = {}
    for flag, values in [*group_arguments(base), *group_arguments(changes)]:
        merged[flag] = values
    return flatten(merged.items())


def without(arguments: Iterable[str], *flags: str) -> tuple[str, ...]:
    """`arguments` without these flags and their values."""
    return flatten((flag, values) for flag, values in group_arguments(arguments) if flag not in flags)


def flatten(groups: Iterable[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """The words of (flag, values) groups; the flag "" stands for leading values without one."""
    return tuple(word for flag, values in groups for word in ([flag] if flag else []) + list(values))


def value_of(arguments: Iterable[str], flag: str) -> str | None:
    """The first value of the last `flag`; "" for a flag without a value, None when it is absent."""
    found = [values for name, values in group_arguments(arguments) if name == flag]
    return (found[-1][0] if found[-1] else "") if found else None


def words_of(arguments: Iterable[str], flag: str) -> tuple[str, ...]:
    """All values of the last `flag`; none when it is absent."""
    return dict(group_arguments(arguments)).get(flag, ())


def data_prefixes(arguments: Iterable[str]) -> tuple[str, ...]:
    """The prefixes of `--data-path`, without their weights, as core_r0.8.0's `get_blend_from_list` reads them.

    Several may have come as one word, as the training script takes them.
    """
    words = words_of(arguments, "--data-path")
    if len(words) == 1 and is_number(words[0].partition(" ")[0]):
        words = tuple(words[0].split())
    weighted = len(words) % 2 == 0 and all(map(is_number, words[::2]))
    return words[1::2] if weighted else words


def is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def int_of(arguments: Iterable[str], flag: str) -> int | None:
    """`value_of` as a whole number; None when it is absent or no number."""
    value = value_of(arguments, flag)
    try:
        return int(value) if value else None
    except ValueError:
        return None
