"""The clone of Megatron-LM: its branch, its commit, whether it is complete, and local changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backends.errors import UserError
from backends.files import existing
from backends.setup.step import Action, Finding, Site, StepFindings

# The commit that branch and tag core_r0.8.0 both name (2024-08-12).
KNOWN_COMMITS = {"core_r0.8.0": "baf94af3c667248865f23df73b9fb8e2395e6fd0"}
BUNDLE = (
    "Without network: on another machine run `git clone --mirror` and in it `git bundle create megatron.bundle --all`, "
    "bring the file here and name it as the repository (mdk.toml, [megatron], or --repository)."
)


class MegatronStep(StepFindings):
    name = "megatron"
    title = "Megatron-LM"

    def look(self, site: Site) -> Finding:
        clone = site.workspace.megatron
        branch = site.choices.branch or site.settings.megatron.branch
        if site.programs.find("git") is None:
            return self.failed("There is no git.", "Install git, or ask the administrator.")
        if not clone.exists():
            return self.pending(f"{clone} is not there yet.", f"Clone branch {branch}. {BUNDLE}")
        head = site.programs.ask(["git", "rev-parse", "--show-toplevel", "HEAD"], cwd=clone)
        lines = head.stdout.split()
        if not head.ok or len(lines) != 2 or Path(lines[0]).resolve() != clone.resolve():
            return self.failed(
                f"{clone} is not the top of a git clone.", "Move the folder away, then clone again."
            )
        if not (clone / "pretrain_gpt.py").is_file():
            return self.failed(f"{clone} holds no pretrain_gpt.py.", f"Check out {branch} there.")
        return self._describe(site, clone, branch, lines[1])

    def _describe(self, site: Site, clone: Path, branch: str, commit: str) -> Finding:
        changed = site.programs.ask(
            ["git", "status", "--porcelain", "--untracked-files=no"], cwd=clone
        ).stdout.splitlines()
        state = (
            "clean"
            if not changed
            else f"{len(changed)} tracked file{'s' if len(changed) > 1 else ''} changed"
        )
        evidence = f"{branch} · {commit[:7]} · {state}"
        details = (f"commit {commit}", *changed[:20])
        known = KNOWN_COMMITS.get(branch) or self._remote(site, clone, branch)
        if known is None or commit == known:
            return self.ok(evidence, details=details)
        if site.programs.ask(["git", "merge-base", "--is-ancestor", known, commit], cwd=clone).ok:
            ahead = site.programs.ask(
                ["git", "rev-list", "--count", f"{known}..{commit}"], cwd=clone
            ).stdout.strip()
            return self.ok(
                f"{evidence} · {ahead} commit{'s' if ahead != '1' else ''} on top of {known[:7]}",
                details=details,
            )
        return self.warning(
            f"{commit[:7]} is checked out, not {branch} ({known[:7]}).",
            f"git -C {clone} checkout {known[:10]}, unless another version is meant.",
            details,
        )

    def _remote(self, site: Site, clone: Path, branch: str) -> str | None:
        """The commit of `branch` in the repository when it was last fetched."""
        name = f"refs/remotes/origin/{branch}^{{commit}}"
        answer = site.programs.ask(["git", "rev-parse", "--verify", "--quiet", name], cwd=clone)
        return answer.stdout.strip() or None if answer.ok else None

    def actions(self, site: Site) -> Sequence[Action]:
        clone = site.workspace.megatron
        if clone.exists():
            return []
        if site.programs.find("git") is None:
            raise UserError("There is no git on this machine.", "Install git, or ask the administrator.")
        branch = site.choices.branch or site.settings.megatron.branch
        part = clone.with_name(clone.name + ".part")
        folder = site.workspace.outputs
        if not folder.is_dir():
            raise UserError(f"{folder} is not there yet.", "Do the step workspace first.")
        clone_it = ("git", "clone", "--progress", "--branch", branch, "--", repository(site), part.name)
        weight = "The repository is about 0.5 GiB. An interrupted clone starts anew."
        actions = [
            Action(f"clone {branch}", clone_it, folder, weight=weight),
            Action("put it in place", ("mv", "-n", "-T", part.name, clone.name), folder),
        ]
        if part.exists():  # left by an interrupted clone, which git cannot continue
            actions.insert(0, Action("remove an interrupted clone", ("rm", "-rf", "--", part.name), folder))
        return actions


def repository(site: Site) -> str:
    """Where to clone from: a path, if a folder or a bundle of that name exists, else the address unchanged."""
    chosen, named = site.choices.repository, site.settings.megatron.repository
    local = existing(str(site.located(chosen, named)))
    return str(local) if local else chosen or named
