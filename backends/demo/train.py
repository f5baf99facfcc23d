"""`python -m backends.demo.train ARGUMENTS`: trains the tiny GPT; prints, saves and ends as Megatron-LM core_r0.8.0 does."""

from __future__ import annotations

import signal
import sys
import time

from backends.demo.messages import missing_libraries, say_error

STARTED = time.monotonic()


def run(words: list[str]) -> int:
    """Returns the exit status: 0 if done or stopped as asked; 1 on an error, which is printed."""
    from backends.demo.arguments import ArgumentError, read_arguments
    from backends.demo.checkpoint import CheckpointError
    from backends.demo.collective import find_collective
    from backends.demo.corpus import CorpusError
    from backends.demo.trainer import DivergedError, Trainer

    try:
        ranks = find_collective()
    except RuntimeError as error:
        say_error(f"{error}")
        return 1
    try:
        trainer = Trainer(read_arguments(words, ranks.size), ranks, STARTED)
        if trainer.args.exit_signal_handler:
            for number in (signal.SIGTERM, signal.SIGUSR1):  # USR1 is what mpirun passes on to its ranks
                signal.signal(number, lambda _number, _frame: setattr(trainer, "terminated", True))
        trainer.run()
    except (ArgumentError, CheckpointError, DivergedError) as error:
        say_error(_with_kind(error))
    except CorpusError as error:
        say_error(f"{error}")
    else:
        return 0
    ranks.abort(1)
    return 1


def _with_kind(error: Exception) -> str:
    """Prints the error as Megatron-LM does, which ends most of these cases with an AssertionError."""
    text = str(error)
    return text if text.startswith(("could not", "ERROR")) else f"AssertionError: {text}"


def main(words: list[str]) -> int:
    if sentence := missing_libraries():
        say_error(sentence)
        return 1
    return run(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
