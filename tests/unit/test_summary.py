"""`mdk-tui summary` of real logs, damaged logs and runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from log_lines import DONE, LOGS, WORLD, iteration, iterations
from test_record import record_of

from backends.megatron.diagnosis import diagnose
from backends.megatron.summary import summary
from backends.runs.catalog import describe
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from tui.cli import cli
from tui.commands.summary import lines, of_run

KEYS = {"phase", "iteration", "train_iters", "last", "segments", "alerts", "errors", "hanging"}
TROUBLE = {"kind", "line", "rank", "message", "remedy"}
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\nValueError: no\n'
EXIT = "[exiting program at iteration 3] datetime: 2026-11-30 10:00:00 \n"
TERMED = "[exiting program after receiving SIGTERM.] datetime: 2026-11-30 10:00:00 \n"
KILLED = "prterun noticed that process rank 0 with PID 7 on node vm exited on\nsignal 9 (Killed).\n"


def said(name: str) -> dict[str, Any]:
    return summary(record_of((LOGS / name).read_bytes()))


def run(*arguments: str, standard_input: bytes | None = None) -> Any:
    return CliRunner().invoke(cli, ["summary", *arguments], input=standard_input, standalone_mode=False)


@pytest.mark.parametrize(
    ("name", "phase", "hanging", "iteration", "cause"),
    [
        ("2xh200-batch-indivisible", "failed", False, None, "batch-arithmetic"),
        ("2xh200-bf16-nan-unchecked", "finished", False, 40, None),
        ("2xh200-mpirun-output-tag", "finished", False, 40, None),
        ("2xh200-mpirun-output-timestamp-tag", "finished", False, 20, None),
        ("2xh200-mpirun-terminated", "running", False, 200, None),
        ("2xh200-no-data", "failed", False, None, "no-data"),
        ("2xh200-oom-then-hangs", "failed", True, None, "out-of-memory"),
        ("2xh200-rank-killed", "failed", False, 160, "rank-killed"),
        ("2xh200-tp2-mpirun-output-rank", "finished", False, 40, None),
        ("core_r0.8.0-preprocess", "unknown", False, None, None),
        ("h200-core_r0.8.0-resume-refused", "failed", False, None, "scheduler-mismatch"),
        ("h200-core_r0.8.0-serve", "running", False, None, None),
        ("h200-core_r0.8.0-train", "finished", False, 200, None),
        ("tutorial-1node", "running", False, 100, None),
        ("tutorial-2node", "running", False, 100, None),
    ],
)
def test_real_logs(name: str, phase: str, hanging: bool, iteration: int | None, cause: str | None) -> None:
    found = said(f"{name}.log")
    assert found.keys() >= KEYS
    assert (found["phase"], found["hanging"], found["iteration"]) == (phase, hanging, iteration)
    assert (found["cause"] and found["cause"]["kind"]) == cause
    assert all(row.keys() >= TROUBLE for row in [*found["errors"], *found["alerts"]])
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_values_of_a_real_run() -> None:
    found = said("h200-core_r0.8.0-train.log")
    assert found["last"]["lm loss"] == 3.661475
    assert found["last"]["throughput per GPU (TFLOP/s/GPU)"] == 15.9
    assert found["last"]["consumed samples"] == 6400
    assert found["time"] == "2026-11-30T02:53:22"
    assert found["tokens"] == 6400 * 512
    assert found["parameter_count"] == 33739776  # not the 30 million that "in billions: 0.03" says
    assert found["seconds_left"] is None
    assert found["validations"][-1]["set"] == "test"
    assert found["validations"][-1]["values"]["lm loss PPL"] == pytest.approx(123.526, abs=1e-3)
    assert found["checkpoints"][-1]["action"] == "saved"
    assert found["attention"] == []


def test_a_nan_loss_needs_attention_and_is_text_in_json() -> None:
    found = said("2xh200-bf16-nan-unchecked.log")
    assert found["last"]["grad norm"] == "nan"
    assert "lm loss" not in found["last"]
    assert "nan-loss" in found["attention"]


def test_a_job_that_hangs_after_running_out_of_memory() -> None:
    found = said("2xh200-oom-then-hangs.log")
    assert (found["cause"]["ranks"], found["cause"]["first_rank"]) == (2, 0)
    assert "micro-batch-size" in found["cause"]["remedy"]
    assert found["attention"][:2] == ["out-of-memory", "hanging"]


@pytest.mark.parametrize(
    ("log", "phase", "hanging"),
    [
        ("", "unknown", False),
        ("epoch 1 loss 3.0\nno Megatron here\n", "unknown", False),
        (WORLD, "starting", False),
        (WORLD + iterations(1, 3), "running", False),
        (WORLD + iterations(1, 3) + DONE, "finished", False),
        (WORLD + iterations(1, 3) + EXIT, "finished", False),
        (WORLD + iterations(1, 3) + TERMED, "stopped", False),
        (WORLD + iterations(1, 3) + KILLED, "failed", False),
        (WORLD + ">> '--exit-on-missing-checkpoint' set ... exiting. <<\n", "failed", False),
        (WORLD + iterations(1, 3) + TRACEBACK, "failed", True),
        (WORLD + iterations(1, 3) + TRACEBACK + KILLED, "failed", False),
        (WORLD + iterations(1, 3) + DONE + TRACEBACK, "failed", True),
        (WORLD + iterations(1, 3) + TRACEBACK + iteration(4), "failed", True),
        (WORLD + iterations(1, 3) + TRACEBACK + iterations(4, 9), "running", False),
        (WORLD + iterations(1, 3) + TRACEBACK + WORLD, "starting", False),
        (WORLD + iterations(1, 3) + TRACEBACK + WORLD + iterations(1, 2), "running", False),
        (iterations(1, 3) + TRACEBACK + iterations(2, 2), "running", False),
        (WORLD + iterations(1, 3) + DONE + WORLD, "starting", False),
        (TRACEBACK + WORLD, "failed", True),
        (iterations(1, 3) + TRACEBACK, "failed", False),
        (iterations(1, 3) + "[rank3]: " + TRACEBACK.replace("\n", "\n[rank3]: "), "failed", True),
    ],
)
def test_phases(log: str, phase: str, hanging: bool) -> None:
    found = diagnose(record_of(log))
    assert (found.phase, found.hanging) == (phase, hanging)


def test_a_failed_single_rank_does_not_count_as_hanging() -> None:
    log = (LOGS / "2xh200-oom-then-hangs.log").read_text()
    assert "world_size ...................................... 2" in log
    alone = log.replace(
        "world_size ...................................... 2",
        "world_size ...................................... 1",
    )
    assert not diagnose(record_of(alone)).hanging


def test_a_log_of_another_node_is_recognised() -> None:
    log = (LOGS / "h200-core_r0.8.0-train.log").read_text()
    other = "".join(
        line for line in log.splitlines(keepends=True) if "iteration " not in line or "memory" in line
    )
    unfinished = other[: other.index("[after training is done]")]
    assert "another node" in diagnose(record_of(unfinished)).advice


def test_the_command_prints_json_and_text(tmp_path: Path) -> None:
    path = str(LOGS / "h200-core_r0.8.0-train.log")
    result = run(path, "--json")
    assert json.loads(result.output)["iteration"] == 200
    text = run(path).output.splitlines()
    assert text[:2] == [f"{'phase':<34}finished", f"{'iteration':<34}200 / 200"]
    assert any(line.split() == ["lm", "loss", "3.66147"] for line in text)


def test_the_command_reads_standard_input() -> None:
    result = run("-", "--json", standard_input=iterations(1, 7).encode())
    assert json.loads(result.output)["iteration"] == 7


@pytest.mark.parametrize(
    ("log", "status"),
    [("2xh200-oom-then-hangs", 3), ("2xh200-bf16-nan-unchecked", 3), ("2xh200-mpirun-output-tag", 0)],
)
def test_check_exits_with_3_when_something_needs_attention(log: str, status: int) -> None:
    path = str(LOGS / f"{log}.log")
    assert run(path, "--check").return_value == status
    assert run(path).return_value == 0


@pytest.mark.parametrize("name", ["nothing.log", "2026-11-30/10-00-00", "a" * 5000, "nul\0", "."])
def test_a_name_of_neither_a_log_nor_a_run_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(name)
    assert type(result.exception).__name__ == "UserError"
    assert "Nor is it a log" in result.exception.message
    assert result.exception.remedy


def test_hostile_logs_are_summarised_without_escape_codes(tmp_path: Path) -> None:
    path = tmp_path / "hostile.log"
    path.write_bytes(
        b"\x00\xff" * 1000
        + b"\n iteration 1/ 2 | \x1b]52;c;aGk=\x07[@click=quit()]x: 1.5 | y: \x1b[2J9 | lm loss: 1.0 |\n"
        + b"RuntimeError: \x1b]0;title\x07[bold]no[/]\n"
    )
    result = run(str(path))
    assert result.exception is None
    assert "\x1b" not in result.output
    assert "\x07" not in result.output


def test_the_state_of_a_run_overrides_the_phase_of_its_log(tmp_path: Path) -> None:
    """Its log hangs; its processes are gone without a word."""
    folder = RunFolder(tmp_path / "outputs" / "runs" / "2026-11-30" / "10-00-00")
    folder.path.mkdir(parents=True)
    folder.plan_file.write_text(json.dumps(RunPlan(kind="train", trainer="demo").as_json()))
    folder.log.write_text(WORLD + iterations(1, 3) + TRACEBACK)
    arguments = ["-w", str(tmp_path), "summary", folder.name, "--json"]
    found = json.loads(CliRunner().invoke(cli, arguments, standalone_mode=False).output)
    assert (found["run"], found["iteration"]) == ("2026-11-30/10-00-00", 3)
    lost = of_run(found, dataclasses.replace(describe(folder), phase="lost", reason="The machine restarted."))
    assert (lost["phase"], lost["hanging"], lost["attention"]) == ("lost", False, ["exception"])
    assert lines(lost)[:3] == [
        f"{'run':<34}{folder.name}",
        f"{'phase':<34}lost",
        f"{'reason':<34}The machine restarted.",
    ]


@pytest.mark.parametrize("log", [b"", b"epoch 1 loss 3.0\n", bytes(range(256)) * 20])
def test_a_log_without_megatron_lines_is_named_as_such(log: bytes) -> None:
    told = run("-", standard_input=log)
    assert told.return_value == 0 and "phase                             unknown" in told.output
    assert "No line of training by Megatron-LM was found" in told.output
    assert run("-", "--check", standard_input=log).return_value == 3


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "slurmstepd: error: *** JOB 7 ON n CANCELLED AT 2025-02-11T04:17:01 DUE TO TIME LIMIT ***",
            "DUE TO TIME",
        ),
        ("srun: error: gpu07: tasks 0-7: Terminated", "Terminated"),
    ],
)
def test_the_end_of_a_log_is_shown(line: str, reason: str) -> None:
    told = run("-", standard_input=(WORLD + iterations(1, 3) + line + "\n").encode())
    assert "phase                             stopped" in told.output and reason in told.output


@pytest.mark.parametrize("line", ["Terminated", "Killed", "srun: error: gpu07: tasks 0-7: Terminated"])
def test_a_job_that_trains_on_after_the_end_of_another_process_is_running(line: str) -> None:
    assert diagnose(record_of(WORLD + iterations(1, 3) + line + "\n" + iterations(4, 9))).phase == "running"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("RuntimeError: x\n", "exception"),
        ("BrokenPipeError: [Errno 32] Broken pipe\n[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: x\n", "exception"),
        ("BrokenPipeError: [Errno 32] Broken pipe\n", "peer-lost"),
    ],
)  # fmt: skip
def test_the_cause_is_no_consequence_of_another_error(log: str, cause: str) -> None:
    found = diagnose(record_of(WORLD + "Traceback (most recent call last):\n" + log + "ChildFailedError:\n"))
    assert found.cause is not None and found.cause.kind == cause


def test_a_signal_says_more_than_that_a_rank_failed() -> None:
    log = "ChildFailedError: \nRoot Cause (first observed failure):\n  exitcode  : -9 (pid: 7)\n  traceback : Signal 9 (SIGKILL) received by PID 7\n"
    found = diagnose(record_of(WORLD + log))
    assert found.cause is not None and (found.cause.kind, found.hanging) == ("rank-killed", False)
