"""Events of single lines other than iteration lines: milestones, checkpoints, validation, memory, exits, …

Each rule is a pattern and a function from its match to an event; the first rule that fits a line wins. Formats:
megatron/training/{training,checkpointing,initialize,utils}.py of v1.0 … main.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from backends.megatron.events import (
    Alert,
    Argument,
    Checkpoint,
    CheckpointAction,
    Event,
    Exit,
    Memory,
    Milestone,
    Number,
    Parameters,
    Validation,
    Value,
)
from backends.megatron.iteration import read_value

Match: TypeAlias = "re.Match[str]"
Make: TypeAlias = Callable[[Match, int, "int | None"], Event]
GIB = 1024.0  # MiB

STAMP = r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\]\s*)?"
DATETIME = (
    r"\[(?P<what>[a-z][^\]]*?)\.?\s*\] datetime: (?P<date>\d{4}-\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d(?:\.\d+)?)"
)

# [words] datetime: … → milestone
DATED = {
    "after megatron is initialized": "initialized",
    "after model, optimizer, and learning rate scheduler are built": "built",
    "after model, optimizer, and learning rate scheduler are built ": "built",
    "after dataloaders are built": "data",
    "before the start of training step": "training",
    "after training is done": "done",
    "running GPU sniff test (before training)": "sniff test",
}
# start of a line → milestone
STARTS = {
    "using world size:": "distributed",
    "> initializing torch distributed": "torch distributed",
    "> initialized tensor model parallel": "parallel groups",
    "> setting random seeds to": "seeds",
    "> compiling dataset index builder": "compiling",
    "> building train, validation, and test datasets ...": "datasets",
    "time to initialize megatron (seconds):": "initialized in",
    "done with setup": "set up",
    "training ...": "loop",
    "skipping training": "training skipped",
    "* Serving Flask app": "server",
}
_START = re.compile("|".join(re.escape(words) for words in sorted(STARTS, key=len, reverse=True)))


def _dated(m: Match, line: int, rank: int | None) -> Event:
    what, time = m["what"], f"{m['date']}T{m['time']}"
    if what.startswith("exiting program"):
        return Exit(line, rank, what.removeprefix("exiting program").strip() or what)
    return Milestone(line, rank, DATED.get(what, what), time)


def _validation(m: Match, line: int, rank: int | None) -> Event:
    where, values = m["where"], dict[str, Value]()
    for piece in m["values"].split("|"):
        name, found, value = piece.partition(": ")
        if found:
            values[name.strip()] = read_value(value.strip())
    iteration = re.search(r"iteration (\d+)", where)
    kind = "test" if "test" in where else "validation"
    name = (m["set"] or "").lstrip("-")
    return Validation(line, rank, int(iteration[1]) if iteration else None, name or kind, values)


def _checkpoint(action: CheckpointAction) -> Make:
    def make(m: Match, line: int, rank: int | None) -> Event:
        groups = m.groupdict()
        number = groups.get("iteration")
        return Checkpoint(
            line, rank, action, int(number) if number else None, (groups.get("path") or "").strip()
        )

    return make


def _parameters(m: Match, line: int, rank: int | None) -> Event:
    words = m["words"].strip().lower()
    name = words.removesuffix(" parameters").removeprefix("parameters in ").strip() or "total"
    return Parameters(line, rank, {name: round(float(m["billions"]) * 1e9)})


def _shard(m: Match, line: int, rank: int | None) -> Event:
    return Parameters(line, rank, {f"model parallel rank {m['where'].strip()}": int(m["count"])})


def _memory(m: Match, line: int, rank: int | None) -> Event:
    factor = GIB if m["unit"] == "GB" else 1.0
    values: dict[str, Number] = {}
    for piece in m["values"].split("|"):
        name, _, value = piece.rpartition(":")
        number = read_value(value.strip())
        if name and not isinstance(number, str):
            values[name.strip()] = number * factor
    return Memory(line, int(m["rank"]) if m["rank"] else rank, int(m["iteration"]), values)


def _theoretical(m: Match, line: int, rank: int | None) -> Event:
    found = re.findall(r"([a-z][a-z ]*?)=([\d.]+) (MB|GB)", m["values"])
    return Memory(
        line, rank, None, {name: float(v) * (GIB if unit == "GB" else 1.0) for name, v, unit in found}
    )


def _activation(m: Match, line: int, rank: int | None) -> Event:
    return Memory(line, rank, None, {"activation per transformer layer": float(m["mb"])})


def _start(m: Match, line: int, rank: int | None) -> Event:
    return Milestone(line, rank, STARTS[m["start"]])


def _named(name: str) -> Make:
    def make(m: Match, line: int, rank: int | None) -> Event:
        return Milestone(line, rank, name)

    return make


def _argument(m: Match, line: int, rank: int | None) -> Event:
    return Argument(
        line,
        rank,
        m["name"],
        re.sub(r"\.{3,}(default|updated)$|(?<=[\]})])(default|updated)$", "", m["value"]).strip(),
    )


def _signalled(m: Match, line: int, rank: int | None) -> Event:
    return Exit(line, rank, m[0].strip(), signal=int(m["signal"]))


def _exit_code(m: Match, line: int, rank: int | None) -> Event:
    return Exit(line, rank, m[0].strip(), status=int(m["status"]))


def _exited(m: Match, line: int, rank: int | None) -> Event:
    return Exit(line, rank, m[0].strip())


def _ending(m: Match, line: int, rank: int | None) -> Event:
    return Exit(line, rank, "the program exits without destroy_process_group")


def _failed_quietly(m: Match, line: int, rank: int | None) -> Event:
    return Checkpoint(line, rank, "failed", None, m[0].strip())


def _random_weights(m: Match, line: int, rank: int | None) -> Event:
    return Alert(
        line,
        rank,
        "random-weights",
        "No checkpoint was loaded: training starts from random weights.",
        "Normal for a first run. If a resume was meant, stop it: --load must point at the folder that holds latest_checkpointed_iteration.txt.",
        severity="info",
    )


IT = r"\s+(?P<iteration>\d+)"
RULES: tuple[tuple[re.Pattern[str], Make], ...] = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (DATETIME, _dated),
        (r"validation(?P<set>-[^ ]+)? loss at (?P<where>[^|]*)\|(?P<values>.*)", _validation),
        (rf"^\s*{STAMP}(?:global rank \d+ is )?saving checkpoint at iteration{IT} to (?P<path>.*?)(?: in \w+ format)?\s*$", _checkpoint("saving")),
        (rf"^\s*{STAMP}successfully saved (?:local )?checkpoint (?:from|at) iteration{IT}(?: to (?P<path>.*?))?(?: \[ .*\])?\s*$", _checkpoint("saved")),
        (rf"^\s*{STAMP}scheduled an async checkpoint save at iteration{IT} to (?P<path>.*?)\s*$", _checkpoint("queued")),
        (rf"^\s*{STAMP}successfully saved (?P<path>/\S+|\S+\.pt)\s*$", _checkpoint("saved")),
        (rf"^\s*{STAMP}successfully loaded checkpoint from (?P<path>.*?)(?: \[ .*?\])? at iteration{IT}", _checkpoint("loaded")),
        (rf"^\s*{STAMP}loading (?:distributed |release )?checkpoint from (?P<path>.*?)(?: at iteration{IT})?\s*$", _checkpoint("loading")),
        (r"could not find the metadata file (?P<path>.*?)\s*$", _checkpoint("missing")),
        (r"will not load any checkpoints and will start from random", _random_weights),
        (r"could not load the checkpoint\b|ERROR: Invalid metadata file .*|Unable to load (?:optimizer|rng state) from checkpoint.*", _failed_quietly),
        (r"--exit-on-missing-checkpoint' set \.\.\. exiting", _exited),
        (r"Number of (?:active )?(?P<words>parameters in [\w ]+?|Total number of parameters) in billions:\s+(?P<billions>[\d.]+)", _parameters),
        (r"(?P<words>Total) number of (?:active )?parameters in billions: +(?P<billions>[\d.]+)", _parameters),
        (r"> number of parameters on (?:\(tensor, pipeline\) )?model parallel rank (?P<where>\([\d, ]+\)|\d+): (?P<count>\d+)", _shard),
        (r"(?:\[Rank (?P<rank>\d+)\] )?\(?after (?P<iteration>\d+) iterations\)? memory \((?P<unit>MB|GB)\) \|(?P<values>.*)", _memory),
        (r"Theoretical memory footprints: (?P<values>.*)", _theoretical),
        (r"Activation memory footprint per transformer layer: (?P<mb>[\d.]+) MB", _activation),
        (r"^-+ arguments -+$", _named("arguments")),
        (r"^-+ end of arguments -+$", _named("arguments end")),
        (r"^  (?P<name>[A-Za-z_]\w*) (?:\.+ ?|  ?)(?P<value>.*)$", _argument),
        (r"^\s*> building (?P<kind>\S+) tokenizer", _named("tokenizer")),
        (r"^\s*building \S+ model \.\.\.", _named("model")),
        (r"^\s*\* Running on http://", _named("ready")),
        (rf"^\s*(?P<start>{_START.pattern})", _start),
        (r"(?:prterun|mpirun) noticed that process rank \d+ .*?exited on signal (?P<signal>\d+).*", _signalled),
        (r"^\s*signal (?P<signal>\d+) \(\w[\w ]*\)\.\s*$", _signalled),
        (r"^\s*Exit code:\s+(?P<status>\d+)\s*$", _exit_code),
        (r"destroy_process_group\(\) was not called before program exit", _ending),
        (r"exiting the program at iteration \d+|>>> autoresume termination request found!|>>> training terminated\. Returning|Exiting during evaluation, timelimit reached", _exited),
    )
)  # fmt: skip


def read_plain(text: str, line: int, rank: int | None) -> Event | None:
    """The event of one clean line without its launcher prefix, or None."""
    for pattern, make in RULES:
        if match := pattern.search(text):
            return make(match, line, rank)
    return None
