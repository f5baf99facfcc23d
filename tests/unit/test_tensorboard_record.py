"""A run without its log: the record of its event files equals that of the log, for everything that TensorBoard gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from event_file_text import event, file_of, record, simple, text

from backends.errors import UserError
from backends.megatron.record import ITERATION_MS, Record
from backends.tracking.event_files import EventReader
from backends.tracking.event_follower import EventFollower
from backends.tracking.event_paths import event_files
from backends.tracking.event_record import Translation
from tui.commands.watch import readable_log

BATCH = 256


def iteration(step: int, *, interval: int = 10, loss: float | None = None) -> list[bytes]:
    """What core_r0.8.0 writes at one iteration, with --log-timers-to-tensorboard and --tensorboard-log-interval 1."""
    time = 1.7e9 + step
    loss = 10 / step if loss is None else loss
    rows = [("learning-rate", 1e-4), ("batch-size", BATCH), ("lm loss", loss), ("grad-norm", 1.5)]
    messages = [
        message
        for tag, value in rows
        for message in (
            event(step, time, simple(tag, value)),
            event(step * BATCH, time, simple(f"{tag} vs samples", value)),
        )
    ]
    if step % interval == 0:
        messages += [
            event(step, time, simple("iteration-time", 0.25)),
            event(step, time, simple("throughput", 400.0)),
        ]
    return messages


def arguments() -> list[bytes]:
    return [
        event(0, 1.7e9, text(name, value)) for name, value in (("seq_length", "2048"), ("train_iters", "500"))
    ]


def record_of(data: bytes, size: int = 10**9) -> Record:
    reader, translation, found = EventReader(), Translation(), Record()
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        found.apply(translation.add(*reader.take()))
    found.apply(translation.settle())
    return found


def run(first: int, last: int) -> list[bytes]:
    return [message for step in range(first, last + 1) for message in iteration(step)]


def test_the_numbers_have_their_names_in_the_log():
    found = record_of(file_of([*arguments(), *run(1, 100)]))
    assert found.iteration == 100
    assert found.last["lm loss"] == 0.10000000149011612
    assert found.last["learning rate"] != 0
    assert found.last["consumed samples"] == 100 * BATCH
    assert found.last[ITERATION_MS] == 250.0
    assert found.last["throughput per GPU (TFLOP/s/GPU)"] == 400.0
    assert found.tokens == 100 * BATCH * 2048
    assert found.tokens_per_second == BATCH * 2048 / 0.25
    assert found.value_at("lm loss", 50) == 0.20000000298023224
    assert not any("samples" in name and name != "consumed samples" for name in found.metrics())


def test_pieces_of_any_size_give_the_same_curves():
    data = file_of([*arguments(), *run(1, 60)])
    whole = record_of(data)
    for size in (97, 1000, 5000):
        pieces = record_of(data, size)
        assert [s.first for s in pieces.segments] == [1]
        for name in whole.metrics():
            assert pieces.curves(name) == whole.curves(name), (size, name)
    assert whole.curves("lm loss", x="time")[0].xs[:2] == [1.7e9 + 1, 1.7e9 + 2]


def test_an_attempt_that_goes_back_in_the_same_file_is_another_segment():
    found = record_of(
        file_of([*run(1, 30), *[m.replace(b"\0", b"\0") for s in range(21, 41) for m in later(s)]])
    )
    assert [(s.first, s.last) for s in found.segments] == [(1, 30), (21, 40)]


def later(step: int) -> list[bytes]:
    return [event(step, 1.7e9 + 1000 + step, simple("lm loss", 1.0))]


def test_evaluations():
    told = [
        event(10, 5.0, simple("lm loss validation", 3.5)),
        event(10, 5.0, simple("lm loss validation ppl", 33.1)),
    ]
    found = record_of(file_of([*run(1, 10), *told, *run(11, 20)]))
    (result,) = found.validations
    assert result.iteration == 10
    assert set(result.values) == {"lm loss value", "lm loss PPL"}
    assert "lm loss validation" not in found.metrics()


def test_a_loss_that_is_nan_is_an_alert():
    bad = [
        event(11, 12.0, simple("lm loss", float("nan"))),
        event(11, 12.0, simple("grad-norm", float("nan"))),
    ]
    found = record_of(file_of([*run(1, 10), *bad]))
    assert [alert.kind for alert in found.alerts] == ["nan-loss"]


def folder_of(tmp_path: Path) -> Path:
    folder = tmp_path / "tensorboard"
    folder.mkdir()
    (folder / "events.out.tfevents.1700000000.node.1.0").write_bytes(
        file_of([*arguments(), *run(1, 30)])[:-9]
    )
    (folder / "events.out.tfevents.1700009999.node.2.0").write_bytes(file_of(run(21, 40)))
    return folder


def test_a_folder_is_read_file_by_file_and_followed(tmp_path: Path):
    folder = folder_of(tmp_path)
    newest = folder / "events.out.tfevents.1700009999.node.2.0"
    follower = EventFollower(folder)
    lines: list[str] = []
    for update in follower.updates():
        lines += [line.text for line in update.lines]
        if update.caught_up and update.record.iteration == 40:
            with newest.open("ab") as file:
                file.write(b"".join(map(record, run(41, 50))))
        if update.record.iteration == 50:
            follower.close()
    found = follower.record
    assert [(s.first, s.last) for s in found.segments] == [(1, 30), (21, 50)]
    assert found.train_iters is None  # the second file does not say
    assert lines[0] == "event file events.out.tfevents.1700000000.node.1.0"
    assert "seq_length 2048" in lines
    assert any("not a whole record" in line for line in lines)


def test_a_new_file_is_followed(tmp_path: Path):
    folder = folder_of(tmp_path)
    follower = EventFollower(folder)
    for update in follower.updates():
        if update.caught_up and update.record.iteration == 40:
            (folder / "events.out.tfevents.1700019999.node.3.0").write_bytes(file_of(run(41, 45)))
        if update.record.iteration == 45:
            break
    assert follower.path.name.endswith("3.0")


def test_the_newest_of_several_runs_is_shown(tmp_path: Path):
    for name, moment in (("b", 1), ("a", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"events.out.tfevents.{moment}.node").write_bytes(b"")
    assert [path.parent.name for path in event_files(tmp_path)] == ["a"]
    assert event_files(tmp_path / "b") == [tmp_path / "b" / "events.out.tfevents.1.node"]


def test_watch_takes_event_files_and_their_folder_but_no_other_folder(tmp_path: Path):
    folder = folder_of(tmp_path)
    assert readable_log(folder) == folder
    assert readable_log(next(folder.iterdir())).parent == folder
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        readable_log(tmp_path / "empty")
