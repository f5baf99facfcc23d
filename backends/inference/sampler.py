"""Samples while training: `python -m backends.inference.sampler RUNDIR WORKSPACE`, a companion of the supervisor.

On each new checkpoint of the run, or every so many iterations, a server of its own completes the prompts of the settings
([samples]) on GPUs that nobody uses. If none is free, the sample says so. There is one server at a time.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.errors import UserError
from backends.files import hold_lock
from backends.inference.brief_server import brief_server
from backends.inference.free_gpus import HERE, gpu_readings, held_by_runs, unused
from backends.inference.likelihood import likelihood
from backends.inference.request import Request, TextClient, complete
from backends.inference.samples import Sample, append, read
from backends.inference.serving import serve_plan
from backends.launch.placement import Placement
from backends.runs.checkpoints import read_tracker
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.ports import free_port
from backends.settings import SampleSettings, read_settings
from backends.telemetry.readings import GpuReading
from backends.workspace import Workspace

LOOK = 2.0  # s between two looks at the tracker file
NICENESS = 10  # the training has priority


def due(iteration: int, last: int | None, every: int) -> bool:
    """Whether to sample the checkpoint of `iteration`, if `last` was the last one sampled."""
    return last is None or iteration - last >= max(every, 1)


@dataclass(slots=True)
class Sampler:
    """Completes the prompts from checkpoints of `run`. `look`: reads the GPUs."""

    run: RunFolder
    plan: RunPlan
    workspace: Workspace
    settings: SampleSettings
    look: Callable[[], Sequence[GpuReading]] = gpu_readings
    clock: Callable[[], float] = time.time

    def sample(self, iteration: int) -> list[Sample]:
        """One sample for each prompt, or a single one that says why there are none. A failing server raises nothing."""
        try:
            server = self._server(iteration)
            with brief_server(server, self.workspace, self.run.path / "samples.log") as client:
                return [self._completed(prompt, iteration, client) for prompt in self.settings.prompts]
        except UserError as error:
            return [Sample(self.clock(), iteration, skipped=error.message)]

    def _server(self, iteration: int) -> RunPlan:
        """Raises UserError if there is no room for it."""
        if self.plan.launcher not in HERE:
            raise UserError(f"A run of {self.plan.launcher} cannot have a server beside it.")
        inside = Placement(image=Path(self.plan.image)) if self.plan.image else Placement(in_image=False)
        plan = serve_plan(
            self.workspace,
            Path(self.plan.save or ""),
            port=free_port(0),
            iteration=iteration,
            launcher=self.plan.launcher,
            wish=dataclasses.replace(inside, no_home="--no-home" in self.plan.image_options),
            look=list,
        )
        if plan.trainer == "demo":
            return plan
        gpus = unused(self.look(), plan.processes, held_by_runs(self.workspace))
        if gpus is None:
            raise UserError(f"Too few GPUs are free: it needs {plan.processes}.")
        return dataclasses.replace(plan, gpus=gpus)

    def _completed(self, prompt: str, iteration: int, client: TextClient) -> Sample:
        """The sample of one prompt; if it is refused, the others are still asked."""
        how = self.settings
        request = Request(
            prompt, how.tokens, how.temperature, seed=how.seed, top_k=1 if how.greedy else 0, logprobs=True
        )
        try:
            found = complete(client, request)
        except UserError as error:
            return Sample(self.clock(), iteration, prompt, skipped=error.message)
        mean = likelihood(found.tokens[found.of_prompt :]).mean
        return Sample(self.clock(), iteration, prompt, found.continuation, mean)


def follow(
    sampler: Sampler, *, sleep: Callable[[float], None] = time.sleep, over: Callable[[], bool] | None = None
) -> None:
    """Sample until the run is over and its last checkpoint is sampled. Raises OSError if nothing can be written."""
    run, save = sampler.run, Path(sampler.plan.save or "")
    ended = over or (lambda: (state := run.state()) is not None and state.over)
    last = max((sample.iteration for sample in read(run.path)), default=None)
    again = True  # a skipped sample is tried again at the end, when the run's own GPUs are free
    while True:
        leaving = ended()
        iteration = read_tracker(save).iteration
        new = isinstance(iteration, int) and due(iteration, last, 1 if leaving else sampler.settings.every)
        missed = leaving and again and iteration == last and _skipped(run, last)
        if isinstance(iteration, int) and (new or missed):
            last, again = iteration, again and not missed
            append(run.path, sampler.sample(iteration))
        elif leaving:
            return
        else:
            sleep(LOOK)


def _skipped(run: RunFolder, iteration: int | None) -> bool:
    found = [sample for sample in read(run.path) if sample.iteration == iteration]
    return bool(found) and all(sample.skipped for sample in found)


def _leave(_number: int, _frame: object) -> None:
    """Leave by an exception, so that a running server is ended on the way out."""
    sys.exit(0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sampler", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("workspace", type=Path)
    options = parser.parse_args(arguments)
    run, workspace = RunFolder(options.folder), Workspace(options.workspace)
    if not hold_lock(run.path / "samples.lock"):
        return 0
    os.nice(NICENESS)
    signal.signal(signal.SIGTERM, _leave)
    try:
        settings = read_settings(workspace.settings).samples
        follow(Sampler(run, run.plan(), workspace, settings))
    except (UserError, OSError) as error:
        sys.stderr.write(f"samples: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
