"""Folders that hold a link to one checkpoint of another folder, and a tracker file that names it: branches and pins.

Megatron-LM loads only what the tracker of a folder names, so an earlier iteration needs a folder of its own.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from backends.errors import UserError
from backends.files import real, write_atomic
from backends.runs.checkpoints import TRACKER, Iteration, folder_name
from backends.runs.folder import NAME
from backends.runs.judgement import pinned_folder
from backends.workspace import Workspace


def absolute(path: Path) -> Path:
    """With links as the user wrote them."""
    return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 (resolve() would follow links)


def base_of(save: Path) -> Path:
    """Where a branch of `save` goes: beside it, among the dated folders of its base."""
    return save.parents[1] if NAME.fullmatch(f"{save.parent.name}/{save.name}") else save.parent


def make_branch(save: Path, iteration: Iteration, branch: Path) -> None:
    """Fill the empty folder `branch`: a link to the checkpoint and a tracker file of its own. `save` is not touched.

    The link is relative: it also holds where an image sees the base at another path. Raises OSError.
    """
    name = folder_name(iteration)
    target = os.path.relpath(real(save / name), real(branch))
    (branch / name).symlink_to(target, target_is_directory=True)
    # Last, as Megatron-LM does: it says that the rest is there.
    write_atomic(branch / TRACKER, str(iteration))


def pin_of(workspace: Workspace, save: Path, iteration: Iteration) -> Path:
    """The folder from which any program loads `iteration` of `save`; `make_pin` makes it.

    core_r0.8.0 knows `--ckpt-step` and loads what the tracker names all the same.
    """
    key = hashlib.sha256(str(real(save)).encode()).hexdigest()[:8]
    return pinned_folder(workspace.outputs, key, iteration)


def make_pin(save: Path, iteration: Iteration, folder: Path) -> None:
    """Fill `folder`, if need be, with a link to the checkpoint and a tracker that names it. Raises UserError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / folder_name(iteration)).exists():
            make_branch(save, iteration, folder)
    except FileExistsError:
        pass  # another one is being started
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made: {error.strerror}.", "Make room, or check its permissions."
        ) from None
