"""Every broken checkpoint gets the right reason, and no complete one is refused."""

from __future__ import annotations

import errno
import io
import os
import pickle
import zipfile
from collections import OrderedDict
from datetime import datetime
from pathlib import Path

import pytest
from checkpoint_trees import (
    Break,
    Metadata,
    cut,
    dist_checkpoint,
    foreign_pickle,
    remove,
    torch_checkpoint,
    torch_file,
    write,
)

from backends.errors import UserError
from backends.files import real, write_json
from backends.inference.serving import pinned
from backends.runs import torch_archive
from backends.runs.branching import base_of, make_branch
from backends.runs.checkpoints import TRACKER, checkpoints, read_tracker, save_folders
from backends.runs.folder import create_run_folder
from backends.runs.plan import RunPlan
from backends.runs.planning import new_save_folder
from backends.runs.pruning import RECORD, linked_checkpoints, needed_by_branches, plan_pruning, prune
from backends.runs.state import RunState
from backends.runs.torch_archive import read_pickle, stored_arguments
from backends.workspace import Workspace

M = "model_optim_rng.pt"
GOOD = {
    "one rank": torch_checkpoint,
    "TP 2": lambda save: torch_checkpoint(save, tp=2),
    "TP 2 × PP 2 with optimizer": lambda save: torch_checkpoint(save, tp=2, pp=2, optimizer=True),
    "EP 4": lambda save: torch_checkpoint(save, ep=4),
    "TP 2 × PP 2 × EP 2": lambda save: torch_checkpoint(save, tp=2, pp=2, ep=2),
    "without stored arguments": lambda save: torch_checkpoint(save, tp=2, pp=2, ep=2, stored=False),
    "more than 100 ranks": lambda save: torch_checkpoint(save, tp=101),
    "torch_dist": dist_checkpoint,
    "zarr": lambda save: dist_checkpoint(save, backend="zarr"),
}


@pytest.mark.parametrize("name", GOOD)
def test_no_good_checkpoint_is_refused(tmp_path: Path, name: str) -> None:
    GOOD[name](tmp_path)
    (found,) = checkpoints(tmp_path)
    assert (found.complete, found.reason, found.tracked, found.iteration) == (True, None, True, 100)


def test_format_and_layout(tmp_path: Path) -> None:
    for name, make in (
        ("a", GOOD["TP 2 × PP 2 with optimizer"]),
        ("b", GOOD["torch_dist"]),
        ("c", GOOD["zarr"]),
    ):
        make(tmp_path / name)
    assert [(c.format, c.layout.tp, c.layout.pp) for s in "abc" for c in checkpoints(tmp_path / s)] == [
        ("torch", 2, 2),
        ("torch_dist", 2, 1),
        ("zarr", 2, 1),
    ]


def lost_middle() -> bytes:
    content = torch_file({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1})
    return content[:300] + content[600:]


def without_zip64(content: bytes) -> bytes:
    """As Python and torch < 1.6 write it, where the end record itself tells the sizes."""
    return content[: content.index(b"PK\x06\x06")] + content[content.rindex(b"PK\x05\x06") :]


def lost_directory_bytes() -> bytes:
    content = without_zip64(torch_file())
    entry = content.index(b"PK\x01\x02")
    return content[: entry + 10] + content[entry + 20 :]


def zeros_before_the_end() -> bytes:
    """Blocks that a crash of the machine left unwritten."""
    content = torch_file()
    return content[:300] + bytes(len(content) - 398) + content[-98:]


def far_end_record() -> bytes:
    content = torch_file()
    return content[:-34] + b"\xff" * 8 + content[-26:]


TORCH_FAULTS: list[tuple[str, Break, str]] = [
    ("no model file", remove(f"mp_rank_01/{M}"), "mp_rank_01/model_optim_rng.pt is missing"),
    ("an empty file", cut(f"mp_rank_01/{M}", 0), "is empty"),
    ("half a file", cut(f"mp_rank_01/{M}", 0.5), "is cut off"),
    ("all but the last bytes", cut(f"mp_rank_01/{M}", 0.995), "is cut off"),
    ("only the head", cut(f"mp_rank_00/{M}", 0.01), "is cut off"),
    ("text in its place", write(f"mp_rank_00/{M}", b"hello world"), "is no torch file"),
    ("zeros in its place", write(f"mp_rank_00/{M}", bytes(4000)), "is no torch file"),
    ("bytes lost in the middle", write(f"mp_rank_00/{M}", lost_middle()), "is damaged"),
    ("the same, small zip", write(f"mp_rank_00/{M}", without_zip64(lost_middle())), "is damaged"),
    ("bytes lost in the directory", write(f"mp_rank_00/{M}", lost_directory_bytes()), "is damaged"),
    ("a directory of zeros", write(f"mp_rank_00/{M}", zeros_before_the_end()), "is damaged"),
    ("an end beyond the file", write(f"mp_rank_00/{M}", far_end_record()), "is damaged"),
    ("a shard lost", remove("mp_rank_01"), "1 of 2 shards are missing (TP 2 × PP 1)"),
    ("another rank's", lambda f: (f / "mp_rank_01").rename(f / "mp_rank_07"), "the first is mp_rank_01"),
    ("one optimizer lost", remove("mp_rank_01/distrib_optim.pt"), "mp_rank_01/distrib_optim.pt is missing"),
    ("half an optimizer", cut("mp_rank_00/distrib_optim.pt", 0.5), "distrib_optim.pt is cut off"),
    ("an empty optimizer", cut("mp_rank_00/distrib_optim.pt", 0), "distrib_optim.pt is empty"),
    (
        "a folder in the file's place",
        lambda f: (remove(f"mp_rank_00/{M}")(f), (f / "mp_rank_00" / M).mkdir()),
        "is missing",
    ),
]
DIST_FAULTS: list[tuple[str, Break, str]] = [
    ("no metadata.json", remove("metadata.json"), "metadata.json, which is written last, is missing"),
    ("half a metadata.json", cut("metadata.json", 0.5), "metadata.json is damaged"),
    ("an empty metadata.json", cut("metadata.json", 0), "metadata.json is damaged"),
    ("no .metadata", remove(".metadata"), ".metadata is missing"),
    ("half a .metadata", cut(".metadata", 0.5), ".metadata is damaged"),
    ("an empty .metadata", cut(".metadata", 0), ".metadata is damaged"),
    ("no common.pt", remove("common.pt"), "common.pt is missing"),
    ("half a common.pt", cut("common.pt", 0.5), "common.pt is cut off"),
    ("a shard lost", remove("__1_0.distcp"), "The shard __1_0.distcp is missing"),
    ("a short shard", cut("__0_0.distcp", 0.5), "has 500 of at least 1,000 bytes"),
    ("an empty shard", cut("__0_0.distcp", 0), "has 0 of at least 1,000 bytes"),
    (
        "a shard that is a folder",
        lambda f: (remove("__0_0.distcp")(f), (f / "__0_0.distcp").mkdir()),
        "is no file",
    ),
    (
        "nothing but metadata",
        lambda f: (
            [shard.unlink() for shard in f.glob("*.distcp")],
            write(".metadata", foreign_pickle(Metadata({})))(f),
        ),
        "It holds no shards",
    ),
    ("hostile .metadata", write(".metadata", pickle.dumps(os.getcwd)), ".metadata is damaged"),
]


@pytest.mark.parametrize(("fault", "words"), [f[1:] for f in TORCH_FAULTS], ids=[f[0] for f in TORCH_FAULTS])
def test_a_broken_torch_checkpoint_is_named(tmp_path: Path, fault: Break, words: str) -> None:
    fault(torch_checkpoint(tmp_path, tp=2, optimizer=True))
    (found,) = checkpoints(tmp_path)
    assert words in (found.reason or "")


@pytest.mark.parametrize(("fault", "words"), [f[1:] for f in DIST_FAULTS], ids=[f[0] for f in DIST_FAULTS])
def test_a_broken_distributed_checkpoint_is_named(tmp_path: Path, fault: Break, words: str) -> None:
    fault(dist_checkpoint(tmp_path))
    (found,) = checkpoints(tmp_path)
    assert words in (found.reason or "")


def test_a_broken_zarr_checkpoint_is_named(tmp_path: Path) -> None:
    tensor = dist_checkpoint(tmp_path, backend="zarr") / "model.weight"
    (tensor / ".zarray").unlink()
    assert "model.weight/.zarray is missing" in (checkpoints(tmp_path)[0].reason or "")
    tensor.rmdir()
    assert "It holds no tensors" in (checkpoints(tmp_path)[0].reason or "")


def test_the_shards_of_all_experts_are_wanted(tmp_path: Path) -> None:
    remove("mp_rank_00_003")(torch_checkpoint(tmp_path, ep=4))
    assert "1 of 4 shards are missing (TP 1 × PP 1 × EP 4)" in (checkpoints(tmp_path)[0].reason or "")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    folder = dist_checkpoint(tmp_path)
    for path in (tmp_path / TRACKER, folder / "metadata.json", folder / "common.pt"):
        path.unlink()
        os.mkfifo(path)
    assert "Not a regular file" in (read_tracker(tmp_path).problem or "")
    assert "metadata.json is damaged" in (checkpoints(tmp_path)[0].reason or "")


def test_an_empty_folder_and_a_foreign_one(tmp_path: Path) -> None:
    (tmp_path / "iter_0000100").mkdir()
    (tmp_path / "iter_0000200").mkdir()
    (tmp_path / "iter_0000200" / "notes.txt").touch()
    foreign, empty = checkpoints(tmp_path)
    assert (foreign.reason or "").startswith("It holds no shards")
    assert (empty.reason or "").startswith("It is empty. The tracker does not name it")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"abc", "'abc', which is no iteration"),
        (b"-5", "no iteration"),
        (b"0", "no iteration"),
        (b"\xff\x00", "no iteration"),
        ("²".encode(), "no iteration"),
        (b"100\n200", "no iteration"),
        (b"\xef\xbb\xbf100", "no iteration"),
        (b"9" * 5000, "no iteration"),
        (b" " * 200, "is empty"),
    ],
)
def test_a_bad_tracker_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    torch_checkpoint(tmp_path)
    (tmp_path / TRACKER).write_bytes(content)
    assert words in (read_tracker(tmp_path).problem or "")
    assert checkpoints(tmp_path)[0].complete  # the files still say that it is whole


@pytest.mark.parametrize("content", [b"100\r\n", b"  100", b"0000100\n\n", b" " * 200 + b"100\n"])
def test_a_tracker_means_what_megatron_reads_there(tmp_path: Path, content: bytes) -> None:
    """`int(f.read().strip())`."""
    (tmp_path / TRACKER).write_bytes(content)
    assert read_tracker(tmp_path).iteration == int(content.strip()) == 100


def test_a_tracker_ahead_of_its_checkpoints(tmp_path: Path) -> None:
    torch_checkpoint(tmp_path)
    (tmp_path / TRACKER).write_text("200")
    ahead, there = checkpoints(tmp_path)
    assert (ahead.iteration, ahead.tracked, ahead.complete) == (200, True, False)
    assert (there.iteration, there.tracked, there.complete) == (100, False, True)


def test_a_tracker_behind_leaves_the_newer_one_untracked(tmp_path: Path) -> None:
    torch_checkpoint(tmp_path, 100)
    torch_checkpoint(tmp_path, 200)
    (tmp_path / TRACKER).write_text("100")
    assert [(c.iteration, c.tracked) for c in checkpoints(tmp_path)] == [(200, False), (100, True)]


def test_a_release_checkpoint(tmp_path: Path) -> None:
    torch_checkpoint(tmp_path, 100).rename(tmp_path / "release")
    (tmp_path / TRACKER).write_text("release")
    (found,) = checkpoints(tmp_path)
    assert (found.iteration, found.tracked, found.complete) == ("release", True, True)


def test_a_link_in_a_circle_hides_nothing(tmp_path: Path) -> None:
    torch_checkpoint(tmp_path, 100)
    (tmp_path / "iter_0000200").symlink_to("iter_0000200")
    (tmp_path / "iter_0000300").symlink_to("iter_0000400")
    (tmp_path / "iter_0000400").symlink_to("iter_0000300")
    assert [(c.iteration, c.complete) for c in checkpoints(tmp_path)] == [(100, True)]
    assert linked_checkpoints(tmp_path) and save_folders(tmp_path) == [tmp_path]


def test_a_branch_whose_origin_is_gone_says_so(tmp_path: Path) -> None:
    (tmp_path / "iter_0000100").symlink_to("gone/iter_0000100")
    (tmp_path / TRACKER).write_text("100")
    (found,) = checkpoints(tmp_path)
    assert found.reason and "link leads nowhere" in found.reason


def test_a_name_that_megatron_would_not_look_for_is_no_checkpoint(tmp_path: Path) -> None:
    torch_checkpoint(tmp_path, 100).rename(tmp_path / "iter_00000100")
    (found,) = checkpoints(tmp_path)
    assert (found.path, found.complete) == (str(tmp_path / "iter_0000100"), False)


@pytest.mark.parametrize("damage", ["deflated", "bomb"])
def test_a_zip_with_unreadable_members_is_read_as_far_as_possible(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_archive, "PICKLE_LIMIT", 1 << 20)
    folder = torch_checkpoint(tmp_path, 100)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("args.json", b"{}" + b" " * (1 << 21) if damage == "bomb" else os.urandom(999))
    content = bytearray(out.getvalue())
    if damage == "deflated":
        content[50:60] = b"\xff" * 10
    (folder / "mp_rank_00" / M).write_bytes(content)
    (found,) = checkpoints(tmp_path)
    assert (found.iteration, found.layout.tp) == (100, 1)
    assert stored_arguments(folder / "mp_rank_00" / M) is None


def test_dated_folders_are_found_below_a_base(tmp_path: Path) -> None:
    for name in ("2026-11-30/09-32-12", "2026-11-30/10-00-00", "2026-12-01/00-00-01"):
        torch_checkpoint(tmp_path / name)
    (tmp_path / "notes").mkdir()
    (tmp_path / "latest").symlink_to("2026-12-01/00-00-01")
    names = [str(save.relative_to(tmp_path)) for save in save_folders(tmp_path)]
    assert names == ["2026-12-01/00-00-01", "2026-11-30/10-00-00", "2026-11-30/09-32-12"]
    torch_checkpoint(tmp_path)  # a base that was also saved to hides none of them
    assert [str(save.relative_to(tmp_path)) for save in save_folders(tmp_path)] == [*names, "."]


class TestStoredArguments:
    def test_plain_values_are_read_from_a_checkpoint_file(self, tmp_path: Path) -> None:
        (tmp_path / "x.pt").write_bytes(
            torch_file({"hidden_size": 64, "lr": 0.1, "split": "9,1", "load": None, "odd": torch_file})
        )
        assert stored_arguments(tmp_path / "x.pt") == {
            "hidden_size": 64,
            "lr": 0.1,
            "split": "9,1",
            "load": None,
        }

    def test_a_hostile_pickle_runs_nothing(self, tmp_path: Path) -> None:
        class Evil:
            def __reduce__(self) -> tuple[object, tuple[str]]:
                return os.mkdir, (str(tmp_path / "owned"),)

        read_pickle(pickle.dumps({"args": Evil()}))
        assert not (tmp_path / "owned").exists()

    @pytest.mark.parametrize(
        "content", [b"", b"\x80", b"(" * 5000, foreign_pickle(1)[:-1], b"cos\nsystem\n(S'x'\ntR."]
    )
    def test_rubbish_does_not_raise(self, content: bytes) -> None:
        try:
            read_pickle(content)
        except ValueError as error:
            assert "cannot be read" in str(error)


class TestPruning:
    def test_the_newest_stay_and_the_rest_is_counted(self, tmp_path: Path) -> None:
        for iteration in (100, 200, 300, 400):
            torch_checkpoint(tmp_path, iteration)
        plan = plan_pruning(tmp_path, 2, frozenset())
        assert [c.iteration for c in plan.remove] == [200, 100]
        assert plan.freed == sum(c.size for c in plan.remove) > 0
        assert prune(plan, "2026-11-30T05:00:00", frozenset()) == plan.remove
        assert [c.iteration for c in checkpoints(tmp_path)] == [400, 300]
        assert "iter_0000200" in (tmp_path / RECORD).read_text()

    def test_a_checkpoint_that_became_needed_after_the_question_stays(self, tmp_path: Path) -> None:
        for iteration in (100, 200, 300, 400):
            torch_checkpoint(tmp_path, iteration)
        plan = plan_pruning(tmp_path, 1, frozenset())
        (tmp_path / TRACKER).write_text("300")  # somebody went back to it
        removed = prune(plan, "now", frozenset({tmp_path / "iter_0000200"}))  # and branched from this one
        assert [c.iteration for c in removed] == [100]
        (tmp_path / TRACKER).unlink()
        assert prune(plan, "now", frozenset()) == ()

    def test_an_interrupted_removal_is_shown_and_finished(self, tmp_path: Path) -> None:
        for iteration in (100, 200):
            torch_checkpoint(tmp_path, iteration)
        (tmp_path / "iter_0000100").rename(tmp_path / ".removing-iter_0000100")
        torch_checkpoint(tmp_path, 100)  # and saved anew
        (tmp_path / TRACKER).write_text("200")
        plan = plan_pruning(tmp_path, 1, frozenset())
        assert [(c.iteration, c.complete) for c in plan.remove] == [(100, True), (100, False)]
        assert plan.remove[1].size > 0
        prune(plan, "now", frozenset())
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["iter_0000200", TRACKER, RECORD])

    def test_a_failed_removal_is_reported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for iteration in (100, 200):
            torch_checkpoint(tmp_path, iteration)

        def read_only(*_: object) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path))

        monkeypatch.setattr(Path, "rename", read_only)  # root, who runs the tests in CI, may write anywhere
        with pytest.raises(UserError, match=r"Read-only file system\. 0 of 1"):
            prune(plan_pruning(tmp_path, 1, frozenset()), "now", frozenset())

    def test_a_branch_in_another_base_is_known_by_its_run(self, tmp_path: Path) -> None:
        workspace, save = Workspace(tmp_path), tmp_path / "base/2026-11-30/01-00-00"
        branch = tmp_path / "elsewhere/2026-11-30/02-00-00"
        for iteration in (100, 200, 300):
            torch_checkpoint(save, iteration)
        branch.mkdir(parents=True)
        make_branch(save, 100, branch)
        run = create_run_folder(workspace.runs, datetime(2026, 11, 30, 2))
        write_json(run.plan_file, RunPlan("train", "demo", save=str(branch), load=str(branch)).as_json())
        linked = needed_by_branches(workspace, [save])
        assert [c.iteration for c in plan_pruning(save, 1, linked).remove] == [200]

    @pytest.mark.parametrize("name", ["base", "base/2026-11-30/01-00-00", "latest"])
    def test_a_branch_that_no_run_knows_is_found_beside_its_origin(self, tmp_path: Path, name: str) -> None:
        save = tmp_path / name
        if name == "latest":
            (tmp_path / "disk/2026-11-30/01-00-00").mkdir(parents=True)
            save.symlink_to("disk/2026-11-30/01-00-00")
        for iteration in (100, 200, 300, 400):
            torch_checkpoint(save, iteration)
        for iteration, base in ((100, base_of(save)), (200, base_of(real(save)))):
            branch = new_save_folder(base, datetime(2026, 11, 30, 2))
            branch.mkdir(parents=True)
            make_branch(save, iteration, branch)
        linked = needed_by_branches(Workspace(tmp_path / "ws"), [save])
        assert [c.iteration for c in plan_pruning(save, 1, linked).remove] == [300]

    def test_a_checkpoint_that_a_text_server_loaded_stays_until_the_server_ends(self, tmp_path: Path) -> None:
        workspace, save = Workspace(tmp_path / "ws"), tmp_path / "save"
        for iteration in (100, 200):
            torch_checkpoint(save, iteration)
        pin = pinned(workspace, save, 100)
        run = create_run_folder(workspace.runs, datetime(2026, 11, 30, 2))
        write_json(run.plan_file, RunPlan("serve", "demo", load=str(pin)).as_json())
        assert needed_by_branches(workspace, [save]) == {save / "iter_0000100"}
        run.write_state(RunState("finished"))
        assert needed_by_branches(workspace, [save]) == frozenset()

    def test_the_checkpoint_that_the_tracker_names_stays(self, tmp_path: Path) -> None:
        for iteration in (100, 200, 300):
            torch_checkpoint(tmp_path, iteration)
        (tmp_path / TRACKER).write_text("100")
        assert [c.iteration for c in plan_pruning(tmp_path, 1, frozenset()).remove] == [200]

    def test_a_checkpoint_that_a_branch_links_to_stays(self, tmp_path: Path) -> None:
        parent, branch = tmp_path / "2026-11-30" / "01-00-00", tmp_path / "2026-11-30" / "02-00-00"
        for iteration in (100, 200, 300):
            torch_checkpoint(parent, iteration)
        branch.mkdir()
        (branch / "iter_0000100").symlink_to(parent / "iter_0000100")
        (branch / TRACKER).write_text("100")
        linked = linked_checkpoints(tmp_path)
        assert [c.iteration for c in plan_pruning(parent, 1, linked).remove] == [200]
        for iteration in (200, 300):
            torch_checkpoint(branch, iteration)
        assert [c.iteration for c in plan_pruning(branch, 1, frozenset()).remove] == [200]  # not its own link

    def test_an_incomplete_newest_does_not_push_out_the_only_good_one(self, tmp_path: Path) -> None:
        torch_checkpoint(tmp_path, 100)
        cut(f"mp_rank_00/{M}", 0.5)(torch_checkpoint(tmp_path, 200))
        assert plan_pruning(tmp_path, 1, frozenset()).remove == ()
        cut(f"mp_rank_00/{M}", 0.5)(torch_checkpoint(tmp_path, 50))
        torch_checkpoint(tmp_path, 300)
        assert [c.iteration for c in plan_pruning(tmp_path, 1, frozenset()).remove] == [100]

    def test_without_a_valid_tracker_nothing_is_touched(self, tmp_path: Path) -> None:
        for iteration in (100, 200, 300):
            torch_checkpoint(tmp_path, iteration)
        (tmp_path / TRACKER).write_bytes(b"")
        assert plan_pruning(tmp_path, 1, frozenset()).remove == ()

    def test_keeping_none_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UserError):
            plan_pruning(tmp_path, 0, frozenset())


def test_a_model_state_with_attributes_is_read() -> None:
    """torch's state_dict is an OrderedDict that carries `_metadata`; pickled so, it once hid the arguments beside it."""

    class State(OrderedDict[str, int]):
        pass

    state = State(w=1)
    state._metadata = {"version": 1}  # type: ignore[attr-defined]
    State.__module__, State.__qualname__ = "collections", "OrderedDict"
    assert read_pickle(foreign_pickle({"model": state, "args": 3}))["args"] == 3
