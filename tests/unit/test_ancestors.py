"""The ancestors of a run: how they are found, what their logs hold, and how they are plotted as one curve."""

from __future__ import annotations

from pathlib import Path

from lineages import run, three_runs

from backends.files import write_json
from backends.megatron.summary import read_log
from backends.runs.ancestors import ancestors, chapters
from backends.runs.file_writers import written_here
from tui.screens.monitor_curves import RunCurves


def test_a_run_knows_what_it_continues_and_what_it_branched_from(tmp_path: Path):
    workspace, branch = three_runs(tmp_path)
    assert [(a.folder.name, a.child) for a in ancestors(workspace, branch)] == [
        ("2026-11-30/09-00-00", "restart"),
        ("2026-11-30/10-00-00", "branch"),
    ]


def test_a_circle_and_a_lost_parent_end_the_line(tmp_path: Path):
    workspace, branch = three_runs(tmp_path)
    oldest = workspace.runs / "2026-11-30/09-00-00"
    plan = branch.plan().as_json()
    write_json(oldest / "plan.json", {**plan, "parent": branch.name, "save": "ck/a"})
    assert len(ancestors(workspace, branch)) == 2
    (workspace.runs / "2026-11-30/10-00-00/plan.json").unlink()
    assert [a.folder.name for a in ancestors(workspace, branch)] == ["2026-11-30/10-00-00"]
    outside = run(workspace, "2026-11-30/12-00-00", 1, 5, parent="../../elsewhere")
    assert ancestors(workspace, outside) == []


def test_the_curves_of_a_lineage_are_one_and_what_overlaps_is_kept(tmp_path: Path):
    workspace, branch = three_runs(tmp_path)
    curves = RunCurves(read_log(branch.log))
    curves.past = tuple(chapters(workspace, branch))
    lines = curves("lm loss", "iteration", None, None, 500)
    assert [(line.xs[0], line.xs[-1], line.style) for line in lines] == [
        (1, 100, "past"), (81, 150, "past"), (121, 200, "curve")
    ]  # fmt: skip
    marks = {(mark.kind, mark.x) for mark in curves.marks("lm loss", "iteration")}
    assert {("restart", 81.0), ("branch", 121.0)} <= marks


def test_a_log_that_is_gone_leaves_the_others(tmp_path: Path):
    workspace, branch = three_runs(tmp_path)
    (workspace.runs / "2026-11-30/09-00-00/output.log").unlink()
    assert [chapter.name for chapter in chapters(workspace, branch)] == ["2026-11-30/10-00-00"]


def test_whether_a_file_is_written_here(tmp_path: Path):
    path = tmp_path / "train.log"
    path.write_text("words\n")
    with path.open("rb"):
        assert not written_here(path)
    with path.open("ab"):
        assert written_here(path)
    assert not written_here(tmp_path / "none.log")


def test_evaluations_are_curves_too(logs: Path):
    curves = RunCurves(read_log(logs / "h200-core_r0.8.0-train.log"))
    assert {"lm loss of validation", "lm loss of test"} <= set(curves.metrics())
    (line,) = curves("lm loss of validation", "iteration", None, None, 100)
    assert (
        list(line.xs) == [100, 200] and line.means[-1] == curves.newest("lm loss of validation") == 4.844343
    )
    (line,) = curves("lm loss of validation", "tokens", 2e6, 4e6, 100)
    assert list(line.xs) == [200 * 32 * 512]
    (line,) = curves("lm loss of nothing", "iteration", None, None, 100)
    assert list(line.xs) == []
