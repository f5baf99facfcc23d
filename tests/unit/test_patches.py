"""The patches on core_r0.8.0 itself, and the patched scripts under bash with a recording stand-in for `python`.

The scripts come from the clone of Megatron-LM that MDK_MEGATRON names, or third_party/Megatron-LM; the source is no part
of this repository.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from backends.resources import resource_folder

CLONE = Path(os.environ.get("MDK_MEGATRON") or Path(__file__).parents[2] / "third_party" / "Megatron-LM")
EXAMPLE = "examples/gpt3/train_gpt3_175b_distributed.sh"
TRAIN, SERVE = "examples/gpt3/train_gpt3_7b_mpi.sh", "examples/gpt3/inference_gpt3_7b_mpi.sh"
TARGETS = {
    "pretrain_7b_mpi": TRAIN,
    "inference_7b_mpi": SERVE,
    "training_mlflow": "megatron/training/training.py",
    "server_host": "tools/run_text_generation_server.py",
    "server_rotary_base": "tools/run_text_generation_server.py",
    "server_tokenizer": "megatron/inference/text_generation/tokenization.py",
}
MODEL = ["--num-layers", "2", "--hidden-size", "64"]
ONE_OF_TWO = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
ALONE = dict.fromkeys(ONE_OF_TWO, "1") | {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
# Says what it was started with, waits for TERM where WAIT is set, and ends with the status that END says. A second TERM
# kills it, as it kills python that has put its handler away.
STAND_IN = """\
#!{python}
import json, os, signal, sys
stop = {{signal.SIGTERM}}
signal.pthread_sigmask(signal.SIG_BLOCK, stop)
ignored = signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
names = "RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT CUDA_DEVICE_MAX_CONNECTIONS".split()
said = {{"argv": sys.argv[1:], "env": {{n: os.environ.get(n) for n in names}}, "usr1_ignored": ignored}}
with open(os.environ["RECORD"] + "." + os.environ["RANK"], "w") as file:
    json.dump(said, file)
if os.environ.get("WAIT"):
    print("ready", flush=True)
    if not signal.sigtimedwait(stop, 30):
        sys.exit("nobody said TERM")
    print("saved", flush=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stop)
sys.exit(int(os.environ.get("END", "0")))
"""


@pytest.fixture
def megatron(tmp_path: Path) -> Path:
    """The files that are patched, as the branch has them, in a folder of their own."""
    if not (CLONE / EXAMPLE).is_file():
        pytest.skip(f"no clone of Megatron-LM in {CLONE} (MDK_MEGATRON names another)")
    folder = tmp_path / "Megatron-LM"
    for name, target in TARGETS.items():
        original = CLONE / (EXAMPLE if name.endswith("_7b_mpi") else target)
        if (CLONE / ".git").exists() and original.name != Path(EXAMPLE).name:
            committed = subprocess.run(
                ["git", "-C", str(CLONE), "show", f"HEAD:{target}"], capture_output=True, check=True
            ).stdout
        else:
            committed = original.read_bytes()
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_bytes(committed)
    return folder


def patch(folder: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        "patch",
        "-p1",
        "-l",
        "--fuzz=0",
        "--force",
        *options,
        "-i",
        str(resource_folder("patches") / f"{name}.patch"),
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("name", TARGETS)
def test_a_patch_applies_once_and_reverses_to_the_byte(name: str, megatron: Path) -> None:
    target = megatron / TARGETS[name]
    before = target.read_bytes()
    assert patch(megatron, name, "--reverse", "--dry-run").returncode == 1, "not applied yet"
    assert patch(megatron, name, "--forward").returncode == 0
    assert target.read_bytes() != before
    assert patch(megatron, name, "--forward", "--dry-run").returncode == 1, "applied already"
    assert patch(megatron, name, "--reverse", "--dry-run").returncode == 0, "and known to be"
    assert patch(megatron, name, "--reverse").returncode == 0
    assert target.read_bytes() == before


def test_all_patches_apply_together_in_any_order(megatron: Path) -> None:
    for names in (list(TARGETS), list(reversed(TARGETS))):
        assert [patch(megatron, name, "--forward").returncode for name in names] == [0] * len(names)
        assert [patch(megatron, name, "--reverse", "--dry-run").returncode for name in names] == [0] * len(
            names
        )
        assert [patch(megatron, name, "--reverse").returncode for name in names] == [0] * len(names)


@pytest.mark.parametrize("name", TARGETS)
def test_a_patch_applies_as_the_tutorial_does_it(name: str, megatron: Path) -> None:
    file = resource_folder("patches") / f"{name}.patch"
    subprocess.run(
        ["patch", "-l", TARGETS[name], "-i", str(file)],
        cwd=megatron,
        check=True,
        capture_output=True,
        timeout=300,
    )
    if name.endswith("_7b_mpi"):
        subprocess.run(["bash", "-n", TARGETS[name]], cwd=megatron, check=True, timeout=300)
    else:
        compile((megatron / TARGETS[name]).read_text(encoding="utf-8"), TARGETS[name], "exec")


def test_the_tokenizer_patch_equals_the_commit(megatron: Path) -> None:
    commit = "af51a1535af8eea40c315db64f2ff8c53f1737e0"
    show = ["git", "-C", str(CLONE), "show", "--format=", commit]
    shown = subprocess.run(show, capture_output=True, check=False)
    if shown.returncode:
        pytest.skip(f"the clone in {CLONE} does not hold commit {commit}")
    target = megatron / TARGETS["server_tokenizer"]
    subprocess.run(
        ["patch", "-p1"], cwd=megatron, input=shown.stdout, check=True, capture_output=True, timeout=300
    )
    cherry_picked = target.read_bytes()
    subprocess.run(
        ["patch", "-p1", "-R"], cwd=megatron, input=shown.stdout, check=True, capture_output=True, timeout=300
    )
    assert patch(megatron, "server_tokenizer").returncode == 0
    assert target.read_bytes() == cherry_picked


# The scripts.


@dataclass
class Script:
    """A patched script in its folder, with the stand-in for python first in PATH."""

    folder: Path
    name: str

    def command(self, *arguments: str) -> list[str]:
        return ["bash", str(self.folder / self.name), *arguments]

    def environment(self, rank: dict[str, str], **more: str) -> dict[str, str]:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "RECORD": str(self.folder / "record"), **rank, **more}

    def run(
        self, *arguments: str, rank: dict[str, str] = ONE_OF_TWO, **more: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), cwd=self.folder, env=self.environment(rank, **more),
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    def record(self, rank: int = 1) -> dict[str, object]:
        return json.loads((self.folder / f"record.{rank}").read_text())

    def argv(self, rank: int = 1) -> list[str]:
        argv = self.record(rank)["argv"]
        assert isinstance(argv, list)
        return argv

    @property
    def python_started(self) -> bool:
        return any(self.folder.glob("record.*"))


def script(folder: Path, name: str, patch_name: str) -> Script:
    assert patch(folder, patch_name).returncode == 0
    (folder / "bin").mkdir()
    stand_in = folder / "bin" / "python"
    stand_in.write_text(STAND_IN.format(python=sys.executable))
    stand_in.chmod(0o755)
    return Script(folder, name)


@pytest.fixture
def train(megatron: Path) -> Script:
    return script(megatron, TRAIN, "pretrain_7b_mpi")


@pytest.fixture
def serve(megatron: Path) -> Script:
    return script(megatron, SERVE, "inference_7b_mpi")


FIVE = ("save", "tensorboard", "vocab.json", "merges.txt", "data_text_document")


def value(argv: list[str], flag: str) -> str:
    """What argparse makes of it: the last one."""
    return argv[len(argv) - argv[::-1].index(flag)]


def checkpoint(folder: Path, iteration: str = "100", name: str | None = "iter_0000100") -> Path:
    folder.mkdir(parents=True)
    (folder / "latest_checkpointed_iteration.txt").write_text(iteration)
    if name:
        (folder / name).mkdir()
    return folder


def test_the_tutorials_five_arguments_train_the_recipe(train: Script) -> None:
    assert train.run(*FIVE).returncode == 0
    argv = train.argv()
    assert argv[:2] == ["-u", "pretrain_gpt.py"]
    expected = {
        "--num-layers": "30", "--hidden-size": "4096", "--num-attention-heads": "32", "--seq-length": "4096",
        "--max-position-embeddings": "4096", "--micro-batch-size": "2", "--global-batch-size": "1024",
        "--train-iters": "500000", "--lr": "6.0e-5", "--min-lr": "6.0e-6", "--lr-decay-iters": "430000",
        "--lr-warmup-fraction": ".001", "--lr-decay-style": "cosine", "--attention-dropout": "0", "--hidden-dropout": "0",
        "--fp8-format": "hybrid", "--tensor-model-parallel-size": "1", "--pipeline-model-parallel-size": "1",
        "--split": "949,50,1", "--log-interval": "10", "--save-interval": "10000", "--eval-interval": "1000",
        "--eval-iters": "10", "--save": "save", "--tensorboard-dir": "tensorboard", "--vocab-file": "vocab.json",
        "--merge-file": "merges.txt", "--data-path": "data_text_document",
    }  # fmt: skip
    assert {flag: value(argv, flag) for flag in expected} == expected
    for flag in ("--swiglu", "--disable-bias-linear", "--untie-embeddings-and-output-weights", "--use-legacy-models",
                 "--use-distributed-optimizer", "--fp16", "--log-throughput", "--exit-signal-handler"):  # fmt: skip
        assert flag in argv
    assert "--load" not in argv and "--rampup-batch-size" not in argv


def test_who_and_where_a_rank_is(train: Script) -> None:
    train.run(*FIVE)
    assert train.record()["env"] == {
        "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "14535",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }  # fmt: skip
    train.run(*FIVE, MASTER_ADDR="node1", MASTER_PORT="50001")
    environment = train.record()["env"]
    assert isinstance(environment, dict)
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("node1", "50001")


def test_srun_is_as_good_as_mpirun(train: Script) -> None:
    slurm = {
        "SLURM_PROCID": "9",
        "SLURM_NTASKS": "16",
        "SLURM_LOCALID": "1",
        "SLURM_STEP_TASKS_PER_NODE": "8(x2)",
    }
    assert "MASTER_ADDR" in train.run(*FIVE, rank=slurm).stderr
    assert train.run(*FIVE, rank=slurm, MASTER_ADDR="node1").returncode == 0
    environment = train.record(9)["env"]
    assert isinstance(environment, dict)
    assert (environment["RANK"], environment["WORLD_SIZE"], environment["LOCAL_RANK"]) == ("9", "16", "1")


@pytest.mark.parametrize(
    ("rank", "arguments", "said"),
    [
        ({}, FIVE, "mpirun or srun"),
        (ONE_OF_TWO | {"OMPI_COMM_WORLD_SIZE": "4"}, FIVE, "MASTER_ADDR is not set"),
        (ONE_OF_TWO, FIVE[:4], "five arguments"),
        (ONE_OF_TWO, (*FIVE, "--load"), "--load needs a folder"),
        (ONE_OF_TWO, (*FIVE, "--save", ""), "--save needs a folder"),
    ],
)
def test_arguments_that_would_fail_later_are_refused_at_once(
    train: Script, rank: dict[str, str], arguments: tuple[str, ...], said: str
) -> None:
    result = train.run(*arguments, rank=rank)
    assert (result.returncode, said in result.stderr, train.python_started) == (2, True, False), result.stderr


def test_further_flags_replace_the_recipe(train: Script) -> None:
    train.run(*FIVE, *MODEL, "--log-interval", "1", "--save", "elsewhere")
    argv = train.argv()
    assert value(argv, "--num-layers") == "2"
    assert argv.count("--num-layers") == 1
    for gone in (
        "--swiglu",
        "--fp16",
        "--fp8-format",
        "--lr",
        "--tensor-model-parallel-size",
        "--use-legacy-models",
    ):
        assert gone not in argv
    assert value(argv, "--log-interval") == "1", "a given flag comes after the script's"
    assert value(argv, "--save") == "elsewhere"
    assert argv.count("--save") == 1
    assert value(argv, "--data-path") == "data_text_document"


def test_load_and_save_alone_keep_the_recipe(train: Script, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "base" / "2025-02-06" / "09-32-12")
    for words in (["--load", str(folder)], [f"--load={folder}", "--save=new"]):
        assert train.run(*FIVE, *words).returncode == 0
        assert value(train.argv(), "--load") == str(folder)
        assert "--swiglu" in train.argv()
    assert value(train.argv(), "--save") == "new"


@pytest.mark.parametrize(
    ("iteration", "name", "said"),
    [
        (None, None, "there is no"),
        ("", None, "names no iteration"),
        ("soon", None, "names no iteration"),
        ("100", None, "names iter_0000100"),
        ("0000100", "iter_0000101", "names iter_0000100"),
        ("release", "iter_0000100", "names release"),
    ],
)
def test_no_start_from_random_weights_by_mistake(
    train: Script, tmp_path: Path, iteration: str | None, name: str | None, said: str
) -> None:
    folder = tmp_path / "checkpoint"
    if iteration is not None:
        checkpoint(folder, iteration, name)
    result = train.run(*FIVE, "--load", str(folder))
    assert (result.returncode, said in result.stderr, train.python_started) == (2, True, False), result.stderr


@pytest.mark.parametrize(
    ("iteration", "name"), [("100\n", "iter_0000100"), ("release", "release"), ("0000099", "iter_0000099")]
)
def test_a_checkpoint_that_is_there_is_loaded(
    train: Script, tmp_path: Path, iteration: str, name: str
) -> None:
    folder = checkpoint(tmp_path / "a folder", iteration, name)
    assert train.run(*FIVE, "--load", str(folder), *MODEL).returncode == 0
    assert value(train.argv(), "--load") == str(folder)


def test_a_save_folder_with_a_checkpoint_is_continued_where_all_ranks_see_it(
    train: Script, tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path / "dated")
    assert train.run(str(folder), *FIVE[1:]).returncode == 0
    assert value(train.argv(), "--load") == value(train.argv(), "--save") == str(folder)
    (train.folder / "record.1").unlink()
    several = train.run(
        str(folder), *FIVE[1:], rank=ONE_OF_TWO | {"OMPI_COMM_WORLD_SIZE": "4"}, MASTER_ADDR="node1"
    )
    assert (several.returncode, train.python_started) == (2, False)
    assert f"--load {folder}" in several.stderr


def test_empty_arguments_are_left_out_and_blanks_survive(train: Script, tmp_path: Path) -> None:
    train.run("", "", "", "", "", *MODEL, "--mock-data")
    for flag in ("--save", "--tensorboard-dir", "--vocab-file", "--merge-file", "--data-path"):
        assert flag not in train.argv()
    train.run("my save", "t b", "v $(touch oops).json", "m*", "0.3 one 0.7 two", *MODEL, "--title", "a  b")
    argv = train.argv()
    assert value(argv, "--save") == "my save" and value(argv, "--merge-file") == "m*"
    assert value(argv, "--vocab-file") == "v $(touch oops).json"
    start = argv.index("--data-path")
    assert argv[start : start + 6] == ["--data-path", "0.3", "one", "0.7", "two", "--vocab-file"]
    assert value(argv, "--title") == "a  b"
    prefix = tmp_path / "my data_text_document"
    Path(f"{prefix}.idx").touch()
    train.run(*FIVE[:4], str(prefix), *MODEL)
    assert value(train.argv(), "--data-path") == str(prefix)


@pytest.mark.parametrize("end", [0, 1, 7])
def test_the_status_is_pythons(train: Script, end: int) -> None:
    assert train.run(*FIVE, END=str(end)).returncode == end


@pytest.mark.parametrize("end", [0, 3])
def test_usr1_to_the_whole_group_becomes_term_for_python(train: Script, end: int) -> None:
    """As mpirun sends it, and twice, as inside a container; the script waits until python is gone."""
    job = subprocess.Popen(
        train.command(*FIVE), cwd=train.folder, env=train.environment(ONE_OF_TWO, WAIT="1", END=str(end)),
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert job.stdout
    assert job.stdout.readline() == "ready\n"
    os.killpg(job.pid, signal.SIGUSR1)
    os.killpg(job.pid, signal.SIGUSR1)
    assert job.communicate(timeout=300)[0] == "saved\n"
    assert job.returncode == end
    assert train.record()["usr1_ignored"] is True


@pytest.mark.parametrize("which", ["train", "serve"])
def test_however_often_the_stop_arrives_python_hears_of_it_once(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Bash mixes up signals that come while it works on one: this showed as 143, 138 or 255 in one of 100 stops."""
    script: Script = request.getfixturevalue(which)
    (script.folder / "bin" / "python").write_text(STAND_IN.format(python=f"{sys.executable} -IS"))
    words = FIVE if which == "train" else [str(checkpoint(tmp_path / "checkpoint")), *FIVE[1:]]
    rank = ONE_OF_TWO if which == "train" else ALONE
    gaps = random.Random(14535)
    for _ in range(40):
        job = subprocess.Popen(
            script.command(*words), cwd=script.folder, env=script.environment(rank, WAIT="1", END="7"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        assert job.stdout
        assert job.stdout.readline() == "ready\n"
        with contextlib.suppress(ProcessLookupError):
            for _ in range(gaps.choice([2, 2, 3, 8])):
                os.killpg(job.pid, signal.SIGUSR1)
                time.sleep(gaps.choice([0, 0, 1e-5, 1e-4, 3e-4, 1e-3]))
        assert job.communicate(timeout=300)[0] == "saved\n"
        assert job.returncode == 7


# The server's script.


def test_the_server_has_the_recipes_model_and_listens_here(serve: Script, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "checkpoint")
    assert serve.run(str(folder), *FIVE[1:], rank=ALONE).returncode == 0
    argv = serve.argv(0)
    assert argv[:2] == ["-u", "tools/run_text_generation_server.py"]
    expected = {
        "--load": str(folder), "--num-layers": "30", "--hidden-size": "4096", "--seq-length": "4096",
        "--max-position-embeddings": "4096", "--tensor-model-parallel-size": "1", "--vocab-file": "vocab.json",
        "--merge-file": "merges.txt", "--host": "127.0.0.1", "--port": "8028", "--micro-batch-size": "1",
    }  # fmt: skip
    assert {flag: value(argv, flag) for flag in expected} == expected
    for flag in (
        "--swiglu",
        "--disable-bias-linear",
        "--untie-embeddings-and-output-weights",
        "--use-legacy-models",
    ):
        assert flag in argv
    environment = serve.record(0)["env"]
    assert isinstance(environment, dict)
    assert environment["MASTER_PORT"] == "14536"


def test_the_server_takes_the_checkpoints_flags_and_another_address(serve: Script, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "checkpoint")
    flags = [*MODEL, "--tensor-model-parallel-size", "2"]
    result = serve.run(str(folder), *FIVE[1:], *flags, MDK_SERVER_PORT="9000", MDK_SERVER_HOST="0.0.0.0")
    assert result.returncode == 0
    argv = serve.argv()
    assert value(argv, "--num-layers") == "2" and "--swiglu" not in argv
    assert (value(argv, "--port"), value(argv, "--host")) == ("9000", "0.0.0.0")


def test_the_server_never_answers_with_random_weights(serve: Script, tmp_path: Path) -> None:
    result = serve.run(str(tmp_path / "nothing"), *FIVE[1:], rank=ALONE)
    assert (result.returncode, serve.python_started) == (2, False)
    assert "there is no" in result.stderr


@pytest.mark.parametrize(
    ("words", "processes"),
    [([], 1), (["--tensor-model-parallel-size", "4"], 4), (["--tensor-model-parallel-size=2", "--pipeline-model-parallel-size", "2"], 4)],
)  # fmt: skip
def test_the_server_wants_as_many_processes_as_the_model_is_split_into(
    serve: Script, tmp_path: Path, words: list[str], processes: int
) -> None:
    result = serve.run(str(checkpoint(tmp_path / "checkpoint")), *FIVE[1:], *words)
    assert (result.returncode, serve.python_started) == (2, False)
    assert f"by {processes} process" in result.stderr


def test_a_stopped_server_has_not_failed(serve: Script, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "checkpoint")
    (serve.folder / "bin" / "python").write_text(f"#!{shutil.which('bash')}\necho ready\nexec sleep 30\n")
    job = subprocess.Popen(
        serve.command(str(folder), *FIVE[1:]), cwd=serve.folder, env=serve.environment(ALONE),
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert job.stdout
    assert job.stdout.readline() == "ready\n"
    os.killpg(job.pid, signal.SIGUSR1)
    job.communicate(timeout=300)
    assert job.returncode == 0
