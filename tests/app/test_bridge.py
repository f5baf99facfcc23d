"""The bridge from threads to the screen loses nothing, never delivers faster than the screen draws, and leaves no thread behind."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from textual.app import App
from waiting import LIMIT, until_seen

from tui.bridge import Bridge


def fed(source: queue.Queue[int | None]) -> Iterator[int]:
    while (item := source.get()) is not None:
        yield item


async def test_a_quiet_source_is_served_at_once():
    app, source, got = App[None](), queue.Queue[int | None](), list[int]()
    async with app.run_test() as pilot:
        bridge = Bridge(app, lambda: fed(source), got.append, interval=3600).start()
        source.put(1)
        await until_seen(pilot, lambda: got == [1])  # long before the interval is over
        bridge.close()
        source.put(None)
        assert bridge.join(LIMIT)


async def test_a_flood_is_merged_and_nothing_is_lost():
    app, got = App[None](), list[int]()
    async with app.run_test() as pilot:
        bridge = Bridge(
            app, lambda: iter([1] * 20_000), got.append, merge=lambda a, b: a + b, interval=0.05
        ).start()
        await until_seen(pilot, lambda: sum(got) == 20_000)
        assert bridge.join(LIMIT)
    assert len(got) < 40


async def test_after_close_nothing_comes_and_the_thread_ends():
    app, source, got = App[None](), queue.Queue[int | None](), list[int]()
    async with app.run_test() as pilot:
        bridge = Bridge(app, lambda: fed(source), got.append, close_source=lambda: source.put(None)).start()
        source.put(1)
        await until_seen(pilot, lambda: got == [1])
        bridge.close()
        assert bridge.join(LIMIT)
        source.put(2)
        await pilot.pause()
    assert got == [1]


async def test_a_failing_source_is_reported_and_ends_nothing():
    def failing() -> Iterator[int]:
        yield 1
        raise OSError(5, "Input/output error", "train.log")

    app, failures = App[None](), list[str]()
    async with app.run_test() as pilot:
        Bridge(app, failing, lambda item: None, failed=lambda error: failures.append(str(error))).start()
        await until_seen(pilot, lambda: bool(failures))
        assert app.is_running
    assert "Input/output error" in failures[0]


async def test_an_application_that_is_gone_ends_the_thread():
    app, go = App[None](), threading.Event()

    def endless() -> Iterator[int]:
        go.wait(LIMIT)
        while True:
            yield 1

    async with app.run_test():
        bridge = Bridge(app, endless, lambda item: None).start()
    bridge.close()
    go.set()
    assert bridge.join(LIMIT)
