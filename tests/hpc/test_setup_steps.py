"""The set-up as a user does it, with the real git, singularity and mpirun: headless from clone to patches, and its failures."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import until

from backends.errors import UserError
from backends.programs import RealPrograms
from backends.runs.processes import marked_processes
from backends.settings import ImageSettings, Settings
from backends.setup.image_step import ImageStep
from backends.setup.job import cancel_job, job_folder, start_job
from backends.setup.mpi_step import MpiStep
from backends.setup.runner import run_actions
from backends.setup.step import Action, Choices, Site
from backends.workspace import Workspace

pytestmark = pytest.mark.hpc
IDENTITY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
}
# Talks and writes as preprocess_data.py does, of the standard library; a text "crash" ends it early, with status 0.
PREPROCESS = """\
import json, struct, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
prefix = f"{words['--output-prefix']}_{words['--json-keys']}_document"
documents = [json.loads(line)[words["--json-keys"]] for line in open(words["--input"])]
with open(prefix + ".bin", "wb") as data:
    for number, text in enumerate(documents, 1):
        if text == "crash":
            print("worker died", file=sys.stderr)
            sys.exit(0)
        data.write(struct.pack(f"<{len(text)}H", *text.encode()))
        print(f"Processed {number} documents ({number}.0 docs/s, 0.1 MB/s).", file=sys.stderr, flush=True)
n, sizes = len(documents), [len(text) for text in documents]
with open(prefix + ".idx", "wb") as index:
    index.write(struct.pack("<9sQBQQ", b"MMIDIDX\\0\\0", 1, 8, n, n + 1))
    index.write(struct.pack(f"<{n}i", *sizes))
    index.write(struct.pack(f"<{n}q", *(2 * sum(sizes[:at]) for at in range(n))))
    index.write(struct.pack(f"<{n + 1}q", *range(n + 1)))
"""
EMPTY = "Bootstrap: scratch\n\n%setup\n    echo begun\n    while [ -e {gate} ]; do sleep 0.1; done\n"
OLD = """\
Bootstrap: scratch

%setup
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' | awk '!/security/ && !seen++')
    mmdebstrap --variant=extract --mode=root --skip=check/empty,output/dev,output/mknod \\
        --include=dash,openmpi-bin bookworm "${APPTAINER_ROOTFS:-$SINGULARITY_ROOTFS}" "$mirror"
    ln -s mpirun.openmpi "${APPTAINER_ROOTFS:-$SINGULARITY_ROOTFS}/usr/bin/mpirun"
"""


@pytest.fixture
def site(tmp_path: Path, hpc_environment: dict[str, str]) -> Site:
    """A workspace whose image is yet to come."""
    image = tmp_path / "image" / "new.sif"
    image.parent.mkdir()
    settings = Settings(image=ImageSettings(path=str(image)))
    workspace = Workspace(tmp_path / "ws")
    workspace.outputs.mkdir(parents=True)
    return Site(workspace, settings, hpc_environment, RealPrograms(hpc_environment))


def defined(site: Site, text: str) -> Site:
    file = site.workspace.root / "mine.def"
    file.write_text(text)
    return replace(site, choices=Choices(definition=file))


def build(site: Site, tmp_path: Path, command: Sequence[str] = ()) -> str:
    """Run the step's commands, the first one behind `command`; what they printed. Raises UserError."""
    first, *rest = ImageStep().actions(site)
    actions = [replace(first, argv=(*command, *first.argv)), *rest]
    try:
        with (tmp_path / "printed").open("wb") as out:
            run_actions(actions, site.environment, out)
    finally:
        print((tmp_path / "printed").read_text())
    return (tmp_path / "printed").read_text()


# From clone to patches.


def mdk(root: Path, environment: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from tui.cli import main; main()", "-w", str(root), *words],
        env=environment, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def mirror(tmp_path: Path, hpc_environment: dict[str, str]) -> Path:
    """A repository with the little of Megatron-LM that the steps look at."""
    folder = tmp_path / "mirror"
    (folder / "tools").mkdir(parents=True)
    (folder / "pretrain_gpt.py").touch()
    (folder / "tools/preprocess_data.py").write_text(PREPROCESS)
    for words in (("init", "-q", "-b", "core_r0.8.0"), ("add", "."), ("commit", "-qm", "all")):
        subprocess.run(["git", *words], cwd=folder, env=hpc_environment | IDENTITY, check=True, timeout=60)
    return folder


def test_headless_from_clone_to_data(
    tmp_path: Path, mirror: Path, cpu_image: Path, hpc_environment: dict[str, str]
) -> None:
    root = tmp_path / "ws"
    root.mkdir()
    corpus = tmp_path / "mine.jsonl"
    corpus.write_text('{"text": "one"}\n{"text": "three"}\n')
    settings = root / "mdk.toml"
    settings.write_text(
        f'[megatron]\nrepository = "{mirror}"\n[image]\npath = "{cpu_image}"\n[data]\ncorpus = "{corpus}"\n'
    )
    for step in ("workspace", "megatron", "image", "mpi"):
        done = mdk(root, hpc_environment, "setup", step, "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
    assert "two ranks saw each other" in done.stdout
    vocabulary = root / "outputs/Megatron-LM/gpt2"
    vocabulary.mkdir()
    for name in ("vocab.json", "merges.txt"):
        (vocabulary / name).touch()
    shown = mdk(root, hpc_environment, "setup", "data", "--dry-run").stdout
    assert "tools/preprocess_data.py" in shown and f"singularity exec -B {tmp_path}" in shown
    refused = mdk(root, hpc_environment, "setup", "data")
    assert refused.returncode == 2 and "Nothing was run" in refused.stderr
    done = mdk(root, hpc_environment, "setup", "data", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 documents · 8 tokens · uint16" in done.stdout and "Processed 2 documents" in done.stdout
    assert (
        mdk(root, hpc_environment, "data", str(root / "outputs/Megatron-LM/mine"), "--check").returncode == 0
    )


def test_a_preprocessing_that_crashes_with_status_0_has_failed(
    tmp_path: Path, mirror: Path, cpu_image: Path, hpc_environment: dict[str, str]
) -> None:
    root, corpus = tmp_path / "ws", tmp_path / "mine.jsonl"
    shutil.copytree(mirror, root / "outputs/Megatron-LM")
    (root / "outputs/Megatron-LM/gpt2").mkdir()
    for name in ("vocab.json", "merges.txt"):
        (root / "outputs/Megatron-LM/gpt2" / name).touch()
    corpus.write_text('{"text": "one"}\n{"text": "crash"}\n')
    (root / "mdk.toml").write_text(f'[image]\npath = "{cpu_image}"\n[data]\ncorpus = "{corpus}"\n')
    done = mdk(root, hpc_environment, "setup", "data", "--yes")
    assert done.returncode == 1 and "without an index, whatever its status said" in done.stderr
    corpus.write_text('{"text": "one"}\n')
    assert mdk(root, hpc_environment, "setup", "data", "--yes").returncode == 0, (
        "run again, it replaces its own half"
    )


# The image.


def test_a_build_is_cancelled_whole_and_done_the_second_time(site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    here = defined(site, EMPTY.format(gate=gate))
    folder = job_folder(here.workspace, "image")
    try:
        start_job(folder, ImageStep().actions(here), here.environment)
        until(lambda: "begun\n" in folder.log.read_text(), "the build's %setup")
        assert cancel_job(folder)
        state = folder.state()
        assert state is not None and state.phase == "cancelled" and marked_processes(state.mark) == []
        assert not here.image.exists() and ImageStep().look(here).verdict != "ok"
        gate.unlink()
        start_job(folder, ImageStep().actions(here), here.environment)
        until(
            lambda: (state := folder.state()) is not None and state.phase != "running", "the end of the build"
        )
    finally:
        cancel_job(folder)
    assert ImageStep().look(here).verdict == "ok", folder.log.read_text()
    assert ImageStep().actions(here) == [], "a finished image is not overwritten"
    os.truncate(here.image, 5000)
    torn = ImageStep().look(here)
    assert torn.verdict == "failed" and "is not an image" in torn.evidence and "Move it away" in torn.remedy


def test_an_image_that_is_there_is_not_overwritten(site: Site, tmp_path: Path) -> None:
    """Somebody finished it meanwhile, under the temporary name."""
    here = defined(site, EMPTY.format(gate=tmp_path / "gate"))
    actions = ImageStep().actions(here)
    here.image.with_name("new.sif.part").write_text("somebody else's")
    with pytest.raises(UserError, match="there already"), (tmp_path / "printed").open("wb") as out:
        run_actions(actions, here.environment, out)
    assert here.image.with_name("new.sif.part").read_text() == "somebody else's"


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("host.invalid/pytorch:24.08", "does not reach that host"),
        ("127.0.0.1:9/pytorch:24.08", "does not answer"),
    ],
)
def test_a_base_that_cannot_be_fetched(base: str, words: str, site: Site, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words) as refused:
        build(defined(site, f"Bootstrap: docker\nFrom: {base}\n"), tmp_path)
    assert "copy the .sif here" in refused.value.remedy
    assert not site.image.exists()


def test_a_base_with_a_wrong_name_is_refused(site: Site, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name of the base image"):
        build(defined(site, "Bootstrap: docker\nFrom: host.invalid/x:1\n"), tmp_path)


def test_a_package_that_cannot_be_fetched_during_the_build(site: Site, tmp_path: Path) -> None:
    text = "Bootstrap: scratch\n\n%setup\n    git clone https://host.invalid/x /nowhere\n"
    with pytest.raises(UserError, match="does not reach that host") as refused:
        build(defined(site, text), tmp_path)
    assert "copy the .sif here" in refused.value.remedy


def test_a_build_without_an_id_range(site: Site, tmp_path: Path) -> None:
    """In a mount namespace of its own, where /etc/subuid is empty."""
    hidden = ("unshare", "--mount", "bash", "-c", 'mount --bind /dev/null /etc/subuid && exec "$@"', "bash")
    with pytest.raises(UserError, match="range of user ids") as refused:
        build(defined(site, EMPTY.format(gate=tmp_path / "gate")), tmp_path, hidden)
    assert "/etc/subuid" in refused.value.remedy


def test_a_build_on_a_full_disk(site: Site, tmp_path: Path) -> None:
    """In a mount namespace of its own, where the image's folder holds 1 MB."""
    small = f'mount -t tmpfs -o size=1m tmpfs {site.image.parent} && cd {site.image.parent} && exec "$@"'
    text = (
        EMPTY.format(gate=tmp_path / "gate")
        + '    head -c 8000000 /dev/urandom > "${APPTAINER_ROOTFS:-$SINGULARITY_ROOTFS}/noise"\n'
    )
    with pytest.raises(UserError, match="The disk is full") as refused:
        build(defined(site, text), tmp_path, ("unshare", "--mount", "bash", "-c", small, "bash"))
    assert "APPTAINER_TMPDIR" in refused.value.remedy


# MPI.


def with_image(site: Site, image: Path, *options: str) -> Site:
    return replace(site, settings=Settings(image=ImageSettings(path=str(image), options=options)))


def test_a_matching_image_is_proven(site: Site, cpu_image: Path) -> None:
    found = MpiStep().look(with_image(site, cpu_image))
    assert found.verdict == "ok" and "two ranks saw each other" in found.evidence, found


def test_ranks_that_each_believe_to_be_alone_are_caught(site: Site, cpu_image: Path) -> None:
    """Equal versions, but what mpirun tells its ranks does not reach them."""
    found = MpiStep().look(with_image(site, cpu_image, "--cleanenv"))
    assert found.verdict == "failed" and "rank 0 of 1" in found.evidence and found.remedy


@pytest.fixture(scope="module")
def old_image(tmp_path_factory: pytest.TempPathFactory, build_image: Callable[[Path, Path], Path]) -> Path:
    """With Open MPI 4, where the host has 5, and little else."""
    folder = tmp_path_factory.mktemp("old")
    (folder / "old.def").write_text(OLD)
    return build_image(folder / "old.def", folder / "old.sif")


def test_an_image_with_another_open_mpi_is_refused_with_what_will_happen(site: Site, old_image: Path) -> None:
    here = with_image(site, old_image)
    found = MpiStep().look(here)
    assert found.verdict == "failed", found
    assert (
        "Open MPI 5 cannot join in an image with 4" in found.evidence
        and "--build-arg OPENMPI=" in found.remedy
    )
    build_it, aside, rename = MpiStep().actions(here)
    assert (
        build_it.argv[1] == "build" and ".open-mpi-4." in aside.argv[-1] and rename.argv[-1] == str(old_image)
    )


def test_without_an_image_the_mpi_step_waits(site: Site) -> None:
    assert MpiStep().look(site).verdict == "pending"
    assert MpiStep().actions(site) == []


def test_the_words_of_singularity_are_known(site: Site, tmp_path: Path) -> None:
    """Exec of an image that is not there."""
    action = Action("exec", (site.need_singularity(), "exec", str(tmp_path / "no.sif"), "true"), tmp_path)
    with pytest.raises(UserError, match="image is not there"), (tmp_path / "printed").open("wb") as out:
        run_actions([action], site.environment, out)
