"""The real text server of core_r0.8.0 through `mdk-tui serve`, mpirun and singularity: flags derived, two checkpoints
beside each other on one GPU, what is missing or not fixed caught.

One story: the tests run in the order of the file, each on what the one before left.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prompting import Prompting

from backends.errors import UserError
from backends.files import write_json
from backends.inference.connect import connect
from backends.inference.megatron_api import MegatronClient
from backends.inference.readiness import until_ready
from backends.inference.request import Request, TooLongError, complete
from backends.inference.samples import read
from backends.inference.serving import serve_plan
from backends.launch.server_source import TOKENIZATION
from backends.launch.start import start_supervisor
from backends.runs.catalog import describe, run_folders
from backends.runs.checkpoints import TRACKER
from backends.runs.folder import RunFolder, create_run_folder, moment_of
from backends.runs.ports import free_port, with_master_port
from backends.runs.watching import SeenRun

START = 240.0  # s for python to come up, compile, load
KEEP = os.environ.get("OUT")  # where logs are kept, if anywhere
PROMPT = "import "
SETTINGS = '[samples]\nprompts = ["import ", "def main("]\ntokens = 12\n'


def until(holds: Callable[[], object], what: str, folder: RunFolder) -> None:
    deadline = time.monotonic() + START
    while not holds():
        assert time.monotonic() < deadline, f"{what}\n{folder.log.read_text(errors='replace')[-3000:]}"
        time.sleep(0.2)


@pytest.fixture(scope="module", autouse=True)
def settings(site: Any) -> Iterator[None]:
    """Prompts to be sampled; what a failed test leaves running is ended; the logs are kept."""
    before = site.workspace.settings.read_text()
    site.workspace.settings.write_text(before + SETTINGS)
    yield
    site.workspace.settings.write_text(before)
    for folder in run_folders(site.workspace):
        if not describe(folder).over:
            site.call("stop", folder.name, "--now")
        for name in ("output.log", "samples.log", "samples.jsonl") if KEEP else ():
            if (folder.path / name).exists():
                shutil.copy(folder.path / name, Path(KEEP or "") / f"serving-{folder.path.name}-{name}")


@pytest.fixture(scope="module")
def trained(site: Any) -> RunFolder:
    """Preset smoke: iterations 100 and 200."""
    words = ("--preset", "smoke", "--gpus", "1", "--", "--data-path", str(site.data))
    folder = RunFolder(Path(site.json("launch", *words)["path"]))
    until(lambda: describe(folder).over, "the end of the training", folder)
    assert describe(folder).phase == "finished", folder.log.read_text(errors="replace")[-3000:]
    return folder


@pytest.fixture(scope="module")
def save(trained: RunFolder) -> Path:
    return Path(trained.plan().save or "")


def served(site: Any, *words: str) -> RunFolder:
    """A server that is ready; both of a comparison share the only GPU."""
    return RunFolder(Path(site.json("serve", *words, "--gpus", "1", "--until-ready", limit=START)["path"]))


def address(folder: RunFolder) -> str:
    found = describe(folder).address
    assert found is not None, folder.log.read_text(errors="replace")[-3000:]
    return found


@pytest.fixture(scope="module")
def newest(site: Any, save: Path) -> RunFolder:
    return served(site, str(save))


@pytest.fixture(scope="module")
def older(site: Any, save: Path) -> RunFolder:
    return served(site, str(save / "iter_0000100"))


def test_no_gpu_was_free_while_it_trained_and_one_was_afterwards(trained: RunFolder) -> None:
    until(
        lambda: any(s.iteration == 200 and not s.skipped for s in read(trained.path)),
        "the last sample",
        trained,
    )
    found = read(trained.path)
    early = [sample.skipped for sample in found if sample.iteration == 100]
    assert early == ["Too few GPUs are free: it needs 1."], found
    late = [sample for sample in found if sample.iteration == 200 and not sample.skipped]
    assert [sample.prompt for sample in late] == ["import ", "def main("] and all(
        s.continuation for s in late
    ), found


def test_the_newest_checkpoint_answers_with_flags_of_its_run(
    site: Any, trained: RunFolder, newest: RunFolder
) -> None:
    info = describe(newest)
    assert (info.phase, info.iteration) == ("running", 200)
    plan = newest.plan()
    assert (plan.parent, plan.processes, plan.gpus) == (trained.name, 1, (0,))
    log = newest.log.read_text(errors="replace")
    assert "successfully loaded checkpoint" in log and "* Running on http://127.0.0.1" in log
    assert "Running on all addresses" not in log
    done = site.call("ask", PROMPT, "--json", "--greedy", "--tokens", "12", "--url", address(newest))
    found = json.loads(done.stdout)
    assert found["text"].startswith(PROMPT) and len(found["logprobs"]) == len(found["tokens"]), done.stderr
    assert isinstance(connect(address(newest)), MegatronClient), "told by its routes"


def test_one_seed_gives_one_answer(newest: RunFolder) -> None:
    request = Request(PROMPT, tokens=24, seed=7, logprobs=True)
    again = [complete(MegatronClient(address(newest)), request).text for _ in range(2)]
    assert again[0] == again[1], "one seed, one answer"


async def test_the_pane_shows_two_checkpoints_side_by_side(
    site: Any, newest: RunFolder, older: RunFolder
) -> None:
    assert describe(older).iteration == 100
    it = Prompting(site.workspace.root, *(SeenRun(describe(folder)) for folder in (newest, older)))
    async with it.app.run_test(size=(120, 40), notifications=True) as pilot:
        await it.until(pilot, lambda: "ready" in it.line("#server"))
        it.screen.answerers._take(older.name, second=True)
        await it.ask(pilot, PROMPT)
        for _ in range(6000):
            if it.text.count("tokens/s") == 2:
                break
            await pilot.pause(0.02)
        assert it.text.count(PROMPT) == 2 and "iteration 200" in it.text and "iteration 100" in it.text, (
            it.text
        )
        await pilot.press("escape", "p")
        assert it.text.count("perplexity") == 2, it.text
    assert it.app.failures == []


def test_the_later_checkpoint_knows_held_out_text_better(
    site: Any, newest: RunFolder, older: RunFolder, tmp_path: Path
) -> None:
    text = tmp_path / "held-out.txt"
    text.write_text(Path(__file__).read_text())
    done = site.call("perplexity", str(text), "--json", "--url", address(newest), "--url", address(older))
    late, early = (json.loads(line) for line in done.stdout.splitlines())
    assert late["tokens"] == early["tokens"] > 1000 and late["bytes"] == text.stat().st_size, done.stderr
    assert late["bits_per_byte"] < early["bits_per_byte"] < 8
    with pytest.raises(TooLongError):
        MegatronClient(address(newest)).score("word " * 2000)


def test_a_checkpoint_without_a_known_run_provides_its_flags(
    site: Any, newest: RunFolder, older: RunFolder, save: Path
) -> None:
    for folder in (newest, older):
        assert site.call("stop", folder.name).returncode == 0
    elsewhere = site.workspace.root / "elsewhere"
    shutil.copytree(save / "iter_0000200", elsewhere / "iter_0000200", dirs_exist_ok=True)
    (elsewhere / TRACKER).write_text("200")
    folder = served(site, str(elsewhere))
    assert folder.plan().parent is None and "--hidden-size" in folder.plan().arguments
    score = MegatronClient(address(folder)).score("import os\nimport sys\n")
    assert sum(token.logprob or 0 for token in score) / len(score) > -9, (
        "a model with other weights would guess"
    )
    assert site.call("stop", folder.name).returncode == 0


def unchecked(site: Any, load: Path, moment: str, like: Path) -> RunFolder:
    """A server that nobody checked before its start."""
    plan = serve_plan(site.workspace, like, port=free_port(0), gpus=(0,))
    plan = with_master_port(plan, site.workspace)
    folder = create_run_folder(site.workspace.runs, moment_of(moment))
    write_json(folder.plan_file, {**plan.as_json(), "load": str(load)})
    start_supervisor(folder, site.workspace, dict(os.environ))
    return folder


def test_a_missing_checkpoint_is_caught_before_and_after_the_start(site: Any, save: Path) -> None:
    empty = site.workspace.root / "empty"
    empty.mkdir(exist_ok=True)
    refused = site.call("serve", str(empty))
    assert refused.returncode != 0 and "holds no checkpoint" in refused.stderr
    folder = unchecked(site, empty, "2026-11-30/05-00-00", save)
    with pytest.raises(UserError, match="failed"):
        list(until_ready(folder, site.workspace, limit=START))
    assert "no checkpoint to load" in folder.log.read_text(errors="replace")


def test_a_tree_that_is_not_fixed_is_caught_before_and_after_the_start(site: Any, save: Path) -> None:
    file = site.workspace.megatron / TOKENIZATION
    fixed = file.read_text()
    file.write_text(fixed.replace("get_tokenizer()", "get_tokenizer(args)"))
    try:
        refused = site.call("serve", str(save), "--gpus", "1")
        assert (
            refused.returncode == 1
            and "get_tokenizer" in refused.stderr
            and "setup patches" in refused.stderr
        )
        folder = unchecked(site, save, "2026-11-30/05-00-01", save)
        *_, found = until_ready(folder, site.workspace, limit=START)
        with pytest.raises(UserError, match="HTTP 500") as caught:
            complete(MegatronClient(found), Request(PROMPT))
        assert "setup patches" in caught.value.remedy
    finally:
        file.write_text(fixed)
    assert site.call("stop", folder.name, "--now").returncode == 0
