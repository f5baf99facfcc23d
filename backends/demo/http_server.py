"""The HTTP side of the demo's text server, with the routes, statuses and console lines of core_r0.8.0's Flask server."""

from __future__ import annotations

import json
import sys
import threading
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from backends.demo.answering import Answering
from backends.demo.messages import say
from backends.demo.protocol import RefusedError, read_request

BODY_LIMIT = 16 * 2**20  # bytes
SILENCE_LIMIT = 60  # s that a client may be silent

NOT_UNDERSTOOD = {"message": "The browser (or proxy) sent a request that this server could not understand."}
NOT_FOUND = {"message": "The requested URL was not found on the server."}
NOT_ALLOWED = {"message": "The method is not allowed for the requested URL."}
FAILED = {"message": "Internal Server Error"}


class Server(ThreadingHTTPServer):
    """One thread for each connection and one lock around the model, as in core_r0.8.0: requests wait for each other."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], answering: Answering, *, follow: bool) -> None:
        super().__init__(address, Handler)
        self.answering, self.follow = answering, follow
        self.lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is one line, not a traceback."""
        say(f"WARNING: {client_address[0]}: {getattr(sys.exc_info()[0], '__name__', '')}")


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    timeout = SILENCE_LIMIT

    def do_PUT(self) -> None:
        if self.path.partition("?")[0] != "/api":
            self._reply(404, NOT_FOUND)
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and int(length) <= BODY_LIMIT):
            self.close_connection = True  # the rest of this connection may not be a request
            self._reply(400, NOT_UNDERSTOOD)
            return
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            self._reply(400, NOT_UNDERSTOOD)
            return
        self._reply(*self._answer(body))

    def _answer(self, body: Any) -> tuple[int, Any]:
        try:
            request = read_request(body)
            with self.server.lock:
                if self.server.follow:
                    self.server.answering.follow()
                if not request.no_log:
                    say(
                        f"request IP: {self.client_address[0]}\n{json.dumps(body)}\nstart time:  {datetime.now()}"
                    )
                return 200, self.server.answering.answer(request)
        except RefusedError as refused:
            return refused.status, refused.text
        except Exception as error:  # the next request must still be answered
            say(f"ERROR:backends.demo.serve:Exception on /api [PUT]: {error!r:.300}")
            return 500, FAILED

    def _refuse_method(self) -> None:
        known = self.path.partition("?")[0] == "/api"
        self.close_connection = True  # an unread body may follow
        self._reply(*((405, NOT_ALLOWED) if known else (404, NOT_FOUND)))

    do_GET = do_POST = do_DELETE = do_PATCH = _refuse_method

    def _reply(self, status: int, value: Any) -> None:
        # Megatron-LM's server answers with jsonify, which writes compact JSON, and refuses with flask_restful,
        # which does not.
        answer = isinstance(value, dict) and "text" in value
        text = json.dumps(value, sort_keys=True, separators=(",", ":")) if answer else json.dumps(value)
        content = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        text = "".join(letter if letter.isprintable() else "?" for letter in format % args)
        say(f"INFO:werkzeug:{self.client_address[0]} - - [{datetime.now():%d/%b/%Y %H:%M:%S}] {text}")
