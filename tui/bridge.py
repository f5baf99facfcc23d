"""From threads to the screen: whatever a thread yields arrives in the event loop, merged, never faster than it is drawn.

A `Bridge` runs an iterator in a thread of its own. When something comes and the screen is idle, it is handed over at once;
while the screen is busy, or was served a moment ago, what comes meanwhile is merged into one. So a flood costs a handful
of redraws a second and a quiet source costs nothing.

The threads are daemons: a source that does not let go (a dead NFS server, a driver) cannot keep the application alive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from textual import events
from textual.message_pump import MessagePump

INTERVAL = 0.07  # s at least between two deliveries while more keeps coming
SHARE = 4  # deliveries take at most one part in this many of the event loop's time

Item = TypeVar("Item")


def newest(_old: Item, new: Item) -> Item:
    """The merge for readings of which only the latest counts."""
    return new


class Bridge(Generic[Item]):
    """Carries items from `items()` to `deliver`, which is called in the event loop of `node`.

    `close_source` makes the iterator end soon; it may be called from any thread. `failed` is told, in the event loop, of
    an exception of the iterator.
    """

    def __init__(
        self,
        node: MessagePump,
        items: Callable[[], Iterator[Item]],
        deliver: Callable[[Item], None],
        *,
        merge: Callable[[Item, Item], Item] = newest,
        close_source: Callable[[], None] = lambda: None,
        failed: Callable[[Exception], None] = lambda error: None,
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._items = items
        self._deliver = deliver
        self._merge = merge
        self._close_source = close_source
        self._failed = failed
        self._interval = interval
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: list[Item] = []  # at most one: what is not yet delivered
        self._closed = False
        self._last = -interval
        self._pause = interval
        self._thread = threading.Thread(target=self._run, daemon=True, name="bridge")

    def start(self) -> Bridge[Item]:
        self._thread.start()
        return self

    def close(self) -> None:
        """Deliver nothing more and let the thread end. Does not wait for it."""
        self._closed = True
        self._close_source()

    def join(self, timeout: float) -> bool:
        """Whether the thread has ended within `timeout` s."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for item in self._items():
                if self._closed:
                    return
                self._put(item)
        except Exception as error:
            if not self._closed:
                self._call(lambda error=error: self._failed(error))

    def _put(self, item: Item) -> None:
        with self._lock:
            if self._waiting:
                self._waiting[0] = self._merge(self._waiting[0], item)
                return
            self._waiting.append(item)
        self._call(self._arrived)

    def _call(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the event loop; do nothing if the loop is closed."""
        try:
            self._node.post_message(events.Callback(callback=callback))
        except RuntimeError:  # the loop was closed after the check above
            self._closed = True

    def _arrived(self) -> None:
        if self._closed:
            return
        wait = self._last + self._pause - self._clock()
        if wait > 0:
            self._node.set_timer(wait, self._hand_over)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if self._closed or not waiting:
            return
        started = self._clock()
        self._deliver(waiting[0])
        self._last = self._clock()
        self._pause = max(self._interval, (SHARE - 1) * (self._last - started))
