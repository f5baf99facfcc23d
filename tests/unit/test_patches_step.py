"""Each patch is pending, applied, drifted or missing; real `patch` on the lines that the patches touch, no more."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

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
from backends.setup.step import Action, Site
from backends.workspace import Workspace
from tui.cli import cli

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


MLFLOW = next(patch for patch in PATCHES if patch.file == "training_mlflow.patch")


def run(actions: Sequence[Action], tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        run_actions(actions, os.environ, out)


@pytest.mark.parametrize("patch", IN_PLACE, ids=lambda p: p.file)
def test_apply_then_reverse_gives_the_file_back(site: Site, patch: Patch, tmp_path: Path) -> None:
    put_source(site, patch)
    target = site.workspace.megatron / patch.target
    original = target.read_text()
    assert state(site, patch) == "pending"
    run(apply_actions(site, patch), tmp_path)
    assert state(site, patch) == "applied" and target.read_text() != original
    run(reverse_actions(site), tmp_path)
    assert state(site, patch) == "pending" and target.read_text() == original
    assert not list(target.parent.glob("*.part"))


@pytest.mark.parametrize("patch", IN_PLACE, ids=lambda p: p.file)
def test_an_edited_file_is_drift_and_stays_untouched(site: Site, patch: Patch, tmp_path: Path) -> None:
    """It does not hold up the other patches either."""
    target = site.workspace.megatron / patch.target
    target.write_text("somebody else's\n")
    assert state(site, patch) == "drifted"
    assert PatchesStep().look(site).verdict == "warning"
    run(PatchesStep().actions(site), tmp_path)
    assert state(site, PATCHES[0]) == "applied"
    with pytest.raises(UserError, match="edited"):
        PatchesStep().actions(site)
    assert target.read_text() == "somebody else's\n"


def test_a_script_is_made_beside_its_example(site: Site, tmp_path: Path) -> None:
    script = PATCHES[0]
    example = site.workspace.megatron / script.source
    original = example.read_text()
    run(apply_actions(site, script), tmp_path)
    assert state(site, script) == "applied"
    assert example.read_text() == original
    (site.workspace.megatron / script.target).write_text("edited\n")
    assert state(site, script) == "drifted"


def test_an_empty_clone_is_named(tmp_path: Path) -> None:
    (tmp_path / "outputs" / "Megatron-LM").mkdir(parents=True)
    bare = Site(Workspace(tmp_path), Settings(), os.environ, RealPrograms(os.environ))
    assert {state(bare, patch) for patch in PATCHES} == {"missing"}
    with pytest.raises(UserError, match="is missing from"):
        PatchesStep().actions(bare)


def test_a_patch_that_was_killed_half_way_leaves_the_file_as_it_was(site: Site, tmp_path: Path) -> None:
    target = site.workspace.megatron / MLFLOW.target
    before = target.read_text()
    copy, _ = apply_actions(site, MLFLOW)
    run([copy], tmp_path)  # and here the machine goes down
    assert target.read_text() == before and state(site, MLFLOW) == "pending"
    run(apply_actions(site, MLFLOW), tmp_path)
    assert state(site, MLFLOW) == "applied"
    assert not list(target.parent.glob("*.part"))


def test_a_file_that_holds_half_of_a_patch_has_drifted(site: Site, tmp_path: Path) -> None:
    """Somebody applied some hunks by hand: neither applying nor reversing fits, and nothing is touched."""
    target = site.workspace.megatron / MLFLOW.target
    hunks = patch_file(MLFLOW).read_text().split("\n@@")
    half = tmp_path / "half.patch"
    half.write_text("\n@@".join(hunks[:2]) + "\n")
    subprocess.run(["patch", "-s", "-l", str(target), str(half)], check=True, timeout=300)
    edited = target.read_text()
    assert state(site, MLFLOW) == "drifted"
    with pytest.raises(UserError, match="was edited"):
        run(apply_actions(site, MLFLOW), tmp_path)
    assert target.read_text() == edited


def test_a_picked_fix_can_be_reversed_and_applied_again(site: Site, tmp_path: Path) -> None:
    """In a clone that has the commit: what was picked is taken back, and put back, by the patch."""
    fix = next(patch for patch in PATCHES if patch.commit)
    clone, target = site.workspace.megatron, site.workspace.megatron / fix.target

    def git(*words: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
        done = subprocess.run(
            ["git", *identity, *words], cwd=clone, check=True, capture_output=True, text=True, timeout=300
        )
        return done.stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "before")
    old = target.read_text()
    run(apply_actions(site, fix), tmp_path)  # this clone does not have the commit: by the patch
    new = target.read_text()
    git("commit", "-qam", "the fix")
    fix = replace(fix, commit=git("rev-parse", "HEAD"))
    git("reset", "-q", "--hard", "HEAD~1")
    git("commit", "-qm", "ahead", "--allow-empty")
    for _ in range(2):
        run(apply_actions(site, fix), tmp_path)
        assert state(site, fix) == "applied" and target.read_text() == new
        run(reverse_actions(site), tmp_path)
        assert state(site, fix) == "pending" and target.read_text() == old
    assert git("log", "--format=%s").split("\n") == ["the fix", "ahead", "before"]


def test_a_reversal_leaves_pending_patches_and_succeeds(site: Site) -> None:
    script = site.workspace.megatron / PATCHES[0].target
    words = ["-w", str(site.workspace.root), "setup", "patches", "--yes"]
    for option, applied in ([], True), (["--reverse"], False), (["--reverse"], False):
        done = CliRunner().invoke(cli, [*words, *option], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert script.exists() is applied
