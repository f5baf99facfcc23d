"""Which Megatron-LM ran is known from its clone alone: commit and patches."""

from __future__ import annotations

from pathlib import Path

from backends.runs.megatron_commit import applied_patches, git_commit


def test_the_commit_is_read_without_git(tmp_path: Path):
    assert git_commit(tmp_path) is None
    heads = tmp_path / ".git" / "refs" / "heads"
    heads.mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/core\n")
    (tmp_path / ".git" / "packed-refs").write_text("# pack\nabc refs/heads/core\n")
    assert git_commit(tmp_path) == "abc"
    (heads / "core").write_text("def\n")
    assert git_commit(tmp_path) == "def"
    (tmp_path / ".git" / "HEAD").write_text("0123\n")
    assert git_commit(tmp_path) == "0123"


PATCH = """--- a/megatron/training.py
+++ b/megatron/training.py
@@ -1,2 +1,4 @@
 import os
+import queue
+
-old
+new
"""


def test_a_patch_is_applied_when_all_that_it_adds_is_there(tmp_path: Path):
    clone, patches = tmp_path / "clone", tmp_path / "patches"
    (clone / "megatron").mkdir(parents=True)
    patches.mkdir()
    (patches / "training.patch").write_text(PATCH)
    file = clone / "megatron" / "training.py"
    assert applied_patches(clone, patches) == ()
    file.write_text("import os\nimport queue\nold\n")
    assert applied_patches(clone, patches) == ()
    file.write_text("import os\nimport queue\n\nnew\n")
    assert applied_patches(clone, patches) == ("training",)


def test_ours_are_none_of_an_empty_clone(tmp_path: Path):
    assert applied_patches(tmp_path) == ()
