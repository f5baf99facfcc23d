"""Decodes TensorBoard's `Event` message as far as scalars and texts need it.

Field numbers are those of tensorboard's event.proto, summary.proto and tensor.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

# Event
WALL_TIME, STEP, SUMMARY = 1, 2, 5
# Summary, Summary.Value
VALUE = 1
TAG, SIMPLE_VALUE, TENSOR = 1, 2, 8
# TensorProto
DTYPE, CONTENT = 1, 4
FLOAT, DOUBLE, INT32, STRING, INT64 = 1, 2, 3, 7, 9  # data types
# data type -> (field with the values, how one value is written there and in `tensor_content`)
NUMBERS: dict[int, tuple[int, str]] = {
    FLOAT: (5, "<f"),
    DOUBLE: (6, "<d"),
    INT32: (7, "<i"),
    INT64: (10, "<q"),
}
TEXTS = 8  # the field with strings


class Malformed(ValueError):
    """The bytes are not a protobuf message."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field with its number, wire type and place in the message; `value` is that of a varint."""

    number: int
    wire: int
    start: int
    stop: int
    value: int = 0


@dataclass(frozen=True, slots=True)
class TaggedValue:
    """`value`: a number or a text. `offset`: of its four bytes, if it is a 32-bit float."""

    tag: str
    value: float | str
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class DecodedEvent:
    """`time`: s since the epoch. Offsets of values count from the start of the message."""

    time: float
    step: int
    values: tuple[TaggedValue, ...]


def decode_event(data: bytes) -> DecodedEvent:
    """Raises Malformed."""
    time, step, values = 0.0, 0, list[TaggedValue]()
    for field in _fields(data, 0, len(data)):
        if field.number == WALL_TIME and field.wire == 1:
            (time,) = struct.unpack_from("<d", data, field.start)
        elif field.number == STEP and field.wire == 0:
            step = _signed(field.value)
        elif field.number == SUMMARY and field.wire == 2:
            for value in _fields(data, field.start, field.stop):
                if value.number == VALUE and value.wire == 2:
                    values += _value(data, value.start, value.stop)
    return DecodedEvent(time, step, tuple(values))


def varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """(the number at `position`, where it ends). Raises Malformed."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise Malformed("a number without an end")


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >> 63 else value


def _fields(data: bytes, position: int, end: int) -> Iterator[Field]:
    while position < end:
        key, position = varint(data, position, end)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, stop = varint(data, position, end)
            yield Field(number, wire, position, stop, value)
        elif wire in (1, 5):
            stop = position + (8 if wire == 1 else 4)
            if stop <= end:
                yield Field(number, wire, position, stop)
        elif wire == 2:
            length, position = varint(data, position, end)
            stop = position + length
            if stop <= end:
                yield Field(number, wire, position, stop)
        else:
            raise Malformed(f"wire type {wire}")
        if stop > end or not number:
            raise Malformed("a field beyond its message")
        position = stop


def _value(data: bytes, start: int, stop: int) -> list[TaggedValue]:
    """The value of a `Summary.Value`, or nothing for histograms, images and tensors of several numbers."""
    tag = ""
    found: tuple[float | str, int | None] | None = None
    for field in _fields(data, start, stop):
        if field.number == TAG and field.wire == 2:
            tag = data[field.start : field.stop].decode("utf-8", "replace")
        elif field.number == SIMPLE_VALUE and field.wire == 5:
            found = struct.unpack_from("<f", data, field.start)[0], field.start
        elif field.number == TENSOR and field.wire == 2:
            found = _tensor(data, field.start, field.stop)
    return [TaggedValue(tag, *found)] if found else []


def _tensor(data: bytes, start: int, stop: int) -> tuple[float | str, int | None] | None:
    """(number or text, offset of its four bytes) of a tensor with one element."""
    fields = list(_fields(data, start, stop))
    kind = next((field.value for field in fields if field.number == DTYPE and field.wire == 0), 0)
    if kind == STRING:
        texts = [field for field in fields if field.number == TEXTS and field.wire == 2]
        return (
            (data[texts[0].start : texts[0].stop].decode("utf-8", "replace"), None)
            if len(texts) == 1
            else None
        )
    if kind not in NUMBERS:
        return None
    number, form = NUMBERS[kind]
    found = [field for field in fields if field.number in (number, CONTENT) and field.stop > field.start]
    if len(found) != 1:
        return None
    (field,) = found
    if field.number == number and kind in (INT32, INT64):  # varints, packed or not
        value, end = (field.value, field.stop) if field.wire == 0 else varint(data, field.start, field.stop)
        return (float(_signed(value)), None) if end == field.stop else None
    if field.wire == 0 or field.stop - field.start != struct.calcsize(form):
        return None
    return float(struct.unpack_from(form, data, field.start)[0]), field.start if kind == FLOAT else None
