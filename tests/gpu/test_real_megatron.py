"""The real Megatron-LM core_r0.8.0 on a GPU, through the patches, real mpirun and real singularity.

`prepare.sh` beside this file makes a bare machine ready and prints the variables that are needed; without a GPU and a
clone all of it is skipped. The tests are one story: they run in the order of the file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from backends.inference.megatron_api import MegatronClient
from backends.inference.request import Request, complete
from backends.megatron.indexed_dataset import read_indexed_dataset
from backends.megatron.record import Record
from backends.megatron.summary import read_log
from backends.models import presets
from backends.runs.checkpoints import checkpoints, read_tracker
from backends.runs.torch_archive import stored_arguments

WORKSPACE, IMAGE = os.environ.get("MDK_GPU_WORKSPACE"), os.environ.get("MDK_GPU_IMAGE")
pytestmark = pytest.mark.skipif(
    not (WORKSPACE and IMAGE and shutil.which("nvidia-smi")),
    reason="needs a GPU and Megatron-LM: tests/gpu/prepare.sh",
)
CLONE = Path(WORKSPACE or "/nonexistent") / "outputs" / "Megatron-LM"
BINDS = "/usr,/opt,/tmp,/etc"
KEEP = os.environ.get("OUT")  # where logs are kept, if anywhere


def in_image(*command: str, np: int | None = 1) -> list[str]:
    start = ["mpirun", "--np", str(np), "--bind-to", "none"] if np else []
    return [*start, "singularity", "exec", "--nv", "-B", BINDS, IMAGE or "", *command]


def script(name: str, *arguments: str) -> list[str]:
    data = ("tensorboard", "vocab.json", "merges.txt", "corpus_text_document")
    return in_image("bash", f"examples/gpt3/{name}_gpt3_7b_mpi.sh", arguments[0], *data, *arguments[1:])


def call(command: Sequence[str], log: str, limit: float = 240) -> int | None:
    """Run to the end; what it prints goes to `log` in the workspace. None: it did not end in time and was ended."""
    path = CLONE.parent / log
    with (
        path.open("wb") as file,
        subprocess.Popen(command, cwd=CLONE, stdout=file, stderr=subprocess.STDOUT) as process,
    ):
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            process.terminate()  # mpirun ends its ranks
            return None
        finally:
            process.wait(30)
            if KEEP:
                shutil.copy(path, KEEP)


def record(log: str) -> Record:
    return read_log(CLONE.parent / log)


def tail(log: str) -> str:
    return (CLONE.parent / log).read_text(errors="replace")[-3000:]


def mdk(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tui.cli import main; main()", "-w", WORKSPACE or "", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def smoke(**changes: str) -> list[str]:
    words = list(presets.find("smoke").arguments)
    for flag, value in changes.items():
        name = f"--{flag.replace('_', '-')}"
        if name in words:
            words[words.index(name) + 1] = value
        else:
            words += [name, value]
    return words


def test_the_patches_apply_reverse_and_apply() -> None:
    for words in (["--yes"], ["--reverse", "--yes"], ["--yes"]):
        done = mdk("setup", "patches", *words)
        assert done.returncode in (0, 1), done.stderr
    assert "applied" in mdk("setup", "patches", "--yes").stdout


def test_a_corpus_is_preprocessed() -> None:
    from tokenizers import ByteLevelBPETokenizer  # pyright: ignore[reportMissingImports]

    texts = [
        path.read_text(errors="ignore")
        for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))[:1800]
    ]
    (CLONE / "corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, vocab_size=8000, special_tokens=["<|endoftext|>"])
    tokenizer.save_model(str(CLONE))
    command = ["python", "tools/preprocess_data.py", "--input", "corpus.jsonl", "--output-prefix", "corpus"]
    command += [
        "--tokenizer-type",
        "GPT2BPETokenizer",
        "--vocab-file",
        "vocab.json",
        "--merge-file",
        "merges.txt",
    ]
    assert call(in_image(*command, "--workers", "8", "--append-eod", np=None), "preprocess.log") == 0, tail(
        "preprocess.log"
    )
    found = read_indexed_dataset(CLONE / "corpus_text_document")
    assert found.complete and found.documents == len(texts) and found.dtype == "uint16", found


def test_smoke_trains_and_saves() -> None:
    assert call(script("train", "ck", *smoke()), "smoke.log") == 0, tail("smoke.log")
    found = record("smoke.log")
    assert found.iteration == 200 and any(m.name == "done" for m in found.milestones)
    losses = [found.value_at("lm loss", at) for at in (50, 200)]
    assert losses[0] is not None and losses[1] is not None and losses[1] < losses[0] - 0.5
    summary = json.loads(mdk("summary", str(CLONE.parent / "smoke.log"), "--json").stdout)
    assert summary["phase"] == "finished"


def dated(base: str) -> Path:
    """The dated folder that the MLflow patch made below `base`."""
    (folder,) = [path for path in (CLONE / base).glob("*/*") if re.fullmatch(r"\d\d-\d\d-\d\d", path.name)]
    return folder


def test_its_checkpoints_are_whole() -> None:
    found = checkpoints(dated("ck"))
    assert [(c.iteration, c.complete, c.format, c.layout.tp, c.layout.pp) for c in found] == [
        (200, True, "torch", 1, 1),
        (100, True, "torch", 1, 1),
    ]
    arguments = stored_arguments(Path(found[0].path) / "mp_rank_00" / "model_optim_rng.pt")
    assert (
        arguments is not None
        and arguments["hidden_size"] == 512
        and arguments["tensor_model_parallel_size"] == 1
    )


def test_a_resume_goes_on_where_it_ended() -> None:
    save = str(dated("ck"))
    words = smoke(train_iters="240")
    assert (
        call(script("train", save, "--load", save, *words, "--override-opt_param-scheduler"), "resume.log")
        == 0
    ), tail("resume.log")
    found = record("resume.log")
    assert any(c.action == "loaded" and c.iteration == 200 for c in found.checkpoints)
    assert found.segments[0].first == 210 and found.iteration == 240
    before, after = record("smoke.log").value_at("lm loss", 200), found.value_at("lm loss", 210)
    assert before is not None and after is not None and abs(before - after) < 0.4


def test_a_changed_schedule_is_refused_and_explained() -> None:
    save = str(dated("ck"))
    assert (
        call(
            script("train", save, "--load", save, *smoke(train_iters="300", lr_decay_iters="600")),
            "refused.log",
        )
        != 0
    )
    assert [e.kind for e in record("refused.log").all_errors()][:1] == ["scheduler-mismatch"], tail(
        "refused.log"
    )


def test_an_empty_folder_is_not_resumed_from() -> None:
    assert call(script("train", "ck2", "--load", "empty", *smoke()), "empty.log", limit=60) != 0
    assert "no checkpoint to load" in tail("empty.log")
    assert not (CLONE / "ck2").exists()


def test_usr1_saves_and_ends_with_status_0() -> None:
    path = CLONE.parent / "stopped.log"
    with (
        path.open("wb") as file,
        subprocess.Popen(
            script("train", "ck3", *smoke(train_iters="100000")),
            cwd=CLONE,
            stdout=file,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        with path.open("rb") as reader:
            seen = b""
            while b"] iteration " not in seen and process.poll() is None:
                seen += reader.read()
        process.send_signal(signal.SIGUSR1)
        assert process.wait(120) == 0, tail("stopped.log")
    if KEEP:
        shutil.copy(path, KEEP)
    assert any("SIGTERM" in event.reason for event in record("stopped.log").exits)
    tracker = read_tracker(dated("ck3"))
    assert isinstance(tracker.iteration, int) and tracker.iteration > 0


def test_the_server_answers_from_the_checkpoint() -> None:
    words = [word for word in smoke() if word]
    model = [
        *words[: words.index("--train-iters")],
        "--fp16",
        "--transformer-impl",
        "local",
        "--no-persist-layer-norm",
        "--no-gradient-accumulation-fusion",
        "--no-masked-softmax-fusion",
    ]
    path = CLONE.parent / "serve.log"
    environment = {**os.environ, "MDK_SERVER_PORT": "8028"}
    with (
        path.open("wb") as file,
        subprocess.Popen(
            script("inference", str(dated("ck")), *model),
            cwd=CLONE,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
        ) as process,
    ):
        try:
            with path.open("rb") as reader:
                seen = b""
                while b"Running on http" not in seen and process.poll() is None:
                    seen += reader.read()
            assert b"successfully loaded checkpoint" in seen, tail("serve.log")
            found = complete(
                MegatronClient("http://127.0.0.1:8028"), Request("import ", tokens=12, top_k=1, logprobs=True)
            )
            assert found.text.startswith("import ") and found.tokens[1].logprob is not None, found
        finally:
            process.send_signal(signal.SIGUSR1)
            process.wait(60)
            if KEEP:
                shutil.copy(path, KEEP)


def test_the_server_does_not_start_without_a_checkpoint() -> None:
    assert call(script("inference", "nothing-here"), "no-server.log", limit=60) != 0
    assert "no checkpoint to load" in tail("no-server.log")
