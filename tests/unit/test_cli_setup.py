"""`mdk-tui setup --dry-run` of a new workspace: all that would run, or what it waits for."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from tui.cli import cli


def test_a_dry_run_without_a_step_shows_the_commands_of_each(tmp_path: Path) -> None:
    shown = CliRunner().invoke(cli, ["-w", str(tmp_path), "setup", "--dry-run"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert (
        f"\n# workspace\n# make the folder\ncd {tmp_path}\nmkdir -p {tmp_path / 'outputs'}\n" in shown.output
    )
    assert "\n# data: " in shown.output and "Do the step megatron first." in shown.output
    assert not (tmp_path / "outputs").exists()
