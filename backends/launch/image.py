"""The words of `singularity exec` that make a command run inside an image."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from backends.runs.checkpoints import linked_folders
from backends.runs.plan import RunPlan
from backends.settings import ImageSettings
from backends.workspace import Workspace

ELSEWHERE = "/opt/singularity/bin/singularity"  # where these servers have it, outside PATH
INSIDE = "/opt/mdk-tui"  # where the demo's packages are seen in the image
NEVER_BOUND = ("/", "/tmp", "/home", "/root")  # the image has its own, or singularity binds them anyway


def find_singularity(settings: ImageSettings, find: Callable[[str], str | None]) -> str | None:
    """The program to call: that of the settings, else one found in PATH, else ELSEWHERE. None: there is none."""
    if settings.singularity:
        return settings.singularity if find(settings.singularity) else None
    for name in ("singularity", "apptainer"):
        if find(name):
            return name
    return find(ELSEWHERE)


def workspace_image(workspace: Workspace, settings: ImageSettings) -> Path:
    """The path of Megatron-LM's image, existing or not: that of the settings, else the tutorial's."""
    if settings.path:
        return workspace.root / Path(settings.path).expanduser()
    return workspace.megatron / "pytorch.sif"


def exec_words(
    plan: RunPlan, workspace: Workspace, settings: ImageSettings, program: str, *, gpus: bool
) -> tuple[str, ...]:
    """`singularity exec … IMAGE` for `plan`, whose `image` is set."""
    inside = ("--env", f"PYTHONPATH={INSIDE}") if plan.trainer == "demo" else ()
    return container_words(
        program,
        plan.image or "",
        settings,
        map(Path, bound_folders(plan, workspace)),
        gpus=gpus,
        options=plan.image_options,
        packages=_demo_packages(plan),
        last=inside,
    )


def container_words(
    program: str,
    image: str,
    settings: ImageSettings,
    folders: Iterable[Path] = (),
    *,
    gpus: bool = False,
    options: Sequence[str] = (),
    packages: Sequence[str] = (),
    last: Sequence[str] = (),
) -> tuple[str, ...]:
    """`singularity exec … IMAGE`, with `folders` of the host at the same path and what the settings add.

    `packages` are bound, too (SRC:DEST:OPTIONS); `last` are more options after all binds.
    """
    words = [*(["--nv"] if gpus else []), *options]
    if settings.no_home and "--no-home" not in words:
        words.append("--no-home")
    for spec in (*_bound(folders), *settings.bind, *packages):
        words += ["-B", spec]
    return (program, "exec", *words, *last, *settings.options, image)


def bound_folders(plan: RunPlan, workspace: Workspace) -> list[str]:
    """Folders of the host that the job must see at the same path: the workspace, where it saves, loads and reads.

    A branch loads through a link, from the folder of the run that it leaves.
    """
    wanted = [workspace.root]
    wanted += [Path(path) for path in (plan.save, plan.load) if path]
    wanted += linked_folders(Path(plan.load)) if plan.load else []
    wanted += [Path(path).parent for path in _data_files(plan.arguments)]
    return _bound(wanted)


def _bound(folders: Iterable[Path]) -> list[str]:
    return [str(folder) for folder in _outermost(folders) if str(folder) not in NEVER_BOUND]


def _data_files(arguments: Sequence[str]) -> list[str]:
    """The absolute paths in the arguments: data prefixes, vocabulary, tokenizer model."""
    return [word for word in arguments if word.startswith("/") and Path(word).parent.is_dir()]


def _outermost(folders: Iterable[Path]) -> list[Path]:
    """Only the folders that lie in no other one: a folder is bound together with its content."""
    kept: list[Path] = []
    for folder in sorted(set(folders), key=lambda folder: len(folder.parts)):
        if not any(outer == folder or outer in folder.parents for outer in kept):
            kept.append(folder)
    return kept


def _demo_packages(plan: RunPlan) -> list[str]:
    """Binds of the demo and autograd, which are pure Python, read-only from this installation: the image needs neither."""
    if plan.trainer != "demo":
        return []
    packages = [Path(__file__).resolve().parents[1]]
    spec = importlib.util.find_spec("autograd")
    if spec is not None and spec.origin is not None:
        packages.append(Path(spec.origin).resolve().parent)
    return [f"{package}:{INSIDE}/{package.name}:ro" for package in packages]
