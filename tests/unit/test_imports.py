"""Who imports whom: tui → backends and never back, no cycles, and a process that draws without heavy modules."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
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
        timeout=300,
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
        "tui.application",
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


def test_commands_and_screens_share_backends_and_not_each_other():
    """The one door from the commands to the screens is tui.application."""
    imports = imports_of("tui")
    commands = {name for name in imports if name.startswith("tui.commands.")}
    assert "tui.commands.launch" in commands and "tui.screens.launch" in imports
    for name, imported in imports.items():
        if name in commands:
            assert not {m for m in imported if m.startswith(("tui.screens", "tui.widgets", "tui.app."))}, name
            assert "tui.app" not in imported, name
        elif name != "tui.cli":
            assert not imported & commands, name


@pytest.mark.parametrize("package", ["backends", "tui"])
def test_no_modules_import_each_other_in_a_circle(package: str):
    """Imports inside functions count too: a late import must not hide a cycle. Those for type checkers do not."""
    imports = imports_of(package)
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " imports ".join((*path[path.index(name) :], name))
        if name not in done:
            for imported in sorted(imports.get(name, ())):
                visit(imported, (*path, name))
            done.add(name)

    for name in sorted(imports):
        visit(name, ())


def imports_of(package: str) -> dict[str, set[str]]:
    """Module → the modules of the same package that it imports, wherever in its text, except for type checkers."""
    names = set(modules(package))
    found: dict[str, set[str]] = {}
    for name in names:
        file = TOP / name.replace(".", "/")
        path = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
        said: set[str] = set()
        for node in run_time_nodes(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                said |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                said |= {alias.name for alias in node.names}
        found[name] = (said & names) - {name}
    return found


def run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below `node`, without the bodies of `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if (
            isinstance(child, ast.If)
            and isinstance(child.test, ast.Name)
            and child.test.id == "TYPE_CHECKING"
        ):
            continue
        yield child
        yield from run_time_nodes(child)


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
