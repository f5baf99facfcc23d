"""Shared by all tests: real logs, an environment without the user's settings, and the rule that CI skips no hpc test."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
DATA = TESTS / "data"
USERS_OWN = {
    "MLFLOW_TRACKING_URI",
    "MLFLOW_EXPERIMENT_NAME",
    "MLFLOW_RUN_ID",
    "MDK_WORKSPACE",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLORTERM",
    "COLUMNS",
    "LINES",
    "TEXTUAL",
    "TEXTUAL_ANIMATIONS",
    "TEXTUAL_COLOR_SYSTEM",
    "TEXTUAL_THEME",
}
HPC_PROGRAMS = ("mpirun", "singularity")
IN_CI = os.environ.get("CI") == "true"

# In one of ten short jobs mpirun itself was seen to hang after every rank had ended. Under a supervisor it is ended then;
# a test that starts it by itself is run again.
# When two of them started at the same moment, one was seen to exit with status 213, unable to listen.
HANGS = pytest.mark.flaky(
    reruns=2, only_rerun=["TimeoutExpired", "listener thread failed to start", "status 213"]
)

# A busy machine is no fault of the code: timings never fail a test.
settings.register_profile("mdk", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mdk")


@pytest.fixture
def logs() -> Path:
    """Real logs of Megatron-LM, copied from the project's shared material."""
    return DATA / "logs"


def pytest_configure(config: pytest.Config) -> None:
    """The user's own settings, colours and clock must not decide what a test sees (Textual reads some when imported)."""
    config.option.loadscopereorder = (
        False  # xdist would begin with the largest file, and end with the hpc tests
    )
    for name in list(os.environ):
        if name in USERS_OWN:
            del os.environ[name]
    os.environ["MDK_MLFLOW"] = "0"  # a test that tracks its run says so: MLflow takes seconds to start
    os.environ["TZ"] = "UTC"
    time.tzset()


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """History, settings and caches go below a folder of this session, never below the user's home."""
    home = tmp_path_factory.mktemp("home")
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        os.environ[f"XDG_{name}_HOME"] = str(home / name.lower())


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of the same name
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folder says what a test needs; the marker follows. A file stays on one worker, and so do all hpc tests:
    they share an image that takes a while to build. They take the longest, and so begin."""
    items.sort(key=lambda item: not item.path.is_relative_to(TESTS / "hpc"))
    missing = [program for program in HPC_PROGRAMS if shutil.which(program) is None]
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        item.add_marker(pytest.mark.xdist_group("hpc" if folder == "hpc" else str(item.path)))
        if folder in {"hpc", "gpu"}:
            item.add_marker(folder)
        if folder == "hpc":
            item.add_marker(HANGS)
        if folder == "hpc" and missing:
            reason = f"needs {' and '.join(missing)}: .ci/install-hpc.sh"
            item.add_marker(pytest.mark.skipif(True, reason=reason))


def _skip_is_failure(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In CI the programs are installed, so a skipped hpc test means that something is broken."""
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.longrepr = f"CI runs every hpc test, and this one would be skipped: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.get_closest_marker("hpc"):
        _skip_is_failure(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if collector.path.is_relative_to(TESTS / "hpc"):
        _skip_is_failure(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List skipped GPU tests in the summary: a skipped test must not look like a passed one."""
    skipped = terminalreporter.stats.get("skipped", [])
    untried = [report.nodeid for report in skipped if report.nodeid.startswith("tests/gpu")]
    if untried:
        terminalreporter.section("not run: the real Megatron-LM on a GPU", sep="!", red=True, bold=True)
        for nodeid in untried:
            terminalreporter.line(nodeid)
