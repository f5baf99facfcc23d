"""The scripts and patches: whether each is applied, whether it fits, and whether the file was edited.

A patch is applied to a new file beside its target and renamed over it, so that a target is never half patched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from backends.errors import UserError
from backends.resources import resource_folder
from backends.setup.step import Action, Finding, Site, StepFindings
from backends.text import clean

State: TypeAlias = Literal["applied", "pending", "drifted", "missing"]
SERVER_FIX = "af51a1535af8eea40c315db64f2ff8c53f1737e0"


@dataclass(frozen=True, slots=True)
class Patch:
    """`file` in patches/ turns `source` into `target` (both below the clone); equal when the file is patched in place."""

    name: str
    file: str
    source: str
    target: str
    commit: str = ""  # an upstream commit that does the same

    @property
    def in_place(self) -> bool:
        return self.source == self.target


EXAMPLE = "examples/gpt3/train_gpt3_175b_distributed.sh"
PATCHES = (
    Patch("training script", "pretrain_7b_mpi.patch", EXAMPLE, "examples/gpt3/train_gpt3_7b_mpi.sh"),
    Patch("MLflow and dated saves", "training_mlflow.patch", *("megatron/training/training.py",) * 2),
    Patch("server script", "inference_7b_mpi.patch", EXAMPLE, "examples/gpt3/inference_gpt3_7b_mpi.sh"),
    Patch("server address", "server_host.patch", *("tools/run_text_generation_server.py",) * 2),
    Patch("rotary base", "server_rotary_base.patch", *("tools/run_text_generation_server.py",) * 2),
    Patch(
        "server fix",
        "server_tokenizer.patch",
        *("megatron/inference/text_generation/tokenization.py",) * 2,
        commit=SERVER_FIX,
    ),
)


class PatchesStep(StepFindings):
    name = "patches"
    title = "patches"

    def look(self, site: Site) -> Finding:
        clone = site.workspace.megatron
        if not clone.is_dir():
            return self.pending("Megatron-LM is not there yet.", "Do the step megatron first.")
        if site.programs.find("patch") is None:
            return self.failed("There is no patch.", "Install the package patch.")
        states = {patch.name: state(site, patch) for patch in PATCHES}
        details = tuple(f"{states[p.name]:<8} {p.name}: {p.file} on {p.target}" for p in PATCHES)
        bad = [name for name, s in states.items() if s in ("drifted", "missing")]
        if bad:
            drifted = next(patch for patch in PATCHES if patch.name == bad[0])
            return self.warning(
                f"{', '.join(bad)}: {drifted.target} is not as the patch expects; it was edited, or is of another version.",
                f"{what_of_edits(site, drifted)} Nothing is overwritten.",
                details,
            )
        done = sum(s == "applied" for s in states.values())
        if done == len(PATCHES):
            return self.ok(f"{done} of {done} applied", details=details)
        left = ", ".join(name for name, s in states.items() if s == "pending")
        evidence = f"{done} of {len(PATCHES)} applied; to do: {left}"
        return self.pending(evidence, "Apply them.", details)

    def actions(self, site: Site) -> Sequence[Action]:
        """What applies every patch that fits; edited files are left alone. Raises UserError when none fits."""
        clone = site.need_clone()
        states = {patch: state(site, patch) for patch in PATCHES}
        found = [
            action
            for patch, known in states.items()
            if known == "pending"
            for action in apply_actions(site, patch)
        ]
        for patch, known in states.items():
            if not found and known == "missing":
                raise UserError(
                    f"{patch.source} is missing from {clone}.", "Check the branch that is checked out."
                )
            if not found and known == "drifted":
                raise UserError(
                    f"{patch.target} was edited, so {patch.file} does not fit.", what_of_edits(site, patch)
                )
        return found


def state(site: Site, patch: Patch) -> State:
    """The state on disk, by `patch --dry-run`, which changes nothing."""
    clone = site.workspace.megatron
    source, target = clone / patch.source, clone / patch.target
    if not source.is_file():
        return "missing"
    if patch.in_place:
        if site.programs.ask([*dry_run(patch, target), "--reverse"], cwd=clone).ok:
            return "applied"
    elif target.is_file():
        wanted = site.programs.ask(
            ["patch", "-l", "-s", "-f", "--fuzz=0", "-o", "-", str(source), str(patch_file(patch))], cwd=clone
        )
        return "applied" if wanted.ok and wanted.stdout == _content(target) else "drifted"
    return "pending" if site.programs.ask([*dry_run(patch, source), "--forward"], cwd=clone).ok else "drifted"


def what_of_edits(site: Site, patch: Patch) -> str:
    """The remedy for a file that somebody edited."""
    clone = site.workspace.megatron
    if patch.in_place:
        return f"git -C {clone} diff {patch.target} shows the edits: undo them, or go without the patch."
    return f"Keep it, or move {clone / patch.target} away to have it made anew."


def apply_actions(site: Site, patch: Patch) -> list[Action]:
    """Cherry-pick if the clone has the commit and the target is unchanged; else patch a copy and rename it. A fix that was
    picked and then reversed has changed the target."""
    clone = site.workspace.megatron
    if patch.commit and all(
        site.programs.ask(["git", *words], cwd=clone).ok
        for words in (
            ("cat-file", "-e", f"{patch.commit}^{{commit}}"),
            ("diff", "--quiet", "HEAD", "--", patch.target),
        )
    ):
        identity = ("-c", "user.name=mdk-tui", "-c", "user.email=mdk-tui@localhost")
        return [Action(f"{patch.name}: cherry-pick", ("git", *identity, "cherry-pick", patch.commit), clone)]
    part = f"{patch.target}.part"
    command = ("patch", "-l", "-f", "--fuzz=0", "-o", part, patch.source, str(patch_file(patch)))
    return [
        Action(f"{patch.name}: patch a copy", command, clone),
        Action(f"{patch.name}: put it in place", ("mv", "-T", part, patch.target), clone),
    ]


def reverse_actions(site: Site) -> list[Action]:
    """The commands that reverse every applied patch; edited files are left alone."""
    clone = site.workspace.megatron
    found: list[Action] = []
    for patch in reversed(PATCHES):
        if state(site, patch) != "applied":
            continue
        if not patch.in_place:
            found.append(Action(f"{patch.name}: remove", ("rm", "--", patch.target), clone))
            continue
        part = f"{patch.target}.part"
        command = ("patch", "-l", "-f", "--fuzz=0", "-R", "-o", part, patch.target, str(patch_file(patch)))
        found.append(Action(f"{patch.name}: reverse on a copy", command, clone))
        found.append(Action(f"{patch.name}: put it in place", ("mv", "-T", part, patch.target), clone))
    return found


def trial_actions(site: Site) -> list[Action]:
    """`patch --dry-run` of what is not applied: it prints which hunks fit, and changes nothing."""
    clone = site.need_clone()
    words = ("patch", "-l", "-f", "--fuzz=0", "--dry-run", "--forward")
    return [
        Action(f"{patch.name}: does it fit?", (*words, patch.source, str(patch_file(patch))), clone)
        for patch in PATCHES
        if state(site, patch) in ("pending", "drifted") and (clone / patch.source).is_file()
    ]


def dry_run(patch: Patch, target: Path) -> list[str]:
    return ["patch", "-l", "-s", "-f", "--fuzz=0", "--dry-run", str(target), str(patch_file(patch))]


def patch_file(patch: Patch) -> Path:
    return resource_folder("patches") / patch.file


def _content(path: Path) -> str:
    """The content of the file, cleaned like a program's answer, to compare it with one."""
    return clean(path.read_text(encoding="utf-8", errors="replace"))
