"""Event files for tests and benches, written byte by byte (tensorboard's own writer is slow, and may be missing)."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from backends.tracking.crc32c import masked_crc32c


def number(value: int) -> bytes:
    """`value` as a varint; a negative one in ten bytes, as protobuf has it."""
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def part(field: int, content: bytes) -> bytes:
    """A field with a length: a text, bytes, another message."""
    return number(field << 3 | 2) + number(len(content)) + content


def record(message: bytes, checked: bool = True) -> bytes:
    """Framed. Not `checked`: zeros in place of the message's checksum, which costs most of the time."""
    length = struct.pack("<Q", len(message))
    check = masked_crc32c(message) if checked else 0
    return length + struct.pack("<I", masked_crc32c(length)) + message + struct.pack("<I", check)


def event(step: int, time: float, *values: bytes) -> bytes:
    """`values` are messages of Summary.Value. A step of 0 is not written, as protobuf has it."""
    head = b"\x09" + struct.pack("<d", time) + (b"\x10" + number(step) if step else b"")
    return head + part(5, b"".join(part(1, value) for value in values))


def simple(tag: str, value: float) -> bytes:
    """What torch's SummaryWriter, and so Megatron-LM, writes."""
    return part(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def tensor(
    tag: str, value: float, *, metadata: bytes = b"\x0a\x09\x0a\x07scalars", content: bool = False
) -> bytes:
    """What TensorFlow 2, and torch with `new_style`, write."""
    raw = struct.pack("<f", value)
    shaped = b"\x08\x01" + (part(2, b"") if content else b"") + part(4 if content else 5, raw)
    return part(1, tag.encode()) + part(8, shaped) + part(9, metadata)


def text(tag: str, value: str) -> bytes:
    return part(1, f"{tag}/text_summary".encode()) + part(8, b"\x08\x07" + part(8, value.encode()))


def file_of(messages: Iterable[bytes]) -> bytes:
    version = b"\x09" + struct.pack("<d", 1.0) + part(3, b"brain.Event:2")
    return b"".join(map(record, (version, *messages)))
