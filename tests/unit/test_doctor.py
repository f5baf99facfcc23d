"""The check-up: verdict, evidence and remedy of each check, on machines that are described by what their programs say."""

from __future__ import annotations

import json
import os
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_setup import FakePrograms, fake_site, says

from backends.programs import Answer
from backends.setup.doctor import (
    CHECKS,
    PORTS,
    check_clock,
    check_logout,
    check_ports,
    check_up,
    kills_at_logout,
)
from backends.setup.gpu_checks import check_cuda, check_gpu_processes, check_gpus
from backends.setup.standing import in_parallel, looked_at
from backends.setup.step import Finding
from backends.setup.steps import STEPS
from backends.workspace import Workspace
from tui.commands.doctor import command

SMI = "/usr/bin/nvidia-smi"
EIGHT = "\n".join(["570.86.15, NVIDIA H200, 143771, 0"] * 8)
HEAD = "| NVIDIA-SMI 570.86.15   Driver Version: 570.86.15   CUDA Version: {} |"


class Machine(FakePrograms):
    """With an nvidia-smi that answers queries by their words, and anything else with its table."""

    def find(self, name: str) -> str | None:
        return SMI if name == "nvidia-smi" else super().find(name)


def gpus(tmp_path: Path, text: str | Answer) -> Finding:
    answer = says(text) if isinstance(text, str) else text
    return check_gpus(fake_site(tmp_path, Machine((), {"--query-gpu": answer})))


def test_eight_gpus_and_their_driver(tmp_path: Path) -> None:
    found = gpus(tmp_path, EIGHT)
    assert (found.verdict, found.evidence) == ("ok", "8 × NVIDIA H200, 140 GiB, driver 570.86.15")


def test_a_broken_gpu_is_named(tmp_path: Path) -> None:
    found = gpus(tmp_path, EIGHT.replace("143771, 0", "143771, 4", 3).replace("143771, 4", "143771, 0", 2))
    assert found.verdict == "failed" and "uncorrected ECC errors on GPU 2" in found.evidence and found.remedy


def test_gpus_of_two_kinds_and_readings_that_are_missing(tmp_path: Path) -> None:
    found = gpus(tmp_path, "570.1, NVIDIA H200, [N/A], [N/A]\n570.1, NVIDIA A100, 81920, 0")
    assert found.verdict == "ok" and "memory unknown" in found.evidence
    assert "not all the same: NVIDIA A100, NVIDIA H200" in found.evidence


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", ""), "couldn't communicate"),
        (Answer(None, "", "no answer within 15 s"), "no answer within 15 s"),
        (Answer(0, "", ""), "no answer"),
    ],
)  # fmt: skip
def test_a_driver_that_does_not_answer_has_failed(tmp_path: Path, answer: Answer, words: str) -> None:
    found = gpus(tmp_path, answer)
    assert found.verdict == "failed" and words in found.evidence and found.remedy


def test_other_peoples_processes_are_named(tmp_path: Path) -> None:
    rows = f"{os.getpid()}, 40960\n4000000, 512\n"
    found = check_gpu_processes(fake_site(tmp_path, Machine((), {"--query-compute-apps": says(rows)})))
    assert found.verdict == "warning"
    assert (
        f"(pid {os.getpid()}, 40960 MiB)" in found.evidence
        and "of another container (pid 4000000" in found.evidence
    )
    none = check_gpu_processes(fake_site(tmp_path, Machine((), {"--query-compute-apps": says("")})))
    assert none.verdict == "ok"


@pytest.mark.parametrize(
    ("driver", "image", "verdict"),
    [("12.8", "12.6.0.022", "ok"), ("12.4", "12.6.0.022", "ok"), ("11.4", "12.6.0.022", "warning"), ("12.8", "", "skipped"), ("N/A", "12.6.0", "skipped")],
)  # fmt: skip
def test_the_drivers_cuda_against_the_images(tmp_path: Path, driver: str, image: str, verdict: str) -> None:
    answers = {"CUDA_VERSION": says(image), SMI: says(HEAD.format(driver))}
    site = fake_site(tmp_path, Machine(["singularity"], answers))
    site.image.parent.mkdir(parents=True)
    site.image.touch()
    found = check_cuda(site)
    assert found.verdict == verdict
    if verdict == "warning":
        assert "driver CUDA 11.4   image 12.6" in found.evidence and "Update the driver" in found.remedy


def test_before_the_image_is_built_its_definition_counts(tmp_path: Path) -> None:
    found = check_cuda(fake_site(tmp_path, Machine((), {SMI: says(HEAD.format("11.8"))})))
    assert found.verdict == "warning" and "pytorch.def 12.6" in found.evidence


def test_a_taken_port_is_named_with_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setitem(PORTS, port, "test")
        found = check_ports(fake_site(tmp_path))
        assert found.verdict == "warning" and f"{port} (test, by " in found.evidence
        assert f"(pid {os.getpid()})" in found.evidence


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({}, False),
        ({"logind.conf": "[Login]\n#KillUserProcesses=yes\n"}, False),
        ({"logind.conf": "[Login]\nKillUserProcesses=yes\n"}, True),
        ({"logind.conf": "KillUserProcesses=yes", "logind.conf.d/50.conf": "KillUserProcesses = no"}, False),
        ({"logind.conf.d/50.conf": "KillUserProcesses=no", "logind.conf.d/60.conf": "KillUserProcesses=1"}, True),
    ],
)  # fmt: skip
def test_who_ends_processes_at_logout(tmp_path: Path, files: dict[str, str], kills: bool) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert kills_at_logout(tmp_path) is kills


def test_logind_itself_says_that_a_logout_kills(tmp_path: Path) -> None:
    programs = FakePrograms(["loginctl"], {"show-session": says("KillProcesses=yes\n")})
    found = check_logout(
        replace(fake_site(tmp_path, programs), environment={"USER": "ann", "TMUX": "/tmp/x"})
    )
    assert found.verdict == "failed" and "inside tmux" in found.evidence
    assert "loginctl enable-linger ann" in found.remedy


def test_a_clock_that_nobody_sets(tmp_path: Path) -> None:
    found = check_clock(fake_site(tmp_path, FakePrograms(["timedatectl"], {"NTPSynchronized": says("no\n")})))
    assert found.verdict == "warning" and "NTP" in found.remedy


def test_a_bare_machine_is_checked_whole_in_the_steps_order(tmp_path: Path) -> None:
    found = list(check_up(fake_site(tmp_path)))
    assert [finding.name for finding in found] == [*(step.name for step in STEPS), *CHECKS]
    assert all(finding.evidence for finding in found)
    assert all(finding.remedy for finding in found if finding.verdict in ("warning", "failed"))


def test_questions_are_asked_at_the_same_time() -> None:
    """Each waits for the other: one after the other they would wait for ever."""
    both = threading.Barrier(2, timeout=300)
    assert sorted(in_parallel([both.wait, both.wait])) == [0, 1]


def test_an_error_during_a_check_becomes_a_finding() -> None:
    def broken() -> Finding:
        raise OSError(5, "Input/output error", "/lustre")

    found = looked_at("workspace", broken)
    assert (found.verdict, found.evidence) == ("failed", "/lustre: Input/output error")


def test_the_command_speaks_json_and_says_when_something_needs_attention(tmp_path: Path) -> None:
    run = CliRunner().invoke(command, ["--json", "--check"], obj=Workspace(tmp_path), standalone_mode=False)
    found = json.loads(run.output)
    assert [sorted(finding) for finding in found] == [
        ["details", "evidence", "name", "remedy", "verdict"]
    ] * len(found)
    attention = any(finding["verdict"] in ("warning", "failed") for finding in found)
    assert run.return_value == (3 if attention else 0)
