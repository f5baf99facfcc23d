"""Folders that hold a link to one checkpoint of another folder, and a tracker file that names it: branches and pins.

Megatron-LM loads only what the tracker of a folder names, so an earlier iteration needs a folder of its own.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from backends.errors import UserError
from backends.files import real, write_atomic
from backends.runs.checkpoints import TRACKER, Iteration, folder_name, read_tracker
from backends.runs.folder import NAME
from backends.runs.judgement import pinned_folder
from backends.workspace import Workspace


def absolute(path: Path) -> Path:
    """An absolute path that keeps symbolic links."""
    return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 (resolve() would follow links)


def base_of(save: Path) -> Path:
    """The base for a branch of `save`: that of a dated folder, else the parent folder."""
    return save.parents[1] if NAME.fullmatch(f"{save.parent.name}/{save.name}") else save.parent


def make_branch(save: Path, iteration: Iteration, branch: Path) -> None:
    """Fill the empty folder `branch` with a link to the checkpoint and a tracker file. Does not touch `save`. Raises OSError.

    The link is relative, so it is also valid where an image mounts the base at another path.
    """
    name = folder_name(iteration)
    target = os.path.relpath(real(save / name), real(branch))
    (branch / name).symlink_to(target, target_is_directory=True)
    # Last, as Megatron-LM does: the tracker says that the rest is there.
    write_atomic(branch / TRACKER, str(iteration))


def pin_of(workspace: Workspace, save: Path, iteration: Iteration) -> Path:
    """The folder from which any program loads `iteration` of `save`; `make_pin` makes it.

    core_r0.8.0 accepts `--ckpt-step` but loads what the tracker names.
    """
    key = hashlib.sha256(str(real(save)).encode()).hexdigest()[:8]
    return pinned_folder(workspace.outputs, key, iteration)


def make_pin(save: Path, iteration: Iteration, folder: Path) -> None:
    """Fill `folder`, unless that is done, with a link to the checkpoint and a tracker file. Raises UserError."""
    if read_tracker(folder).iteration not in (None, iteration):  # a user may name any folder with --load
        raise UserError(
            f"{folder} holds other checkpoints than iteration {iteration} of {save}.",
            "Leave --load as it was.",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / folder_name(iteration)).exists():
            make_branch(save, iteration, folder)
    except FileExistsError:
        pass  # another server is being started on it
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made: {error.strerror}.", "Make room, or check its permissions."
        ) from None
