"""Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LINE_END = re.compile(rb"\r\n|\n|\r")
KNOWN = (b"data", b"error")  # llama.cpp reports a failure in a field `error`


def event_data(chunks: Iterable[bytes]) -> Iterator[str]:
    """The data of each complete event. An event cut off by the end of the stream is dropped, as the standard says."""
    data: list[bytes] = []
    for line in _lines(chunks):
        field, _, value = line.partition(b":")
        if not line:
            if data:
                yield b"\n".join(data).decode(errors="replace")
            data = []
        elif field in KNOWN:
            data.append(value.removeprefix(b" "))


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their ends. A `\\r` at the end of a chunk waits for the next chunk: it may be half of `\\r\\n`."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        held = rest[-1:] if rest.endswith(b"\r") else b""
        *lines, rest = LINE_END.split(rest[: len(rest) - len(held)])
        rest += held
        yield from lines
    if rest.endswith(b"\r"):
        yield rest[:-1]
