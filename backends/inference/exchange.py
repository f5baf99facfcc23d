"""HTTP to a text server. Time-outs, endless answers and dead servers become errors in plain words."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from backends.errors import UserError
from backends.text import clean_line

CONNECT = 5.0  # s
PROBE = 10.0  # s for a request that does not use the model
REPLY_LIMIT = 64 * 2**20  # bytes
DIED = "The server may have died: `mdk-tui status` tells, and its log is in the monitor."


@dataclass(frozen=True, slots=True)
class Reply:
    """`kind` is the content type without its parameters; `headers` have lower-case names."""

    status: int
    content: bytes
    headers: Mapping[str, str]

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def value(self) -> Any:
        """The body as JSON; None if it is not JSON."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that is still arriving. `chunks` raises UserError when it breaks off."""

    status: int
    headers: Mapping[str, str]
    chunks: Iterator[bytes]

    def whole(self) -> Reply:
        return Reply(self.status, b"".join(self.chunks), self.headers)


def base_url(url: str) -> str:
    """ "127.0.0.1:8028" is "http://127.0.0.1:8028"."""
    return (url if "://" in url else f"http://{url}").rstrip("/")


class Exchange:
    """Requests to the server at `base`. `wait`: s for an answer, queue included."""

    def __init__(self, base: str, wait: float) -> None:
        self.base = base
        self.wait = wait

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Reply:
        """A whole answer. Raises UserError, also for an answer that is not complete after `wait`."""
        with self.open(method, path, body, deadline=time.monotonic() + self.wait) as stream:
            return stream.whole()

    def probe(self, path: str, method: Literal["GET", "OPTIONS"] = "GET") -> Reply:
        """The answer to a small request. Raises UserError."""
        wait = min(self.wait, PROBE)
        with Exchange(self.base, wait).open(method, path, deadline=time.monotonic() + wait) as stream:
            return stream.whole()

    @contextlib.contextmanager
    def open(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, deadline: float | None = None
    ) -> Generator[Stream, None, None]:
        """The answer as it arrives; without `deadline` (s, monotonic) only silence is limited. Raises UserError."""
        import httpx

        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        timeout = httpx.Timeout(self.wait, connect=CONNECT)
        # The proxies of the environment lead to the internet, not to a server at the end of an SSH tunnel. Certificates are
        # read only for https, because that takes 0.1 s.
        secure = self.base.startswith("https:")
        with (
            self.plain_words(),
            httpx.Client(timeout=timeout, trust_env=False, verify=secure) as client,
            client.stream(method, self.base + path, content=content, headers=headers) as reply,
        ):
            found = {name.lower(): value for name, value in reply.headers.items()}
            yield Stream(reply.status_code, found, self._limited(reply.iter_bytes(), deadline))

    def _limited(self, chunks: Iterator[bytes], deadline: float | None) -> Iterator[bytes]:
        import httpx

        size = 0
        for chunk in chunks:
            size += len(chunk)
            if deadline is not None and time.monotonic() > deadline:
                raise httpx.ReadTimeout("the answer took too long")
            if size > REPLY_LIMIT:
                raise UserError(
                    f"The answer of {self.base} does not end.", "Is this a text server? Check the address."
                )
            yield chunk

    @contextlib.contextmanager
    def plain_words(self) -> Generator[None, None, None]:
        import httpx

        try:
            yield
        except httpx.ConnectTimeout:
            raise UserError(f"{self.base} cannot be reached.", "Check the address and the port forward.") from None  # fmt: skip
        except httpx.ConnectError:
            raise UserError(
                f"Nothing listens at {self.base}.",
                "Is the server running? See `mdk-tui runs`; through SSH the port must be forwarded.",
            ) from None
        except httpx.TimeoutException:
            raise UserError(
                f"The server gave no answer within {self.wait:g} s.",
                "It answers one request at a time; another request may take long.",
            ) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise UserError(
                f"{clean_line(self.base, 200)} is not the address of a server.",
                "It looks like http://127.0.0.1:8028.",
                status=2,
            ) from None
        except (httpx.RemoteProtocolError, httpx.NetworkError):
            raise UserError("The answer broke off: the server closed the connection.", DIED) from None
        except httpx.HTTPError as error:
            words = clean_line(str(error), 200) or type(error).__name__
            raise UserError(f"The answer broke off: {words}", DIED) from None
