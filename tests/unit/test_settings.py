"""mdk.toml is read strictly and written with the user's comments kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.errors import UserError
from backends.settings import Settings, read_settings, write_setting


def test_a_missing_file_means_the_defaults(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "mdk.toml") == Settings()


def test_values_are_typed(tmp_path: Path) -> None:
    path = tmp_path / "mdk.toml"
    path.write_text(
        '[stop]\nlimit_minutes = 2\n[image]\nbind = ["/data", "/scratch:/s:ro"]\nno_home = true\n'
    )
    settings = read_settings(path)
    assert settings.stop.limit_minutes == 2.0
    assert settings.image.bind == ("/data", "/scratch:/s:ro")
    assert settings.image.no_home


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("[imag]\n", "unknown section [imag]", "'image'"),
        ("[image]\nbinds = []\n", "unknown key 'binds' in [image]", "'bind'"),
        ("[image]\nbind = 3\n", "image.bind must be a list of texts, not 3", ""),
        ("[image]\nno_home = 1\n", "image.no_home must be true or false", ""),
        ("[stop]\nlimit_minutes = true\n", "stop.limit_minutes must be a number", ""),
        ("stop = 3\n", "stop must be a section", "[stop]"),
        ("[stop\n", "not valid TOML", "Mend the line"),
    ],
)
def test_what_is_not_understood_is_named(tmp_path: Path, text: str, message: str, remedy: str) -> None:
    path = tmp_path / "mdk.toml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_settings(path)
    assert message in caught.value.message
    assert remedy in caught.value.remedy
    assert str(path) in caught.value.message


def test_binary_rubbish_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "mdk.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not valid TOML"):
        read_settings(path)


def test_writing_one_value_keeps_the_comments(tmp_path: Path) -> None:
    path = tmp_path / "mdk.toml"
    path.write_text("# ours\n[stop]\nlimit_minutes = 5 # the disk is slow\n")
    write_setting(path, "image", "bind", ("/data",))
    write_setting(path, "stop", "limit_minutes", 7.0)
    assert path.read_text().startswith("# ours\n[stop]\nlimit_minutes = 7.0 # the disk is slow\n")
    assert read_settings(path).image.bind == ("/data",)


def test_an_unknown_key_is_never_written(tmp_path: Path) -> None:
    path = tmp_path / "mdk.toml"
    with pytest.raises(UserError, match="unknown key 'limt_minutes'"):
        write_setting(path, "stop", "limt_minutes", 7.0)
    assert not path.exists()
