"""The Prompt screen with a real local server: questions, refusals, recall, cancelling, parameters and appearance."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_runs import SERVER, TRAINING
from prompting import Prompting, at
from text_server import TextServer, continuing, reply
from textual.pilot import Pilot
from textual.widgets import Input, Label, Static
from waiting import LIMIT

from backends.inference import history
from backends.inference.history import Turn
from backends.inference.request import Request
from backends.inference.server_title import label, label_of_answer
from backends.runs.watching import SeenRun
from backends.settings import PromptSettings
from tui.glyphs import UNICODE
from tui.screens import prompt_servers
from tui.screens.prompt_parameters import ParametersScreen
from tui.screens.prompt_servers import NEWEST, Servers
from tui.widgets.answer_text import answer_text
from tui.widgets.key_line import KeyLine

HOSTILE = "[/x] [@click=app.quit]q[/] \x1b]52;c;aGk=\x07日本語\x1b[2J"


@pytest.fixture
def server() -> Iterator[TextServer]:
    with TextServer(continuing(" goes on")) as running:
        yield running


async def test_a_prompt_is_continued_and_kept(server: TextServer, tmp_path: Path) -> None:
    it = Prompting(tmp_path, at(server.url), TRAINING)
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.ask(pilot, "two\nlines")
        await it.until(pilot, lambda: "two\nlines goes on" in it.text)
        assert "tokens/s" in it.text and "temperature 1" in it.text
        assert it.field.text == ""
        await it.until(pilot, lambda: len(history.read(it.file)) == 1)
    assert history.read(it.file)[0].continuation == " goes on"
    assert it.app.failures == []


async def test_a_refusal_is_a_turn_and_the_prompt_stays(server: TextServer, tmp_path: Path) -> None:
    server.answer = reply("Length of prompt + tokens_to_generate longer than allowed")
    it = Prompting(tmp_path, at(server.url), TRAINING)
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.ask(pilot, "much")
        await it.until(pilot, lambda: "longer than the model takes" in it.text)
        assert it.field.text == "much" and "ready" in it.line("#server")


async def test_hostile_answers_are_text(server: TextServer, tmp_path: Path) -> None:
    server.answer = continuing(HOSTILE)
    it = Prompting(tmp_path, at(server.url), TRAINING)
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.ask(pilot, "x")
        await it.until(pilot, lambda: "[/x] [@click=app.quit]q[/] 日本語" in it.text)
        server.answer = reply(HOSTILE)
        await it.ask(pilot, HOSTILE)
        await it.until(pilot, lambda: "refuses: [/x]" in it.text)
        assert "\x1b" not in it.text
    assert it.app.failures == []


async def test_esc_stops_waiting_and_a_late_answer_is_ignored(server: TextServer, tmp_path: Path) -> None:
    go = threading.Event()
    answer = continuing(" late")
    server.answer = lambda handler, body: (go.wait(LIMIT), answer(handler, body))[1]
    it = Prompting(tmp_path, at(server.url), TRAINING)
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.ask(pilot, "x")
        await it.until(pilot, lambda: "busy" in it.line("#server"))
        await pilot.press("ctrl+j")  # one at a time: this one is not sent
        await pilot.press("escape")
        await it.until(pilot, lambda: "ready" in it.line("#server"))
        assert it.app.current_mode == "prompt" and it.field.text == "x"
        go.set()
        server.answer = continuing(" soon")
        await it.ask(pilot, "y")
        await it.until(pilot, lambda: "y soon" in it.text)
        assert "late" not in it.text
    assert [body["prompts"] for body in server.asked] == [["x"], ["y"]]


async def test_the_last_line_says_how_to_leave_the_field_and_then_where_help_is(tmp_path: Path) -> None:
    it = Prompting(tmp_path, at(None), TRAINING)
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        line = it.app.screen.query_one(KeyLine)

        def keys() -> str:
            return "".join(text for text, _ in line.body(80, 1)[0])

        await it.until(pilot, lambda: "esc other keys" in keys())
        await pilot.press("4")
        assert it.field.text == "4" and it.app.current_mode == "prompt"
        await pilot.press("escape")
        await it.until(pilot, lambda: "? help" in keys())
        assert "esc" not in keys() and not it.field.has_focus
        await pilot.press("i")
        await it.until(pilot, lambda: "esc other keys" in keys())


async def test_up_recalls_what_was_asked_and_down_comes_back(tmp_path: Path) -> None:
    it = Prompting(tmp_path, at(None), TRAINING)
    for prompt in ("first", "second\nwith two lines", "first"):
        history.append(it.file, [Turn(1.0, "u", Request(prompt), "…")])
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.until(pilot, lambda: "second" in it.text)
        await pilot.press(*"new", "up")
        assert it.field.text == "first"
        await pilot.press("up")
        assert it.field.text == "second\nwith two lines"
        await pilot.press("up")
        assert it.field.cursor_location[0] == 0, "within several lines, up is a line up first"
        await pilot.press("up")
        assert it.field.text == "second\nwith two lines", "there is nothing older"
        await pilot.press("down", "down", "down")
        assert it.field.text == "new"


async def test_parameters_are_checked_and_sent(server: TextServer, tmp_path: Path) -> None:
    it = Prompting(tmp_path, at(server.url), TRAINING)
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.until(pilot, lambda: "ready" in it.line("#server"))
        await pilot.press("ctrl+t")
        form = it.app.screen
        assert isinstance(form, ParametersScreen)
        box = form.query_one("#box").region
        shown = [*form.query(Input), *form.query(Label)]
        assert all(widget.region.width and box.contains_region(widget.region) for widget in shown)
        form.query_one("#tokens", Input).value = "many"
        await pilot.press("enter")
        assert it.app.screen is form and "not a whole number" in str(
            form.query_one("#wrong", Static).render()
        )
        for name, value in (("tokens", "8"), ("temperature", "0.5"), ("top_p", "1"), ("seed", "7")):
            form.query_one(f"#{name}", Input).value = value
        await pilot.press("enter")
        await pilot.pause()
        assert "8 tokens · temperature 0.5 · top-p 1 · seed 7" in it.line("#parameters")
        await it.ask(pilot, "x")
        await it.until(pilot, lambda: "goes on" in it.text)
        await pilot.press("ctrl+g")
        assert "8 tokens · greedy" in it.line("#parameters")
    body = server.asked[0]
    assert (body["tokens_to_generate"], body["temperature"], body["top_p"], body["random_seed"]) == (
        8,
        0.5,
        1.0,
        7,
    )


async def test_a_history_that_cannot_be_written_is_reported_once(server: TextServer, tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("in the way")
    it = Prompting(tmp_path, at(server.url), TRAINING)
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.ask(pilot, "x")
        await it.until(pilot, lambda: "goes on" in it.text)
        await it.until(
            pilot, lambda: any("history cannot be written" in n.message for n in it.app._notifications)
        )
    assert it.app.failures == []


async def test_nothing_is_sent_without_a_server(tmp_path: Path) -> None:
    it = Prompting(tmp_path, at(None), TRAINING)
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.until(pilot, lambda: "loading" in it.line("#server"))
        await pilot.press("x", "ctrl+j")
        assert it.field.text == "x" and it.text == ""


def test_the_server_line_in_every_state() -> None:
    def said(*runs: SeenRun, waited: float | None = None, **known: Any) -> str:
        servers = dataclasses.replace(prompt_servers.servers_of(runs, Servers()), **known)
        return "".join(text for text, _ in prompt_servers.words(servers, NEWEST, waited, UNICODE))

    assert said(read=False) == "looking for a text server"
    assert "esc, then 1 shows what to start" in said()
    assert "ctrl+r serves" in said(TRAINING)
    loading = said(at(None), progress=((SERVER.info.run, "building the model (6 of 8)"),))
    assert "loading" in loading and "building the model (6 of 8)" in loading
    assert "ready" in said(at("http://127.0.0.1:8028")) and "http://127.0.0.1:8028" in said(SERVER)
    assert "busy   3 s" in said(SERVER, waited=3.2)
    failed = dataclasses.replace(at(None).info, phase="failed", reason="No checkpoint was loaded.")
    assert "failed: No checkpoint was loaded." in said(SeenRun(failed))
    named = PromptSettings(url="gpu1:8000")
    assert "by address   http://gpu1:8000" in said(settings=named)


def test_the_label_of_a_server_names_its_checkpoint() -> None:
    info = dataclasses.replace(SERVER.info, title="tiny (server)", iteration=200)
    assert label(info) == "iteration 200 of tiny"
    pinned = dataclasses.replace(info, title="tiny (server, iteration 200)")
    assert label(pinned) == "iteration 200 of tiny"
    assert label(dataclasses.replace(info, iteration=None)) == "tiny"
    assert label_of_answer(label(info), None) == "iteration 200 of tiny"
    assert label_of_answer(label(info), 250) == "iteration 250 of tiny"  # it follows the training


def test_an_answer_of_blanks_can_be_seen() -> None:
    assert "(3 blanks, nothing else)" in answer_text(Turn(1.0, "u", Request("x"), " \n "), UNICODE).plain


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
def test_prompt(
    snap_compare: Any, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [
        Turn(1.0, "u", Request("The quick brown", top_k=1), " fox jumps over the lazy dog.", "", 1.25, 51.2),
        Turn(
            2.0,
            "u",
            Request("日本語 [/x] and"),
            error="The server refuses: [@click=app.quit]no[/]. Change the request.",
        ),
    ]
    monkeypatch.setattr(history, "read", lambda _path: turns)
    it = Prompting(Path("/home/user/mdk"), at("http://127.0.0.1:8028"), TRAINING)

    async def before(pilot: Pilot[Any]) -> None:
        await it.until(pilot, lambda: "lazy dog" in it.text and "ready" in it.line("#server"))
        await pilot.press(*"Once upon")
        await pilot.pause()

    assert snap_compare(it.app, terminal_size=size, run_before=before)
