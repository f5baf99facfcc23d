"""A text server that answers as it is told: for tests of its clients."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Answer: TypeAlias = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


def reply(value: Any, status: int = 200) -> Answer:
    """Answer with `value` as JSON; bytes go out as they are."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()

    def answer(handler: BaseHTTPRequestHandler, _body: dict[str, Any]) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def continuing(words: str) -> Answer:
    """Answer every prompt with itself and `words`, letter by letter, as the demo's server does."""

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        text = body["prompts"][0] + words
        logprobs = [[-0.5] * (len(text) - 1)] if body.get("logprobs") else None
        reply({"text": [text], "segments": [list(text)], "logprobs": logprobs})(handler, body)

    return answer


class TextServer:
    """On a free port of 127.0.0.1. `answer` may be changed at any time; `asked` are the bodies that came."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(body)
                outer.answer(self, body)

            def log_message(self, format: str, *args: Any) -> None:
                """Tests have nothing to log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> TextServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
