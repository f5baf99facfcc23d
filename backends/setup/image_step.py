"""The Singularity image: built under a temporary name, put in place only when it is whole."""

from __future__ import annotations

import getpass
import time
from collections.abc import Sequence
from pathlib import Path

from backends.errors import UserError
from backends.resources import resource_folder
from backends.setup.definition_lint import lint
from backends.setup.step import Action, Finding, Site
from backends.setup.versions import read_mpi_version

GB = 10**9


class ImageStep:
    name = "image"
    title = "image"

    def look(self, site: Site) -> Finding:
        singularity = site.singularity
        if singularity is None:
            return Finding(
                self.name,
                "failed",
                "There is no singularity, neither in PATH nor in /opt/singularity/bin.",
                "Install Apptainer or SingularityCE, or name it in mdk.toml: [image] singularity.",
            )
        image = site.image
        if not image.is_file():
            return self._not_built(site)
        answer = site.programs.ask([singularity, "inspect", str(image)], timeout=60)
        if not answer.ok:
            why = (answer.stderr.strip().splitlines() or ["no message"])[-1]
            return Finding(
                self.name, "failed", f"{image} is not an image: {why}", "Move it away and build it again."
            )
        stat = image.stat()
        built = time.strftime("%Y-%m-%d", time.localtime(stat.st_mtime))
        return Finding(self.name, "ok", f"{image} · {stat.st_size / GB:.1f} GB · built {built}")

    def _not_built(self, site: Site) -> Finding:
        missing = [
            file for file in ("/etc/subuid", "/etc/subgid") if not has_id_range(Path(file), user_name())
        ]
        if missing:
            return Finding(
                self.name,
                "failed",
                f"{' and '.join(missing)} have no entry for {user_name()}, which --fakeroot needs.",
                f"Ask the administrator for a line such as {user_name()}:100000:65536 in each.",
            )
        try:
            faults = lint(definition(site).read_text(encoding="utf-8", errors="replace"))
        except OSError as error:
            return Finding(
                self.name,
                "failed",
                f"{definition(site)} cannot be read: {error.strerror}.",
                "Name another definition.",
            )
        if faults:
            first = faults[0]
            return Finding(
                self.name,
                "warning",
                f"{definition(site)} line {first.line}: {first.message}"
                + (f" ({len(faults)} faults)" if len(faults) > 1 else ""),
                first.remedy,
            )
        return Finding(
            self.name, "pending", f"{site.image} is not built yet.", "Build it; this takes a while."
        )

    def actions(self, site: Site) -> Sequence[Action]:
        image = site.image
        if image.exists():
            return []
        singularity = site.singularity
        if singularity is None:
            raise UserError("There is no singularity on this machine.", "Install Apptainer or SingularityCE.")
        part = image.with_name(image.name + ".part")
        build = [singularity, "build", "--fakeroot"]
        if part.exists():
            build.append("--force")  # our own leftover, never a finished image
        build += host_mpi_argument(site)
        build += [str(part), str(definition(site))]
        return [
            Action(
                "build the image",
                tuple(build),
                image.parent if image.parent.is_dir() else site.workspace.root,
            ),
            Action("put it in place", ("mv", "-n", "-T", str(part), str(image)), site.workspace.root),
        ]


def definition(site: Site) -> Path:
    named = site.choices.definition or (
        Path(site.settings.image.definition) if site.settings.image.definition else None
    )
    return named.expanduser().resolve() if named else resource_folder("singularity") / "pytorch.def"


def host_mpi_argument(site: Site) -> list[str]:
    """The build argument that lets the image's Open MPI follow the host's."""
    mpirun = site.programs.find("mpirun")
    version = read_mpi_version(site.programs.ask([mpirun, "--version"]).stdout) if mpirun else None
    if version is None or version.numbers is None or "{{ OPENMPI }}" not in _content(definition(site)):
        return []
    return ["--build-arg", f"OPENMPI={version}"]


def has_id_range(file: Path, user: str) -> bool:
    try:
        return any(line.split(":")[0] == user for line in file.read_text().splitlines())
    except OSError:
        return False


def user_name() -> str:
    return getpass.getuser()


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
