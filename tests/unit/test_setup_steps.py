"""Each step knows from the disk whether it is done, and names the commands that are missing. Fakes stand for programs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fake_setup import FakePrograms, says

from backends.errors import UserError
from backends.programs import Answer, Programs
from backends.settings import ImageSettings, Settings
from backends.setup import image_step
from backends.setup.data_step import DataStep
from backends.setup.image_step import ImageStep, has_id_range
from backends.setup.megatron_step import MegatronStep
from backends.setup.mpi_step import MpiStep, judge_proof
from backends.setup.step import Action, Choices, Site
from backends.setup.versions import mismatch, read_mpi_version
from backends.setup.workspace_step import WorkspaceStep
from backends.workspace import Workspace

KNOWN = "baf94af3c667248865f23df73b9fb8e2395e6fd0"


def site(tmp_path: Path, programs: Programs, settings: Settings | None = None) -> Site:
    return Site(Workspace(tmp_path), settings or Settings(), {}, programs)


def test_a_bare_folder_wants_outputs(tmp_path: Path) -> None:
    here = site(tmp_path, FakePrograms([], {}))
    assert WorkspaceStep().look(here).verdict == "pending"
    assert [a.argv for a in WorkspaceStep().actions(here)] == [("mkdir", "-p", str(tmp_path / "outputs"))]
    (tmp_path / "outputs").mkdir()
    assert WorkspaceStep().look(here).verdict in ("ok", "warning")  # a warning where little disk is left
    assert WorkspaceStep().actions(here) == []


def test_several_nodes_want_a_shared_file_system(tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    here = replace(site(tmp_path, FakePrograms([], {})), choices=Choices(nodes=2))
    finding = WorkspaceStep().look(here)
    assert finding.verdict == "warning"
    assert "Every node must see the same folder" in finding.remedy


class TestMegatron:
    def clone(self, tmp_path: Path) -> Path:
        clone = tmp_path / "outputs" / "Megatron-LM"
        clone.mkdir(parents=True)
        (clone / "pretrain_gpt.py").touch()
        return clone

    def test_the_clone_is_made_beside_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "outputs").mkdir()
        here = site(tmp_path, FakePrograms(["git"], {}))
        clone, rename = MegatronStep().actions(here)
        assert clone.shown.startswith("git clone --progress --branch core_r0.8.0 -- https://")
        assert rename.argv == ("mv", "-n", "-T", "Megatron-LM.part", "Megatron-LM")

    def test_leftovers_of_an_interrupted_clone_are_removed_first(self, tmp_path: Path) -> None:
        (tmp_path / "outputs" / "Megatron-LM.part").mkdir(parents=True)
        actions = MegatronStep().actions(site(tmp_path, FakePrograms(["git"], {})))
        assert [a.argv[0] for a in actions] == ["rm", "git", "mv"]

    def test_the_right_commit_is_ok_and_changes_are_counted(self, tmp_path: Path) -> None:
        clone = self.clone(tmp_path)
        answers = {"rev-parse": says(f"{clone}\n{KNOWN}\n"), "status": says(" M a.py\n M b.py\n")}
        finding = MegatronStep().look(site(tmp_path, FakePrograms(["git"], answers)))
        assert (finding.verdict, finding.evidence) == (
            "ok",
            "core_r0.8.0 · baf94af · 2 tracked files changed",
        )

    def test_another_commit_is_a_warning(self, tmp_path: Path) -> None:
        clone = self.clone(tmp_path)
        answers = {
            "rev-parse": says(f"{clone}\n{'1' * 40}\n"),
            "status": says(""),
            "is-ancestor": Answer(1, "", ""),
        }
        finding = MegatronStep().look(site(tmp_path, FakePrograms(["git"], answers)))
        assert finding.verdict == "warning"
        assert "checkout baf94af3c6" in finding.remedy

    def test_a_folder_inside_another_repository_is_no_clone(self, tmp_path: Path) -> None:
        self.clone(tmp_path)
        answers = {"rev-parse": says(f"{tmp_path}\n{KNOWN}\n")}
        found = MegatronStep().look(site(tmp_path, FakePrograms(["git"], answers)))
        assert "not the top of a git clone" in found.evidence

    def test_without_git(self, tmp_path: Path) -> None:
        assert MegatronStep().look(site(tmp_path, FakePrograms([], {}))).verdict == "failed"
        with pytest.raises(UserError, match="no git"):
            MegatronStep().actions(site(tmp_path, FakePrograms([], {})))


@pytest.mark.parametrize(
    ("host", "image", "words"),
    [
        ("mpirun (Open MPI) 5.0.11", "mpirun (Open MPI) 5.0.7", ""),
        ("mpirun (Open MPI) 5.0.11", "mpirun (Open MPI) 4.1.4", "rank 0 of 1"),
        ("mpirun (Open MPI) 4.1.4", "mpirun (Open MPI) 4.0.5", "more than the patch number"),
        ("HYDRA build details:", "mpirun (Open MPI) 4.0.5", "MPICH and Open MPI"),
    ],
)
def test_versions_that_go_together(host: str, image: str, words: str) -> None:
    one, other = read_mpi_version(host), read_mpi_version(image)
    assert one and other
    found = mismatch(one, other)
    assert words in found and bool(words) == bool(found)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (says("mdk-rank 0 of 2 sum 3\nmdk-rank 1 of 2 sum 3\n"), ""),
        (says("mdk-rank 1 of 2 sum 3\nmdk-rank 0 of 2 sum 3\n"), ""),
        (says("mdk-rank 0 of 1 sum 1\nmdk-rank 0 of 1 sum 1\n"), "alone"),
        (Answer(1, "", "ModuleNotFoundError: No module named 'mpi4py'"), "no mpi4py"),
        (Answer(1, "", "-----\nMPI_Init failed\n"), "MPI_Init failed"),
        (Answer(None, "", "no answer within 60 s"), "no answer within 60 s"),
        (says("mdk-rank 0 of 2 sum 3\n"), "failed"),
    ],
)
def test_two_ranks_must_really_meet(answer: Answer, words: str) -> None:
    found = judge_proof(answer)
    assert words in found and bool(words) == bool(found)


class TestMpi:
    def test_a_mismatch_names_the_build_argument(self, tmp_path: Path) -> None:
        image = tmp_path / "x.sif"
        image.touch()
        answers = {
            "exec": says("mpirun (Open MPI) 4.1.7"),
            "mpirun --version": says("mpirun (Open MPI) 5.0.5"),
        }
        here = site(
            tmp_path,
            FakePrograms(["mpirun", "singularity"], answers),
            Settings(image=ImageSettings(path=str(image))),
        )
        finding = MpiStep().look(here)
        assert finding.verdict == "failed"
        assert finding.evidence.startswith("host 5.0.5   image 4.1.7")
        assert "--build-arg OPENMPI=5.0.5" in finding.remedy
        of_debian = replace(here, choices=Choices(definition=Path("cpu.def")))
        assert "SUITE" in MpiStep().look(of_debian).remedy

    def test_equal_versions_are_not_believed_without_the_proof(self, tmp_path: Path) -> None:
        image = tmp_path / "x.sif"
        image.touch()
        version = says("mpirun (Open MPI) 5.0.5")
        alone = says("mdk-rank 0 of 1 sum 1\nmdk-rank 0 of 1 sum 1\n")
        programs = FakePrograms(["mpirun", "singularity"], {"--np 2": alone, "--version": version})
        here = site(tmp_path, programs, Settings(image=ImageSettings(path=str(image))))
        assert "alone" in MpiStep().look(here).evidence

    def test_without_mpirun(self, tmp_path: Path) -> None:
        assert MpiStep().look(site(tmp_path, FakePrograms([], {}))).verdict == "failed"


class TestImage:
    def test_built_under_a_temporary_name(self, tmp_path: Path) -> None:
        definition = tmp_path / "my.def"
        (tmp_path / "outputs" / "Megatron-LM").mkdir(parents=True)
        definition.write_text("Bootstrap: docker\nFrom: x\n%post\n  echo {{ OPENMPI }}\n")
        answers = {"mpirun --version": says("mpirun (Open MPI) 5.0.5")}
        here = site(tmp_path, FakePrograms(["singularity", "mpirun"], answers))
        build, rename = ImageStep().actions(replace(here, choices=Choices(definition=definition)))
        part = str(tmp_path / "outputs" / "Megatron-LM" / "pytorch.sif.part")
        assert build.argv == (
            "singularity",
            "build",
            "--fakeroot",
            "--build-arg",
            "OPENMPI=5.0.5",
            part,
            str(definition),
        )
        assert rename.argv == ("mv", "-n", "-T", part, part.removesuffix(".part"))

    def test_a_finished_image_is_never_rebuilt(self, tmp_path: Path) -> None:
        image = tmp_path / "x.sif"
        image.touch()
        here = site(
            tmp_path, FakePrograms(["singularity"], {}), Settings(image=ImageSettings(path=str(image)))
        )
        assert ImageStep().actions(here) == []

    def test_a_broken_image_is_named(self, tmp_path: Path) -> None:
        image = tmp_path / "x.sif"
        image.write_bytes(b"no image")
        answers = {"inspect": Answer(255, "", "FATAL:   could not open image: unknown format")}
        here = site(
            tmp_path, FakePrograms(["singularity"], answers), Settings(image=ImageSettings(path=str(image)))
        )
        finding = ImageStep().look(here)
        assert finding.verdict == "failed" and "unknown format" in finding.evidence

    def test_room_is_needed_only_where_a_base_is_unpacked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usage = shutil.disk_usage(tmp_path)._replace(free=10**9)
        monkeypatch.setattr(image_step.shutil, "disk_usage", lambda folder: usage)
        monkeypatch.setattr(image_step, "has_id_range", lambda file, user: True)
        (tmp_path / "build-temp-1").mkdir()
        here = site(tmp_path, FakePrograms(["singularity"]))
        here = replace(here, environment={"APPTAINER_TMPDIR": str(tmp_path)})
        found = ImageStep().look(here)
        assert found.verdict == "warning" and "set APPTAINER_TMPDIR" in found.remedy
        found = ImageStep().look(replace(here, choices=Choices(definition=Path("cpu.def"))))
        assert found.verdict == "pending"
        assert found.details[-1].startswith(f"{tmp_path / 'build-temp-1'} is left of a build")

    def test_id_ranges_are_looked_up_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "subuid").write_text("ann:100000:65536\n")
        assert has_id_range(tmp_path / "subuid", "ann")
        assert not has_id_range(tmp_path / "subuid", "an")
        assert not has_id_range(tmp_path / "missing", "ann")


class TestData:
    def test_the_tutorials_downloads_then_preprocessing(self, tmp_path: Path) -> None:
        (tmp_path / "outputs" / "Megatron-LM").mkdir(parents=True)
        actions = DataStep().actions(site(tmp_path, FakePrograms(["singularity"], {})))
        assert [a.title for a in actions] == [
            "download the RedPajama sample",
            "download GPT-2's vocab.json",
            "download GPT-2's merges.txt",
            "preprocess",
            "is it whole?",
            "put the .bin in place",
            "put the .idx in place",
        ]
        assert {"tools/preprocess_data.py", "--append-eod", "--json-keys"} <= set(actions[3].argv)

    def test_a_bin_without_its_idx_is_not_overwritten(self, tmp_path: Path) -> None:
        folder = tmp_path / "outputs" / "Megatron-LM"
        folder.mkdir(parents=True)
        (folder / "arxiv_text_document.bin").write_bytes(b"12")
        here = site(tmp_path, FakePrograms(["singularity"], {}))
        assert DataStep().look(here).verdict == "failed"
        with pytest.raises(UserError, match="not whole"):
            DataStep().actions(here)

    def test_a_bad_line_is_named_before_preprocessing(self, tmp_path: Path) -> None:
        corpus = tmp_path / "mine.jsonl"
        corpus.write_text('{"text": "good"}\n{"txt": "bad"}\n')
        here = replace(site(tmp_path, FakePrograms(["singularity"], {})), choices=Choices(corpus=corpus))
        finding = DataStep().look(here)
        assert finding.verdict == "failed"
        assert "line 2 has no key 'text'" in finding.evidence


def test_what_is_shown_can_be_typed(tmp_path: Path) -> None:
    action = Action("x", ("echo", "a b", "$HOME"), tmp_path, {"A": "1 2"}, stdin=Path("in put"))
    assert action.shown == "A='1 2' echo 'a b' '$HOME' < 'in put'"
