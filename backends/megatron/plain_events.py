"""Reads single lines other than iteration lines: milestones, checkpoints, validation, memory, exits, …

Each rule is a pattern and a function from its match to an event; the first rule that fits a line wins. Formats:
megatron/training/{training,checkpointing,initialize,utils}.py of v1.0 … main.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from backends.megatron.alerts import SCALE_AT_END
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
ITERATION = re.compile(r"iteration (\d{1,18})\b")
SIZE = re.compile(r" *([a-z][a-z ]*)=(\d{1,15}(?:\.\d+)?) (MB|GB)")
# Megatron-Bridge: `mem-max-allocated-gigabytes: 194.41`
BRIDGE_NAME = re.compile(r"^mem-|-gigabytes$")
BRIDGE_COUNTS = ("mem-alloc-retires",)

STAMP = r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\]\s*)?"
DATETIME = (
    r"\[(?P<what>[a-z][^\]]*?)\.?\s*\] datetime: (?P<date>\d{4}-\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d(?:\.\d+)?)"
)

# [words] datetime: … → milestone
DATED = {
    "after megatron is initialized": "initialized",
    "after model, optimizer, and learning rate scheduler are built": "built",
    "after dataloaders are built": "data",
    "before the start of training step": "training",
    "after training is done": "done",
    "running GPU sniff test (before training)": "sniff test",
}
CHECKPOINT_END = re.compile(r" in \w+ format *$| \[ ")  # what follows the path of a checkpoint
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
    "Evaluating on ": "evaluation",
    "* Serving Flask app": "server",
}


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
    iteration = ITERATION.search(where)
    kind = "test" if "test" in where else "validation"
    _, bracket, panel = where.strip().rpartition("[")  # some forks name the set like this
    name = (m["set"] or "").lstrip("-") or (panel[:-1] if bracket and panel.endswith("]") else "")
    return Validation(line, rank, int(iteration[1]) if iteration else None, name or kind, values)


def _checkpoint(action: CheckpointAction) -> Make:
    def make(m: Match, line: int, rank: int | None) -> Event:
        groups = m.groupdict()
        number = groups.get("iteration")
        path = CHECKPOINT_END.split(groups.get("path") or "", maxsplit=1)[0].strip()
        return Checkpoint(line, rank, action, int(number) if number else None, path)

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
        name, number = name.strip(" *"), read_value(value.strip(" *"))
        if name and not isinstance(number, str) and name not in BRIDGE_COUNTS:
            values[BRIDGE_NAME.sub("", name).replace("-", " ")] = number * factor
    return Memory(line, int(m["rank"]) if m["rank"] else rank, int(m["iteration"]), values)


def _theoretical(m: Match, line: int, rank: int | None) -> Event:
    sizes = filter(None, map(SIZE.match, m["values"].split(",")))
    return Memory(
        line, rank, None, {size[1]: float(size[2]) * (GIB if size[3] == "GB" else 1.0) for size in sizes}
    )


def _activation(m: Match, line: int, rank: int | None) -> Event:
    return Memory(line, rank, None, {"activation per transformer layer": float(m["mb"])})


def _named(name: str) -> Make:
    def make(m: Match, line: int, rank: int | None) -> Event:
        return Milestone(line, rank, name)

    return make


def _argument(m: Match, line: int, rank: int | None) -> Argument:
    return Argument(
        line,
        rank,
        m["name"],
        re.sub(r"\.{3,}(default|updated)$|(?<=[\]})])(default|updated)$", "", m["value"]).strip(),
    )


def _signalled(m: Match, line: int, rank: int | None) -> Event:
    return Exit(line, rank, m[0].strip(), signal=int(m["signal"]))


def _torchrun(m: Match, line: int, rank: int | None) -> Event:
    code = int(m["code"])
    return Exit(line, rank, m[0].strip(), *((code, None) if code >= 0 else (None, -code)))


def _exit_code(m: Match, line: int, rank: int | None) -> Event:
    return Exit(line, rank, m[0].strip(), status=int(m["status"]))


def _killed(m: Match, line: int, rank: int | None) -> Event:
    return Exit(line, rank, m[0].strip(), signal={"Killed": 9, "Terminated": 15, "Aborted": 6}[m["word"]])


def _exited(m: Match, line: int, rank: int | None) -> Event:
    return Exit(line, rank, m[0].strip())


def _ending(m: Match, line: int, rank: int | None) -> Event:
    return Exit(line, rank, "the program exits without destroy_process_group")


def _scale_at_end(m: Match, line: int, rank: int | None) -> Event:
    trouble = SCALE_AT_END
    return Alert(line, rank, trouble.kind, trouble.message, trouble.remedy, None, trouble.severity)


def _failed_quietly(m: Match, line: int, rank: int | None) -> Event:
    return Checkpoint(line, rank, "failed", None, m[0].strip())


DECIMAL = r"\d{1,15}(?:\.\d{1,15})?"
IT = r"\s+(?P<iteration>\d{1,18})"
SAVED = r"successfully saved "
NUMBER_OF = " in billions: "
# (words that the line must contain, pattern, function that makes the event). Looking for the words is fast.
_TABLE: tuple[tuple[str, str, Make], ...] = (
    ("datetime: ", DATETIME, _dated),
    ("loss at ", r"(?<![\w-])validation(?P<set>-[^ ]+)? loss at (?P<where>[^|]*)\|(?P<values>.*)", _validation),
    ("saving checkpoint at", rf"^\s*{STAMP}(?:global rank \d+ is )?saving checkpoint at iteration{IT} to (?P<path>.*)", _checkpoint("saving")),
    (SAVED, rf"^\s*{STAMP}successfully saved checkpoint (?:from|at) iteration{IT} to (?P<path>.*)", _checkpoint("saved")),
    (SAVED, rf"^\s*{STAMP}successfully saved local checkpoint from iteration{IT}\s*$", _checkpoint("saved")),
    ("scheduled an async", rf"^\s*{STAMP}scheduled an async checkpoint save at iteration{IT} to (?P<path>.*)", _checkpoint("queued")),
    (SAVED, rf"^\s*{STAMP}successfully saved (?P<path>/\S+|\S+\.pt)\s*$", _checkpoint("saved")),
    ("successfully loaded checkpoint", rf"^\s*{STAMP}successfully loaded checkpoint from (?P<path>.*?) at iteration{IT}", _checkpoint("loaded")),
    ("loading ", rf"^\s*{STAMP}loading (?:distributed |release )?checkpoint from (?P<path>(?:(?! at iteration).)*)(?: at iteration{IT})?", _checkpoint("loading")),
    ("could not find the metadata file", r"could not find the metadata file (?P<path>.*)", _checkpoint("missing")),
    ("could not load the checkpoint", r".*could not load the checkpoint.*", _failed_quietly),
    ("Invalid metadata file", r".*ERROR: Invalid metadata file .*", _failed_quietly),
    ("Unable to load ", r".*Unable to load (?:optimizer|rng state) from checkpoint.*", _failed_quietly),
    ("exit-on-missing-checkpoint' set", r">> '--exit-on-missing-checkpoint' set \.\.\. exiting.*", _exited),
    (NUMBER_OF, rf"Number of (?:active )?(?P<words>parameters in [\w ]+?|Total number of parameters) in billions:\s+(?P<billions>{DECIMAL})", _parameters),
    (NUMBER_OF, rf"(?P<words>Total) number of (?:active )?parameters in billions: +(?P<billions>{DECIMAL})", _parameters),
    ("number of parameters on", r"> number of parameters on (?:\(tensor, pipeline\) )?model parallel rank (?P<where>\([\d, ]+\)|\d+): (?P<count>\d{1,18})", _shard),
    (" memory (", r"(?:\[Rank (?P<rank>\d{1,7})\] )?\(?after (?P<iteration>\d{1,18}) iterations\)? memory \((?P<unit>MB|GB)\) \|(?P<values>.*)", _memory),
    ("Theoretical memory", r"Theoretical memory footprints: (?P<values>.*)", _theoretical),
    ("Activation memory", rf"Activation memory footprint per transformer layer: (?P<mb>{DECIMAL}) MB", _activation),
    (" arguments ---", r"^-+ arguments -+$", _named("arguments")),
    (" end of arguments ---", r"^-+ end of arguments -+$", _named("arguments end")),
    (" tokenizer", r"^\s*> building \S+ tokenizer", _named("tokenizer")),
    (" model ...", r"^\s*building \S+ model \.\.\.", _named("model")),
    ("* Running on http", r"^\s*\* Running on https?://", _named("ready")),
    ("exited on signal", r"(?:prterun|mpirun) noticed that process rank \d+ .*?exited on signal (?P<signal>\d{1,4}).*", _signalled),
    ("signal ", r"^\s*signal (?P<signal>\d{1,4}) \(\w[\w ]*\)\.\s*$", _signalled),
    ("Exit code:", r"^\s*Exit code:\s+(?P<status>\d{1,9})\s*$", _exit_code),
    ("Exited with exit code", r"srun: error: .*: tasks? [\d,-]+: Exited with exit code (?P<status>\d{1,9})", _exit_code),
    *((word, rf"^\s*(?P<word>{word})(?: \(core dumped\))?\s*$", _killed) for word in ("Killed", "Terminated", "Aborted")),
    ("Terminated", r"srun: (?:error: .*: tasks? [\d,-]+: Terminated|Force Terminated job .*)", _exited),
    ("PBS: job killed", r"=>> PBS: job killed: .*", _exited),
    ("TERM_RUNLIMIT", r"TERM_RUNLIMIT: .*", _exited),
    ("CANCELLED AT", r"slurmstepd: error: \*\*\* (?:JOB|STEP) .* CANCELLED AT .*", _exited),
    ("exitcode ", r"^\s*exitcode\s*: (?P<code>-?\d{1,9}) \(pid.*", _torchrun),
    ("destroy_process_group() was not called before program exit", r"destroy_process_group\(\)", _ending),
    ("exiting the program at iteration", r"exiting the program at iteration \d+", _exited),
    ("autoresume termination request", r">>> autoresume termination request found!", _exited),
    ("training terminated", r">>> training terminated\. Returning", _exited),
    ("Exiting during evaluation", r"Exiting during evaluation, timelimit reached", _exited),
    ("Reducing dynamic loss scale", r"Reducing dynamic loss scale from 1(?:\.0)? to 1(?:\.0)?\b", _scale_at_end),
    (" ...", r"^ {1,2}(?P<name>[A-Za-z_]\w*) \.{3,} ?(?P<value>.*)$", _argument),
    *((words, rf"^\s*{re.escape(words)}", _named(name)) for words, name in STARTS.items()),
)  # fmt: skip


class Rule(NamedTuple):
    """Reads one kind of line. The expression is compiled when a line first contains the words; most logs need few."""

    words: str
    expression: str
    make: Make

    def match(self, text: str) -> Match | None:
        return _compiled(self.expression).search(text)

    def read(self, text: str, line: int, rank: int | None) -> Event | None:
        match = self.match(text)
        return self.make(match, line, rank) if match else None


_compiled = functools.cache(re.compile)
RULES = tuple(Rule(*row) for row in _TABLE)
ARGUMENT = re.compile(r"^ {1,2}(?P<name>[A-Za-z_]\w*) (?:\.+ ?|  ?)(?P<value>.*)$")


def find_rule(text: str) -> Rule | None:
    """The rule that reads a clean line without its launcher prefix, if one does."""
    return next((rule for rule in RULES if rule.words in text and rule.match(text)), None)


def read_plain(text: str, line: int, rank: int | None) -> Event | None:
    """The event of one clean line without its launcher prefix, or None."""
    rule = find_rule(text)
    return rule.read(text, line, rank) if rule else None


def read_argument(text: str, line: int, rank: int | None) -> Argument | None:
    """The argument of a line of the argument block, or None."""
    match = ARGUMENT.match(text)
    return _argument(match, line, rank) if match else None
