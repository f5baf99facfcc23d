"""The comparison of runs: which ones are meant, their final figures, their differences, and its exports."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from lineages import run, three_runs
from log_lines import DONE, WORLD, arguments, iteration, iterations

from backends.errors import UserError
from backends.megatron.series import Curve
from backends.megatron.summary import read_log
from backends.runs.comparison_export import export, write_csv
from backends.runs.folder import RunFolder
from backends.runs.picture import Drawn, svg
from backends.runs.side_by_side import Subject, differing_arguments, figures, short_names, subjects
from backends.workspace import Workspace
from tui.cli import cli


@pytest.fixture
def two_logs(tmp_path: Path) -> list[str]:
    """Logs that differ in two arguments and in length."""
    for name, lr, layers, last in (("a.log", "0.0001", "8", 50), ("b.log", "1.0e-4", "4", 30)):
        block = arguments(lr=lr, num_layers=layers, seq_length=128, rank=name)
        (tmp_path / name).write_text(WORLD + block + iterations(1, last) + (DONE if last == 50 else ""))
    return [str(tmp_path / "a.log"), str(tmp_path / "b.log")]


def test_only_what_differs_is_listed_and_numbers_may_be_written_differently(
    two_logs: list[str], tmp_path: Path
):
    found = subjects(Workspace(tmp_path), two_logs)
    rows = differing_arguments(found, [read_log(subject.log) for subject in found])
    assert [(row.name, row.values) for row in rows] == [("num_layers", ("8", "4"))]


def test_values_that_differ_come_before_values_that_only_one_subject_has(tmp_path: Path):
    (tmp_path / "a.log").write_text(WORLD + arguments(alone=1, lr=1, same=2) + iterations(1, 2))
    (tmp_path / "b.log").write_text(WORLD + arguments(lr=2, same=2) + iterations(1, 2))
    found = subjects(Workspace(tmp_path), [str(tmp_path / "a.log"), str(tmp_path / "b.log")])
    rows = differing_arguments(found, [read_log(subject.log) for subject in found])
    assert [row.name for row in rows] == ["lr", "alone"]


def test_a_legend_calls_logs_by_their_files_unless_two_are_called_so():
    logs = ("/x/a.log", "/y/a.log", "/y/train.log")
    found = [Subject(log, Path(log)) for log in logs] + [
        Subject("d/t", Path("/r/output.log"), RunFolder(Path("/r")))
    ]
    assert short_names(found) == ["/x/a.log", "/y/a.log", "train", "d/t"]


def test_a_picture_of_more_curves_than_colours_has_dashes():
    text = svg("loss", [Drawn(str(n), [Curve([1.0, 2.0], [1.0, n], [1.0, n], [1.0, n])]) for n in range(8)])
    strokes = [
        (e.get("stroke"), e.get("stroke-dasharray"))
        for e in ElementTree.fromstring(text).iter()
        if e.tag.endswith("polyline")
    ]
    assert len(set(strokes)) == 8


def test_a_plan_stands_in_for_a_log_that_prints_no_arguments(tmp_path: Path):
    workspace, branch = three_runs(tmp_path)
    found = subjects(workspace, [branch.name, "2026-11-30/09-00-00"])
    rows = differing_arguments(found, [read_log(subject.log) for subject in found])
    assert [(row.name, row.values) for row in rows] == [("lr", ("0.0002", "0.0001"))]
    assert found[0].run == branch


def test_the_final_figures_of_a_log(two_logs: list[str]):
    found = figures(read_log(Path(two_logs[0])))
    assert found["phase"] == "finished" and found["iteration"] == 50
    assert found["lowest loss"] == pytest.approx(2.02) and found["elapsed (s)"] == 49
    assert found["tokens"] == 50 * 32 * 128 and found["validation loss"] is None
    assert figures(read_log(Path(two_logs[1])))["phase"] == "running"


def test_fewer_than_two_are_refused_with_a_remedy(two_logs: list[str], tmp_path: Path):
    for names in ([two_logs[0]], [two_logs[0], two_logs[0]]):
        with pytest.raises(UserError, match="nothing to compare") as refused:
            subjects(Workspace(tmp_path), names)
        assert "mdk-tui compare A B" in refused.value.remedy
    with pytest.raises(UserError, match="Nor is it a log"):
        subjects(Workspace(tmp_path), [two_logs[0], "2026-01-01/00-00-00"])


def test_every_value_is_in_the_table(tmp_path: Path, two_logs: list[str]):
    path = tmp_path / "c.log"
    path.write_text(
        arguments(seq_length=8) + iterations(1, 3) + WORLD + iteration(2, loss=None) + iteration(3)
    )
    workspace = Workspace(tmp_path)
    found = subjects(workspace, [str(path), two_logs[1]])
    text = io.StringIO()
    write_csv(text, found, [read_log(subject.log) for subject in found])
    rows = list(csv.DictReader(io.StringIO(text.getvalue())))
    mine = [row for row in rows if row["run"] == str(path)]
    assert [(row["attempt"], row["iteration"]) for row in mine] == [
        ("1", "1"),
        ("1", "2"),
        ("1", "3"),
        ("2", "2"),
        ("2", "3"),
    ]
    assert [row["lm loss"] for row in mine] == ["3", "2.5", "2.333333", "", "2"]
    assert mine[2]["tokens"] == str(3 * 32 * 8)
    assert float(mine[1]["time"]) - float(mine[0]["time"]) == 1.0
    assert len(rows) == 5 + 30


def test_a_picture_is_an_svg_whatever_the_values_and_names():
    hostile = Drawn("<script>&\"'", [Curve([0.0, 10.0], [1.0, 2.0], [3.0, 2.0], [2.0, 2.0])])
    for drawn in ([hostile], [], [Drawn("one", [Curve([5.0], [7.0], [7.0], [7.0])])]):
        for log in (False, True):
            root = ElementTree.fromstring(svg("loss <b>", drawn, log=log))
            assert root.tag.endswith("svg")
    lines = ElementTree.fromstring(svg("loss", [hostile, hostile])).findall(".//{*}polyline")
    assert len(lines) == 2 and lines[0].get("stroke") != lines[1].get("stroke")
    points = [tuple(map(float, point.split(","))) for point in (lines[0].get("points") or "").split()]
    assert points[0][0] == 76 and points[0][1] > points[1][1], (
        "the lowest of the first bucket, then its highest"
    )


def test_exports_never_overwrite(two_logs: list[str], tmp_path: Path):
    found = subjects(Workspace(tmp_path), two_logs)
    records = [read_log(subject.log) for subject in found]
    paths = [export(kind, tmp_path, found, records, "lm loss") for kind in ("json", "json", "csv", "svg")]
    assert [path.name for path in paths] == ["compare.json", "compare-2.json", "compare.csv", "compare.svg"]
    value = json.loads(paths[0].read_text())
    assert value["arguments"] == [{"name": "num_layers", "values": ["8", "4"]}]
    assert [len(one["curves"][0]["mean"]) for one in value["runs"]] == [50, 30]


def test_the_picture_is_over_iterations_time_or_tokens(two_logs: list[str], tmp_path: Path):
    for x, label in (("iteration", "iteration"), ("time", "time (s)"), ("tokens", "tokens")):
        words = ["-w", str(tmp_path), "compare", *two_logs, "--x", x, "--svg", str(tmp_path / f"{x}.svg")]
        assert CliRunner().invoke(cli, words).exit_code == 0
        root = ElementTree.parse(tmp_path / f"{x}.svg").getroot()
        assert label in [text.text for text in root.findall(".//{*}text")]
        starts = [line.get("points", "").split(",")[0] for line in root.findall(".//{*}polyline")]
        assert len(starts) == 2 and (x != "time" or starts == ["76.0", "76.0"]), "each run begins at 0 s"


def test_the_command_without_a_screen(two_logs: list[str], tmp_path: Path):
    picture = tmp_path / "p.svg"
    result = CliRunner().invoke(
        cli, ["-w", str(tmp_path), "compare", *two_logs, "--json", "--svg", str(picture)]
    )
    assert result.exit_code == 0, result.output
    assert [one["figures"]["iteration"] for one in json.loads(result.output)["runs"]] == [50, 30]
    assert picture.read_text().startswith("<svg")
    rows = CliRunner().invoke(cli, ["-w", str(tmp_path), "compare", *two_logs, "--csv"]).output
    assert rows.count("\n") == 81
    nowhere = CliRunner().invoke(cli, ["-w", str(tmp_path), "compare", *two_logs, "--svg", "/nowhere/x.svg"])
    assert isinstance(nowhere.exception, UserError)
    both = CliRunner().invoke(cli, ["-w", str(tmp_path), "compare", *two_logs, "--csv", "--json"])
    assert isinstance(both.exception, UserError)


def test_a_run_and_its_log_are_one(tmp_path: Path):
    workspace = Workspace(tmp_path)
    one = run(workspace, "2026-11-30/09-00-00", 1, 10)
    with pytest.raises(UserError, match="nothing to compare"):
        subjects(workspace, [one.name, str(one.log)])
