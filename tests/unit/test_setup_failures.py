"""Failures of the set-up with the real git, patch and python: each gives a sentence with a remedy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_setup import FakePrograms, fake_site, says
from scripted_jobs import wait_for

from backends import programs
from backends.errors import UserError
from backends.programs import Answer, RealPrograms
from backends.settings import DataSettings, MegatronSettings, Settings
from backends.setup import workspace_step
from backends.setup.data_step import DataStep
from backends.setup.job import job_folder, start_job
from backends.setup.megatron_step import MegatronStep, repository
from backends.setup.mpi_step import MpiStep, judge_proof
from backends.setup.runner import run_actions
from backends.setup.step import Action, Choices, Site
from backends.setup.workspace_step import WorkspaceStep, write_refused
from backends.ticks import GIB
from backends.workspace import Workspace
from tui.commands.data import command as data_command

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None or shutil.which("patch") is None, reason="there is no git or no patch"
)
# Nothing of the user's own git, and no waiting for a password.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
}  # fmt: skip


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository with the branch core_r0.8.0 and another."""
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "core_r0.8.0")
    (folder / "pretrain_gpt.py").write_text("print('training')\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    git(folder, "branch", "other")
    return folder


def site(tmp_path: Path, repository: str | Path, branch: str = "core_r0.8.0") -> Site:
    workspace = Workspace(tmp_path / "ws")
    workspace.outputs.mkdir(parents=True, exist_ok=True)
    settings = Settings(megatron=MegatronSettings(str(repository), branch))
    return Site(workspace, settings, ENVIRONMENT, RealPrograms(ENVIRONMENT))


def run(actions: Sequence[Action], tmp_path: Path, environment: dict[str, str] = ENVIRONMENT) -> None:
    with (tmp_path / "output").open("wb") as out:
        run_actions(actions, environment, out)


# Megatron-LM.


def test_a_clone_is_made_recognised_and_its_changes_are_seen(tmp_path: Path, origin: Path) -> None:
    here = site(tmp_path, origin, "other")
    run(MegatronStep().actions(here), tmp_path)
    found = MegatronStep().look(here)
    assert (found.verdict, found.evidence[:5], found.evidence[-5:]) == ("ok", "other", "clean")
    assert MegatronStep().actions(here) == []
    (here.workspace.megatron / "pretrain_gpt.py").write_text("edited\n")
    dirty = MegatronStep().look(here)
    assert "1 tracked file changed" in dirty.evidence and " M pretrain_gpt.py" in dirty.details


def test_a_repository_is_named_from_where_its_name_was_written(
    tmp_path: Path, origin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = site(tmp_path, "../origin.bundle")
    assert repository(here) == "../origin.bundle", "an address, as long as there is no such file"
    (tmp_path / "origin.bundle").touch()
    assert Path(repository(here)).samefile(tmp_path / "origin.bundle")
    monkeypatch.chdir(tmp_path)
    assert repository(replace(here, choices=Choices("origin.bundle"))) == str(tmp_path / "origin.bundle")
    with pytest.raises(UserError, match="no such user"):
        repository(replace(here, choices=Choices("~nobody-of-that-name/x")))


def test_another_branch_than_wanted_is_a_warning(tmp_path: Path, origin: Path) -> None:
    here = site(tmp_path, origin, "other")
    run(MegatronStep().actions(here), tmp_path)
    clone = here.workspace.megatron
    (clone / "pretrain_gpt.py").write_text("of core\n")
    git(clone, "checkout", "-q", "--orphan", "elsewhere")
    git(clone, "commit", "-qam", "another history")
    found = MegatronStep().look(here)
    assert found.verdict == "warning" and "not other" in found.evidence and "checkout" in found.remedy


def test_commits_of_ones_own_on_top_are_counted(tmp_path: Path, origin: Path) -> None:
    here = site(tmp_path, origin, "other")
    run(MegatronStep().actions(here), tmp_path)
    (here.workspace.megatron / "pretrain_gpt.py").write_text("mine\n")
    git(here.workspace.megatron, "commit", "-qam", "mine")
    found = MegatronStep().look(here)
    assert found.verdict == "ok" and "1 commit on top" in found.evidence


def test_without_network_a_bundle_is_explained_and_works(tmp_path: Path, origin: Path) -> None:
    offline = site(tmp_path, "https://host.invalid/NVIDIA/Megatron-LM")
    with pytest.raises(UserError, match="does not reach that host") as refused:
        run(MegatronStep().actions(offline), tmp_path)
    assert "git bundle create" in refused.value.remedy and "https_proxy" in refused.value.remedy
    git(tmp_path, "clone", "-q", "--mirror", str(origin), "mirror")
    git(tmp_path / "mirror", "bundle", "create", "../megatron.bundle", "--all")
    here = site(tmp_path, tmp_path / "megatron.bundle", "other")
    run(MegatronStep().actions(here), tmp_path)
    assert MegatronStep().look(here).verdict == "ok"


@pytest.mark.parametrize(
    ("repository", "branch", "words"),
    [
        ("origin", "nope", "no such branch"),
        ("nowhere", "other", "no repository at that address"),
        ("https://127.0.0.1:9/x", "other", "does not answer"),
    ],
)
def test_a_clone_that_fails_says_why(
    repository: str, branch: str, words: str, tmp_path: Path, origin: Path
) -> None:
    address = repository if "://" in repository else tmp_path / repository
    with pytest.raises(UserError, match=words) as refused:
        run(MegatronStep().actions(site(tmp_path, address, branch)), tmp_path)
    assert refused.value.remedy
    assert not (tmp_path / "ws/outputs/Megatron-LM").exists()


def test_a_proxy_that_refuses_a_clone_is_named(tmp_path: Path) -> None:
    proxied = {**ENVIRONMENT, "https_proxy": "http://127.0.0.1:9"}
    with pytest.raises(UserError, match="does not answer") as refused:
        run(MegatronStep().actions(site(tmp_path, "https://host.invalid/x")), tmp_path, proxied)
    assert "proxy" in refused.value.remedy


def test_an_interrupted_clone_starts_again(tmp_path: Path, origin: Path) -> None:
    here = site(tmp_path, origin, "other")
    part = here.workspace.outputs / "Megatron-LM.part"
    (part / ".git").mkdir(parents=True)
    run(MegatronStep().actions(here), tmp_path)
    assert MegatronStep().look(here).verdict == "ok" and not part.exists()


def test_a_folder_that_is_no_clone_is_left_alone(tmp_path: Path, origin: Path) -> None:
    here = site(tmp_path, origin)
    here.workspace.megatron.mkdir()
    found = MegatronStep().look(here)
    assert (
        found.verdict == "failed"
        and "not the top of a git clone" in found.evidence
        and "Move the folder away" in found.remedy
    )
    assert MegatronStep().actions(here) == []


# Workspace.


def test_a_folder_in_which_nothing_can_be_written(tmp_path: Path) -> None:
    refused = write_refused(Path("/proc"))
    assert refused is not None and refused.strerror
    assert write_refused(tmp_path) is None


@pytest.mark.parametrize(("free", "verdict"), [(20 * GIB, "warning"), (400 * GIB, "ok")])
def test_too_little_disk_is_reported_before_an_image_is_built(
    tmp_path: Path, free: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type(shutil.disk_usage(tmp_path))(500 * GIB, 500 * GIB - free, free)
    monkeypatch.setattr(workspace_step.shutil, "disk_usage", lambda folder: usage)
    found = WorkspaceStep().look(site(tmp_path, "x"))
    assert found.verdict == verdict
    assert verdict == "ok" or "APPTAINER_TMPDIR" in found.remedy


# MPI.


def test_another_vendors_mpirun_is_named(tmp_path: Path) -> None:
    answers = {"mpirun --version": says("HYDRA build details:\n    Version: 4.1.2\n")}
    here = fake_site(
        tmp_path,
        FakePrograms(["mpirun", "singularity"], {"exec": says("mpirun (Open MPI) 5.0.5"), **answers}),
    )
    here.image.parent.mkdir(parents=True)
    here.image.touch()
    found = MpiStep().look(here)
    assert (
        found.verdict == "failed" and "MPICH and Open MPI do not start each other's ranks" in found.evidence
    )
    assert "Load the Open MPI module" in found.remedy
    assert MpiStep().actions(here) == [], "no image of ours follows another vendor"


def test_a_mismatched_image_is_rebuilt_with_the_hosts_version_and_the_old_one_kept(tmp_path: Path) -> None:
    programs = FakePrograms(
        ["mpirun", "singularity"],
        {"exec": says("mpirun (Open MPI) 4.1.7"), "mpirun --version": says("mpirun (Open MPI) 5.0.5")},
    )
    here = fake_site(tmp_path, programs)
    here.image.parent.mkdir(parents=True)
    here.image.touch()
    build, aside, rename = MpiStep().actions(here)
    assert "OPENMPI=5.0.5" in build.argv and build.argv[-2].endswith("pytorch.sif.part")
    assert aside.argv[-1].endswith("pytorch.sif.open-mpi-4.1.7")
    assert rename.argv[-1] == str(here.image)


def test_two_ranks_that_met_are_believed_even_when_mpirun_hangs_at_the_end() -> None:
    assert judge_proof(Answer(None, "mdk-rank 0 of 2 sum 3\nmdk-rank 1 of 2 sum 3\n", "no answer")) == ""


@pytest.mark.parametrize("stubborn", ["", "trap '' TERM; "])
def test_a_program_that_hangs_costs_its_time_limit_and_tells_what_it_said(
    stubborn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "END_LIMIT", 0.2)
    began = time.monotonic()
    answer = RealPrograms(ENVIRONMENT).ask(["bash", "-c", f"{stubborn}echo said; exec sleep 1000"], timeout=3)
    assert (answer.status, answer.stdout, answer.stderr) == (None, "said\n", "no answer within 3 s")
    assert time.monotonic() - began < 100


# Data.


def data_site(tmp_path: Path, corpus: bytes) -> Site:
    file = tmp_path / "mine.jsonl"
    file.write_bytes(corpus)
    (tmp_path / "outputs/Megatron-LM").mkdir(parents=True, exist_ok=True)
    settings = Settings(data=DataSettings(corpus=str(file)))
    return fake_site(tmp_path, FakePrograms(["singularity"]), settings)


@pytest.mark.parametrize(
    ("corpus", "words"),
    [
        (b'{"text": "good"}\n{"text": \n', "line 2 is not JSON"),
        (b'{"text": "good"}\n{"content": "x"}\n', "line 2 has no key 'text' (it has: content)"),
        (b'{"text": "good"}\n\xff\xfe\n', "line 2 is not UTF-8"),
        ('{"text": "gut"}\n{"text": "schön"}\n'.encode("latin-1"), "line 2 is not UTF-8"),
        (b'{"text": "good"}\n[1]\n3\n', "line 2 is not a JSON object. (2 bad lines)"),
        (b"", "holds no document"),
    ],
)  # fmt: skip
def test_a_corpus_that_would_stop_the_preprocessing(tmp_path: Path, corpus: bytes, words: str) -> None:
    here = data_site(tmp_path, corpus)
    found = DataStep().look(here)
    assert found.verdict == "failed" and words in f"{found.evidence}" and found.remedy
    with pytest.raises(UserError) as refused:
        DataStep().actions(here)
    assert refused.value.message == found.evidence, "it is not preprocessed either"


def test_empty_texts_are_counted(tmp_path: Path) -> None:
    found = DataStep().look(data_site(tmp_path, b'{"text": "a"}\n{"text": " "}\n'))
    assert found.verdict == "pending" and "1 of them empty" in "".join(found.details)


def test_a_bad_line_after_the_sample_is_found_when_all_is_read(tmp_path: Path) -> None:
    here = data_site(tmp_path, b'{"text": "a"}\n' * 1500 + b'bad\n{"text": "z"}\n')
    assert DataStep().look(here).verdict == "pending"
    whole = DataStep().look(replace(here, choices=Choices(whole=True)))
    assert whole.verdict == "failed" and "line 1501" in whole.evidence


def test_the_whole_check_prints_progress_and_every_bad_line(tmp_path: Path) -> None:
    data_site(tmp_path, b'{"text": "a"}\n' * 1000 + b"bad\n")
    done = subprocess.run(
        [sys.executable, "-m", "backends.setup.jsonl", str(tmp_path / "mine.jsonl")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "checked 14000 of 14004 bytes, 1000 documents" in done.stdout
    assert "line 1001 is not JSON" in done.stdout and "1,000 documents, 0 empty, 1 bad lines" in done.stdout


def test_a_corpus_is_described_and_previewed_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"text": "\\u001b]52;c;aGk=\\u0007first"}\n{"txt": 1}\n{"text": ""}\n')
    run = CliRunner().invoke(data_command, [str(file), "--preview", "1", "--check"], standalone_mode=False)
    assert run.return_value == 3
    assert "bad lines   1" in run.output and "empty       1" in run.output
    assert "line 2 has no key 'text'" in run.output and run.output.endswith("document 1\nfirst\n")
    said = CliRunner().invoke(data_command, [str(file), "--json"], standalone_mode=False)
    about = json.loads(said.output)
    assert (about["documents"], about["bad_count"], about["whole"]) == (2, 1, True)


def test_a_preprocessing_without_index_is_not_a_success(tmp_path: Path) -> None:
    """As preprocess_data.py does when a worker crashes: a .bin, status 0."""
    here = data_site(tmp_path, b'{"text": "a"}\n')
    for name in ("vocab.json", "merges.txt"):
        (here.workspace.megatron / "gpt2").mkdir(exist_ok=True)
        (here.workspace.megatron / "gpt2" / name).touch()
    first, *rest = DataStep().actions(here)
    part = here.workspace.megatron / "mine.part_text_document.bin"
    crashed = replace(first, argv=("bash", "-c", f"echo 'worker died'; echo x > {part}"))
    with pytest.raises(UserError, match="without an index, whatever its status said"):
        run([crashed, *rest], tmp_path)
    assert DataStep().look(here).verdict == "pending", "it can simply be run again"
    assert not (here.workspace.megatron / "mine_text_document.bin").exists()


def test_interrupted_between_the_last_two_commands_the_rest_is_done(tmp_path: Path) -> None:
    here = data_site(tmp_path, b'{"text": "a"}\n')
    (here.workspace.megatron / "mine_text_document.bin").touch()
    (here.workspace.megatron / "mine.part_text_document.idx").touch()
    assert [action.title for action in DataStep().actions(here)] == ["put the .idx in place"]


# The step as a whole.


def test_a_command_that_is_not_installed_is_named(tmp_path: Path) -> None:
    folder = job_folder(Workspace(tmp_path), "image")
    start_job(folder, [Action("build", ("no-such-singularity", "build"), tmp_path)], ENVIRONMENT)
    found = wait_for(lambda: state if (state := folder.state()) and state.phase != "running" else None)
    assert found.phase == "failed" and "no-such-singularity: No such file" in found.message
