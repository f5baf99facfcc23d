"""The presets are complete and consistent, and gpt3-7b equals the defaults of the patched script."""

from __future__ import annotations

import re

import pytest

from backends.models.configuration import Arguments, read_configuration
from backends.models.estimate import count_parameters
from backends.models.layout import Resources, check
from backends.models.megatron_presets import DEFAULT, MEGATRON_PRESETS
from backends.resources import resource_folder

GIB = 2**30
BILLIONS = {
    "gpt3-7b": 6.44, "gpt3-345m": 0.06, "gpt3-857m": 0.35, "gpt3-1.7b": 1.31, "gpt3-7.1b": 6.25, "gpt3-16b": 14.81,
    "gpt3-32b": 29.96, "gpt3-70b": 68.07, "gpt2-medium": 0.35, "llama2-7b": 6.74, "llama3-8b": 8.03,
    "llama3-70b": 70.57, "smoke": 0.05,
}  # fmt: skip
# As their authors publish them; Megatron's formula counts padding and a bias of RMSNorm, but no positions and biases of GPT-2.
PUBLISHED = {
    "gpt2-medium": 354_823_168,
    "llama2-7b": 6_738_415_616,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
}
GPUS = {"gpt3-70b": (32, 141), "llama3-70b": (32, 141), "smoke": (1, 16)}


def test_the_names_are_those_that_users_know() -> None:
    assert set(MEGATRON_PRESETS) == set(BILLIONS)
    assert DEFAULT in MEGATRON_PRESETS


@pytest.mark.parametrize("name", BILLIONS)
def test_a_preset_goes_together_and_fits(name: str) -> None:
    _, arguments = MEGATRON_PRESETS[name]
    gpus, gib = GPUS.get(name, (8, 80))
    words = [*arguments, "--tokenizer-model", "tokenizer"]
    assert check(words, Resources(gpus=gpus, gpu_memory=gib * GIB)) == []
    total = count_parameters(read_configuration(arguments, gpus)).total
    assert total / 1e9 == pytest.approx(BILLIONS[name], abs=0.006)


def test_gpt3_7b_is_the_recipe_of_the_patched_script() -> None:
    added = [line[1:] for line in (resource_folder("patches") / "pretrain_7b_mpi.patch").read_text().splitlines()
             if re.match(r"[+]\s+--[a-z0-9-]+( [^ )]+)?$", line)]  # fmt: skip
    flags = Arguments([word for line in added for word in line.split()])
    preset = Arguments(MEGATRON_PRESETS["gpt3-7b"][1])
    same = [line.split()[0] for line in added if line.split()[0] != "--exit-signal-handler"]
    assert len(same) > 15
    assert {flag: flags.words(flag) for flag in same} == {flag: preset.words(flag) for flag in same}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_their_published_size(name: str) -> None:
    config = read_configuration(MEGATRON_PRESETS[name][1], 16)
    assert count_parameters(config).total == pytest.approx(PUBLISHED[name], rel=0.004)
    unpadded = (config.padded_vocab_size - config.vocab_size) * config.hidden_size
    tables = 2 if config.untie_embeddings_and_output_weights else 1
    if name.startswith("llama"):  # to the last weight
        without_bias = (2 * config.num_layers + 1) * config.hidden_size
        exact = count_parameters(config).total - tables * unpadded - without_bias
        assert exact == PUBLISHED[name]
