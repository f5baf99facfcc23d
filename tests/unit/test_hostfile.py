"""The hostfile: read and judged line by line, found, written; names looked up without waiting for the slowest."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest
from waiting import LIMIT

from backends.errors import UserError
from backends.launch.hostfile import Host, parse
from backends.launch.hostfile_source import FoundHostfile, find_hostfile, hosts_of, save_hostfile, target_of
from backends.launch.mpirun import Mpirun
from backends.launch.placement import Placement, placed
from backends.launch.slurm_allocation import allocation_text, expand_counts, expand_nodelist
from backends.nodes.resolve import resolve
from backends.runs.plan import RunPlan
from backends.settings import MpiSettings, read_settings
from backends.workspace import Workspace

NOWHERE = Path("/nowhere/hostfile.txt")
PLAN = RunPlan(kind="train", trainer="megatron", launcher="mpirun", arguments=("--mock-data",), save="/s/x")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def test_names_slots_blanks_and_comments() -> None:
    read = parse(
        "# ours\nn1 slots=8\n\nn2.site slots = 8 max-slots=8 # the other\nuser@n-3 slots=8 max_slots=16\n"
    )
    assert read.hosts == (Host("n1", 8, 2), Host("n2.site", 8, 4), Host("user@n-3", 8, 5))
    assert read.notes == () and read.slots == 24
    assert [host.word for host in parse("a slots=2\nb").hosts] == ["a:2", "b"]


@pytest.mark.parametrize(
    ("line", "message", "remedy"),
    [
        ("n1:8", "how other MPIs write it", "n1 slots=8"),
        ("-x", "names no node", "NAME slots=GPUS"),
        ("n1,n2 slots=8", "names no node", "NAME"),
        ("n1 slot=8", "'slot=8' is not understood", "slots=N"),
        ("n1 slots", "'slots' is not understood", "slots=N"),
        ("n1 slots=0", "whole number from 1 on, not '0'", "slots=8"),
        ("n1 slots=eight", "whole number", "slots=8"),
        ("n1 slots=٣", "whole number", "slots=8"),
        ("n1 slots=8 max_slots=4", "less than slots=8", "out"),
        ("n1 \x1b[2Jslots=8", "not understood", "slots"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named_with_its_correction(line: str, message: str, remedy: str) -> None:
    read = parse(f"# first\n{line}\nn9 slots=8\n")
    assert [host.name for host in read.hosts] == ["n9"]
    (note,) = read.notes
    assert (note.line, note.severity) == (2, "error")
    assert message in note.message and remedy in note.remedy and "\x1b" not in note.message


def test_problems_between_lines_are_reported_beside_the_line() -> None:
    read = parse("n1 slots=8\nn2 slots=4\nn1 slots=8\nlocalhost\nn3 slots=8 username=me\n")
    assert [(note.line, note.severity) for note in read.notes] == [
        (2, "warning"), (3, "error"), (4, "warning"), (4, "error"), (5, "warning"),
    ]  # fmt: skip
    assert read.error is not None and "line 1 already" in read.error.message
    assert parse("localhost slots=8").error is None, "one machine may call itself so"


def test_the_one_asked_for_comes_first_then_settings_then_the_sites_then_slurms(workspace: Workspace) -> None:
    names = ("asked", "set", "site")
    asked, of_settings, site = (workspace.root / name for name in names)
    for path in (asked, of_settings, site):
        path.write_text(f"{path.name} slots=8\n")
    slurm = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "4(x2)"}

    def found(settings: MpiSettings, given: Path | None, at: Path) -> FoundHostfile | None:
        return find_hostfile(workspace, settings, slurm, given, at)

    named = MpiSettings(hostfile="set")
    assert found(named, asked, site) == FoundHostfile("asked for", asked, "asked slots=8\n")
    assert found(named, None, site) == FoundHostfile("settings", of_settings, "set slots=8\n")
    assert found(MpiSettings(), None, site) == FoundHostfile("site", site, "site slots=8\n")
    of_slurm = found(MpiSettings(), None, NOWHERE)
    assert of_slurm is not None and hosts_of(of_slurm) == ("n1:4", "n2:4")
    assert found(MpiSettings(hostfile="none"), None, site) is None
    assert found(named, Path("none"), site) is None
    assert find_hostfile(workspace, MpiSettings(), {}, None, NOWHERE) is None
    with pytest.raises(UserError, match="cannot be read: No such file"):
        found(named, NOWHERE, site)


def test_slurms_lists_are_expanded() -> None:
    assert expand_nodelist("gpu[01-03,7],login,rack2n[8-9]x") == [
        "gpu01", "gpu02", "gpu03", "gpu7", "login", "rack2n8x", "rack2n9x",
    ]  # fmt: skip
    assert expand_nodelist("") == [] and len(expand_nodelist("n[0-99999999]")) == 4096
    assert expand_counts("8(x2),4") == [8, 8, 4]
    assert (
        allocation_text({"SLURM_JOB_NODELIST": "a,b", "SLURM_GPUS_ON_NODE": "8"}) == "a slots=8\nb slots=8\n"
    )
    assert (
        allocation_text({"SLURM_JOB_NODELIST": "a,b", "SLURM_TASKS_PER_NODE": "3"})
        == "a slots=3\nb slots=1\n"
    )
    assert allocation_text({}) == ""


def test_a_slurm_allocation_is_used_only_for_megatrons_training_on_all_gpus(workspace: Workspace) -> None:
    slurm = {"SLURM_JOB_NODELIST": "a,b", "SLURM_GPUS_ON_NODE": "8"}
    wish = Placement(in_image=False)
    plan = placed(PLAN, workspace, wish, slurm)
    assert plan.hosts == ("a:8", "b:8") and plan.processes == 16
    assert placed(dataclasses.replace(PLAN, gpus=(0, 1)), workspace, wish, slurm).hosts == ()
    assert placed(dataclasses.replace(PLAN, trainer="demo"), workspace, wish, slurm).hosts == ()
    assert placed(PLAN, workspace, Placement(in_image=False, hostfile=Path("none")), slurm).hosts == ()


def test_a_node_without_slots_takes_a_process_for_each_chosen_gpu(workspace: Workspace) -> None:
    path = workspace.root / "hosts"
    path.write_text("a\nb\n")
    wish = Placement(in_image=False, hostfile=path)
    assert placed(dataclasses.replace(PLAN, gpus=(0, 1, 2)), workspace, wish).processes == 6
    assert placed(PLAN, workspace, wish).processes == 2


def test_processes_and_slots_must_agree_and_ranks_follow_the_slots(workspace: Workspace) -> None:
    mpirun = Mpirun(find=lambda name: f"/usr/bin/{name}", root=False)

    def said(processes: int) -> list[tuple[str, str]]:
        plan = dataclasses.replace(PLAN, hosts=("a:8", "b:8"), processes=processes)
        return [(p.severity, p.remedy) for p in mpirun.check(plan, workspace) if p.field == "hosts"]

    assert said(16) == said(9) == []
    assert said(24) == [("error", "Give --np 16, or more slots in the hostfile.")]
    assert said(8) == [("warning", "Give --np 16, or another --hostfile.")]
    command = mpirun.command(dataclasses.replace(PLAN, hosts=("a:8", "b:8"), processes=16), workspace)
    assert command.argv[command.argv.index("--map-by") + 1] == "slot"
    workspace.settings.write_text('[mpi]\noptions = ["--map-by", "ppr:8:node"]\n')
    command = mpirun.command(dataclasses.replace(PLAN, hosts=("a:8", "b:8"), processes=16), workspace)
    assert command.argv.count("--map-by") == 1


def test_saving_keeps_what_was_there_and_follows_links(workspace: Workspace) -> None:
    real, link = workspace.root / "real", workspace.root / "link"
    real.write_text("old slots=8\n")
    link.symlink_to(real)
    found = FoundHostfile("asked for", link, "old slots=8\n")
    target = target_of(found, workspace)
    assert target == real
    assert save_hostfile(target, "new slots=8", workspace, found) == workspace.root / "real.previous"
    assert link.is_symlink() and real.read_text() == "new slots=8\n"
    assert (workspace.root / "real.previous").read_text() == "old slots=8\n"
    assert not workspace.settings.exists(), "a file that was found needs no setting"


def test_a_new_hostfile_is_the_workspaces_and_is_found_again(workspace: Workspace) -> None:
    site = FoundHostfile("site", NOWHERE, "n1 slots=8\n")
    assert target_of(site, workspace) == target_of(None, workspace) == workspace.root / "hostfile.txt"
    assert save_hostfile(target_of(site, workspace), "n1 slots=4\n", workspace, site) is None
    settings = read_settings(workspace.settings).mpi
    again = find_hostfile(workspace, settings, {}, None, NOWHERE)
    assert again is not None and (again.why, again.text) == ("settings", "n1 slots=4\n")


def test_a_read_only_folder_is_reported(workspace: Workspace) -> None:
    file = workspace.root / "file"
    file.touch()
    with pytest.raises(UserError, match="cannot be written"):
        save_hostfile(file / "hosts", "n1\n", workspace, None)


def test_a_dead_name_server_delays_nothing() -> None:
    gone = threading.Event()

    def look(name: str) -> str:
        if name == "lost":
            gone.wait(LIMIT)
        if name == "nobody":
            raise OSError("no such host")
        return f"10.0.0.{len(name)}"

    try:
        answers = resolve(["n1", "lost", "nobody", "me@n2", "n1"], 0.5, look)
    finally:
        gone.set()
    assert answers == {"n1": "10.0.0.2", "nobody": None, "me@n2": "10.0.0.2"}
