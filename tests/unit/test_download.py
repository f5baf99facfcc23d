"""A download continues where it ended, and a partial file never has the final name. Uses a real local server."""

from __future__ import annotations

import contextlib
import hashlib
import io
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from backends.errors import UserError
from backends.setup.download import download, refuse_without_room

CONTENT = bytes(range(256)) * 40_000  # 10 MB


class Server(ThreadingHTTPServer):
    """Serves CONTENT at any path; `cut` ends the next reply after so many bytes; `version` is its ETag."""

    cut: int | None = None
    slow = 0.0  # s between two pieces
    paused = threading.Event()
    version = '"1"'
    ranges = True
    sums = ""  # what it serves at /sums
    seen: list[str | None]


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        if self.path == "/sums":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.server.sums.encode())
            return
        wanted = self.headers.get("Range")
        self.server.seen.append(wanted)
        fresh = self.headers.get("If-Range") in (None, self.server.version)
        start = (
            int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and fresh and self.server.ranges else 0
        )
        if start >= len(CONTENT):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        self.send_header("ETag", self.server.version)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        body, self.server.cut = CONTENT[start:][: self.server.cut], None
        with contextlib.suppress(ConnectionError):  # the reader was killed
            for at in range(0, len(body), 2**16):
                self.wfile.write(body[at : at + 2**16])
                self.server.paused.wait(self.server.slow)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def url(server: Server, path: str = "/file") -> str:
    return f"http://127.0.0.1:{server.server_port}{path}"


def test_a_whole_file_with_progress_and_checksum(server: Server, tmp_path: Path) -> None:
    out = io.StringIO()
    download(url(server), tmp_path / "new" / "file", hashlib.sha256(CONTENT).hexdigest(), out)
    assert (tmp_path / "new" / "file").read_bytes() == CONTENT
    assert f"downloaded {len(CONTENT)} of {len(CONTENT)} bytes" in out.getvalue()
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["file"]


def test_a_lost_connection_costs_nothing_but_the_reconnect(server: Server, tmp_path: Path) -> None:
    server.cut = 4_000_000
    with pytest.raises(UserError, match="goes on from"):
        download(url(server), tmp_path / "file", out=io.StringIO())
    assert not (tmp_path / "file").exists()
    arrived = (tmp_path / "file.part").stat().st_size
    assert 0 < arrived <= 4_000_000
    download(url(server), tmp_path / "file", out=io.StringIO())
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.seen == [None, f"bytes={arrived}-"]


def test_a_file_that_changed_on_the_server_is_downloaded_again(server: Server, tmp_path: Path) -> None:
    server.cut = 4_000_000
    with pytest.raises(UserError):
        download(url(server), tmp_path / "file", out=io.StringIO())
    server.version = '"2"'
    download(url(server), tmp_path / "file", out=io.StringIO())
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_without_ranges(server: Server, tmp_path: Path) -> None:
    server.cut = 4_000_000
    with pytest.raises(UserError):
        download(url(server), tmp_path / "file", out=io.StringIO())
    server.ranges = False
    download(url(server), tmp_path / "file", out=io.StringIO())
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_complete_part_is_only_renamed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    (tmp_path / "file.part.json").write_text(f'{{"url": "{url(server)}", "validator": ""}}')
    download(url(server), tmp_path / "file", out=io.StringIO())
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_checksum_is_not_put_in_place(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="arrived with SHA-256"):
        download(url(server), tmp_path / "file", "0" * 64, io.StringIO())
    assert not (tmp_path / "file").exists()


def test_a_published_list_of_checksums_decides(server: Server, tmp_path: Path) -> None:
    server.sums = f"{'0' * 64}  arxiv/file\n"
    with pytest.raises(UserError, match=f"not with {'0' * 64}"):
        download(url(server), tmp_path / "file", url(server, "/sums"), io.StringIO())
    assert not (tmp_path / "file").exists()
    right = hashlib.sha256(CONTENT).hexdigest()
    server.sums = f"{'0' * 64}  other\n{right.upper()} *arxiv/file\n"
    said = io.StringIO()
    download(url(server), tmp_path / "file", url(server, "/sums"), said)
    assert said.getvalue().endswith(f"SHA-256 {right}\n") and "not compared" not in said.getvalue()


@pytest.mark.parametrize(("path", "why"), [("/sums", "does not name the file"), ("/missing", "404")])
def test_without_a_checksum_the_file_is_kept_with_a_note(
    server: Server, tmp_path: Path, path: str, why: str
) -> None:
    said = io.StringIO()
    download(url(server), tmp_path / "file", url(server, path), said)
    assert (tmp_path / "file").exists()
    assert "not compared" in said.getvalue() and why in said.getvalue()


def test_a_users_file_is_never_overwritten(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        download(url(server), tmp_path / "file", out=io.StringIO())
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_that_appeared_meanwhile_is_not_overwritten(server: Server, tmp_path: Path) -> None:
    class Told(io.StringIO):
        def write(self, text: str) -> int:
            (tmp_path / "file").write_text("mine")
            return super().write(text)

    with pytest.raises(UserError, match="exists already"):
        download(url(server), tmp_path / "file", out=Told())
    assert (tmp_path / "file").read_text() == "mine"


def test_a_proxy_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "carrier-pigeon://loft:1")
    with pytest.raises(UserError, match="cannot be used"):
        download("https://example.invalid/x", tmp_path / "file", out=io.StringIO())


def test_a_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(UserError, match="could not be written"):
        download("https://example.invalid/x", Path("/proc/folder/file"), out=io.StringIO())


def test_refusals_are_sentences(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="answered 404"):
        download(url(server, "/missing"), tmp_path / "file", out=io.StringIO())
    with pytest.raises(UserError, match="could not be reached") as unreachable:
        download("http://127.0.0.1:9/x", tmp_path / "file", out=io.StringIO())
    assert f"put it at {tmp_path / 'file'}" in unreachable.value.remedy


def test_a_proxy_that_refuses_is_named(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers CONNECT with 501, as a server does that is no proxy."""
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.server_port}")
    with pytest.raises(UserError, match=r"The proxy refused: 501") as refused:
        download("https://example.invalid/x", tmp_path / "file", out=io.StringIO())
    assert "https_proxy" in refused.value.remedy


def test_a_proxy_is_honoured(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")
    download("http://example.invalid/x", tmp_path / "file", out=io.StringIO())
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_file_that_does_not_fit_is_refused_before_the_download(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Not enough room"):
        refuse_without_room(tmp_path / "file.part", 10**18, 0)
    refuse_without_room(tmp_path / "file.part", None, 0)


def test_a_killed_download_continues(server: Server, tmp_path: Path) -> None:
    """By the program that the step runs: KILL in the middle, then again."""
    server.slow = 0.02
    command = [sys.executable, "-m", "backends.setup.download", url(server), str(tmp_path / "file")]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert first.stdout
    assert first.stdout.readline().startswith("downloaded ")
    first.kill()
    first.communicate(timeout=300)
    arrived = (tmp_path / "file.part").stat().st_size
    server.slow = 0.0
    again = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert 0 < arrived < len(CONTENT) and server.seen == [None, f"bytes={arrived}-"]
