"""`python -m backends.demo.serve --load DIR`: the tiny GPT behind the protocol of core_r0.8.0's text server."""

from __future__ import annotations

import argparse
import math
import signal
import sys
import threading
import time
from pathlib import Path

from backends.demo.messages import missing_libraries, say, say_error

POLL = 0.2  # s between two looks for the first checkpoint


def read_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m backends.demo.serve",
        description="Answers PUT /api from a checkpoint.",
        allow_abbrev=False,
    )
    parser.add_argument("--load", required=True, metavar="DIR", help="folder of checkpoints")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000, help="0: any free one")
    parser.add_argument(
        "--wait-for-checkpoint",
        type=float,
        default=0.0,
        nargs="?",
        const=math.inf,
        metavar="SECONDS",
        help="wait for the first checkpoint (for ever when no number is given)",
    )
    parser.add_argument("--follow-checkpoints", action="store_true", help="answer from the newest checkpoint")
    return parser.parse_args(words)


def run(words: list[str]) -> int:
    """Serve until the process is ended. Returns the exit status."""
    from backends.demo.answering import Answering
    from backends.demo.checkpoint import CheckpointError
    from backends.demo.http_server import Server

    args = read_arguments(words)
    answering = Answering(Path(args.load), say)
    say("WARNING: Forcing exit_on_missing_checkpoint to True for text generation.")
    try:
        answering.load(_first_iteration(answering.folder, args.wait_for_checkpoint))
        server = Server((args.host, args.port), answering, follow=args.follow_checkpoints)
    except CheckpointError as error:
        say_error(f"{error}")
        return 1
    except (OSError, OverflowError) as error:
        say_error(
            f"cannot listen on {args.host} port {args.port}: {getattr(error, 'strerror', None) or error}"
        )
        return 1
    _announce(args.host, server.server_address[1])
    # sigwait and no handler: a handler could interrupt a thread that holds the lock of an event that it sets.
    ends = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True).start()
    signal.sigwait(ends)
    server.shutdown()
    server.server_close()
    return 0


def _first_iteration(folder: Path, seconds: float) -> int:
    """The iteration in the tracker, for which it waits. Raises CheckpointError without one: no answers from random weights."""
    from backends.demo.checkpoint import TRACKER, CheckpointError, tracked_iteration

    deadline = time.monotonic() + seconds
    while (iteration := tracked_iteration(folder)) is None:
        if time.monotonic() >= deadline:
            raise CheckpointError(
                f"WARNING: could not find the metadata file {folder / TRACKER}: there is no checkpoint to serve"
            )
        time.sleep(POLL)
    return iteration


def _announce(host: str, port: int) -> None:
    say(" * Serving Flask app 'backends.demo.serve'\n * Debug mode: off")
    if host in ("", "0.0.0.0"):
        say(" * Running on all addresses (0.0.0.0)")
        host = "127.0.0.1"
    say(f" * Running on http://{host}:{port}\nINFO:werkzeug:Press CTRL+C to quit")


def main(words: list[str]) -> int:
    if sentence := missing_libraries():
        say_error(sentence)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: sys.exit(0))  # until there is a server to shut down
    return run(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
