"""The launcher `mpirun`: Open MPI starts one process a GPU, in an image or without, on this node or on several."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backends.launch.image import exec_words, find_singularity
from backends.launch.launcher import Command, arguments_of, saves_on_term
from backends.launch.local import MODULES
from backends.launch.server_source import server_problems
from backends.models.arguments import value_of, without, words_of
from backends.models.problem import Problem
from backends.runs.plan import RunPlan
from backends.runs.processes import MARK, Process
from backends.settings import Settings, read_settings
from backends.workspace import Workspace

SCRIPTS = {"train": "examples/gpt3/train_gpt3_7b_mpi.sh", "serve": "examples/gpt3/inference_gpt3_7b_mpi.sh"}
# Flags that the scripts take as one of their five arguments or from the environment.
TAKEN = ("--data-path", "--vocab-file", "--merge-file", "--tensorboard-dir", "--port", "--host")
VOCABULARY = "gpt2"  # the folder in the clone that the set-up fills
GPT2_TOKENIZER = "GPT2BPETokenizer"  # the default of pretrain_gpt.py


@dataclass(slots=True)
class Mpirun:
    """`find` looks for a program in PATH; `cpus` of this machine; `root`: whether Open MPI must be told to accept root."""

    find: Callable[[str], str | None] = shutil.which
    cpus: int = os.cpu_count() or 1
    root: bool = os.geteuid() == 0
    name: str = "mpirun"

    def check(self, plan: RunPlan, workspace: Workspace) -> list[Problem]:
        problems: list[Problem] = []
        if self.find("mpirun") is None:
            remedy = "Load the Open MPI module of this site, or install Open MPI 5."
            problems.append(Problem("error", "launcher", "There is no mpirun in PATH.", remedy))
        if (
            plan.gpus is not None
            and plan.processes > len(plan.gpus)
            and not plan.hosts
            and plan.trainer != "demo"
        ):
            message = f"{plan.processes} processes for {len(plan.gpus)} GPUs: Megatron-LM needs one GPU each."
            fix = {"processes": (str(len(plan.gpus)),)}
            problems.append(Problem("error", "gpus", message, f"Give --np {len(plan.gpus)}.", fix))
        problems += [*_check_slots(plan), *_check_demo(plan), *self._check_image(plan, workspace)]
        return problems + (_check_scripts(plan, workspace) if plan.trainer != "demo" else [])

    def _check_image(self, plan: RunPlan, workspace: Workspace) -> list[Problem]:
        if plan.image is None:
            return []
        problems: list[Problem] = []
        if find_singularity(read_settings(workspace.settings).image, self.find) is None:
            remedy = "Install Apptainer or SingularityCE, or say where it is: image.singularity in mdk.toml."
            problems.append(Problem("error", "image", "There is no singularity.", remedy))
        if not Path(plan.image).exists():
            remedy = "Build it: mdk-tui setup image. Or name another --image."
            problems.append(Problem("error", "image", f"There is no image {plan.image}.", remedy))
        for path in (str(workspace.root), plan.save, plan.load):
            if path and any(sign in path for sign in ":,"):
                message = f"{path} holds a colon or a comma, which singularity cannot bind."
                problems.append(Problem("error", "image", message, "Choose a path without."))
        return problems

    def command(self, plan: RunPlan, workspace: Workspace) -> Command:
        """Raises UserError for settings that cannot be read."""
        settings = read_settings(workspace.settings)
        env = self._environment(plan)
        words = ["mpirun", "--np", str(plan.processes), *settings.mpi.options]
        if plan.hosts:
            words += ["--host", ",".join(plan.hosts)]
            if "--map-by" not in words:
                # core_r0.8.0 takes GPU = rank mod GPUs: the ranks of a node must follow each other
                words += ["--map-by", "slot"]
            carried = [MARK, *(name for name in env if not name.startswith("OMPI_"))]
            words += [word for name in carried for word in ("-x", name)]
        elif plan.processes > self.cpus // 2 and "--oversubscribe" not in words:
            words.append("--oversubscribe")  # Open MPI counts cores, which may be half of the CPUs
        words += self.inside(plan, workspace, settings)
        cwd = workspace.root if plan.trainer == "demo" else workspace.megatron
        return Command(tuple(words), str(cwd), env)

    def inside(self, plan: RunPlan, workspace: Workspace, settings: Settings) -> list[str]:
        """The command of each rank: the trainer, in the image if there is one."""
        words: list[str] = []
        if plan.image is not None:
            program = find_singularity(settings.image, self.find) or "singularity"
            words += exec_words(plan, workspace, settings.image, program, gpus=plan.trainer != "demo")
        return words + (_demo_words(plan) if plan.trainer == "demo" else _script_words(plan, workspace))

    def _environment(self, plan: RunPlan) -> dict[str, str]:
        env: dict[str, str] = {}
        if self.root:
            env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if plan.gpus is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, plan.gpus))
        if plan.trainer == "demo":
            env["PYTHONSAFEPATH"] = "1"  # a folder "backends" in the workspace must not shadow this package
            if plan.processes > 1:
                env["OMP_NUM_THREADS"] = "1"  # or each rank uses as many threads as there are CPUs
        elif plan.hosts:
            env["MASTER_ADDR"] = plan.hosts[0].partition(":")[0]
        if plan.trainer == "server":
            env["MDK_SERVER_PORT"] = value_of(plan.arguments, "--port") or ""
            env["MDK_SERVER_HOST"] = value_of(plan.arguments, "--host") or "127.0.0.1"
        return {name: value for name, value in {**env, **plan.environment}.items() if value}

    def term_saves(self, plan: RunPlan) -> bool:
        """TERM to mpirun alone does not save, but a stop sends it to the ranks too."""
        return saves_on_term(plan)

    def stop_gracefully(self, job: Process) -> None:
        """mpirun passes USR1 to every rank on every node; TERM would make it kill them before they could save."""
        os.kill(job.pid, signal.SIGUSR1)


def _check_slots(plan: RunPlan) -> list[Problem]:
    """Problems when the nodes have too few slots, or so many that a node stays idle."""
    slots = [int(host.partition(":")[2] or 1) for host in plan.hosts]
    if plan.hosts and plan.processes > sum(slots):
        message = f"{plan.processes} processes, but the nodes have {sum(slots)} slots."
        return [Problem("error", "hosts", message, f"Give --np {sum(slots)}, or more slots in the hostfile.")]
    if plan.hosts and plan.processes <= sum(slots[:-1]):
        message = (
            f"{plan.processes} processes for {sum(slots)} slots: they fill the first nodes, others stay idle."
        )
        return [Problem("warning", "hosts", message, f"Give --np {sum(slots)}, or another --hostfile.")]
    return []


def _check_demo(plan: RunPlan) -> list[Problem]:
    """A problem when several ranks of the demo have no mpi4py."""
    if plan.trainer != "demo" or plan.processes == 1 or plan.image or importlib.util.find_spec("mpi4py"):
        return []
    remedy = "Name an image that has it (singularity/cpu.def): --image CPU.sif. Or: pip install mpi4py"
    return [
        Problem("error", "image", "Ranks of the demo talk through mpi4py, which this Python lacks.", remedy)
    ]


def _demo_words(plan: RunPlan) -> list[str]:
    python = sys.executable if plan.image is None else "python3"
    return [python, "-u", "-m", MODULES[plan.kind], *arguments_of(plan)]


def _script_words(plan: RunPlan, workspace: Workspace) -> list[str]:
    """`bash SCRIPT SAVE TENSORBOARD VOCAB MERGES DATA [--load DIR] FLAGS…`; the server takes no `--load`."""
    words, merges = vocabulary(plan, workspace)
    flags = without(plan.arguments, *TAKEN)
    if plan.kind == "serve":
        # FP8's kernels take only lengths that are multiples of 8, and prompts are not.
        return [
            "bash",
            SCRIPTS["serve"],
            plan.load or "",
            "",
            words,
            merges,
            "",
            *without(flags, "--fp8-format"),
        ]
    data = " ".join(words_of(plan.arguments, "--data-path"))
    board = value_of(plan.arguments, "--tensorboard-dir")
    board = board if board is not None else f"{plan.save}/tensorboard" if plan.save else ""
    load = ["--load", plan.load] if plan.load else []
    return ["bash", SCRIPTS["train"], plan.save or "", board, words, merges, data, *load, *flags]


def vocabulary(plan: RunPlan, workspace: Workspace) -> tuple[str, str]:
    """Vocabulary and merges: those of the plan, else GPT-2's from the set-up. "" for another kind of tokenizer."""
    given = value_of(plan.arguments, "--vocab-file"), value_of(plan.arguments, "--merge-file")
    named = value_of(plan.arguments, "--tokenizer-type") or GPT2_TOKENIZER
    default = named == GPT2_TOKENIZER
    names = ("vocab.json", "merges.txt")
    found = (
        text if text is not None else str(workspace.megatron / VOCABULARY / name) if default else ""
        for text, name in zip(given, names, strict=True)
    )
    return next(found), next(found)


def _no_data(workspace: Workspace) -> Problem:
    """The problem that no data is named. The remedy is a data set in the clone, where set-up and tutorial put it."""
    there = sorted(workspace.megatron.glob("*.idx"))
    prefix = str(there[0].with_suffix("")) if there else None
    return Problem(
        "error",
        "--data-path",
        "It is not said what to train on.",
        f"Take --data-path {prefix}."
        if prefix
        else "Add --data-path PREFIX, or --mock-data for made-up data.",
        {"--data-path": (prefix,)} if prefix else {"--mock-data": ()},
    )


def _check_scripts(plan: RunPlan, workspace: Workspace) -> list[Problem]:
    problems: list[Problem] = []
    if not workspace.megatron.is_dir():
        message, remedy = f"There is no Megatron-LM in {workspace.megatron}.", "Run: mdk-tui setup megatron"
        return [Problem("error", "trainer", message, remedy)]
    script = workspace.megatron / SCRIPTS[plan.kind]
    if not script.is_file():
        problems.append(Problem("error", "trainer", f"There is no {script}.", "Run: mdk-tui setup patches"))
    if plan.kind == "serve":
        problems += server_problems(workspace.megatron, plan.arguments)
    for file, flag in zip(vocabulary(plan, workspace), ("--vocab-file", "--merge-file"), strict=True):
        if file and not (workspace.megatron / file).is_file():
            problems.append(Problem("error", flag, f"There is no {file}.", "Run: mdk-tui setup data"))
    data = value_of(plan.arguments, "--data-path")
    if plan.kind == "train" and not data and value_of(plan.arguments, "--mock-data") is None:
        problems.append(_no_data(workspace))
    return problems
