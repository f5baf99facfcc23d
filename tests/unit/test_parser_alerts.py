"""The decision table for NaN, absent losses and skipped steps."""

from __future__ import annotations

from typing import Any

import pytest
from megatron_text import iteration_line, parse, rows


def alerts(*lines: str) -> list[tuple[str, str]]:
    return [(row["kind"], row["severity"]) for row in rows(parse("".join(lines)), "alert")]


def decide(**values: Any) -> list[tuple[str, str]]:
    """The alerts of one line (iteration 110, window 10) after healthy ones."""
    healthy = [iteration_line(i) for i in range(10, 110, 10)]
    return alerts(*healthy, iteration_line(110, **values))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, []),
        ({"loss": None, "grad": None, "skipped": 10}, [("all-skipped", "info")]),
        ({"loss": "0.000000E+00", "skipped": 10}, [("all-skipped", "info")]),
        ({"loss": None, "grad": "nan", "scale": "1.0"}, [("nan-loss", "critical")]),
        ({"loss": None, "grad": "nan", "skipped": 3}, [("nan-loss", "critical"), ("some-skipped", "info")]),
        ({"loss": None, "grad": "0.5"}, [("absent-loss", "error")]),
        ({"loss": "INF"}, [("infinite-loss", "critical")]),
        ({"loss": "NAN"}, [("nan-loss", "critical")]),
        ({"skipped": 2, "nans": 2}, [("nan-iterations", "warning"), ("some-skipped", "info")]),
        ({"skipped": 1}, [("some-skipped", "info")]),
        ({"skipped": 1, "scale": "1.0"}, [("loss-scale-minimum", "error")]),
        ({"loss": None, "grad": None, "skipped": 10, "scale": "1.0"}, [("loss-scale-minimum", "error")]),
        ({"scale": "1.0"}, []),
    ],
)  # fmt: skip
def test_the_decision_table(values: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert decide(**values) == expected


def test_skipped_steps_are_normal_at_first_and_a_warning_if_they_last() -> None:
    skipped = [iteration_line(i, loss=None, grad=None, skipped=10) for i in range(10, 110, 10)]
    assert alerts(*skipped[:3]) == [("all-skipped", "info")]
    assert alerts(*skipped)[:2] == [("all-skipped", "info"), ("skipping", "warning")]


def test_a_long_stretch_of_nan_gives_one_alert_and_one_note_at_its_end() -> None:
    healthy = [iteration_line(i) for i in range(1, 400)]
    sick = [iteration_line(i, loss=None, grad="nan", scale="1.0") for i in range(400, 2400)]
    again = [iteration_line(i) for i in range(2400, 2500)]
    found = rows(parse("".join([*healthy, *sick, *again])), "alert")
    assert [(row["kind"], row["line"]) for row in found] == [("nan-loss", 400), ("nan-loss-ended", 2399)]
    assert "2000 lines, iterations 400 to 2399" in found[1]["message"] and found[1]["severity"] == "info"


def test_a_loss_that_is_missing_now_and_then_gives_one_stretch() -> None:
    lines = [iteration_line(i, **({"loss": None, "grad": "nan"} if i % 2 else {})) for i in range(1, 300)]  # type: ignore[arg-type]
    assert alerts(*lines) == [("nan-loss", "critical"), ("nan-loss-ended", "info")]


def test_a_missing_main_loss_is_an_alert_even_beside_auxiliary_losses() -> None:
    moe = [
        iteration_line(i).replace("| loss scale", "| load_balancing_loss: 1.01 | loss scale")
        for i in range(1, 30)
    ]
    gone = moe[-1].replace("lm loss: 3.212345E+00 | ", "").replace("iteration       29", "iteration       30")
    assert alerts(*moe) == [] and alerts(*moe, gone) == [("absent-loss", "error")]


def test_a_restart_resets_the_alerts() -> None:
    first = [iteration_line(i, loss=None, grad="nan") for i in (100, 110)]
    second = [iteration_line(i, loss=None, grad="nan") for i in (90, 100)]
    assert [kind for kind, _ in alerts(*first, *second)] == ["nan-loss", "nan-loss-ended"] * 2


def test_lines_without_training_fields_raise_no_alert() -> None:
    assert alerts(" iteration 5/10 | tokens/sec/gpu: 7 |\n") == []
