"""A text server with scripted answers, for tests of its clients."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from waiting import LIMIT

Answer: TypeAlias = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]
MODELS = {"object": "list", "data": [{"id": "tiny", "object": "model", "owned_by": "vllm"}]}


def reply(value: Any, status: int = 200) -> Answer:
    """Answer with `value` as JSON; bytes go out as they are."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()

    def answer(handler: BaseHTTPRequestHandler, _body: dict[str, Any]) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def continuing(words: str) -> Answer:
    """Answer every prompt with itself and `words`, letter by letter, as Megatron-LM's server does."""

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        start = "\u2402" if body.get("add_BOS") else ""  # the sign for "start of text", as one token
        text = start + body["prompts"][0] + ("" if body["tokens_to_generate"] == 0 else words)
        logprobs = [[-0.5] * (len(text) - 1)] if body.get("logprobs") else None
        reply({"text": [text], "segments": [list(text)], "logprobs": logprobs})(handler, body)

    return answer


def events(*items: Any, tear: bool = False, pause: threading.Event | None = None) -> Answer:
    """Answer with server-sent events: texts are their data as they are, bytes go out raw.

    `tear`: the connection ends without the end of the answer. `pause`: waited for before the last event.
    """

    def answer(handler: BaseHTTPRequestHandler, _body: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for at, item in enumerate(items):
            if pause is not None and at == len(items) - 1:
                pause.wait(LIMIT)
            data = item if isinstance(item, str) else "" if isinstance(item, bytes) else json.dumps(item)
            content = item if isinstance(item, bytes) else f"data: {data}\n\n".encode()
            handler.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
            handler.wfile.flush()
        if not tear:
            handler.wfile.write(b"0\r\n\r\n")

    return answer


def piece(text: str, logprob: float = -0.5, finish: str | None = None) -> dict[str, Any]:
    """One piece of a streamed completion of OpenAI's kind."""
    logprobs = {"tokens": [text], "token_logprobs": [logprob], "top_logprobs": [{text: logprob, "?": -3.0}]}
    return {"choices": [{"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}]}


class _QuietServer(ThreadingHTTPServer):
    """A client that leaves before the answer is complete is part of the tests: no traceback."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class TextServer:
    """On a free port of 127.0.0.1. `answer` may be changed at any time; `asked` are the bodies that came.

    `pages` are what GET finds, or how it is answered. `routes`: what may be asked for (PUT or POST); GET of one is refused with 405, or with
    `files` looks for a file and finds none, as core_r0.8.0's does.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        routes: Sequence[str] = ("/api",),
        pages: Mapping[str, Any] | None = None,
        files: bool = False,
    ) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path not in routes:
                    reply({"message": "The requested URL was not found on the server."}, 404)(self, body)
                    return
                outer.asked.append(body)
                outer.paths.append(self.path)
                outer.answer(self, body)

            do_POST = do_PUT

            def do_GET(self) -> None:
                page = (pages or {}).get(self.path)
                if callable(page):
                    page(self, {})
                    return
                status = 200 if page is not None else 405 if self.path in routes and not files else 404
                reply(page if page is not None else {"message": "no"}, status)(self, {})

            def do_OPTIONS(self) -> None:
                self.send_response(200 if files else 501)
                if files:
                    self.send_header("Allow", "GET, HEAD, OPTIONS" + (", PUT" if self.path in routes else ""))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Tests have nothing to log."""

        self._server = _QuietServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> TextServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
