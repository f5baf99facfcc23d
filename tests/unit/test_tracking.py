"""The numbers of a run arrive at a store exactly once, even if the store fails; names, limits, lineage and pictures."""

from __future__ import annotations

import dataclasses
import json
import random
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from fake_store import Failure, FakeStore
from log_lines import arguments, iteration, iterations

from backends.errors import UserError
from backends.files import write_json
from backends.launch import sidecars
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.state import RunState
from backends.settings import MlflowSettings
from backends.telemetry.readings import GpuReading, HostReading, Snapshot
from backends.telemetry.wire import encode
from backends.tracking import place
from backends.tracking.lineage import cut, subject_of_log, subject_of_run
from backends.tracking.mlflow_sidecar import track_run
from backends.tracking.place import Place, is_tracked, tracking_place
from backends.tracking.points import LogPoints, Point, TelemetryPoints, allowed_name
from backends.tracking.sending import Ending, send
from backends.tracking.standing import LAGS, Standing, lag_of, read_standing
from backends.tracking.tracker import Progress, Tracker
from backends.tracking.tracking_file import TrackingFile
from backends.workspace import Workspace
from tui.commands.status import command

ENDED = Ending("FINISHED", 1.8e9)
VALIDATION = " validation loss at iteration 3 | lm loss value: 1.900000E+00 | lm loss PPL: 6.685894E+00 |\n"


def run_of(tmp_path: Path, log: str = "", telemetry: str = "", **plan: object) -> tuple[RunFolder, Workspace]:
    workspace = Workspace(tmp_path)
    folder = RunFolder(workspace.runs / "2026-11-30" / "09-32-59")
    folder.path.mkdir(parents=True, exist_ok=True)
    made = RunPlan(
        "train", "demo", arguments=("--lr", "1e-4"), save=str(tmp_path / "c" / "2026-11-30" / "09-32-59")
    )
    write_json(folder.plan_file, dataclasses.replace(made, **plan).as_json())  # pyright: ignore[reportArgumentType]
    folder.command.write_text("#!/bin/sh\n")
    folder.log.write_text(log)
    folder.telemetry.write_text(telemetry)
    return folder, workspace


def sent(folder: RunFolder, workspace: Workspace, store: FakeStore, patience: float = 1e9) -> bool:
    tracker = Tracker(subject_of_run(folder, workspace), store)
    return send(tracker, lambda: ENDED, Soon(), lambda progress: None, patience=patience)


def test_status_tells_how_much_mlflow_has_and_reports_problems(tmp_path: Path) -> None:
    folder, workspace = run_of(tmp_path, iterations(1, 3))
    assert read_standing(folder) is None and lag_of(None, over=False) is None
    here = Place("http://mlflow:5000", "tests")
    file = TrackingFile(folder, here)

    def standing(progress: Progress, **more: bool) -> Standing:
        file.write(progress, **more)
        found = read_standing(folder)
        assert found is not None
        return found

    well = standing(Progress("r", 12, 3))
    assert well.words() == "12 points sent, 3 wait (http://mlflow:5000)" and lag_of(well, over=False) is None
    assert lag_of(dataclasses.replace(well, waiting=LAGS), over=False) == (
        "MLflow lags: 1,000 points wait.",
        "The run does not wait for it.",
    )
    away = standing(Progress("r", 12, 40, "connection\x1b[1m refused"))
    assert "40 wait; away: connection refused" in away.words()
    assert "is away: 40 points wait (connection refused)" in (lag_of(away, over=False) or ("",))[0]
    assert "mdk-tui track" in (lag_of(away, over=True) or ("", ""))[1]
    told = status(workspace, folder)
    assert json.loads(status(workspace, folder, "--json"))["tracking"]["waiting"] == 40
    assert "mlflow    12 points sent, 40 wait; away: connection refused" in told
    done = standing(Progress("r", 52, 0), complete=True)
    assert done.words() == "has everything (http://mlflow:5000)" and lag_of(done, over=True) is None


def test_damaged_fields_of_a_tracking_file_are_ignored(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path)
    write_json(folder.tracking, {"address": "x", "run_id": 5, "sent": "many", "waiting": None, "trouble": []})
    assert read_standing(folder) == Standing("x", None, 0, 0, False, None)
    write_json(folder.tracking, {"run_id": "r"})
    assert read_standing(folder) is None


def status(workspace: Workspace, folder: RunFolder, *options: str) -> str:
    return CliRunner().invoke(command, [folder.name, *options], obj=workspace).output


class Soon(threading.Event):
    """Waits for nothing: pauses are over at once."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


def points_of(log: str, *keys: str) -> list[Point]:
    points = LogPoints(0.0)
    rows = [*points.feed(log.encode()), *points.finish()]
    return [p for row in rows for p in row.points if not keys or p.key in keys]


# Points.


def test_every_number_of_a_line_is_a_point_with_the_time_of_the_line():
    points = points_of(iteration(7, loss=2.5, time="2026-11-30 09:00:00"))
    assert {p.key: p.value for p in points}.items() >= {
        "lm loss": 2.5,
        "elapsed time per iteration ms": 1000.0,
        "learning rate": 1e-4,
        "grad norm": 1.5,
        "number of skipped iterations": 0.0,
        "number of nan iterations": 0.0,
    }.items()
    assert {(p.step, p.time) for p in points} == {(7, 1796029200000)}


def test_evaluations_and_memory_are_points():
    memory = "[Rank 3] (after 3 iterations) memory (MB) | allocated: 100.0 | max allocated: 200.0 | reserved: 1.0 | max reserved: 300.0\n"
    points = {p.key: p for p in points_of(iterations(1, 3) + VALIDATION + memory)}
    assert (points["validation lm loss value"].value, points["validation lm loss value"].step) == (1.9, 3)
    assert points["memory/rank 3/max allocated MiB"].value == 200.0


def test_without_time_stamps_times_follow_from_iteration_times():
    bare = "".join(line.partition("]")[2] for line in iterations(1, 3).splitlines(keepends=True))
    assert [p.time for p in points_of(bare, "lm loss")] == [1000, 2000, 3000]


def test_pieces_of_a_log_give_the_same_points():
    log = (iterations(1, 50) + VALIDATION + iterations(51, 60)).encode()
    whole = points_of(log.decode())
    for size in (7, 100, 999):
        points = LogPoints(0.0)
        rows = [row for start in range(0, len(log), size) for row in points.feed(log[start : start + size])]
        assert [p for row in [*rows, *points.finish()] for p in row.points] == whole


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("throughput per GPU (TFLOP/s/GPU)", "throughput per GPU TFLOP/s/GPU"),
        ("lm loss", "lm loss"),
        ("../../etc", "etc"),
        ("a//b/./c", "a/b/c"),
        ("!?", "unnamed"),
        ("x" * 999, "x" * 250),
    ],
)
def test_names_are_changed_to_what_mlflow_allows(name: str, wanted: str):
    assert allowed_name(name) == wanted


def snapshot(moment: float, host: str = "node1") -> str:
    gpu = GpuReading(0, memory_used=2**30, memory_total=2**31, utilization=97.0, power=None)
    return json.dumps(encode(Snapshot(moment, HostReading(host, cpu_percent=12.5), (gpu,)))) + "\n"


def test_readings_are_thinned_and_named_as_mlflow_shows_them():
    lines = "".join(snapshot(1000.0 + 5 * i) for i in range(13)) + snapshot(1001.0, "node2") + "{half"
    rows = TelemetryPoints().feed(lines.encode())
    assert [row.line for row in rows] == [1, 7, 13, 14]
    first = {p.key: p.value for p in rows[0].points}
    assert first["system/gpu_0_utilization_percentage"] == 97.0
    assert first["system/gpu_0_memory_usage_percentage"] == 50.0
    assert "system/gpu_0_power_usage_watts" not in first  # not said is not 0
    assert all(p.key.startswith("system/node2/") for p in rows[3].points)


# Sending.


def test_a_whole_run_arrives(tmp_path: Path):
    log = arguments(lr=0.0001, seq_length=2048, blob="x" * 600) + iterations(1, 500) + VALIDATION
    folder, workspace = run_of(tmp_path, log, snapshot(1000.0))
    store = FakeStore()
    assert sent(folder, workspace, store)
    assert [p for p in store.points if not p.key.startswith("system/")] == points_of(log)
    assert any(p.key == "system/cpu_utilization_percentage" for p in store.points)
    assert 900 < store.largest <= 1000
    assert store.values["seq_length"] == "2048"
    assert len(store.values["blob"]) == 500 and store.tags["mdk.cut"] == "blob"
    assert store.values["plan.arguments"] == "--lr 1e-4"
    assert set(store.files) == {"plan.json", "command.sh", "loss.svg"}
    assert (store.told, store.ended) == (["RUNNING", "FINISHED"], 1.8e9)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("patience", "share"), [(0.0, 0.05), (1e9, 0.4)])
def test_no_point_is_lost_or_sent_twice_when_calls_fail(
    tmp_path: Path, seed: int, patience: float, share: float
):
    again = "".join(iteration(n, time=f"2026-11-30 12:{n // 60:02d}:{n % 60:02d}") for n in range(201, 401))
    log = arguments(lr=1) + iterations(1, 300) + VALIDATION + again
    folder, workspace = run_of(tmp_path, log, "".join(snapshot(1000.0 + 30 * i) for i in range(200)))
    chance = random.Random(seed)
    ways: tuple[Failure, ...] = ("away", "unheard", "half")
    store = FakeStore(lambda call: chance.choice(ways) if chance.random() < share else "")
    while not sent(folder, workspace, store, patience):  # a new program each time the old one gave up
        pass
    wanted = points_of(log) + [
        p for row in TelemetryPoints().feed(folder.telemetry.read_bytes()) for p in row.points
    ]
    assert sorted(map(dataclasses.astuple, store.points)) == sorted(map(dataclasses.astuple, wanted))
    assert len(store.runs) == 1


def test_a_log_that_grows_is_followed_to_its_end(tmp_path: Path):
    folder, workspace = run_of(tmp_path)
    store = FakeStore()
    parts = [iterations(n, n + 9) for n in range(1, 100, 10)]
    endings: list[Ending | None] = []

    def ended() -> Ending | None:
        if parts:
            with folder.log.open("a") as file:
                file.write(parts.pop(0))
        endings.append(None if parts else ENDED)
        return endings[-1]

    tracker = Tracker(subject_of_run(folder, workspace), store)
    assert send(tracker, ended, Soon(), lambda progress: None, patience=1.0)
    assert store.points == points_of(folder.log.read_text())


def test_the_sender_gives_up_only_after_the_end_of_the_run(tmp_path: Path):
    folder, workspace = run_of(tmp_path, iterations(1, 5))
    now = iter(range(1000))
    troubles: list[str | None] = []
    tracker = Tracker(subject_of_run(folder, workspace), FakeStore(lambda call: "away"))
    endings = iter([None] * 50 + [ENDED] * 100)
    assert not send(
        tracker,
        lambda: next(endings),
        Soon(),
        lambda p: troubles.append(p.trouble),
        patience=20.0,
        clock=lambda: next(now),
    )
    assert troubles == ["away"] * 71


def test_only_the_refused_metric_is_missing(tmp_path: Path):
    folder, workspace = run_of(tmp_path, iterations(1, 5))
    store = FakeStore(refuses="grad norm")
    assert sent(folder, workspace, store)
    assert {p.key for p in store.points} == {p.key for p in points_of(iterations(1, 5))} - {"grad norm"}
    assert store.tags["mdk.refused"] == "grad norm"


def test_tracking_json_counts_what_was_sent(tmp_path: Path):
    folder, workspace = run_of(tmp_path, iterations(1, 5))
    server = Place("http://user:secret@server:5000", "Megatron-LM")
    stopped = threading.Event()
    assert track_run(folder, workspace, server, FakeStore(), stopped, patience=0.0, ended=lambda: ENDED)
    written = json.loads(folder.tracking.read_text())
    assert written["complete"] and written["address"] == "http://server:5000"
    assert written["sent"] == len(points_of(iterations(1, 5)))
    assert "secret" not in folder.tracking.read_text()


# Lineage.


def test_a_resumed_run_is_the_same_mlflow_run_and_a_branch_is_its_child(tmp_path: Path):
    folder, workspace = run_of(tmp_path)
    first = subject_of_run(folder, workspace).wanted
    plan = folder.plan()
    again = RunFolder(folder.path.with_name("10-00-00"))
    again.path.mkdir()
    write_json(again.plan_file, dataclasses.replace(plan, parent=folder.name, load=plan.save).as_json())
    continued = subject_of_run(again, workspace)
    assert (continued.wanted.lineage, continued.wanted.name) == (first.lineage, "2026-11-30/09-32-59")
    assert continued.wanted.parent_lineage is None
    assert continued.name == "2026-11-30/10-00-00"
    branch = str(tmp_path / "c" / "2026-11-30" / "11-00-00")
    write_json(
        again.plan_file, dataclasses.replace(plan, parent=folder.name, load=branch, save=branch).as_json()
    )
    branched = subject_of_run(again, workspace).wanted
    assert branched.lineage != first.lineage
    assert branched.parent_lineage == first.lineage


def test_an_argument_that_a_later_attempt_changes_becomes_a_tag(tmp_path: Path):
    folder, workspace = run_of(tmp_path, arguments(lr=1) + iterations(1, 3))
    store = FakeStore()
    assert sent(folder, workspace, store)
    folder.log.write_text(arguments(lr=2) + iterations(4, 6))
    again = RunFolder(folder.path.rename(folder.path.with_name("10-00-00")))
    assert sent(again, workspace, store)
    assert store.values["lr"] == "1"
    assert store.tags["mdk.changed.2026-11-30/10-00-00"] == "lr: 1 → 2"
    assert [p.step for p in store.points if p.key == "lm loss"] == [1, 2, 3, 4, 5, 6]


def test_a_text_server_is_not_tracked(tmp_path: Path):
    folder, workspace = run_of(tmp_path, kind="serve")
    with pytest.raises(UserError, match="text server"):
        subject_of_run(folder, workspace)


def test_any_log_can_be_sent_and_sent_again(logs: Path):
    store = FakeStore()
    for _ in range(2):
        tracker = Tracker(subject_of_log(logs / "h200-core_r0.8.0-train.log"), store)
        assert send(tracker, lambda: Ending("FINISHED"), Soon(), lambda progress: None, patience=0.0)
    log = (logs / "h200-core_r0.8.0-train.log").read_text(errors="surrogateescape")
    assert len(store.points) == len(points_of(log)) > 20
    assert len(store.values) > 100
    assert store.ended == max(p.time for p in store.points) / 1000


def test_values_are_cut_as_the_patched_trainer_cuts_them():
    assert cut({"a b(c)": "v" * 501}) == {"a bc": "v" * 500}


# Where.


def test_the_environment_overrides_the_settings(tmp_path: Path):
    workspace = Workspace(tmp_path)
    own = tracking_place(MlflowSettings(), workspace, {})
    assert own.uri == f"sqlite:///{tmp_path}/outputs/mlflow.db"
    assert own.artifacts == (tmp_path / "outputs" / "mlartifacts").as_uri()
    settings = MlflowSettings(tracking_uri="http://a", experiment="one")
    assert tracking_place(settings, workspace, {}) == Place("http://a", "one")
    environment = {"MLFLOW_TRACKING_URI": "http://b", "MLFLOW_EXPERIMENT_NAME": "two"}
    assert tracking_place(settings, workspace, environment) == Place("http://b", "two")


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("mlruns", "{root}/mlruns"),
        ("sqlite:///runs.db", "sqlite:///{root}/runs.db"),
        ("sqlite:////data/runs.db", "sqlite:////data/runs.db"),
        ("postgresql+psycopg2://host/db", "postgresql+psycopg2://host/db"),
        ("file:/data/mlruns", "file:/data/mlruns"),
        ("databricks", "databricks"),
        ("/data/mlruns", "/data/mlruns"),
    ],
)
def test_a_relative_path_begins_at_the_workspace(tmp_path: Path, uri: str, wanted: str):
    found = tracking_place(MlflowSettings(), Workspace(tmp_path), {"MLFLOW_TRACKING_URI": uri})
    assert found.uri == wanted.format(root=tmp_path)


def test_tracking_can_be_switched_off():
    assert not is_tracked(MlflowSettings(enabled=False), {})
    assert not is_tracked(MlflowSettings(), {"MDK_MLFLOW": "0"})


# The picture.


def test_the_picture_has_a_line_for_each_attempt(tmp_path: Path):
    folder, workspace = run_of(tmp_path, iterations(1, 3000) + iterations(2001, 4000))
    store = FakeStore()
    assert sent(folder, workspace, store)
    root = ElementTree.fromstring(store.files["loss.svg"])
    lines = [child for child in root if child.tag.endswith("polyline")]
    assert len(lines) == 2
    assert any(child.text == "2026-11-30/09-32-59" for child in root)


def test_a_log_without_a_loss_has_no_picture(tmp_path: Path):
    folder, workspace = run_of(tmp_path, "nothing\n")
    store = FakeStore()
    assert sent(folder, workspace, store)
    assert "loss.svg" not in store.files


# The companion.


@pytest.mark.parametrize(
    ("kind", "settings", "environment", "wanted"),
    [
        ("train", "", {"MDK_MLFLOW": ""}, ["backends.tracking.mlflow_sidecar"]),
        ("train", "[mlflow]\nenabled = false\n", {"MDK_MLFLOW": ""}, []),
        ("train", "", {"MDK_MLFLOW": "0"}, []),
        ("serve", "", {"MDK_MLFLOW": ""}, []),
    ],
)
def test_every_training_run_has_a_companion_unless_tracking_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, settings: str, environment: dict[str, str], wanted: list[str]
):  # fmt: skip
    folder, workspace = run_of(tmp_path, kind=kind)
    workspace.settings.write_text(settings)
    begun: list[str] = []

    class Begun:
        def __init__(self, module: str, *others: object) -> None:
            begun.append(module)

        def close(self, final: RunState) -> None:
            pass

    monkeypatch.setattr(sidecars, "companion", Begun)
    monkeypatch.setattr(place, "has_mlflow", lambda: True)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made = sidecars.sidecars_of(folder, folder.plan(), workspace, RunState(), print)
    for sidecar in made:
        sidecar.close(RunState())
    assert begun == wanted
