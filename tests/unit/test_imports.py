"""tui → backends, never back; and the process that draws stays light. Looked at in fresh processes."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import backends

TOP = Path(__file__).resolve().parents[2]
SCREEN = {"textual", "rich", "tui"}
HEAVY = {"mlflow", "numpy", "pandas", "torch", "autograd", "scipy", "matplotlib"}


def modules(package: str) -> list[str]:
    """All modules of a package of this checkout, by dotted name."""
    return sorted(
        name
        for _, name, _ in pkgutil.walk_packages([str(TOP / package)], f"{package}.")
        if not name.endswith("__main__")
    )


def loaded_after(names: list[str]) -> set[str]:
    """The top-level modules in `sys.modules` of a fresh process that imported `names`."""
    return {module.partition(".")[0] for module in all_loaded_after(names)}


def all_loaded_after(names: list[str]) -> set[str]:
    """All modules in `sys.modules` of a fresh process that imported `names`."""
    program = (
        "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    )
    answer = subprocess.run(
        (sys.executable, "-c", program, *names),
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return set(answer.stdout.split())


def test_no_module_of_backends_imports_the_screen():
    names = modules("backends")
    assert "backends.telemetry.collector" in names
    assert not loaded_after(names) & SCREEN


def test_the_process_that_draws_imports_nothing_heavy():
    names = [name for name in modules("tui") if not name.startswith("tui.commands.")]
    assert {"tui.cli", "tui.widgets.gpu_panel"} <= set(names)
    assert not loaded_after(names) & HEAVY


def test_the_command_line_itself_imports_neither_textual_nor_a_client():
    assert not loaded_after(["tui.cli"]) & (SCREEN - {"tui"} | HEAVY | {"httpx", "tomlkit", "psutil"})


def test_the_monitor_is_painted_before_anything_that_reads_megatron_is_imported():
    before = [
        "tui.cli",
        "tui.commands.watch",
        "tui.commands.attach",
        "tui.commands.app",
        "tui.app",
        "tui.screens.monitor",
    ]
    late = {"backends.megatron.parser", "backends.megatron.record", "statistics"}
    assert all_loaded_after(before) & late == set()


def test_nothing_but_programs_imports_the_demo():
    names = [name for name in modules("backends") if not name.startswith("backends.demo")]
    assert {m for m in all_loaded_after(names) if m.startswith("backends.demo.")} == set()


@pytest.mark.parametrize("package", ["backends", "tui"])
def test_every_folder_of_a_package_is_a_package(package: str):
    folders = {path.parent for path in (TOP / package).rglob("*.py")}
    assert {folder for folder in folders if not (folder / "__init__.py").is_file()} == set()


def test_a_module_of_backends_imports_only_what_stands_above_it():
    drawn = [line for line in (backends.__doc__ or "").splitlines() if line.startswith("    ")]
    rows = [line.strip().partition("  ")[0].split(", ") for line in drawn]
    height = {name: row for row, names in enumerate(rows) for name in names}
    files = sorted((TOP / "backends").rglob("*.py"))
    assert {part_of(path) for path in files} - {"__init__"} == set(height), "each has its row"
    upwards = [
        f"{path.relative_to(TOP)} imports backends.{name}"
        for path in files
        for name in imported_parts(path)
        if height[name] > height[part_of(path)]
    ]
    assert upwards == []


def part_of(path: Path) -> str:
    """The folder or module directly below backends/ that `path` is, or is in."""
    return path.relative_to(TOP / "backends").parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    """What a file imports of backends, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("backends."):
            found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "backends":
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("backends.")}
    return found
