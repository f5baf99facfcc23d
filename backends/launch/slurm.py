"""The launcher `slurm`: the plan as an sbatch script with mpirun or srun inside. [slurm] in mdk.toml has its options."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from backends.launch import slurm_job
from backends.launch.launcher import Command, saves_on_term
from backends.launch.mpirun import Mpirun
from backends.launch.slurm_control import Slurm as Controller
from backends.launch.slurm_control import SlurmControl
from backends.launch.slurm_job import SlurmJob
from backends.launch.slurm_script import batch_script
from backends.models.problem import Problem
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.settings import SlurmSettings, read_settings
from backends.workspace import Workspace

# sbatch(1), --time: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S
TIME = re.compile(
    r"(?:(?P<d>\d+)-(?P<h>\d+)(?::(?P<m>\d+)(?::(?P<s>\d+))?)?|(?P<first>\d+)(?::(?P<second>\d+)(?::(?P<third>\d+))?)?)"
)
UNLIMITED = ("UNLIMITED", "INFINITE")
INSIDE = ("mpirun", "srun")
ANY_CPUS = 1 << 20  # no limit: Slurm places the ranks on other machines than this one
SBATCH = ("sbatch", "--parsable", "--export=ALL", "--open-mode=append")


@dataclass(frozen=True, slots=True)
class Shape:
    """A number of nodes, each with up to `tasks` processes, one a GPU."""

    nodes: int
    tasks: int


def shape(plan: RunPlan, settings: SlurmSettings) -> Shape:
    """The nodes that a plan's processes need: one process a chosen GPU, else one a GPU that the settings give a node."""
    if plan.trainer == "demo":
        each = -(-plan.processes // max(settings.nodes, 1))
    else:
        each = len(plan.gpus) if plan.gpus else max(settings.gpus_per_node, 1)
    return Shape(-(-plan.processes // each), min(each, plan.processes))


@dataclass(slots=True)
class Slurm:
    """`find` looks for a program in PATH; `root`: whether Open MPI must be told to accept root; `controller`: Slurm's."""

    find: Callable[[str], str | None] = shutil.which
    root: bool = os.geteuid() == 0
    controller: Controller = field(default_factory=SlurmControl)
    name: str = "slurm"

    def check(self, plan: RunPlan, workspace: Workspace) -> list[Problem]:
        """Raises UserError for settings that cannot be read."""
        settings = read_settings(workspace.settings).slurm
        problems: list[Problem] = []
        if self.find("sbatch") is None:
            remedy = "Launch on a machine where Slurm is, or choose --launcher mpirun."
            problems.append(Problem("error", "launcher", "There is no sbatch in PATH.", remedy))
        if plan.kind == "serve":
            message = "A text server in a Slurm job listens where nobody here reaches it."
            problems.append(
                Problem("error", "launcher", message, "Choose --launcher mpirun, on a node of yours.")
            )
        inner = self._mpirun().check(self._inner(plan), workspace)
        problems += [problem for problem in inner if problem.field not in ("launcher", "gpus", "hosts")]
        return [*problems, *_check_settings(plan, settings), *_check_srun(plan, settings)]

    def command(self, plan: RunPlan, workspace: Workspace) -> Command:
        """`sbatch …` with the script as `batch`. Raises UserError for settings that cannot be read."""
        settings = read_settings(workspace.settings)
        inner, mpirun = self._inner(plan), self._mpirun()
        first = mpirun.command(inner, workspace)

        def words(plan: RunPlan) -> list[str]:
            if settings.slurm.inside == "srun":
                return _srun_words(
                    mpirun.inside(plan, workspace, settings), shape(plan, settings.slurm), settings.slurm
                )
            return _mpirun_words(mpirun.command(plan, workspace))

        script = batch_script(
            title=plan.title or plan.preset or plan.trainer,
            options=directives(plan, settings.slurm),
            env=first.env,
            cwd=first.cwd,
            command=words(inner),
            again=words(dataclasses.replace(inner, load=plan.load or plan.save)),
            save=plan.save,
            requeue=settings.slurm.requeue,
        )
        return Command(SBATCH, str(workspace.root), {}, script)

    def _mpirun(self) -> Mpirun:
        return Mpirun(find=self.find, cpus=ANY_CPUS, root=self.root)

    @staticmethod
    def _inner(plan: RunPlan) -> RunPlan:
        """The plan inside the job, where Slurm has chosen nodes and GPUs."""
        return dataclasses.replace(plan, gpus=None, hosts=())

    def term_saves(self, plan: RunPlan) -> bool:
        """scancel sends TERM to the ranks first."""
        return saves_on_term(plan)

    def submit(
        self,
        folder: RunFolder,
        command: Command,
        mark: str,
        environment: Mapping[str, str],
        workspace: Workspace,
    ) -> SlurmJob:
        """Raises UserError with Slurm's words if it refuses the job, and OSError."""
        poll = read_settings(workspace.settings).slurm.poll_seconds
        return slurm_job.submit(folder, command, mark, environment, self.controller, poll)

    def adopt(self, folder: RunFolder, workspace: Workspace) -> SlurmJob:
        """Raises UserError if the submitted job is unknown."""
        return slurm_job.adopt(folder, self.controller, read_settings(workspace.settings).slurm.poll_seconds)


def directives(plan: RunPlan, settings: SlurmSettings) -> list[str]:
    """The options of the #SBATCH lines. `options` of the settings come last and take precedence."""
    asked = shape(plan, settings)
    given = {option.partition("=")[0] for option in settings.options}
    name = re.sub(r"[^\w.\-]+", "-", f"mdk-{plan.preset or plan.trainer}")
    wanted = {
        "--job-name": name,
        "--nodes": str(asked.nodes),
        "--ntasks-per-node": str(asked.tasks),
        "--gpus-per-node": str(asked.tasks)
        if plan.trainer != "demo" and not given & {"--gres", "--gpus"}
        else "",
        "--time": settings.time,
        "--account": settings.account,
        "--partition": settings.partition,
        "--reservation": settings.reservation,
        "--signal": f"B:USR2@{round(settings.save_minutes * 60)}" if settings.save_minutes else "",
    }
    options = [f"{option}={value}" for option, value in wanted.items() if value and option not in given]
    return [*options, "--requeue" if settings.requeue else "--no-requeue", *settings.options]


def _mpirun_words(command: Command) -> list[str]:
    """mpirun on the nodes of the job, with ranks placed node by node and the variables exported to all of them."""
    start, rest = list(command.argv[:3]), list(command.argv[3:])
    where = [] if "--map-by" in rest else ["--map-by", "slot"]
    names = ["MDK_RUN", "MASTER_ADDR", *(name for name in command.env if not name.startswith("OMPI_"))]
    return [*start, *where, *(word for name in dict.fromkeys(names) for word in ("-x", name)), *rest]


def _srun_words(inside: list[str], asked: Shape, settings: SlurmSettings) -> list[str]:
    count = ["--nodes", str(asked.nodes), "--ntasks-per-node", str(asked.tasks)]
    return ["srun", *count, "--kill-on-bad-exit=1", *settings.srun_options, *inside]


def _check_settings(plan: RunPlan, settings: SlurmSettings) -> list[Problem]:
    problems: list[Problem] = []
    asked = shape(plan, settings)
    if asked.nodes * asked.tasks != plan.processes:
        message = f"{plan.processes} processes do not fill nodes of {asked.tasks}."
        problems.append(Problem("error", "launcher", message, f"Give --np {asked.nodes * asked.tasks}."))
    if settings.inside not in INSIDE:
        message = f"inside = {settings.inside!r} in [slurm] starts no ranks."
        problems.append(Problem("error", "launcher", message, 'Write inside = "mpirun" or "srun".'))
    seconds = time_limit(settings.time)
    if seconds is None:
        message = f"time = {settings.time!r} in [slurm] is no time of Slurm's."
        problems.append(
            Problem("error", "launcher", message, 'Write it as "2-12:00:00" (days-hours:minutes:seconds).')
        )
    elif seconds <= settings.save_minutes * 60:
        message = f"The time limit of {settings.time} is not longer than save_minutes = {settings.save_minutes:g} in [slurm]."
        problems.append(
            Problem("error", "launcher", message, "It would be told to save at once: give it more time.")
        )
    for name in ("account", "partition", "reservation"):
        if len(getattr(settings, name).split()) > 1:
            message = f"{name} in [slurm] is no name: it holds blanks."
            problems.append(Problem("error", "launcher", message, "Write it as sbatch takes it."))
    if bad := [option for option in settings.options if not option.startswith("-") or "\n" in option]:
        message = f"{bad[0]!r} in [slurm] options is no option of sbatch."
        problems.append(Problem("error", "launcher", message, 'Write each as one text: "--qos=high".'))
    return problems


def _check_srun(plan: RunPlan, settings: SlurmSettings) -> list[Problem]:
    if settings.inside != "srun" or plan.trainer != "demo" or plan.processes == 1:
        return []
    if any("pmix" in option for option in settings.srun_options):
        return []
    message = "The demo's ranks find each other through PMIx, which srun serves only when told."
    return [
        Problem(
            "error",
            "launcher",
            message,
            'Write srun_options = ["--mpi=pmix"] in [slurm], or inside = "mpirun".',
        )
    ]


def time_limit(text: str) -> float | None:
    """A time of Slurm's in seconds; infinity for no limit, None for unreadable text."""
    if not text or text.upper() in UNLIMITED:
        return float("inf")
    found = TIME.fullmatch(text)
    if found is None:
        return None
    if found["d"] is not None:
        days, hours, minutes, seconds = (int(found[name] or 0) for name in ("d", "h", "m", "s"))
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    parts = [int(found[name]) for name in ("first", "second", "third") if found[name] is not None]
    if len(parts) < 3:
        return parts[0] * 60.0 + (parts[1] if len(parts) == 2 else 0)
    return (parts[0] * 60.0 + parts[1]) * 60 + parts[2]
