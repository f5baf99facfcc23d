"""The Nodes screen: the hostfile with notes beside its lines, the probe, and saving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_runs import listing
from textual.pilot import Pilot
from textual.widgets import TextArea
from waiting import until_seen

from backends.errors import UserError
from backends.launch.hostfile import parse
from backends.launch.hostfile_source import FoundHostfile
from backends.nodes import allreduce, resolve, survey
from backends.nodes.verdicts import NodeVerdict
from backends.setup.step import Finding
from backends.workspace import Workspace
from tui.app import MdkApp, Opening
from tui.appearance import Appearance
from tui.glyphs import UNICODE
from tui.screens import nodes_view
from tui.screens.details import Details

TEXT = "# two nodes\nnode1 slots=8\nnode2 slots=8\nnode3 slot=8\nnode1 slots=8\n"
GOOD = NodeVerdict(
    "node1", (Finding("gpus", "ok", "8 × NVIDIA H100, 80 GiB"), Finding("clock", "ok", "")), 1.2
)
OLD = NodeVerdict(
    "node2",
    (
        Finding("gpus", "ok", "8 × NVIDIA H100, 80 GiB"),
        Finding(
            "image",
            "failed",
            "another image: 18.0 GB instead of 19.2 GB [/x]",
            "Copy it: rsync IMAGE NODE:IMAGE",
        ),
        Finding("clock", "warning", "its clock is 3.2 s slow", "Start chrony or ntpd there."),
    ),
    1.4,
)


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    def known(wanted: Sequence[str]) -> dict[str, str | None]:
        return {name: None if name == "node2" else "10.0.0.1" for name in wanted}

    monkeypatch.setattr(resolve, "resolve", known)


def application(root: Path) -> MdkApp:
    return MdkApp(Workspace(root), Appearance(calm=True), Opening("nodes"), watch=listing())


def shown(app: MdkApp, selector: str) -> str:
    widget = app.screen.query_one(selector)
    return "\n".join(
        "".join(part.text for part in widget.render_line(y)).rstrip() for y in range(widget.size.height)
    )


def to_end(app: MdkApp) -> None:
    area = app.screen.query_one(TextArea)
    area.move_cursor(area.document.end)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "hosts").write_text(TEXT)
    (tmp_path / "mdk.toml").write_text('[mpi]\nhostfile = "hosts"\n')
    return tmp_path


def probing(monkeypatch: pytest.MonkeyPatch, *steps: list[NodeVerdict]) -> list[Any]:
    """A probe that answers in `steps`; which nodes it was asked for."""
    asked: list[Any] = []

    def probe(site: Any, nodes: Any) -> Iterator[list[NodeVerdict]]:
        asked.append(nodes.names)
        yield from steps

    monkeypatch.setattr(survey, "probe", probe)
    return asked


async def test_each_line_has_its_trouble_beside_it(root: Path) -> None:
    app = application(root)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until_seen(pilot, lambda: "10.0.0.1" in shown(app, "#beside"))
        lines = shown(app, "#beside").split("\n")
        assert lines[0].strip() == "" and lines[1].strip() == "✓ 10.0.0.1   8 slots"
        assert "name is not known here" in lines[2]
        assert "'slot=8' is not understood" in lines[3] and "line 2 already" in lines[4]
        assert "hosts (named in mdk.toml)" in shown(app, "#heading")
    assert app.failures == []


async def test_lines_and_their_trouble_scroll_together(root: Path) -> None:
    (root / "hosts").write_text("".join(f"n{at} slots=8\n" for at in range(60)) + "bad slot=1\n")
    app = application(root)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until_seen(pilot, lambda: "10.0.0.1" in shown(app, "#beside"))
        await pilot.press("e")
        to_end(app)
        await until_seen(pilot, lambda: "not understood" in shown(app, "#beside"))
        area = app.screen.query_one(TextArea)
        at = next(y for y, line in enumerate(shown(app, "#beside").split("\n")) if "not understood" in line)
        assert area.document.get_line(int(area.scroll_y) + at) == "bad slot=1"


async def test_an_edit_is_judged_while_typing_and_written_with_the_old_one_kept(root: Path) -> None:
    app = application(root)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await until_seen(pilot, lambda: app.screen.query_one(TextArea).text == TEXT)
        await pilot.press("e")
        to_end(app)
        await pilot.press(*"node4 slots=0")
        await until_seen(pilot, lambda: "whole number" in shown(app, "#beside"))
        assert "changed: ctrl+s writes" in shown(app, "#heading")
        assert (root / "hosts").read_text() == TEXT, "nothing is written before it is asked for"
        await pilot.press("backspace", "8", "ctrl+s")
        await until_seen(pilot, lambda: (root / "hosts").read_text() == f"{TEXT}node4 slots=8\n")
        await until_seen(pilot, lambda: "changed" not in shown(app, "#heading"))
        assert (root / "hosts.previous").read_text() == TEXT
        await pilot.press("escape", "1")
        assert app.current_mode == "home", "out of the field digits lead on"
    assert app.failures == []


async def test_a_workspace_without_a_hostfile_gets_one_of_its_own(tmp_path: Path) -> None:
    app = application(tmp_path)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await until_seen(pilot, lambda: "no hostfile" in shown(app, "#heading"))
        await pilot.press("e", *"n1 slots=8", "ctrl+s")
        await until_seen(pilot, (tmp_path / "mdk.toml").exists)
        await until_seen(pilot, lambda: "named in mdk.toml" in shown(app, "#heading"))
    assert (tmp_path / "hostfile.txt").read_text() == "n1 slots=8\n"


async def test_a_probe_names_the_bad_node_with_its_remedy(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "hosts").write_text("node1 slots=8\nnode2 slots=8\n")
    asked = probing(monkeypatch, [GOOD], [GOOD, OLD])
    app = application(root)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until_seen(pilot, lambda: "10.0.0.1" in shown(app, "#beside"))
        await pilot.press("p")
        await until_seen(pilot, lambda: "another image" in shown(app, "#nodes"))
        assert asked == [["node1", "node2"]]
        await pilot.press("down")
        details = shown(app, "#details")
        assert "[/x]" in details and "rsync IMAGE" in details and "chrony" in details
    assert app.failures == []


async def test_a_probe_that_cannot_be_made_says_why(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "hosts").write_text("")
    monkeypatch.setattr(survey, "own_allocation", refuse)
    app = application(root)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await pilot.pause()
        await pilot.press("p")
        await until_seen(pilot, lambda: isinstance(app.screen, Details))
        await pilot.press("escape")
        assert "p" in app.screen.active_bindings, "it can be asked again"
    assert app.failures == []


def refuse(site: Any) -> Any:
    raise UserError("There is no mpirun in PATH [/x].", "Load a module.")


def test_a_host_name_that_is_not_looked_up_yet_has_no_verdict() -> None:
    said = nodes_view.beside(parse("a slots=2\nb\n"), {}, frozenset({"a"}), UNICODE)
    assert "does not answer" in said[1][0] and said[2][0].startswith("! It does not say slots")
    assert nodes_view.rows(["a"], [], UNICODE)[0].spans[-1] == ("  is asked", "dim")
    words = nodes_view.heading(
        parse("a slots=1"), FoundHostfile("Slurm", None, ""), Path("/w/h"), True, Path("/w")
    )
    assert (
        "1 node, 1 process" in words[0][0] and words[1][0].endswith("writes h") and "Slurm's" in words[2][0]
    )


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
def test_nodes(snap_compare: Any, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path("/home/user/mdk")
    probing(monkeypatch, [GOOD, OLD])
    monkeypatch.setattr(
        "tui.screens.nodes.find_hostfile",
        lambda *_: FoundHostfile("site", Path("/opt/faib/etc/hostfile.txt"), TEXT[:40]),
    )
    app = application(root)

    async def before(pilot: Pilot[Any]) -> None:
        await until_seen(pilot, lambda: "10.0.0.1" in shown(app, "#beside"))
        await pilot.press("p")
        await until_seen(pilot, lambda: "another image" in shown(app, "#nodes"))
        await pilot.press("down")
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=before)


async def test_an_all_reduce_is_tried_after_the_probe_and_stands_below_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "hosts").write_text("node1 slots=8\n")
    probing(monkeypatch, [GOOD])
    finding = Finding("all-reduce", "warning", "8 GPUs: 90.0 GB/s [/x]", "Look at node1.")
    monkeypatch.setattr(allreduce, "tried", lambda *_: finding)
    app = application(root)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until_seen(pilot, lambda: "10.0.0.1" in shown(app, "#beside"))
        await pilot.press("a")
        await until_seen(pilot, lambda: "90.0 GB/s [/x]" in shown(app, "#nodes"))
        await pilot.press("down")
        assert "Look at node1." in shown(app, "#details")
    assert app.failures == []
