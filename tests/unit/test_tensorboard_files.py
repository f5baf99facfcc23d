"""TensorBoard's event files are read natively: what its own writer wrote, and what is left of a damaged one."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from event_file_text import event, file_of, record, simple, tensor, text
from hypothesis import given
from hypothesis import strategies as st

from backends.tracking.crc32c import crc32c
from backends.tracking.event_files import EventReader, Torn
from backends.tracking.event_protobuf import Malformed, decode_event

STEPS = (0, 1, 127, 128, 16383, 16384, 2**31, 2**62, -1, -5)


def read(data: bytes, verify: bool = False) -> EventReader:
    reader = EventReader(verify)
    reader.feed(data)
    reader.finish()
    return reader


def points(reader: EventReader) -> dict[str, list[tuple[int, float, float]]]:
    return {
        tag: list(zip(found.steps, found.times, found.values, strict=True))
        for tag, found in reader.scalars.items()
    }


def test_the_checksum_is_castagnolis():
    assert crc32c(b"123456789") == 0xE3069283  # the check value of the CRC catalogue


def test_every_step_and_both_kinds_of_scalars():
    messages = [make(step, f"{kind} {step % 3}", step) for kind, make in KINDS.items() for step in STEPS]
    found = points(read(file_of(messages)))
    for kind in KINDS:
        rows = [row for tag, rows in found.items() if tag.startswith(kind) for row in rows]
        assert sorted(step for step, _, _ in rows) == sorted(STEPS)
        assert all(
            time == 2.5 and value == struct.unpack("<f", struct.pack("<f", step))[0]
            for step, time, value in rows
        )


KINDS = {
    "simple": lambda step, tag, value: event(step, 2.5, simple(tag, value)),
    "tensor": lambda step, tag, value: event(step, 2.5, tensor(tag, value)),
    "content": lambda step, tag, value: event(step, 2.5, tensor(tag, value, content=True)),
    "long": lambda step, tag, value: event(step, 2.5, simple(tag + "x" * 300, value)),
    "two": lambda step, tag, value: event(step, 2.5, simple(tag, value), text("note", "hello")),
}


def test_what_tensorboards_own_writer_writes(tmp_path: Path):
    writer_module = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    protos = pytest.importorskip("tensorboard.compat.proto.summary_pb2")
    events = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    writer = writer_module.EventFileWriter(str(tmp_path))
    for step in range(300):
        value = protos.Summary.Value(tag="lm loss", simple_value=step / 3)
        writer.add_event(
            events.Event(wall_time=100.0 + step, step=step, summary=protos.Summary(value=[value]))
        )
    writer.close()
    (path,) = tmp_path.iterdir()
    reader = read(path.read_bytes(), verify=True)
    assert reader.torn == []
    assert list(reader.scalars["lm loss"].steps) == list(range(300))
    assert reader.scalars["lm loss"].values[299] == pytest.approx(299 / 3)
    assert points(read(path.read_bytes())) == points(reader)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.sampled_from(sorted(KINDS)), st.floats(width=32, allow_nan=False)), max_size=30),
       st.integers(1, 60))  # fmt: skip
def test_reading_in_pieces_gives_the_same_as_decoding_each_record(
    rows: list[tuple[int, str, float]], size: int
):
    messages = [KINDS[kind](step, kind, value) for step, kind, value in rows]
    data = file_of(messages)
    reader = EventReader()
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
    reader.finish()
    wanted: dict[str, list[tuple[int, float, float]]] = {}
    for message in messages:
        decoded = decode_event(message)
        for value in decoded.values:
            if isinstance(value.value, float):
                wanted.setdefault(value.tag, []).append((decoded.step, decoded.time, value.value))
    assert points(reader) == wanted
    assert reader.torn == []


def losses(count: int, first: int = 1) -> list[bytes]:
    return [event(step, 10.0 + step, simple("lm loss", step)) for step in range(first, first + count)]


def test_a_record_cut_at_the_end_is_reported():
    data = file_of(losses(5))
    reader = read(data[:-7])
    assert list(reader.scalars["lm loss"].steps) == [1, 2, 3, 4]
    (torn,) = reader.torn
    assert torn.offset + torn.length == len(data) - 7


def test_half_a_record_waits_for_its_other_half():
    data = file_of(losses(5))
    reader = EventReader()
    reader.feed(data[:-7])
    assert reader.torn == []
    reader.feed(data[-7:])
    assert list(reader.scalars["lm loss"].steps) == [1, 2, 3, 4, 5]


def test_only_the_record_torn_in_the_middle_is_lost():
    half = record(losses(1, first=3)[0])[:-20]  # a full disk, then room again
    data = file_of(losses(2)) + half + b"".join(map(record, losses(10, first=4)))
    reader = read(data)
    assert list(reader.scalars["lm loss"].steps) == [1, 2, *range(4, 14)]
    assert reader.torn == [Torn(len(file_of(losses(2))), len(half))]


def test_garbage_between_records_is_skipped():
    rubbish = b"\0" * 50 + b"\xff" * 50
    data = file_of(losses(3)) + rubbish + b"".join(map(record, losses(3, first=4)))
    reader = read(data)
    assert list(reader.scalars["lm loss"].steps) == [1, 2, 3, 4, 5, 6]
    assert sum(torn.length for torn in reader.torn) == len(rubbish)


def test_checksums_are_checked_when_asked():
    data = bytearray(file_of(losses(3)))
    data[-6] ^= 1  # a byte of the last number
    assert list(read(bytes(data)).scalars["lm loss"].steps) == [1, 2, 3]
    checked = read(bytes(data), verify=True)
    assert list(checked.scalars["lm loss"].steps) == [1, 2]
    assert len(checked.torn) == 1


@given(st.binary(max_size=400))
def test_no_bytes_raise_an_error(data: bytes):
    assert sum(torn.length for torn in read(data).torn) == len(data)
    for message in (data, b"\x09" + data):
        try:
            decode_event(message)
        except Malformed:
            pass


@given(st.integers(0, 2000), st.integers(0, 255))
def test_a_damaged_byte_costs_two_records_at_most(place: int, byte: int):
    data = bytearray(file_of(losses(30)))
    data[place % len(data)] = byte
    found = read(bytes(data)).scalars["lm loss"]
    assert len(found) >= 28


def test_nan_and_infinite_numbers():
    reader = read(
        file_of(
            [
                event(1, 1.0, simple("a", math.nan)),
                event(2, 1.0, simple("a", math.inf)),
                event(3, 1.0, simple("a", 1.0)),
            ]
        )
    )
    values = reader.scalars["a"].values
    assert math.isnan(values[0]) and values[1] == math.inf and values[2] == 1.0


def test_texts():
    reader = read(file_of([event(0, 1.0, text("seq_length", "2048"))]))
    assert [(t.tag, t.text) for t in reader.texts] == [("seq_length/text_summary", "2048")]
