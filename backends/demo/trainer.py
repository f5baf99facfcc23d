"""One rank of a training job with the tiny GPT, which works and prints in Megatron-LM's order."""

from __future__ import annotations

import argparse
import math
import os
import platform
import resource
import time
from datetime import datetime
from pathlib import Path

import numpy as np

from backends.demo import checkpoint, console, corpus, model
from backends.demo.checkpoint import CheckpointError
from backends.demo.collective import Collective
from backends.demo.data_sets import read_data_sets
from backends.demo.optimizer import Adam, Schedule, clip, resume_schedule
from backends.demo.tokenizer import Pair
from backends.demo.voice import Voice

# Added to the seed, so that evaluations draw other samples than training, and the same ones each time.
EVALUATION_SEEDS = {"validation": 1, "test": 2}


class DivergedError(Exception):
    """The loss is NaN or infinite. The text is Megatron-LM's."""


class Trainer:
    """Rank 0 prints start-up and checkpoints, the last rank iterations and timers, as in Megatron-LM."""

    def __init__(self, args: argparse.Namespace, ranks: Collective, started: float) -> None:
        """`started`: when the program began, by time.monotonic."""
        self.args, self.ranks, self.started = args, ranks, started
        self._voice = Voice(ranks)
        self.terminated = False  # set by a signal handler; looked at after each iteration
        self.shape = model.Shape.of(vars(args))
        self.weights = model.initial(self.shape, args.seed, args.init_method_std)
        self.adam = Adam.of(args, self.weights)
        self.schedule = Schedule.of(args)
        self.iteration = self.consumed = 0
        self.merges: list[Pair] | None = None  # learnt from the text unless a checkpoint brings them
        self.sets: dict[str, corpus.Tokens] = {}

    def run(self) -> None:
        """From the announcement to the last evaluation. Raises CheckpointError, CorpusError, DivergedError."""
        self._voice.first(console.start_up(vars(self.args), time.monotonic() - self.started))
        self._voice.stamp("after megatron is initialized")
        times = {"model-and-optimizer-setup": self._voice.timed(self._build)}
        self._voice.stamp("after model, optimizer, and learning rate scheduler are built")
        times["train/valid/test-data-iterators-setup"] = self._voice.timed(self._read_data)
        self._voice.stamp("after dataloaders are built")
        self._voice.first("done with setup ...")
        self._voice.last(console.timers_block(times))
        if self.args.skip_train:
            self._voice.first("skipping training (--skip-train is on) ...")
        else:
            self._voice.first("training ...")
            self._voice.stamp("before the start of training step")
            begun = self.iteration
            if farewell := self._train():
                self._voice.stamp(farewell)
                return
            self._voice.stamp("after training is done")
            interval = self.args.save_interval
            unsaved = self.iteration > begun and (not interval or self.iteration % interval)
            if self.args.save is not None and unsaved:
                self._write_checkpoint()
        for kind in EVALUATION_SEEDS:
            self._evaluate(kind, f"iteration {self.iteration} on {kind} set", verbose=True)

    # Start-up

    def _build(self) -> None:
        self._voice.first("building GPT model ...")
        count = sum(array.size for array in self.weights.values())
        self._voice.first(
            f" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): {count}"
        )
        self._voice.first(f"> learning rate decay style: {self.schedule.lr_decay_style}")
        if self.args.load is not None:
            self._voice.last(console.timers_block({"load-checkpoint": self._voice.timed(self._load)}))

    def _load(self) -> None:
        args, folder = self.args, Path(self.args.load)
        iteration = checkpoint.tracked_iteration(folder)
        if iteration is None:
            self._voice.first(f"WARNING: could not find the metadata file {folder / checkpoint.TRACKER} ")
            self._voice.first("    will not load any checkpoints and will start from random")
            if args.exit_on_missing_checkpoint:
                self._voice.first(">> '--exit-on-missing-checkpoint' set ... exiting. <<")
                raise SystemExit(0)
            return
        self._voice.first(f" loading checkpoint from {args.load} at iteration {iteration}")
        state = checkpoint.load(folder, iteration)
        checkpoint.check_arguments(state.arguments, vars(args))
        self._voice.first(f" checkpoint version {checkpoint.VERSION}")
        self.weights, self.merges = state.weights, state.merges
        if not args.finetune:
            self.iteration, self.consumed = state.iteration, state.consumed_samples
            self._load_optimizer(state)
        self.ranks.gather(0)
        self._voice.first(
            f"  successfully loaded checkpoint from {args.load} [ t 0, p 0 ] at iteration {iteration}"
        )

    def _load_optimizer(self, state: checkpoint.State) -> None:
        adam = self.adam
        adam.first, adam.second, adam.steps = state.first_moment, state.second_moment, state.step
        try:
            self.schedule = resume_schedule(
                self.schedule,
                state.scheduler,
                override=self.args.override_opt_param_scheduler,
                use_checkpoint=self.args.use_checkpoint_opt_param_scheduler,
                say=self._voice.first,
            )
        except ValueError as error:
            raise CheckpointError(str(error)) from None
        adam.weight_decay = self.schedule.end_wd

    def _read_data(self) -> None:
        data = read_data_sets(self.args, self.merges, self._voice.first)
        self.sets, self.merges = data.tokens, data.merges

    # Work

    def _train(self) -> str | None:
        """The training loop. Returns the words of an early exit, or None if all iterations are done."""
        args = self.args
        losses: list[float] = []
        reported = False
        window = time.monotonic()
        while self.iteration < args.train_iters:
            loss, norm = self._step()
            losses.append(loss)
            if self.iteration % args.log_interval == 0:
                self._log(losses, norm, time.monotonic() - window)
                if not reported:
                    reported = True
                    self._report_memory()
                losses, window = [], time.monotonic()
            paused = time.monotonic()
            if self.iteration % args.eval_interval == 0:
                self._evaluate("validation", f"iteration {self.iteration}")
            if farewell := self._save_and_decide():
                return farewell
            window += time.monotonic() - paused
        return None

    def _step(self) -> tuple[float, float]:
        """One iteration on the next global batch. Returns its loss and the norm of its gradient."""
        args = self.args
        with np.errstate(over="ignore", invalid="ignore"):  # reported below, once
            loss, gradient = self._loss_and_gradient(
                range(self.consumed, self.consumed + args.global_batch_size)
            )
        if not math.isfinite(loss):
            raise DivergedError(
                f"Rank {self.ranks.rank}: found NaN in local forward loss calculation. "
                f"Device: cpu, node: {platform.node()}"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            norm = clip(gradient, args.clip_grad)
            self.adam.step(self.weights, gradient, self.schedule.at(self.consumed))
        self.iteration += 1
        self.consumed += args.global_batch_size
        return loss, norm

    def _loss_and_gradient(self, numbers: range) -> tuple[float, model.Weights]:
        """The mean over the samples `numbers` of all ranks, summed in float64 so that the order hardly matters."""
        total = np.zeros(1 + sum(array.size for array in self.weights.values()))
        for number in numbers[self.ranks.rank :: self.ranks.size]:
            sample = corpus.sample(self.sets["train"], self.args.seq_length, self.args.seed, number)
            loss, found = model.loss_and_gradient(self.weights, sample, self.shape)
            total += np.concatenate([[loss], *(found[name].ravel() for name in self.weights)])
        total = self.ranks.sum(total) / len(numbers)
        gradient: model.Weights = {}
        end = 1
        for name, array in self.weights.items():
            begin, end = end, end + array.size
            gradient[name] = np.reshape(total[begin:end], array.shape).astype(model.DTYPE)
        return float(total[0]), gradient

    def _log(self, losses: list[float], norm: float, seconds: float) -> None:
        args, each = self.args, seconds / len(losses)
        work = console.floating_point_operations(self.shape, args.seq_length, args.global_batch_size)
        window = console.Window(
            self.iteration,
            args.train_iters,
            self.consumed,
            each * 1000,
            work / each / 1e12 / self.ranks.size if args.log_throughput else None,
            self.schedule.at(self.consumed),
            args.global_batch_size,
            sum(losses) / len(losses),
            norm,
        )
        self._voice.last(console.iteration_line(window, datetime.now()))

    def _report_memory(self) -> None:
        self._voice.first(console.parameters_block(self.shape))
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            now = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        self._voice.first(console.memory_line(self.ranks.rank, self.iteration, now, max(now, most)))

    def _evaluate(self, kind: str, place: str, *, verbose: bool = False) -> None:
        """Print the mean loss over `--eval-iters` global batches, unless that is 0 or the set is too small."""
        args, tokens = self.args, self.sets[kind]
        if args.eval_iters == 0 or len(tokens) <= args.seq_length:
            return
        if verbose:
            self._voice.first(f"Evaluating on {args.eval_iters * args.global_batch_size} samples")
        total = 0.0

        def work() -> None:
            nonlocal total
            for turn in range(args.eval_iters):
                if verbose:
                    self._voice.first(f"Evaluating iter {turn + 1}/{args.eval_iters}")
                first = turn * args.global_batch_size
                total += self._loss_sum(kind, range(first, first + args.global_batch_size))

        times = self._voice.timed(work)
        self._voice.last(console.timers_block({"evaluate": times}))
        self._voice.last(console.validation_block(place, total / (args.eval_iters * args.global_batch_size)))

    def _loss_sum(self, kind: str, numbers: range) -> float:
        seed = self.args.seed + EVALUATION_SEEDS[kind]
        total = 0.0
        for number in numbers[self.ranks.rank :: self.ranks.size]:
            sample = corpus.sample(self.sets[kind], self.args.seq_length, seed, number)
            total += float(model.loss(self.weights, sample, self.shape))
        return sum(self.ranks.gather(total))

    # Checkpoints and exits

    def _save_and_decide(self) -> str | None:
        """Save if it is due, in Megatron-LM's order. Returns the words of an exit if that is due."""
        args, iteration = self.args, self.iteration
        if any(self.ranks.gather(self.terminated)):
            self._save()
            return "exiting program after receiving SIGTERM."
        due = args.save_interval is not None and iteration % args.save_interval == 0
        if due:
            self._save()
        minutes = (time.monotonic() - self.started) / 60
        farewell = None
        if args.exit_duration_in_mins and any(self.ranks.gather(minutes > args.exit_duration_in_mins)):
            farewell = f"exiting program after {minutes} minutes"
        elif args.exit_interval and iteration % args.exit_interval == 0:
            farewell = f"exiting program at iteration {iteration}"
        if farewell and not due:
            self._save()
        return farewell

    def _save(self) -> None:
        if self.args.save is not None:
            self._voice.last(
                console.timers_block({"save-checkpoint": self._voice.timed(self._write_checkpoint)})
            )

    def _write_checkpoint(self) -> None:
        args = self.args
        self._voice.first(
            f"saving checkpoint at iteration {self.iteration:7d} to {args.save} in torch format"
        )
        if self.ranks.rank == 0:
            reached = {"iteration": self.iteration, "consumed_train_samples": self.consumed}
            state = checkpoint.State(
                self.iteration,
                self.consumed,
                self.adam.steps,
                self.weights,
                self.adam.first,
                self.adam.second,
                {name: getattr(self.schedule, name) for name in Schedule.__slots__},
                self.merges or [],
                {**vars(args), **reached},
            )
            checkpoint.save(Path(args.save), state)
        self.ranks.gather(0)
        self._voice.first(
            f"  successfully saved checkpoint from iteration {self.iteration:7d} to {args.save}"
        )
