"""Presets that users write in TOML: what they may contain, and how mistakes are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.errors import UserError
from backends.models.arguments import value_of
from backends.models.presets import PRESETS, all_presets, find
from backends.settings import read_settings
from backends.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def test_a_preset_starts_from_another_and_changes_it(workspace: Workspace) -> None:
    workspace.settings.write_text(
        '[preset.long]\nbase = "gpt3-7b"\ntitle = "7B, longer"\ngpus = 4\nthroughput = 650\n'
        "arguments = { seq-length = 8192, fp8-format = false, bf16 = true, fp16 = false, adam-beta2 = 0.98 }\n"
        '[preset.longer]\nbase = "long"\narguments = "--seq-length 16384  # a comment"\n'
    )
    long, longer = find("long", workspace), find("longer", workspace)
    assert (long.title, long.trainer, long.gpus) == ("7B, longer", "megatron", 4)
    assert (
        value_of(long.arguments, "--seq-length") == "8192"
        and value_of(longer.arguments, "--seq-length") == "16384"
    )
    assert value_of(long.arguments, "--fp8-format") is None and value_of(long.arguments, "--bf16") == ""
    assert value_of(long.arguments, "--adam-beta2") == "0.98"
    assert value_of(long.arguments, "--num-layers") == value_of(PRESETS["gpt3-7b"].arguments, "--num-layers")
    assert (longer.title, longer.gpus, longer.source) == ("7B, longer, changed", 4, str(workspace.settings))
    assert longer.throughput == 650
    assert read_settings(workspace.settings)  # which has other sections to read


def test_a_file_of_its_own_and_lists_of_words(workspace: Workspace) -> None:
    folder = workspace.root / "presets"
    folder.mkdir()
    (folder / "mine.toml").write_text(
        'arguments = ["--num-layers", "2", "--rampup-batch-size", "1", "1", "9"]\n'
    )
    mine = find("mine", workspace)
    assert mine.arguments == ("--num-layers", "2", "--rampup-batch-size", "1", "1", "9")
    assert list(all_presets(workspace)) == [*PRESETS, "mine"]


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        (
            '[preset.x]\nargument = ""',
            r"mdk\.toml: \[preset\.x\]: unknown key 'argument'",
            "Did you mean arguments?",
        ),
        ("[preset.x]\nnum-layers = 2", "unknown key 'num-layers'", "go into arguments"),
        ('[preset.x]\nbase = "gpt3-7"', "there is no preset 'gpt3-7'", "Did you mean gpt3-7b?"),
        ('[preset.x]\nbase = "x"', "based on itself", "another base"),
        ('[preset.x]\nbase = "y"\n[preset.y]\nbase = "x"', "based on itself", "another base"),
        ("[preset.gpt3-7b]\ngpus = 1", "mdk-tui has one of this name", "another name"),
        ("preset = 1", "preset must be a section", r"[preset.NAME]"),
        ("[preset]\nx = 1", r"\[preset.x\] must be a section", "[preset.x]"),
        ("[preset.x]\ngpus = 0", "gpus must be a whole number above 0", ""),
        ("[preset.x]\ngpus = true", "gpus must be", ""),
        ('[preset.x]\ntrainer = "server"', "trainer must be demo or megatron", ""),
        ('[preset.x]\narguments = "2 --num-layers"', "begin with '2'", "--flag value"),
        ('[preset.x]\narguments = "--a \'b"', "cannot be read", "--flag value"),
        ("[preset.x]\narguments = 3", "must be a text, a list or a table", "--flag value"),
        ("[preset.x]\narguments = { lr = { a = 1 } }", "no value", "--flag value"),
        ("[preset.x", "not valid TOML", "Mend the line"),
    ],
)
def test_a_mistake_is_named_with_file_key_and_the_nearest(
    workspace: Workspace, text: str, message: str, remedy: str
) -> None:
    workspace.settings.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        find("x", workspace)
    assert remedy in caught.value.remedy


def test_two_of_one_name_are_refused(workspace: Workspace) -> None:
    workspace.settings.write_text("[preset.x]\ngpus = 1\n")
    (workspace.root / "presets").mkdir()
    (workspace.root / "presets/x.toml").touch()
    with pytest.raises(UserError, match="there twice"):
        all_presets(workspace)
