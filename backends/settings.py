"""`mdk.toml`: the settings of a workspace, read strictly and written with the user's comments kept.

Every setting has a default, so the file may be missing. An unknown or ill-typed key is an error that names the file,
the key and the nearest valid one: a setting that is silently ignored costs a night.
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.errors import UserError
from backends.files import write_atomic


@dataclass(frozen=True, slots=True)
class StopSettings:
    """[stop]: how long a stop may take, and when a job counts as hung."""

    limit_minutes: float = 15.0  # the time a graceful stop has to save, before TERM and KILL follow
    hang_minutes: float = 0.0  # silence after an error after which a job is ended; 0: it is only reported


@dataclass(frozen=True, slots=True)
class MegatronSettings:
    """[megatron]: where the source comes from."""

    repository: str = "https://github.com/NVIDIA/Megatron-LM"
    branch: str = "core_r0.8.0"


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """[image]: which Singularity image, how it is built and how it is run."""

    path: str = ""  # "": pytorch.sif in the clone of Megatron-LM
    definition: str = ""  # "": singularity/pytorch.def of mdk-tui
    build_arguments: tuple[str, ...] = ()  # NAME=VALUE, for the definition's {{ NAME }}
    singularity: str = ""  # "": found in PATH or /opt/singularity/bin
    options: tuple[str, ...] = ()  # more options of `singularity exec`
    bind: tuple[str, ...] = ()  # SRC[:DEST[:OPTIONS]]
    no_home: bool = False  # do not mount the home folder


@dataclass(frozen=True, slots=True)
class DataSettings:
    """[data]: what the set-up preprocesses."""

    corpus: str = ""  # a .jsonl of your own; "": the RedPajama sample of the tutorial
    key: str = "text"  # the key of a document's text
    workers: int = 0  # processes of the preprocessing; 0: one a core, at most 64


@dataclass(frozen=True, slots=True)
class MpiSettings:
    """[mpi]: the nodes and how mpirun starts ranks on them."""

    hostfile: str = ""
    options: tuple[str, ...] = ("--bind-to", "none")  # more options of mpirun
    silence_minutes: float = 10.0  # without an iteration, after which the nodes are asked; 0: never


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """[notify]: who is told. `{subject}` in `command` becomes the news in one line; more comes on standard input."""

    command: tuple[str, ...] = ()  # e.g. ["mail", "-s", "{subject}", "me@example.org"]
    queue_minutes: float = 30.0  # a longer wait in the queue is reported, once; 0: never


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """[prompt]: which server answers, and how long to wait for it."""

    url: str = ""  # "": the newest text server of the workspace that can answer
    wait_minutes: float = 10.0  # time limit of an answer, including its wait in the queue of the server
    enter_sends: bool = False  # True: enter sends and ctrl+j begins a new line; False: the other way round


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """[slurm]: what a job asks for; "" leaves it to the site."""

    nodes: int = 1
    gpus_per_node: int = 8
    time: str = ""  # as sbatch takes it: "2-12:00:00"
    account: str = ""
    partition: str = ""
    reservation: str = ""
    options: tuple[str, ...] = ()  # more options of sbatch, such as "--qos=high"
    inside: str = "mpirun"  # what starts the ranks in the job: mpirun or srun
    srun_options: tuple[str, ...] = ()
    save_minutes: float = 10.0  # how long before the time limit the job is told to save; 0: never
    requeue: bool = True  # requeue a job that saved before its time limit or was preempted
    poll_seconds: float = 5.0  # between two questions to the controller


@dataclass(frozen=True, slots=True)
class MlflowSettings:
    """[mlflow]. MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME in the environment take precedence."""

    enabled: bool = True  # every run is tracked where MLflow is installed
    tracking_uri: str = ""  # "": outputs/mlflow.db of the workspace
    experiment: str = "Megatron-LM"
    patience_minutes: float = 10.0  # how long to wait for an unreachable server after the end of a run


@dataclass(frozen=True, slots=True)
class ResumeSettings:
    """[resume]: what follows a crash."""

    automatic: int = 0  # the most automatic resumes in a row; 0: never
    pause_minutes: float = 1.0  # pause before the first resume; it doubles with each further one


@dataclass(frozen=True, slots=True)
class SampleSettings:
    """[samples]: prompts that each training run completes from its checkpoints, beside the training."""

    prompts: tuple[str, ...] = ()  # empty: no samples
    every: int = 0  # iterations between two samples; 0: on each checkpoint
    tokens: int = 48
    temperature: float = 0.8
    greedy: bool = False
    seed: int = 1234  # the same for all samples, so that answers differ only by the checkpoint


@dataclass(frozen=True, slots=True)
class Settings:
    """All sections of mdk.toml with their defaults."""

    stop: StopSettings = field(default_factory=StopSettings)
    megatron: MegatronSettings = field(default_factory=MegatronSettings)
    image: ImageSettings = field(default_factory=ImageSettings)
    mpi: MpiSettings = field(default_factory=MpiSettings)
    data: DataSettings = field(default_factory=DataSettings)
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    mlflow: MlflowSettings = field(default_factory=MlflowSettings)
    notify: NotifySettings = field(default_factory=NotifySettings)
    prompt: PromptSettings = field(default_factory=PromptSettings)
    resume: ResumeSettings = field(default_factory=ResumeSettings)
    samples: SampleSettings = field(default_factory=SampleSettings)


SECTIONS: dict[str, type[Any]] = typing.get_type_hints(Settings)
PRESET_SECTION = "preset"  # [preset.NAME] tables are models of the user's own; backends/models reads them


def read_settings(path: Path) -> Settings:
    """The settings in `path` (missing: the defaults). Raises UserError for a file that cannot be read or understood."""
    tables = read_tables(path)
    values: dict[str, Any] = {}
    for name, table in tables.items():
        if name == PRESET_SECTION:
            continue
        if name not in SECTIONS:
            raise _unknown(path, f"section [{name}]", name, [*SECTIONS, PRESET_SECTION])
        if not isinstance(table, dict):
            raise UserError(
                f"{path}: {name} must be a section.", f"Write [{name}] on a line of its own.", status=2
            )
        values[name] = _section(path, name, SECTIONS[name], typing.cast("dict[str, Any]", table))
    return Settings(**values)


def read_tables(path: Path) -> dict[str, Any]:
    """The file as plain values, not yet checked; {} when it is missing."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(path.read_text(encoding="utf-8")).unwrap()
    except FileNotFoundError:
        return {}
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} is not valid TOML: {error}.", "Mend the line, or move the file away.", status=2
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from None


def write_setting(path: Path, section: str, key: str, value: Any) -> None:
    """Set one value in the file; every other line, comments included, stays as it is. Raises UserError for unknown keys."""
    import tomlkit

    if section not in SECTIONS:
        raise _unknown(path, f"section [{section}]", section, list(SECTIONS))
    plain = list(typing.cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
    _section(path, section, SECTIONS[section], {key: plain})
    read_settings(path)  # never write into a file that is not understood
    document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
    if section not in document:
        document.add(section, tomlkit.table())
    document[section][key] = plain  # pyright: ignore[reportIndexIssue]
    write_atomic(path, tomlkit.dumps(document))  # pyright: ignore[reportUnknownMemberType]


def _section(path: Path, name: str, kind: type[Any], table: dict[str, Any]) -> Any:
    hints = typing.get_type_hints(kind)
    fields = {f.name for f in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in fields:
            raise _unknown(path, f"key {key!r} in [{name}]", key, sorted(fields))
        values[key] = _typed(path, f"{name}.{key}", hints[key], value)
    return kind(**values)


def _typed(path: Path, key: str, wanted: Any, value: Any) -> Any:
    if wanted is bool and isinstance(value, bool):
        return value
    if wanted is str and isinstance(value, str):
        return value
    if wanted is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if wanted is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if (
        wanted == tuple[str, ...]
        and isinstance(value, list)
        and all(isinstance(v, str) for v in typing.cast("list[Any]", value))
    ):
        return tuple(typing.cast("list[str]", value))
    names: dict[Any, str] = {
        bool: "true or false",
        str: "a text in quotes",
        int: "a whole number",
        float: "a number",
    }
    raise UserError(f"{path}: {key} must be {names.get(wanted, 'a list of texts')}, not {value!r}.", status=2)


def _unknown(path: Path, what: str, name: str, valid: list[str]) -> UserError:
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.4)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(valid)}."
    return UserError(f"{path}: unknown {what}.", hint, status=2)
