"""The acceleration choices: flags on and off, what they do to the estimate, and that Megatron would take them."""

from __future__ import annotations

import pytest

from backends.errors import UserError
from backends.models.acceleration import (
    ACCELERATIONS,
    RECOMPUTATIONS,
    Acceleration,
    accelerated,
    effect,
    recomputation,
)
from backends.models.configuration import Arguments
from backends.models.layout import Resources, check
from backends.models.presets import find

RECIPE = find("gpt3-7b").arguments


def named(name: str) -> Acceleration:
    return next(choice for choice in ACCELERATIONS if choice.name == name)


@pytest.mark.parametrize("name", [choice.name for choice in ACCELERATIONS])
def test_on_and_off_again(name: str) -> None:
    on, off = accelerated(RECIPE, [name]), accelerated(RECIPE, (), [name])
    assert named(name).is_on(Arguments(on)) and not named(name).is_on(Arguments(off))
    assert accelerated(on, [name]) == on and accelerated(off, (), [name]) == off


def test_an_acceleration_that_is_on_keeps_its_arguments() -> None:
    given = ("--num-layers", "2", "--fp8-format", "e4m3", "--recompute-activations")
    assert accelerated(given, ["fp8"], recompute="selective") == given


@pytest.mark.parametrize("kind", RECOMPUTATIONS)
def test_recomputation_is_one_of_three_and_accepted(kind: str) -> None:
    for before in RECOMPUTATIONS:
        words = accelerated(accelerated(RECIPE, recompute=before), recompute=kind)
        assert recomputation(Arguments(words)) == kind
        assert check(words, Resources(8)) == []


def test_the_effect_is_the_estimates() -> None:
    without = effect(RECIPE, accelerated(RECIPE, (), ["fp8"]), 8, None)
    assert (without.memory_mb, without.time) == (0, 2.0)
    optimizer = effect(RECIPE, accelerated(RECIPE, (), ["distributed-optimizer"]), 8, None)
    assert round(optimizer.memory_mb) == round(6436659200 * 12 * 7 / 8 / 2**20)
    full = effect(RECIPE, accelerated(RECIPE, recompute="full"), 8, None)
    assert full.memory_mb < -20_000 and full.time == pytest.approx(4 / 3)


def test_flash_attention_counts_only_where_it_is_heeded() -> None:
    local = (*RECIPE, "--transformer-impl", "local")
    assert effect(local, accelerated(local, ["flash-attention"]), 8, None).memory_mb < -1000
    assert effect(RECIPE, accelerated(RECIPE, ["flash-attention"]), 8, None).memory_mb == 0
    (problem, *_) = [
        p
        for p in check(accelerated(RECIPE, ["flash-attention"]), Resources(8))
        if p.field == "--use-flash-attn"
    ]
    assert problem.severity == "warning" and problem.fix == {"--use-flash-attn": None}


def test_a_choice_cannot_be_both() -> None:
    with pytest.raises(UserError, match="fp8 is both"):
        accelerated(RECIPE, ["fp8"], ["fp8"])
