"""The checkout itself: nothing of a developer's machine in it, and what a wheel carries is found from both places."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backends import resources
from backends.models.presets import KEYS as PRESET_KEYS
from backends.settings import PRESET_SECTION, SECTIONS
from tui.app import PLACES
from tui.cli import COMMANDS

TOP = Path(__file__).resolve().parents[2]
# Files that quote other machines' paths on purpose: logs and what was copied from them.
QUOTING = ("tests/data/", "tests/app/__snapshots__/")
MACHINE_PATHS = re.compile(
    rb"(?<![\w.$}])/(?:work/main|work/shared|root/\.|home/(?!user/)[a-z]+/)"
)  # /home/user: an invented one, in pictures
REGISTRIES = re.compile(rb"(?:index-url|registry)\s*[=:]\s*\S*://|files\.pythonhosted\.org")


def tracked() -> list[Path]:
    """The files of the repository that are there (in a source tree without git: all of them)."""
    if not (TOP / ".git").exists():
        return [
            path
            for name in ("backends", "tui", "tests", "patches", "singularity")
            for path in (TOP / name).rglob("*")
            if path.is_file()
        ]
    names = subprocess.run(
        ("git", "-c", f"safe.directory={TOP}", "ls-files", "-z"), cwd=TOP, capture_output=True, check=True
    ).stdout
    return [path for name in names.decode().split("\0") if name and (path := TOP / name).is_file()]


def offenders(pattern: re.Pattern[bytes]) -> list[str]:
    found: list[str] = []
    for path in tracked():
        name = path.relative_to(TOP).as_posix()
        if name.startswith(QUOTING) or path == Path(__file__):
            continue
        found += [
            f"{name}: {match[0].decode(errors='replace')}" for match in pattern.finditer(path.read_bytes())
        ]
    return found


def test_no_path_of_a_developers_machine():
    assert offenders(MACHINE_PATHS) == []


def test_no_package_registry_is_named():
    assert offenders(REGISTRIES) == []


def test_no_file_is_big():
    big = [path for path in tracked() if path.stat().st_size > 1 << 20]
    assert [path.relative_to(TOP).as_posix() for path in big] == []


def test_the_top_level_is_what_the_architecture_says():
    allowed = {"tui", "backends", "patches", "singularity", "tests", "pyproject.toml", "README.md", "LICENSE"}
    top = {path.relative_to(TOP).parts[0] for path in tracked()}
    assert {name for name in top if not name.startswith(".")} <= allowed


def test_readme_shows_both_commands_in_one_line_each_and_links_to_what_exists():
    readme = (TOP / "README.md").read_text()
    for name in ("demo", "tests"):
        block = re.search(rf"^```sh {name}\n(.*?)^```$", readme, re.M | re.S)
        assert block is not None and block[1].count("\n") == 1, name
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", readme) if "://" not in link]
    assert [link for link in links if not (TOP / link).exists()] == []


def test_readme_has_every_command_and_every_screen_in_its_tables():
    readme = (TOP / "README.md").read_text()
    commands = re.search(r"^## Commands$(.*?)^## ", readme, re.M | re.S)
    words = re.findall(r"`(?:mdk-tui )?([a-z]+)", commands[1]) if commands else []
    assert set(COMMANDS) - set(words) == set()
    titles = ", ".join(place.title for place in PLACES)
    assert f"| `{PLACES[0].key}` … `{PLACES[-1].key}` | {titles} |" in readme


def test_readme_names_every_setting():
    rows = re.findall(r"^\| `\[([a-z]+)(?:\.NAME)?\]` \| (.*?) \|", (TOP / "README.md").read_text(), re.M)
    told = {name: set(re.findall(r"`(\w+)`", keys)) for name, keys in rows}
    known = {name: {field.name for field in dataclasses.fields(kind)} for name, kind in SECTIONS.items()}
    assert told == {**known, PRESET_SECTION: set(PRESET_KEYS)}


@pytest.mark.parametrize("name", ["patches", "singularity"])
def test_resources_are_found_from_a_checkout(name: str):
    assert resources.resource_folder(name) == TOP / name


@pytest.mark.parametrize("name", ["patches", "singularity"])
def test_resources_are_found_where_a_wheel_puts_them(name: str, tmp_path: Path):
    installed = tmp_path / "backends"
    installed.mkdir()
    shutil.copy(resources.__file__, installed)
    (installed / "__init__.py").touch()
    shutil.copytree(TOP / name, installed / name)
    program = f"from backends.resources import resource_folder; print(resource_folder({name!r}))"
    answer = subprocess.run(
        (sys.executable, "-c", program), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == str(installed / name)


def test_a_missing_resource_is_reported():
    with pytest.raises(FileNotFoundError, match="no folder 'nonsense'"):
        resources.resource_folder("nonsense")
