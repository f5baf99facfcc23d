"""`mdk-tui presets` and `mdk-tui estimate`, as users and programs read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from backends.errors import UserError
from backends.models.presets import PRESETS
from tui.cli import cli


def said(*words: str) -> str:
    done = CliRunner().invoke(cli, words, catch_exceptions=False, standalone_mode=False)
    assert done.return_value == 0
    return done.output


def test_the_tutorials_recipe_has_megatrons_figures() -> None:
    told: dict[str, Any] = json.loads(said("estimate", "--preset", "gpt3-7b", "--gpus", "8", "--json"))
    assert round(told["memory_mb"]["weight_and_optimizer"], 2) == 46038.57
    assert round(told["parameters"]["most_loaded_shard"] / 1e9, 4) == 6.4367
    text = said("estimate", "--preset", "gpt3-7b", "--gpus", "16")
    assert "6.44 billion: 6.02 in transformer layers, 0.41 in embedding layers" in text
    assert "weight and optimizer 41434.72 MB" in text and "(assumed: 40 % of the FP8 peak of H100)" in text
    slower = said("estimate", "--preset", "gpt3-7b", "--gpus", "16", "--gpu", "a100")
    assert "(assumed: 40 % of the half-precision peak of A100)" in slower


def test_small_amounts_are_shown_in_small_units() -> None:
    text = said("estimate", "--preset", "smoke", "--gpus", "1", "--throughput", "400")
    assert "3.28 M in all" in text and " ms an iteration" in text
    assert "0.00" not in text and "0.0 days" not in text


def test_arguments_change_the_estimate_and_a_measurement_the_time() -> None:
    words = ("estimate", "--preset", "gpt3-7b", "--gpus", "8", "--throughput", "400", "--json")
    base: dict[str, Any] = json.loads(said(*words))
    assert base["training"]["throughput_measured"] is True
    half: dict[str, Any] = json.loads(said(*words, "--", "--num-layers", "15"))
    assert half["parameters"]["transformer"] < 0.51 * base["parameters"]["transformer"]


def test_a_model_that_does_not_fit_is_reported_with_the_figures() -> None:
    done = CliRunner().invoke(
        cli, ["estimate", "--preset", "gpt3-70b", "--gpus", "8"], catch_exceptions=False
    )
    assert "error: Tensor 8 × pipeline 2" in done.stderr


def test_the_demo_is_not_estimated_with_another_vocabulary() -> None:
    with pytest.raises(UserError, match="fits any machine"):
        said("estimate", "--preset", "tiny")


def test_presets_are_listed_with_computed_sizes() -> None:
    listed: list[dict[str, Any]] = json.loads(said("presets", "--json"))
    sizes = {preset["name"]: preset["parameters"] for preset in listed}
    assert list(sizes) == list(PRESETS)
    assert sizes["tiny"] is None and sizes["gpt3-7b"] == 6436659200
    assert "gpt3-7b         6.44 B  megatron" in said("presets")
