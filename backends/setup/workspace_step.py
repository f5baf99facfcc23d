"""The folder that holds everything: can it be written, is there room, do all nodes see it?"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from backends.files import existing_parent
from backends.models.configuration import read_configuration
from backends.models.estimate import estimate
from backends.models.presets import find
from backends.setup.step import Action, Finding, Site

GB = 10**9
RECIPE, RECIPE_GPUS = "gpt3-7b", 8
IMAGE_AND_BUILD = 60 * GB  # the built image (about 20 GB) and its unpacked tree while building
SHARED_FILESYSTEMS = {
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "wekafs",
    "fuse.sshfs",
    "cifs",
    "panfs",
}


class WorkspaceStep:
    name = "workspace"
    title = "workspace"

    def look(self, site: Site) -> Finding:
        outputs = site.workspace.outputs
        if not outputs.is_dir():
            return Finding(self.name, "pending", f"{outputs} is not there yet.", "Make it.")
        refused = write_refused(outputs)
        if refused:
            return Finding(
                self.name,
                "failed",
                f"{outputs} cannot be written: {refused}.",
                "Choose another folder with -w DIR.",
            )
        free = shutil.disk_usage(outputs).free
        kind = filesystem_type(outputs)
        evidence = f"{free / GB:,.0f} GB free, {kind or 'unknown file system'}"
        several = site.choices.nodes > 1 or bool(site.settings.mpi.hostfile)
        if several and kind not in SHARED_FILESYSTEMS:
            return Finding(
                self.name,
                "warning",
                f"{evidence}, which does not look shared",
                "Every node must see the same folder: put the workspace on the shared file system.",
            )
        if not site.image.exists() and free < IMAGE_AND_BUILD:
            return Finding(
                self.name,
                "warning",
                f"{evidence}; building the image takes about {IMAGE_AND_BUILD // GB} GB",
                "Make room, or set APPTAINER_TMPDIR to a larger disk.",
            )
        return Finding(self.name, "ok", evidence, details=(room_words(free),))

    def actions(self, site: Site) -> Sequence[Action]:
        if site.workspace.outputs.is_dir():
            return []
        return [
            Action(
                "make the folder",
                ("mkdir", "-p", str(site.workspace.outputs)),
                existing_parent(site.workspace.root),
            )
        ]


def room_words(free: int) -> str:
    """What the tutorial's recipe saves, against what is free."""
    recipe = find(RECIPE)
    size = estimate(read_configuration(recipe.arguments, RECIPE_GPUS)).training.checkpoint_bytes
    return f"a checkpoint of {recipe.name} takes {size / GB:,.0f} GB: room for {free // size or 'none'}"


def write_refused(folder: Path) -> str:
    """Why nothing can be written into `folder`; "" when a test file could be written (a quota only shows on writing)."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".mdk-write-test-") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return ""


def filesystem_type(folder: Path) -> str | None:
    """The type of the file system that holds `folder` ("ext4", "nfs4", "lustre"), None when it cannot be told."""
    best, kind = -1, None
    path = folder.resolve()
    for partition in psutil.disk_partitions(all=True):
        mount = Path(partition.mountpoint)
        if (mount == path or mount in path.parents) and len(mount.parts) >= best:
            best, kind = len(mount.parts), partition.fstype
    return kind
