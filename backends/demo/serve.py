"""`python -m backends.demo.serve --load DIR`: the protocol of core_r0.8.0's text server, answered by the tiny GPT."""

# pyright: standard, reportMissingTypeStubs=false, reportMissingImports=false
from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from backends.demo import checkpoint, corpus, model
from backends.demo.protocol import Refused, Request, read_request
from backends.demo.sampling import decode, encode, generate

WAIT = 3600.0  # s that --wait-for-checkpoint waits when it is not told how long
POLL = 0.2  # s between two looks for the first checkpoint
BODY_LIMIT = 16 * 2**20  # bytes
MAX_TOKENS = 12000  # --max-tokens-to-oom of core_r0.8.0: batch × length


class Model:
    """The checkpoint that answers. One request at a time, as in core_r0.8.0: `lock` is the only one."""

    def __init__(self, folder: Path, follow: bool) -> None:
        self.folder, self.follow = folder, follow
        self.lock = threading.Lock()
        self.iteration = 0

    def load(self, iteration: int) -> None:
        say(f" loading checkpoint from {self.folder} at iteration {iteration}")
        state = checkpoint.load(self.folder, iteration)
        a = state.arguments
        self.shape = model.Shape(
            a["num_layers"],
            a["hidden_size"],
            a["num_attention_heads"],
            a["max_position_embeddings"],
            a["padded_vocab_size"],
        )
        self.weights = state.weights
        self.iteration = iteration
        say(" checkpoint version 3.0")
        say(f"  successfully loaded checkpoint from {self.folder} [ t 0, p 0 ] at iteration {iteration}")

    def refresh(self) -> None:
        """With `--follow-checkpoints`: answer from the newest. A newer one that cannot be read is said, the old one stays."""
        try:
            newest = checkpoint.tracked_iteration(self.folder) if self.follow else None
            if newest is not None and newest != self.iteration:
                self.load(newest)
        except checkpoint.CheckpointError as error:
            say(f"WARNING: {error}; still answering from iteration {self.iteration}")

    def answer(self, request: Request) -> dict[str, Any]:
        with self.lock:
            self.refresh()
            how = request.sampling
            prompts = [encode(prompt) or [corpus.EOD] for prompt in request.prompts]
            longest = max(map(len, prompts))
            if longest + how.tokens > self.shape.positions:
                raise Refused("Length of prompt + tokens_to_generate longer than allowed")
            if len(prompts) * (longest + how.tokens) > MAX_TOKENS:
                raise Refused(
                    f"Too many tokens.  {len(prompts) * (longest + how.tokens)} is greater than {MAX_TOKENS}"
                )
            found = [generate(self.weights, self.shape, prompt, how) for prompt in prompts]
        return {
            "text": [decode(one.tokens) for one in found],
            "segments": [[decode([token]) for token in one.tokens] for one in found],
            "logprobs": [one.logprobs for one in found] if request.logprobs else None,
        }


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], answering: Model) -> None:
        super().__init__(address, Handler)
        self.model = answering


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_PUT(self) -> None:
        if self.path != "/api":
            self.reply(404, {"message": "The requested URL was not found on the server."})
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > BODY_LIMIT:
            self.close_connection = True
            self.reply(
                400,
                {"message": "The browser (or proxy) sent a request that this server could not understand."},
            )
            return
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            self.reply(
                400,
                {"message": "The browser (or proxy) sent a request that this server could not understand."},
            )
            return
        try:
            request = read_request(body)
            if not request.quiet:
                say(
                    f"request IP: {self.client_address[0]}\n{json.dumps(body)}\nstart time:  {datetime.datetime.now()}"
                )
            self.reply(200, self.server.model.answer(request))
        except Refused as refused:
            self.reply(refused.status, refused.text)

    def do_GET(self) -> None:
        self.reply(404, {"message": "The requested URL was not found on the server."})

    do_POST = do_DELETE = do_GET

    def reply(self, status: int, value: Any) -> None:
        content = (json.dumps(value) + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        say(
            f"INFO:werkzeug:{self.client_address[0]} - - [{datetime.datetime.now():%d/%b/%Y %H:%M:%S}] {format % args}"
        )


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def first_iteration(folder: Path, wait: float) -> int:
    """What the tracker names, waited for up to `wait` s. Raises CheckpointError: never random weights."""
    deadline = time.monotonic() + wait
    while (iteration := checkpoint.tracked_iteration(folder)) is None:
        if time.monotonic() >= deadline:
            raise checkpoint.CheckpointError(
                f"WARNING: could not find the metadata file {folder / checkpoint.TRACKER}: there is no checkpoint to serve"
            )
        time.sleep(POLL)
    return iteration


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--load", required=True, metavar="DIR")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000, help="0: any free one")
    parser.add_argument(
        "--wait-for-checkpoint", type=float, default=0, nargs="?", const=WAIT, metavar="SECONDS"
    )
    parser.add_argument("--follow-checkpoints", action="store_true")
    args = parser.parse_args(words)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: sys.exit(0))
    answering = Model(Path(args.load), args.follow_checkpoints)
    try:
        answering.load(first_iteration(answering.folder, args.wait_for_checkpoint))
        server = Server((args.host, args.port), answering)
    except checkpoint.CheckpointError as error:
        print(error, file=sys.stderr, flush=True)  # noqa: T201
        return 1
    except (OSError, OverflowError) as error:
        print(f"{error}: {args.host}:{args.port}", file=sys.stderr, flush=True)  # noqa: T201
        return 1
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    signal.signal(signal.SIGINT, lambda _number, _frame: stop.set())
    threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True).start()
    say(" * Serving Flask app 'backends.demo.serve'\n * Debug mode: off")
    say(f" * Running on http://{server.server_address[0]}:{server.server_address[1]}")
    stop.wait()
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
