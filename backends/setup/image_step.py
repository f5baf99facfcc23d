"""The Singularity image: built under a temporary name, renamed when it is complete."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from backends.errors import UserError
from backends.resources import resource_folder
from backends.runs.processes import user_name
from backends.setup.definition_lint import lint
from backends.setup.step import INSTALL_SINGULARITY, NO_SINGULARITY, Action, Finding, Site, StepFindings
from backends.setup.versions import MpiVersion, read_mpi_version
from backends.ticks import GIB, size_words

UNPACKED = 40 * GIB  # of NVIDIA's PyTorch image, while it is built
DOCKER = re.compile(
    r"^\s*bootstrap\s*[:=]\s*docker", re.IGNORECASE | re.MULTILINE
)  # also as a build argument
OWN = ("pytorch.def", "cpu.def")
TEMPORARY = ("APPTAINER_TMPDIR", "SINGULARITY_TMPDIR", "TMPDIR")


class ImageStep(StepFindings):
    name = "image"
    title = "image"

    def look(self, site: Site) -> Finding:
        singularity = site.singularity
        if singularity is None:
            return self.failed(NO_SINGULARITY, INSTALL_SINGULARITY)
        image = site.image
        if not image.is_file():
            return self._not_built(site)
        answer = site.programs.ask([singularity, "inspect", str(image)], timeout=60)
        if not answer.ok:
            why = (answer.stderr.strip().splitlines() or ["no message"])[-1]
            return self.failed(f"{image} is not an image: {why}", "Move it away and build it again.")
        stat = image.stat()
        built = time.strftime("%Y-%m-%d", time.localtime(stat.st_mtime))
        return self.ok(f"{image} · {size_words(stat.st_size)} · built {built}")

    def _not_built(self, site: Site) -> Finding:
        missing = [
            file for file in ("/etc/subuid", "/etc/subgid") if not has_id_range(Path(file), user_name())
        ]
        if missing:
            return self.failed(
                f"{' and '.join(missing)} have no entry for {user_name()}, which --fakeroot needs.",
                f"Ask the administrator for a line such as {user_name()}:100000:65536 in each.",
            )
        file = definition(site)
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return self.failed(f"{file} cannot be read: {error.strerror}.", "Name another definition.")
        if faults := lint(text):
            more = f" ({len(faults)} faults)" if len(faults) > 1 else ""
            return self.warning(f"{file} line {faults[0].line}: {faults[0].message}{more}", faults[0].remedy)
        return self._with_room(site, text)

    def _with_room(self, site: Site, text: str) -> Finding:
        """Whether the folder in which singularity builds has room for the base of the definition `text`."""
        folder = next(filter(None, map(site.environment.get, TEMPORARY)), "/tmp")
        try:
            free = shutil.disk_usage(folder).free
        except OSError as error:
            remedy = "Set APPTAINER_TMPDIR to a folder with room for the unpacked image."
            return self.warning(f"{folder}, where it is built: {error.strerror}.", remedy)
        room = f"{folder}, where it is unpacked, has {size_words(free)} free"
        if free < UNPACKED and DOCKER.search(text):
            evidence = f"{site.image} is not built yet, and {room}."
            remedy = (
                f"It takes about {size_words(UNPACKED)}: set APPTAINER_TMPDIR to a folder with more room."
            )
            return self.warning(evidence, remedy)
        return self.pending(
            f"{site.image} is not built yet.",
            "Build it; this takes a while.",
            (f"from {definition(site)}", room, *leftovers(Path(folder))),
        )

    def actions(self, site: Site) -> Sequence[Action]:
        image = site.image
        if image.exists():
            return []
        if not image.parent.is_dir():
            raise UserError(
                f"{image.parent} is not there yet, and the image belongs there.",
                "Do the step megatron first; [image] path in mdk.toml names another place.",
            )
        return [build_action(site), put_in_place(site)]


def build_action(site: Site) -> Action:
    """Build under a temporary name, so that an incomplete image is never used. Raises UserError."""
    part = part_of(site.image)
    build = [site.need_singularity(), "build", "--fakeroot"]
    if part.exists():
        build.append("--force")  # our own leftover, never a finished image
    file = definition(site)
    if not file.is_file():
        raise UserError(f"There is no definition {file}.", f"Name a file, or one of ours: {', '.join(OWN)}.")
    build += [*build_arguments(site), str(part), str(file)]
    weight = (
        "Building takes from a minute (cpu.def) to an hour (pytorch.def) and up to 60 GiB of disk meanwhile."
    )
    return Action("build the image", tuple(build), site.image.parent, weight=weight)


def put_in_place(site: Site) -> Action:
    """The command that gives the finished image its final name."""
    image = site.image
    return Action("put it in place", ("mv", "-n", "-T", str(part_of(image)), str(image)), image.parent)


def part_of(image: Path) -> Path:
    return image.with_name(image.name + ".part")


def definition(site: Site) -> Path:
    """The definition file that the user names; mdk-tui's own if the name is in `OWN` and no such file exists."""
    chosen, named = site.choices.definition, site.settings.image.definition or OWN[0]
    here = site.located(chosen, named)
    own = str(chosen or named)
    return here if here.is_file() or own not in OWN else resource_folder("singularity") / own


def build_arguments(site: Site) -> list[str]:
    """The build arguments of the settings, and OPENMPI as on the host unless the settings set it."""
    given = list(site.settings.image.build_arguments)
    if not any(word.startswith("OPENMPI=") for word in given):
        given += follows_host(site)
    return [word for argument in given for word in ("--build-arg", argument)]


def follows_host(site: Site) -> list[str]:
    """`OPENMPI=VERSION` of the host, if it has Open MPI and the definition takes this argument."""
    version = host_mpi(site)
    if version is None or version.numbers is None or "{{ OPENMPI }}" not in _content(definition(site)):
        return []
    return [f"OPENMPI={version}"]


def host_mpi(site: Site) -> MpiVersion | None:
    """The version of the mpirun in PATH; None if there is none, or none that says its version."""
    mpirun = site.programs.find("mpirun")
    return read_mpi_version(site.programs.ask([mpirun, "--version"]).stdout) if mpirun else None


def leftovers(folder: Path) -> list[str]:
    """What builds that were killed have left there: singularity cannot remove it then."""
    found = sorted((*folder.glob("build-temp-*"), *folder.glob("bundle-temp-*")))
    return [f"{path} is left of a build that was killed; remove it when no build runs" for path in found[:4]]


def has_id_range(file: Path, user: str) -> bool:
    """Whether `file` (/etc/subuid or /etc/subgid) gives `user` a range of ids."""
    try:
        return any(line.split(":")[0] == user for line in file.read_text().splitlines())
    except OSError:
        return False


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
