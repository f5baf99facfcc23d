"""Each patch is pending, applied, drifted or missing; real `patch` on the lines that the patches touch, no more."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from backends.errors import UserError
from backends.programs import RealPrograms
from backends.settings import Settings
from backends.setup.patches_step import (
    PATCHES,
    Patch,
    PatchesStep,
    apply_actions,
    patch_file,
    reverse_actions,
    state,
)
from backends.setup.runner import run_actions
from backends.setup.step import Site
from backends.workspace import Workspace

pytestmark = pytest.mark.skipif(shutil.which("patch") is None, reason="there is no patch")


def before(patch_text: str) -> str:
    """A file that the patch fits: its own old lines, each hunk where it says, blank lines between."""
    lines: list[str] = []
    for line in patch_text.splitlines()[2:]:
        if hunk := re.match(r"@@ -(\d+)", line):
            lines += [""] * (int(hunk[1]) - 1 - len(lines))
        elif line[:1] in (" ", "-", ""):
            lines.append(line[1:])
    return "\n".join(lines) + "\n"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A clone that holds, of each file, what the first patch of it expects."""
    made = Site(Workspace(tmp_path), Settings(), os.environ, RealPrograms(os.environ))
    for patch in reversed(PATCHES):
        put_source(made, patch)
    return made


def put_source(site: Site, patch: Patch) -> None:
    source = site.workspace.megatron / patch.source
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(before(patch_file(patch).read_text()))


IN_PLACE = [patch for patch in PATCHES if patch.in_place]


@pytest.mark.parametrize("patch", IN_PLACE, ids=lambda p: p.file)
def test_apply_then_reverse_gives_the_file_back(site: Site, patch: Patch, tmp_path: Path) -> None:
    put_source(site, patch)
    target = site.workspace.megatron / patch.target
    original = target.read_text()
    assert state(site, patch) == "pending"
    run_actions(apply_actions(site, patch), os.environ, (tmp_path / "out").open("wb"))
    assert state(site, patch) == "applied" and target.read_text() != original
    run_actions(reverse_actions(site), os.environ, (tmp_path / "out").open("wb"))
    assert state(site, patch) == "pending" and target.read_text() == original
    assert not list(target.parent.glob("*.part"))


@pytest.mark.parametrize("patch", IN_PLACE, ids=lambda p: p.file)
def test_an_edited_file_is_drift_and_stays_untouched(site: Site, patch: Patch) -> None:
    target = site.workspace.megatron / patch.target
    target.write_text("somebody else's\n")
    assert state(site, patch) == "drifted"
    assert PatchesStep().look(site).verdict == "warning"
    with pytest.raises(UserError, match="edited"):
        PatchesStep().actions(site)
    assert target.read_text() == "somebody else's\n"


def test_a_script_is_made_beside_its_example(site: Site, tmp_path: Path) -> None:
    script = PATCHES[0]
    example = site.workspace.megatron / script.source
    original = example.read_text()
    run_actions(apply_actions(site, script), os.environ, (tmp_path / "out").open("wb"))
    assert state(site, script) == "applied"
    assert example.read_text() == original
    (site.workspace.megatron / script.target).write_text("edited\n")
    assert state(site, script) == "drifted"


def test_an_empty_clone_is_named(tmp_path: Path) -> None:
    (tmp_path / "outputs" / "Megatron-LM").mkdir(parents=True)
    bare = Site(Workspace(tmp_path), Settings(), os.environ, RealPrograms(os.environ))
    assert {state(bare, patch) for patch in PATCHES} == {"missing"}
