"""The definition files of mdk-tui: without the faults that its lint knows, and their shell sections run, with stand-ins for what is large."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from fake_setup import FakePrograms, fake_site, says

from backends.errors import UserError
from backends.resources import resource_folder
from backends.settings import ImageSettings, Settings
from backends.setup.definition_lint import lint
from backends.setup.image_step import ImageStep, definition
from backends.setup.step import Choices

NAMES = ("pytorch.def", "cpu.def")


def text(name: str) -> str:
    return (resource_folder("singularity") / name).read_text()


def section(name: str, title: str) -> str:
    """The shell of one section, with the default build arguments put in."""
    found = re.search(rf"^%{title}\n(.*?)(?=^%|\Z)", text(name), re.M | re.S)
    assert found is not None
    return re.sub(r"{{ (\w+) }}", lambda match: arguments(name)[match[1]], found[1])


def arguments(name: str) -> dict[str, str]:
    found = re.search(r"^%arguments\n(.*?)(?=^%)", text(name), re.M | re.S)
    assert found is not None
    lines = [line.strip() for line in found[1].splitlines()]
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.mark.parametrize("name", NAMES)
def test_our_own_definitions_have_none_of_the_known_faults(name: str) -> None:
    assert lint(text(name)) == []


@pytest.mark.parametrize(
    ("shell", "line", "words"),
    [
        ("pip install numpy>=1.2", 5, "redirection"),
        ("pip install \\\n  'torch>=2' \\\n  numpy>=1.2 \\\n  scipy", 7, "redirection"),
        ("conda install -y numpy<2", 5, "redirection"),
        ("pip install 'numpy>=1.2' > log.txt", None, ""),
        ("pip install git+git://host/x", 5, "git://"),
        ("cd x && make -j && make install", 5, "make -j"),
        ("make -C build -j faiss", 5, "make -j"),
        ('make -j{{ JOBS }} && make -j8 && make -j $(nproc) && make -j"$JOBS"', None, ""),
        ("# make -j", None, ""),
        ("export NCCL_ALGO=Ring", 5, "NCCL"),
    ],
)
def test_faults_are_found_where_they_are(shell: str, line: int | None, words: str) -> None:
    """Also in the middle of a line that goes on, as in many definitions in use; a bounded make is no fault."""
    found = lint(f"Bootstrap: docker\nFrom: x\n\n%post\n{shell}\n")
    assert [fault.line for fault in found] == ([] if line is None else [line]), found
    assert all(words in fault.message for fault in found)


@pytest.mark.parametrize("name", NAMES)
def test_every_build_argument_has_a_default_and_is_used(name: str) -> None:
    assert set(re.findall(r"{{ (\w+) }}", text(name))) == set(arguments(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_shell_sections_can_be_parsed(name: str) -> None:
    for title in re.findall(r"^%(post|setup|environment|test)$", text(name), re.M):
        subprocess.run(["bash", "-n"], input=section(name, title), text=True, check=True, timeout=300)


def stand_in(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """curl that brings a tiny source, make and pip that write down how they were called."""
    source = tmp_path / "openmpi-5.0.5"
    source.mkdir()
    stand_in(source, "configure", f'echo "configure $*" >> {tmp_path}/calls')
    shutil.make_archive(str(tmp_path / "source"), "gztar", tmp_path, source.name)
    folder = tmp_path / "bin"
    folder.mkdir()
    stand_in(folder, "curl", f'echo "curl $*" >> {tmp_path}/calls; cp {tmp_path}/source.tar.gz openmpi.tar')
    stand_in(folder, "make", f'echo "make $*" >> {tmp_path}/calls')
    stand_in(folder, "pip", f'echo "pip $* OPAL_PREFIX=$OPAL_PREFIX MPICC=$MPICC" >> {tmp_path}/calls')
    return folder


def run_post(folder: Path, tools: Path) -> subprocess.CompletedProcess[bytes]:
    """%post of the real image, with its prefix below `folder`: nothing of this machine is found or changed by it."""
    script = section("pytorch.def", "post").replace("/opt/openmpi", str(folder / "prefix"))
    return subprocess.run(
        ["sh", "-c", script], env={"PATH": f"{tools}:/usr/bin:/bin"},
        check=False, capture_output=True, timeout=300,
    )  # fmt: skip


def test_the_images_post_section_builds_open_mpi_and_installs_pinned_packages(
    tmp_path: Path, tools: Path
) -> None:
    assert run_post(tmp_path, tools).returncode == 0
    curl, configure, make, install, packages, mpi4py = (tmp_path / "calls").read_text().splitlines()
    assert curl.endswith("https://download.open-mpi.org/release/open-mpi/v5.0/openmpi-5.0.5.tar.gz")
    assert f"--prefix={tmp_path}/prefix " in configure and "--with-cuda=/usr/local/cuda" in configure
    assert "--with-ucx=/opt/hpcx/ucx" in configure
    assert (make, install) == ("make -j 8", "make install")
    requirements = [word for word in packages.split() if "==" in word]
    assert len(requirements) == 8 and f"OPAL_PREFIX={tmp_path}/prefix" in packages
    assert f"MPICC={tmp_path}/prefix/bin/mpicc" in mpi4py and "--no-binary mpi4py mpi4py==4.0.0" in mpi4py
    assert not list(tmp_path.glob("*.build")), "the source is not left in the image"


def test_a_source_that_cannot_be_fetched_ends_the_build(tmp_path: Path, tools: Path) -> None:
    stand_in(tools, "curl", "exit 6")
    assert run_post(tmp_path, tools).returncode == 6 and not (tmp_path / "calls").exists()


@pytest.mark.parametrize("name", NAMES)
def test_ours_are_named_without_their_path(tmp_path: Path, name: str) -> None:
    here = fake_site(tmp_path, settings=Settings(image=ImageSettings(definition=name)))
    assert definition(here) == resource_folder("singularity") / name
    (tmp_path / name).write_text("Bootstrap: scratch\n")
    assert definition(here) == tmp_path / name, "a user's own comes first"


def test_only_the_pytorch_image_follows_the_hosts_open_mpi(tmp_path: Path) -> None:
    programs = FakePrograms(["singularity", "mpirun"], {"mpirun --version": says("mpirun (Open MPI) 5.0.7")})
    (tmp_path / "outputs/Megatron-LM").mkdir(parents=True)
    for name, follows in (("pytorch.def", True), ("cpu.def", False)):
        settings = Settings(image=ImageSettings(definition=name))
        build, _ = ImageStep().actions(fake_site(tmp_path, programs, settings))
        assert ("OPENMPI=5.0.7" in build.argv) is follows


def test_build_arguments_of_the_settings_and_a_definition_that_is_not_there(tmp_path: Path) -> None:
    programs = FakePrograms(["singularity", "mpirun"], {"mpirun --version": says("mpirun (Open MPI) 5.0.7")})
    (tmp_path / "outputs/Megatron-LM").mkdir(parents=True)
    settings = Settings(image=ImageSettings(build_arguments=("JOBS=2", "SOURCE=file:///x.tar")))
    here = fake_site(tmp_path, programs, settings)
    words = " ".join(ImageStep().actions(here)[0].argv)
    assert "--build-arg JOBS=2 --build-arg SOURCE=file:///x.tar --build-arg OPENMPI=5.0.7 " in words
    own = replace(settings, image=replace(settings.image, build_arguments=("OPENMPI=5.0.6",)))
    words = " ".join(ImageStep().actions(replace(here, settings=own))[0].argv)
    assert "OPENMPI=5.0.6" in words and "5.0.7" not in words, "who says another means it"
    assert definition(replace(here, choices=Choices(definition=Path("cpu.def")))).is_file()
    with pytest.raises(UserError, match=r"no definition .*/nope\.def"):
        ImageStep().actions(replace(here, choices=Choices(definition=Path("nope.def"))))
