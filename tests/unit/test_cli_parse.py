"""`mdk-tui parse` prints events as they arrive, as JSON or as readable lines."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner
from megatron_text import iteration_line

from tui.cli import cli

PROGRAM = [sys.executable, "-c", "from tui.cli import main; main()"]


def test_one_json_object_a_line(logs: Path) -> None:
    result = CliRunner().invoke(cli, ["parse", str(logs / "tutorial-1node.log"), "--json"])
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0 and len(found) == 19
    assert all({"event", "line", "rank"} <= row.keys() for row in found)


def test_one_readable_line_per_event(logs: Path) -> None:
    result = CliRunner().invoke(cli, ["parse", str(logs / "tutorial-1node.log")])
    lines = result.stdout.splitlines()
    assert len(lines) == 19 and "lm loss=5.847192" in lines[-1] and "{" not in result.stdout


def test_escape_codes_of_a_log_do_not_reach_the_terminal() -> None:
    hostile = "saving checkpoint at iteration 5 to \x1b]0;owned\x07\x1b[31mck\n"
    result = CliRunner().invoke(cli, ["parse", "-"], input=hostile)
    assert "ck" in result.stdout and "\x1b" not in result.stdout and "owned" not in result.stdout


def test_events_come_while_the_log_is_still_being_written() -> None:
    with subprocess.Popen(
        [*PROGRAM, "parse", "-", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write(iteration_line(10).encode())
        program.stdin.flush()
        assert json.loads(program.stdout.readline())["iteration"] == 10
        program.stdin.close()
        assert program.stdout.read() == b"" and program.wait() == 0


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*PROGRAM, "presets"], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_without_utf_8_still_shows_the_line() -> None:
    done = subprocess.run(
        [*PROGRAM, "parse", "-"],
        input="saving checkpoint at iteration 5 to café\n".encode(),
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=True,
    )
    assert b"caf\\xe9" in done.stdout


def test_a_missing_log_is_a_sentence_and_a_remedy(tmp_path: Path) -> None:
    for name in (tmp_path / "none.log", tmp_path):
        done = subprocess.run([*PROGRAM, "parse", str(name)], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "hint:" in done.stderr and "Traceback" not in done.stderr


def test_a_binary_file_has_no_events(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(bytes(range(256)) * 1000)
    result = CliRunner().invoke(cli, ["parse", str(path), "--json"])
    assert (result.exit_code, result.stdout) == (0, "")


def test_a_log_without_events_is_reported() -> None:
    result = CliRunner().invoke(cli, ["parse", "-"], input="epoch 1 loss 3.0\n")
    assert (result.exit_code, result.stdout) == (0, "") and "No line of training" in result.stderr


@pytest.mark.parametrize("command", ["parse", "summary"])
def test_a_failing_read_is_a_sentence_and_a_remedy(command: str) -> None:
    with Path("/proc/self/mem").open("rb", buffering=0) as unreadable:  # nothing is mapped at its start
        done = subprocess.run([*PROGRAM, command, "-"], stdin=unreadable, capture_output=True, text=True, check=False)  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "") and "Traceback" not in done.stderr
    assert (
        "Standard input cannot be read further: Input/output error" in done.stderr and "hint:" in done.stderr
    )


def test_events_before_a_read_error_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    class FailingDisk(io.RawIOBase):
        chunks: ClassVar = [iteration_line(10).encode(), b" saving checkpoint at iter"]

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            if not self.chunks:
                raise OSError(errno.ESTALE, "Stale file handle")
            data = self.chunks.pop(0)
            buffer[: len(data)] = data
            return len(data)

    monkeypatch.setattr("tui.commands.parse.open_log", lambda _path: io.BufferedReader(FailingDisk()))
    result = CliRunner().invoke(cli, ["parse", "train.log", "--json"])
    assert json.loads(result.stdout)["iteration"] == 10
    assert "train.log cannot be read further: Stale file handle" in str(result.exception)


def test_a_closed_standard_input_is_reported() -> None:
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *PROGRAM, "parse", "-"]
    done = subprocess.run(closed, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Standard input is closed" in done.stderr
