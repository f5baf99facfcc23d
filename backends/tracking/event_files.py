"""TensorBoard's event files, read natively: TFRecord framing and the scalars in it, two million of them in a few seconds.

A record is its length (8 bytes), a masked CRC-32C of the length, the message, and a masked CRC-32C of the message. A run
writes the same few tags again and again. So only the first record of its kind is decoded in full. Later ones are compared
with it in all bytes but time, step and number, which is much faster and equally safe.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, field

from backends.tracking.crc32c import masked_crc32c
from backends.tracking.event_protobuf import Malformed, decode_event, varint

LARGEST = 2**30  # bytes of a record; a length beyond this is damage
FRAME = 16  # bytes of a record in addition to its message
HEADER = struct.Struct("<QI")
# Length, its checksum, and the head of a message: key and time (fixed64, field 1), key of the step (varint, field 2).
HEAD = struct.Struct("<QIBdB")
TIME_KEY, STEP_KEY, SUMMARY_KEY = 0x09, 0x10, 0x2A
FLOAT, CHECK = struct.Struct("<f"), struct.Struct("<I")
HIGH_BYTES = b"\0\0\0\0"
MANY = 100_000  # kinds of records that are remembered


@dataclass(slots=True)
class Points:
    """The scalars of one tag, in the order of the file. `times`: s since the epoch."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: int, time: float, value: float) -> None:
        self.steps.append(step)
        self.times.append(time)
        self.values.append(value)

    def pop(self) -> None:
        for column in (self.steps, self.times, self.values):
            column.pop()


@dataclass(frozen=True, slots=True)
class Text:
    """A text summary, such as the arguments of a run."""

    tag: str
    step: int
    time: float  # s since the epoch
    text: str


@dataclass(frozen=True, slots=True)
class Torn:
    """Bytes of the file that are not a whole record: half-written, overwritten, or cut off at the end."""

    offset: int
    length: int


NOTHING: tuple[int, tuple[Points, ...]] = (-1, ())


class EventReader:
    """Reads the bytes of one event file as they arrive; `take` returns what they held.

    Lengths and framing are always checked. The checksums of messages are checked with `verify`, which takes ten times as long.
    """

    def __init__(self, verify: bool = False) -> None:
        self.scalars: dict[str, Points] = {}
        self.texts: list[Text] = []
        self.torn: list[Torn] = []
        self._verify = verify
        self._rest = b""
        self._offset = 0  # of `_rest` in the file
        self._lengths: dict[int, int] = {}  # length of a message -> the checksum of that length
        # Length of the part of a message behind the step -> offset of the number's four bytes in that part.
        self._places: dict[int, int] = {}
        # That part without those four bytes -> the points of its tag.
        self._known: dict[bytes, tuple[Points]] = {}
        # Offset of the last record in the buffer, and the points to which it added one.
        self._newest = NOTHING

    def take(self) -> tuple[dict[str, Points], list[Text]]:
        """Scalars by tag, and texts, since the last call."""
        found = self.scalars, self.texts
        self.scalars, self.texts, self._known = {}, [], {}
        self._newest = NOTHING
        return found

    def feed(self, data: bytes) -> None:
        buffer = self._rest + data
        position, damaged = self._read(buffer, 0)
        while damaged:
            position, damaged = self._read(buffer, self._pass_damage(buffer, position))
        self._rest = buffer[position:]
        self._offset += position
        self._newest = NOTHING

    def finish(self) -> None:
        """The file has ended: a half record is torn, and the bytes that it seemed to contain are read."""
        while rest := self._rest:
            following = _next_header(rest, 1)
            self._tear(self._offset, following)
            self._rest = b""
            self._offset += following
            self.feed(rest[following:])

    def _read(self, buffer: bytes, position: int) -> tuple[int, bool]:
        """Read records from `position` on. Returns (where it stopped, whether at damage rather than at half a record)."""
        lengths, places, known, end = self._lengths, self._places, self._known, len(buffer)
        unpack_head, unpack_float, fast = HEAD.unpack_from, FLOAT.unpack_from, not self._verify
        while end - position >= HEAD.size:
            length, check, time_key, time, step_key = unpack_head(buffer, position)
            if lengths.get(length) != check and not self._is_header(buffer, position):
                return position, True
            after = position + FRAME + length
            if after > end:
                break
            if time_key == TIME_KEY and step_key == STEP_KEY and length > 10 and fast:
                at = position + HEAD.size
                step = byte = buffer[at]
                at += 1
                shift = 0  # bits; longer or negative steps are left to the full decoder
                while byte >= 128 and shift < 49:
                    byte = buffer[at]
                    at += 1
                    shift += 7
                    step += (byte - 1) << shift
                stop = after - 4
                if (place := places.get(stop - at)) is not None:
                    place += at
                    kind = known.get(buffer[at:place] + buffer[place + 4 : stop])
                    if kind is not None:
                        points = kind[0]
                        points.steps.append(step)
                        points.times.append(time)
                        points.values.append(unpack_float(buffer, place)[0])
                        self._newest = position, kind
                        position = after
                        continue
            if not self._decode(buffer, position, after):
                return position, True
            position = after
        return position, False

    def _is_header(self, buffer: bytes, position: int) -> bool:
        """Whether a record can begin here: a plausible length with the right checksum."""
        length, check = HEADER.unpack_from(buffer, position)
        if length > LARGEST or masked_crc32c(buffer[position : position + 8]) != check:
            return False
        if len(self._lengths) < MANY:
            self._lengths[length] = check
        return True

    def _decode(self, buffer: bytes, position: int, after: int) -> bool:
        """Decode one record in full, and learn its kind. False: it is damaged, so its length cannot be trusted."""
        message = buffer[position + 12 : after - 4]
        if self._verify and not _intact(buffer, position, after):
            return False
        try:
            event = decode_event(message)
        except Malformed:
            if not _intact(buffer, position, after):
                return False
            self._tear(self._offset + position, after - position)
            return True
        added: list[Points] = []
        for value in event.values:
            if isinstance(value.value, str):
                self.texts.append(Text(value.tag, event.step, event.time, value.value))
            else:
                added.append(self.scalars.setdefault(value.tag, Points()))
                added[-1].add(event.step, event.time, value.value)
        self._newest = position, tuple(added)
        if len(event.values) == 1 and (offset := event.values[0].offset) is not None:
            self._learn(message, offset, added[0])
        return True

    def _learn(self, message: bytes, offset: int, points: Points) -> None:
        """Remember messages of this kind: time, step, and a summary with one 32-bit number."""
        if message[0] != TIME_KEY or message[9] != STEP_KEY or len(self._known) >= MANY:
            return
        _, at = varint(message, 10, len(message))
        rest = message[at:]
        length, begin = varint(rest, 1, len(rest))
        if rest[0] == SUMMARY_KEY and begin + length == len(rest):
            place = self._places.setdefault(len(rest), offset - at)
            if place == offset - at:
                self._known[rest[:place] + rest[place + 4 :]] = (points,)

    def _pass_damage(self, buffer: bytes, position: int) -> int:
        """Where the next record begins. If the record before the damage has a wrong checksum, it is torn, too."""
        start, added = self._newest
        if 0 <= start < position and not _intact(buffer, start, position):
            for points in added:
                points.pop()
            position = start
        self._newest = NOTHING
        following = _next_header(buffer, position + 1)
        self._tear(self._offset + position, following - position)
        return following

    def _tear(self, offset: int, length: int) -> None:
        if self.torn and self.torn[-1].offset + self.torn[-1].length == offset:
            last = self.torn.pop()
            offset, length = last.offset, last.length + length
        self.torn.append(Torn(offset, length))


def _intact(buffer: bytes, start: int, after: int) -> bool:
    """Whether the message of the record `start` … `after` has the right checksum."""
    (check,) = CHECK.unpack_from(buffer, after - 4)
    return masked_crc32c(memoryview(buffer)[start + 12 : after - 4]) == check


def _next_header(buffer: bytes, position: int) -> int:
    """The first place from `position` on where a record begins, or could begin with bytes still to come."""
    while (zeros := buffer.find(HIGH_BYTES, position + 4)) >= 0:
        position = zeros - 4  # the high half of a length is zero, as records are shorter than 4 GiB
        if position + HEADER.size > len(buffer):
            return position
        length, check = HEADER.unpack_from(buffer, position)
        if length <= LARGEST and masked_crc32c(buffer[position : position + 8]) == check:
            return position
        position += 1
    return max(position, len(buffer) - HEADER.size + 1)
