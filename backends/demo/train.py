"""`python -m backends.demo.train ARGUMENTS`: trains the tiny GPT and prints what Megatron-LM core_r0.8.0 prints."""

# pyright: standard, reportMissingTypeStubs=false, reportMissingImports=false
from __future__ import annotations

import argparse
import datetime
import math
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from backends.demo import arguments, checkpoint, corpus, model
from backends.demo.collective import Collective, find_collective
from backends.demo.optimizer import Adam, Schedule, clip

# The arguments that a checkpoint and a run must share (megatron/training/checkpointing.py, check_checkpoint_args).
MUST_MATCH = (
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "max_position_embeddings",
    "padded_vocab_size",
    "tokenizer_type",
)
VALIDATION_SEED, TEST_SEED = (
    1,
    2,
)  # added to the seed: batches of evaluation are other batches, the same ones each time


class Trainer:
    """One rank of a job. Rank 0 prints start-up and checkpoints, the last rank iterations, as in Megatron-LM."""

    def __init__(self, args: argparse.Namespace, ranks: Collective) -> None:
        self.args, self.ranks = args, ranks
        self.shape = model.Shape(
            args.num_layers,
            args.hidden_size,
            args.num_attention_heads,
            args.max_position_embeddings,
            args.padded_vocab_size,
        )
        self.iteration = self.consumed = 0
        self.started = time.monotonic()
        self.terminated = False
        self.weights = model.initial(self.shape, args.seed, args.init_method_std)
        zeros = {name: np.zeros_like(array) for name, array in self.weights.items()}
        self.adam = Adam(
            zeros,
            {name: array.copy() for name, array in zeros.items()},
            args.adam_beta1,
            args.adam_beta2,
            args.adam_eps,
            args.weight_decay,
        )
        batch = args.global_batch_size
        self.schedule = Schedule(
            args.lr,
            args.min_lr,
            args.lr_warmup_iters * batch,
            args.lr_decay_iters * batch,
            args.lr_decay_style,
        )

    # Printing

    def first(self, text: str) -> None:
        if self.ranks.rank == 0:
            print(text, flush=True)  # noqa: T201

    def last(self, text: str) -> None:
        if self.ranks.rank == self.ranks.size - 1:
            print(text, flush=True)  # noqa: T201

    def stamp(self, words: str) -> None:
        self.ranks.barrier()
        self.first(f"[{words}] datetime: {datetime.datetime.now():%Y-%m-%d %H:%M:%S} ")

    def timers(self, **names: float) -> None:
        rows = [
            f"    {name.replace('_', '-')} {'.' * (47 - len(name))}: ({ms:.2f}, {ms:.2f})"
            for name, ms in names.items()
        ]
        self.last("\n".join(["(min, max) time across ranks (ms):", *rows]))

    # Start-up

    def announce(self) -> None:
        args = self.args
        self.first(
            f"using world size: {args.world_size}, data-parallel size: {args.world_size}, context-parallel size: 1 "
            "tensor-model-parallel size: 1, pipeline-model-parallel size: 1 "
        )
        self.first("using torch.float32 for parameters ...")
        self.first("\n".join(arguments.lines(vars(args))))
        micro = args.global_batch_size // (args.micro_batch_size * args.world_size)
        self.first(
            f"INFO:megatron.core.num_microbatches_calculator:setting number of micro-batches to constant {micro}"
        )
        self.first(f"> building {args.tokenizer_type} tokenizer ...")
        padding = args.padded_vocab_size - corpus.VOCABULARY
        self.first(
            f" > padded vocab (size: {corpus.VOCABULARY}) with {padding} dummy tokens (new size: {args.padded_vocab_size})"
        )
        self.first("> initializing torch distributed ...")
        self.first(f"> setting random seeds to {args.seed} ...")
        self.first(f"time to initialize megatron (seconds): {time.monotonic() - self.started:.3f}")
        self.stamp("after megatron is initialized")
        self.first("building GPT model ...")
        count = sum(array.size for array in self.weights.values())
        self.first(f" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): {count}")
        self.first(f"> learning rate decay style: {args.lr_decay_style}")

    def load(self) -> None:
        """Continue from `--load`. Raises CheckpointError, and SystemExit(0) where Megatron-LM exits so."""
        args, began = self.args, time.monotonic()
        if args.load is None:
            return
        folder = Path(args.load)
        iteration = checkpoint.tracked_iteration(folder)
        if iteration is None:
            self.first(f"WARNING: could not find the metadata file {folder / checkpoint.TRACKER} ")
            if args.exit_on_missing_checkpoint:
                self.first(">> '--exit-on-missing-checkpoint' set ... exiting. <<")
                raise SystemExit(0)
            self.first("    will not load any checkpoints and will start from random")
            return
        self.first(f" loading checkpoint from {args.load} at iteration {iteration}")
        state = checkpoint.load(folder, iteration)
        for name in MUST_MATCH:
            stored, wanted = state.arguments.get(name), getattr(args, name)
            if stored != wanted:
                raise checkpoint.CheckpointError(
                    f"AssertionError: {name} value from checkpoint ({stored}) is not equal to the input argument value ({wanted})."
                )
        self.weights = state.weights
        if not args.finetune:
            self.iteration, self.consumed = state.iteration, state.consumed_samples
            self._load_schedule(state.arguments)
            if not args.no_load_optim:
                self.adam.first, self.adam.second = state.first_moment, state.second_moment
        self.first(" checkpoint version 3.0")
        self.first(f"  successfully loaded checkpoint from {args.load} [ t 0, p 0 ] at iteration {iteration}")
        self.timers(load_checkpoint=(time.monotonic() - began) * 1000)

    def _load_schedule(self, stored: dict[str, Any]) -> None:
        """Refuse another schedule than the stored one unless told which to use, as OptimizerParamScheduler does."""
        args, old = self.args, stored.get("schedule") or {}
        if args.override_opt_param_scheduler or not old:
            return
        if args.use_checkpoint_opt_param_scheduler:
            self.schedule = Schedule(**old)
            return
        names = {"lr": "learning rate", "min_lr": "minimum learning rate", "warmup": "warmup iterations", "decay": "total number of iterations", "style": "learning rate decay style"}  # fmt: skip
        for name, words in names.items():
            new = getattr(self.schedule, name)
            if new != old.get(name):
                raise checkpoint.CheckpointError(
                    f"AssertionError: OptimizerParamScheduler: class input value {new} and checkpointvalue {old.get(name)} for {words} do not match"
                )

    def read_data(self) -> None:
        args = self.args
        self.first("> building train, validation, and test datasets ...")
        batch, evaluations = (
            args.global_batch_size,
            (args.train_iters // args.eval_interval + 1) * args.eval_iters,
        )
        self.first(" > datasets target sizes (minimum size):")
        for name, count in (
            ("train", args.train_iters),
            ("validation", evaluations),
            ("test", args.eval_iters),
        ):
            self.first(f"    {name + ':':<12}{count * batch}")
        texts = corpus.documents(args.data_path)
        tokens = corpus.tokenize(texts)
        train, validation, test = corpus.split_tokens(tokens, args.split)
        self.sets: dict[str, np.ndarray] = {"train": train, "validation": validation, "test": test}
        if len(self.sets["train"]) <= args.seq_length + 1:
            raise ValueError(
                f"the corpus has {len(tokens)} tokens, too few for --seq-length {args.seq_length}"
            )
        self.first(f"> total number of documents: {len(texts)}")
        self.first(f"> total number of tokens: {len(tokens)}")
        self.first("> finished creating GPT datasets ...")

    # Work

    def loss_and_gradient(self) -> tuple[float, model.Weights]:
        """Over this rank's share of the next global batch, then averaged over the ranks."""
        args = self.args
        whole = corpus.batch(
            self.sets["train"], args.seq_length, args.global_batch_size, args.seed, self.consumed
        )
        own = np.array_split(whole, self.ranks.size)[self.ranks.rank]
        steps = len(own) // args.micro_batch_size
        total, gradient = 0.0, {name: np.zeros_like(array) for name, array in self.weights.items()}
        for part in np.split(own, steps):
            value, found = model.loss_and_gradient(self.weights, part, self.shape)
            total += float(value) / steps
            for name, array in found.items():
                gradient[name] += array / steps
        total = float(self.ranks.mean(np.array([total]))[0])
        return total, {name: self.ranks.mean(array) for name, array in gradient.items()}

    def step(self) -> tuple[float, float, float]:
        """One iteration: (loss, gradient norm, learning rate after it)."""
        value, gradient = self.loss_and_gradient()
        if not math.isfinite(value):
            raise FloatingPointError(
                f"Rank {self.ranks.rank}: found NaN in local forward loss calculation. Device: cpu, node: {os.uname().nodename}"
            )
        norm = clip(gradient, self.args.clip_grad)
        self.adam.step(
            self.weights,
            gradient,
            self.schedule.at(self.consumed + self.args.global_batch_size),
            self.iteration + 1,
        )
        self.iteration += 1
        self.consumed += self.args.global_batch_size
        return value, norm, self.schedule.at(self.consumed)

    def train(self) -> str | None:
        """The loop; the words of an early exit, or None at the end."""
        args = self.args
        losses: list[float] = []
        window, reported = time.monotonic(), False
        while self.iteration < args.train_iters:
            value, norm, lr = self.step()
            losses.append(value)
            if self.iteration % args.log_interval == 0:
                self.log(losses, (time.monotonic() - window) * 1000 / len(losses), norm, lr)
                if not reported:
                    reported = True
                    self.report()
                losses, window = [], time.monotonic()
            paused = time.monotonic()
            if self.iteration % args.eval_interval == 0 and self.iteration < args.train_iters:
                self.evaluate("validation", f"iteration {self.iteration}")
            words = self._wants_exit()
            saved = self._save_if(args.save_interval is not None and self.iteration % args.save_interval == 0)
            window += time.monotonic() - paused
            if words:
                self._save_if(not saved)
                return words
        return None

    def _wants_exit(self) -> str | None:
        args = self.args
        if self.ranks.any(self.terminated):
            return "exiting program after receiving SIGTERM."
        minutes = (time.monotonic() - self.started) / 60
        if args.exit_duration_in_mins and self.ranks.any(minutes > args.exit_duration_in_mins):
            return f"exiting program after {minutes} minutes"
        if args.exit_interval and self.iteration % args.exit_interval == 0:
            return f"exiting program at iteration {self.iteration}"
        return None

    def log(self, losses: list[float], ms: float, norm: float, lr: float) -> None:
        args = self.args
        fields = [
            f" [{datetime.datetime.now():%Y-%m-%d %H:%M:%S}] iteration {self.iteration:8d}/{args.train_iters:8d}"
        ]
        fields += [f"consumed samples: {self.consumed:12d}", f"elapsed time per iteration (ms): {ms:.1f}"]
        if args.log_throughput:
            fields.append(
                f"throughput per GPU (TFLOP/s/GPU): {self.flops() / ms / 1e9 / args.world_size:.1f}"
            )
        fields += [f"learning rate: {lr:.6E}", f"global batch size: {args.global_batch_size:5d}"]
        mean = sum(losses) / len(losses)
        if mean > 0:
            fields.append(f"lm loss: {mean:.6E}")
        fields += ["loss scale: 1.0", f"grad norm: {norm:.3f}"]
        fields += ["number of skipped iterations:   0", "number of nan iterations:   0"]
        self.last(" | ".join(fields) + " |")

    def flops(self) -> float:
        """Floating-point operations of an iteration, by Megatron-LM's formula (forward and backward)."""
        a = self.args
        tokens = a.global_batch_size * a.seq_length
        per_layer = 24 * a.hidden_size**2 + 4 * a.seq_length * a.hidden_size
        return 3.0 * tokens * (a.num_layers * per_layer + 2 * a.hidden_size * a.padded_vocab_size)

    def report(self) -> None:
        """Parameters and memory, printed once after the first logged iteration."""
        s = self.shape
        total = s.in_layers + s.in_embeddings
        self.first(f"Number of parameters in transformer layers in billions:  {s.in_layers / 1e9:.2f}")
        self.first(f"Number of parameters in embedding layers in billions: {s.in_embeddings / 1e9:.2f}")
        self.first(f"Total number of parameters in billions: {total / 1e9:.2f}")
        self.first(f"Number of parameters in most loaded shard in billions: {total / 1e9:.4f}")
        self.first(
            f"Theoretical memory footprints: weight and optimizer={total * 32 / 2**20:.2f} MB"
        )  # weights, gradient, two moments, 8 bytes each
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            now = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.first(
            f"[Rank 0] (after {self.iteration} iterations) memory (MB) | allocated: {now} | max allocated: {most} | reserved: {now} | max reserved: {most}"
        )

    def evaluate(self, kind: str, words: str) -> float | None:
        """Mean loss over `--eval-iters` batches of a set; None when the set is too small."""
        args, began = self.args, time.monotonic()
        tokens = self.sets[kind]
        if args.eval_iters <= 0 or len(tokens) <= args.seq_length + 1:
            return None
        value = evaluation_loss(self.weights, self.shape, tokens, kind, args)
        self.timers(evaluate=(time.monotonic() - began) * 1000)
        line = f" validation loss at {words} | lm loss value: {value:.6E} | lm loss PPL: {math.exp(min(20, value)):.6E} | "
        self.last("-" * (len(line) + 1) + "\n" + line + "\n" + "-" * (len(line) + 1))
        return value

    def _save_if(self, wanted: bool) -> bool:
        args = self.args
        if not wanted or args.save is None:
            return False
        began = time.monotonic()
        self.first(f"saving checkpoint at iteration {self.iteration:7d} to {args.save} in torch format")
        if self.ranks.rank == 0:
            stored = {
                **vars(args),
                "schedule": {
                    name: getattr(self.schedule, name)
                    for name in ("lr", "min_lr", "warmup", "decay", "style")
                },
            }
            checkpoint.save(
                Path(args.save),
                checkpoint.State(
                    self.iteration, self.consumed, self.weights, self.adam.first, self.adam.second, stored
                ),
            )
        self.ranks.barrier()
        self.first(f"  successfully saved checkpoint from iteration {self.iteration:7d} to {args.save}")
        self.timers(save_checkpoint=(time.monotonic() - began) * 1000)
        return True

    def run(self) -> None:
        """From the announcement to the last evaluation."""
        args = self.args
        self.announce()
        self.load()
        self.stamp("after model, optimizer, and learning rate scheduler are built")
        self.read_data()
        self.stamp("after dataloaders are built")
        self.first("done with setup ...")
        self.first("training ...")
        self.stamp("before the start of training step")
        begun = self.iteration
        words = self.train()
        if words:
            self.stamp(words)
            return
        self.stamp("after training is done")
        self._save_if(
            self.iteration > begun and not (args.save_interval and self.iteration % args.save_interval == 0)
        )
        self.evaluate("validation", f"iteration {self.iteration} on validation set")
        self.evaluate("test", f"iteration {self.iteration} on test set")


def evaluation_loss(
    weights: model.Weights, shape: model.Shape, tokens: np.ndarray, kind: str, args: Any
) -> float:
    """Mean loss over `--eval-iters` batches of `tokens`, the same batches at every call."""
    seed = args.seed + (VALIDATION_SEED if kind == "validation" else TEST_SEED)
    total = 0.0
    for number in range(args.eval_iters):
        batch = corpus.batch(tokens, args.seq_length, args.micro_batch_size, seed, number)
        total += float(model.loss(weights, batch, shape))
    return total / args.eval_iters


def main(words: list[str]) -> int:
    args = arguments.parser(__doc__ or "").parse_args(words)
    try:
        ranks = find_collective()
        if refused := arguments.complete(args, ranks.size):
            print(refused, file=sys.stderr, flush=True)  # noqa: T201
            return 1
        trainer = Trainer(args, ranks)
        if args.exit_signal_handler:
            for number in (signal.SIGTERM, signal.SIGUSR1):  # USR1 is what mpirun passes on to its ranks
                signal.signal(number, lambda _number, _frame: setattr(trainer, "terminated", True))
        trainer.run()
    except (checkpoint.CheckpointError, ValueError, FloatingPointError, RuntimeError, OSError) as error:
        print(error, file=sys.stderr, flush=True)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
