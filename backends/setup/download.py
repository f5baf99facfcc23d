"""`python -m backends.setup.download URL DEST [CHECKSUM]`: one file, resumable, never half a file under its final name.

What has arrived lies in DEST.part; a second start goes on where the first ended, if the server can. A proxy from the
environment is honoured. CHECKSUM is a SHA-256, or the address of a list as `sha256sum` writes it. Progress goes to
standard output, one line a second: `downloaded N of M bytes, R MiB/s`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from backends.errors import UserError
from backends.files import read_json, write_atomic
from backends.text import clean_line
from backends.ticks import MIB, size_words

if TYPE_CHECKING:
    import httpx

CHUNK = 2**20
PROXY = "Check http_proxy and https_proxy: the address, the port, and whether a login is needed."


def download(url: str, destination: Path, checksum: str = "", out: TextIO = sys.stdout) -> None:
    """Fetch `url` to `destination`. Raises UserError; what has arrived is kept for the next try."""
    refuse_existing(destination)
    part = destination.with_name(destination.name + ".part")
    with _explained(url, destination, part):
        destination.parent.mkdir(parents=True, exist_ok=True)
        with _client() as client:
            _fetch(client, url, part, out)
            wanted = _listed(client, checksum, url, out) if "/" in checksum else checksum
        found = digest(part)
        if wanted and found != wanted:
            raise UserError(
                f"{destination.name} arrived with SHA-256 {found}, not with {wanted} as expected.",
                f"Remove {part} and try again.",
            )
        refuse_existing(destination)
        part.rename(destination)
        etag_file(part).unlink(missing_ok=True)
    print(f"saved {destination}: {size(destination):,} bytes, SHA-256 {found}", file=out, flush=True)


def refuse_existing(destination: Path) -> None:
    """Raises UserError if `destination` exists."""
    if destination.exists():
        raise UserError(f"{destination} exists already.", "Move it away to download it again.")


def _client() -> httpx.Client:
    """Raises UserError for a proxy that httpx cannot use."""
    import httpx

    try:
        return httpx.Client(follow_redirects=True, timeout=httpx.Timeout(60, connect=20))
    except (
        ValueError,
        ImportError,
        httpx.InvalidURL,
    ) as error:  # an unknown scheme; SOCKS without its package
        raise UserError(f"The proxy of the environment cannot be used: {_words(error)}.", PROXY) from None


@contextlib.contextmanager
def _explained(url: str, destination: Path, part: Path) -> Generator[None]:
    """Turns the errors of a download into UserError."""
    import httpx

    try:
        yield
    except httpx.HTTPStatusError as error:
        status = f"{error.response.status_code} {error.response.reason_phrase}"
        raise UserError(f"{url} answered {status}.", "Check the address.") from None
    except httpx.ProxyError as error:
        raise UserError(f"The proxy refused: {_words(error)}.", PROXY) from None
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise UserError(
            f"{url} could not be reached: {_words(error)}.",
            f"Set https_proxy if this site has a proxy. Without network: fetch it elsewhere and put it at {destination}.",
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UserError(
            f"{url} could not be read: {_words(error)}.", f"Try again: it goes on from {size(part):,} bytes."
        ) from None
    except OSError as error:
        raise UserError(
            f"{part} could not be written: {error.strerror}.", "Make room, then try again: it goes on."
        ) from None


def _words(error: Exception) -> str:
    return clean_line(str(error)) or type(error).__name__


def _fetch(client: httpx.Client, url: str, part: Path, out: TextIO) -> None:
    start, known = size(part), read_json(etag_file(part)) or {}
    headers = {"Accept-Encoding": "identity"}
    if start and known.get("url") == url:
        headers["Range"] = f"bytes={start}-"
        if known.get("validator"):
            headers["If-Range"] = known["validator"]  # another file by now: the server sends all of it
    with client.stream("GET", url, headers=headers) as reply:
        if reply.status_code == 416 and start:  # nothing is missing, or the file shrank: its length decides
            if reply.headers.get("content-range", "").endswith(f"/{start}"):
                return
            part.unlink()
            raise UserError(f"{url} is shorter than what had arrived.", "Try again: it starts anew.")
        reply.raise_for_status()
        resumed = reply.status_code == 206
        validator = reply.headers.get("etag") or reply.headers.get("last-modified") or ""
        write_atomic(
            etag_file(part),
            json.dumps({"url": url, "validator": "" if validator.startswith("W/") else validator}),
        )
        length = reply.headers.get("content-length")
        done = start if resumed else 0
        total = done + int(length) if length and length.isdigit() else None
        refuse_without_room(part, total, done)
        with part.open("ab" if resumed else "wb") as file:
            _copy(reply, file, done, total, out)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and size(part) < total:
        raise UserError(
            f"The connection ended at {size(part):,} of {total:,} bytes.", "Try again: it goes on from there."
        )


def _listed(client: httpx.Client, address: str, url: str, out: TextIO) -> str:
    """The SHA-256 that the list at `address` gives for the file of `url`. "" where it cannot be had: the file counts all the
    same, and that it was not compared is printed."""
    import httpx

    name, why = url.rpartition("/")[2], "it does not name the file"
    try:
        for line in client.get(address).raise_for_status().text.splitlines():
            words = line.split()
            if len(words) == 2 and words[1].lstrip("*").rpartition("/")[2] == name:
                return words[0].lower()
    except httpx.HTTPError as error:
        why = _words(error)
    print(f"not compared with the checksums at {address}: {why}", file=out, flush=True)
    return ""


def refuse_without_room(part: Path, total: int | None, done: int) -> None:
    """Raises UserError when the rest does not fit on the disk: better now than at the end."""
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - done > free:
        raise UserError(
            f"Not enough room in {part.parent}: {size_words(total - done)} are to come, {size_words(free)} are free.",
            "Make room, then try again: it goes on.",
        )


def _copy(reply: httpx.Response, file: BinaryIO, done: int, total: int | None, out: TextIO) -> None:
    began, first, told = time.monotonic(), done, 0.0
    for chunk in reply.iter_bytes(CHUNK):
        file.write(chunk)
        done += len(chunk)
        now = time.monotonic()
        if now - told >= 1 or done == total:
            told = now
            rate = (done - first) / max(now - began, 1e-6) / MIB
            print(f"downloaded {done} of {total or '?'} bytes, {rate:.1f} MiB/s", file=out, flush=True)


def size(path: Path) -> int:
    """Bytes in `path`; 0 if it cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def etag_file(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            total.update(block)
    return total.hexdigest()


def main(arguments: list[str]) -> int:
    if not 2 <= len(arguments) <= 3:
        print("usage: python -m backends.setup.download URL DEST [CHECKSUM]", file=sys.stderr)  # noqa: T201
        return 2
    try:
        download(arguments[0], Path(arguments[1]), arguments[2] if len(arguments) == 3 else "")
    except UserError as error:
        print(f"{error.message}\nhint: {error.remedy}", file=sys.stderr)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
