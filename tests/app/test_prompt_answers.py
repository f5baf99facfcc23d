"""Answers on the Prompt screen: streaming, side by side, coloured, scored, regenerated, branched, searched, exported."""

from __future__ import annotations

import dataclasses
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_runs import TRAINING
from prompting import Prompting, at
from text_server import MODELS, TextServer, continuing, events, piece, reply
from textual.pilot import Pilot
from textual.widgets import Input, Static

from backends.inference import history
from backends.inference.history import Turn
from backends.inference.likelihood import Likelihood, likelihood, verdict, words
from backends.inference.request import Request, Token
from backends.runs.checkpoints import TRACKER
from tui.glyphs import UNICODE
from tui.screens.choose import Chooser
from tui.screens.confirm import Confirm
from tui.screens.details import Details
from tui.screens.one_line import OneLine
from tui.screens.prompt_parameters import ParametersScreen
from tui.screens.prompt_tokens import token_table
from tui.widgets.answer_text import answer_text, band, side_by_side
from tui.widgets.exchanges import ExchangeView

TOKENS = (
    Token("The"),
    Token(" cat", -0.1),
    Token(" sat", -1.0),
    Token(" [/x]", -3.0),
    Token("日本", -9.0, (("本日", -0.5),)),
)
ANSWER = Turn(1.0, "u", Request("The"), " cat sat [/x]日本", tokens=TOKENS, of_prompt=1, seconds=1.0)


@pytest.fixture
def server() -> Iterator[TextServer]:
    with TextServer(continuing(" goes on")) as running:
        yield running


@pytest.fixture
def other() -> Iterator[TextServer]:
    with TextServer(continuing(" ends here")) as running:
        yield running


def toasts(it: Prompting) -> str:
    return " ".join(note.message for note in it.app._notifications)


async def take(pilot: Pilot[Any], it: Prompting, text: str) -> None:
    """Choose what `text` narrows a list down to."""
    await it.until(pilot, lambda: isinstance(it.app.screen, Chooser))
    it.app.screen.query_one(Input).value = text
    await pilot.pause()
    await pilot.press("enter")
    await pilot.pause()


# Two checkpoints.


async def test_two_checkpoints_answer_one_prompt_side_by_side(
    server: TextServer, other: TextServer, tmp_path: Path
) -> None:
    newer = at(other.url, "2024-11-30/12-00-00", title="tiny (server, iteration 100)", iteration=100)
    it = Prompting(tmp_path, newer, at(server.url, title="tiny (server)", iteration=200))
    async with it.app.run_test(size=(120, 40), notifications=True) as pilot:
        await it.until(pilot, lambda: "ready" in it.line("#server"))
        await pilot.press("escape", "c")
        await take(pilot, it, "iteration 100")
        await it.until(pilot, lambda: "iteration 100" in it.line("#second"))
        await pilot.press("i")
        await it.ask(pilot, "This")
        await it.until(pilot, lambda: "This goes on" in it.text and "This ends here" in it.text)
        (view,) = it.screen.query(ExchangeView)
        assert len(view.query(Static)) == 2
        assert "iteration 200" in it.text and "iteration 100" in it.text
        await it.until(pilot, lambda: len(history.read(it.file)) == 2)
        await pilot.press("escape", "c")
        await take(pilot, it, "one answer")
        assert not it.screen.has_class("-two")
    first, second = history.read(it.file)
    assert first.at == second.at and first.request == second.request
    assert server.asked[0] == other.asked[0] and first.request.seed is not None, "one seed for both"


async def test_a_server_named_by_its_address_answers_beside_the_first(
    server: TextServer, other: TextServer, tmp_path: Path
) -> None:
    it = Prompting(tmp_path, at(server.url))
    async with it.app.run_test(size=(120, 40), notifications=True) as pilot:
        await it.until(pilot, lambda: "ready" in it.line("#server"))
        await pilot.press("escape", "c")
        await take(pilot, it, "another address")
        await it.until(pilot, lambda: isinstance(it.app.screen, OneLine))
        it.app.screen.query_one(Input).value = other.url.removeprefix("http://")
        await pilot.press("enter")
        await it.until(pilot, lambda: other.url in it.line("#second"))
        await pilot.press("i")
        await it.ask(pilot, "This")
        await it.until(pilot, lambda: "This goes on" in it.text and "This ends here" in it.text)
        await pilot.press("escape", "a")
        await take(pilot, it, other.url)  # it can be chosen again
        await it.until(pilot, lambda: other.url in it.line("#server"))


async def test_one_of_two_servers_answers_if_the_other_fails(
    server: TextServer, other: TextServer, tmp_path: Path
) -> None:
    other.answer = reply("prompts is empty", 400)
    it = Prompting(tmp_path, at(server.url), at(other.url, "2024-11-30/08-00-00", title="the other"))
    async with it.app.run_test(size=(120, 40), notifications=True) as pilot:
        await it.until(pilot, lambda: "ready" in it.line("#server"))
        await pilot.press("escape", "c")
        await take(pilot, it, "the other")
        await pilot.press("i")
        await it.ask(pilot, "This")
        await it.until(pilot, lambda: "goes on" in it.text and "refuses: prompts is empty" in it.text)
        assert it.field.text == "This"


async def test_a_checkpoint_can_be_served_to_answer_beside_the_first(
    server: TextServer, tmp_path: Path
) -> None:
    save = tmp_path / "ck"
    shard = save / "iter_0000008" / "mp_rank_00" / "model_optim_rng.pt"
    shard.parent.mkdir(parents=True)
    with zipfile.ZipFile(shard, "w") as archive:
        archive.writestr("args.json", "{}")
    (save / TRACKER).write_text("8")
    training = dataclasses.replace(
        TRAINING, info=dataclasses.replace(TRAINING.info, save=str(save)), checkpoint=8
    )
    it = Prompting(tmp_path, at(server.url), training)
    async with it.app.run_test(size=(120, 40), notifications=True) as pilot:
        await it.until(pilot, lambda: "ready" in it.line("#server"))
        await pilot.press("escape", "c")
        await take(pilot, it, "serve iteration 8")
        await it.until(pilot, lambda: isinstance(it.app.screen, Confirm))
        shown = "\n".join(str(each.render()) for each in it.app.screen.query(Static))
        assert "--iteration 8" in shown and "/pinned/" in shown
        await pilot.press("escape")
        assert not it.screen.has_class("-two"), "nothing is served that nobody wanted"
    assert it.app.failures == []


async def test_a_text_is_scored_by_both(server: TextServer, other: TextServer, tmp_path: Path) -> None:
    other.answer = reply({"text": ["|abc"], "segments": [["|", "a", "bc"]], "logprobs": [[-2.0, -1.5]]})
    it = Prompting(tmp_path, at(server.url), at(other.url, "2024-11-30/08-00-00", title="the other"))
    async with it.app.run_test(size=(120, 40), notifications=True) as pilot:
        await it.until(pilot, lambda: "ready" in it.line("#server"))
        await pilot.press("escape", "c")
        await take(pilot, it, "the other")
        await pilot.press("i", *"abc", "ctrl+l")
        await it.until(
            pilot, lambda: "3 tokens · log p -1.5" in it.text and "2 tokens · log p -3.5" in it.text
        )
        assert "the first finds it likelier, by 2.0 nats" in it.text
        assert it.field.text == "abc", "a text that was scored is not done with"
    assert server.asked[0]["tokens_to_generate"] == 0
    assert all(turn.scored for turn in history.read(it.file))


# Streams.


async def test_an_answer_appears_as_it_comes_and_half_of_one_stays(tmp_path: Path) -> None:
    go = threading.Event()
    half = events(piece(" half"), piece(" an answer"), piece("?"), tear=True, pause=go)
    with TextServer(half, routes=("/v1/completions",), pages={"/v1/models": MODELS}) as server:
        (tmp_path / "mdk.toml").write_text(f'[prompt]\nurl = "{server.url}"\n')
        it = Prompting(tmp_path)
        async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
            await it.ask(pilot, "This is")
            await it.until(pilot, lambda: "This is half an answer" in it.text)
            assert "busy" in it.line("#server")
            go.set()
            await it.until(pilot, lambda: "broke off" in it.text)
            assert "This is half an answer?" in it.text and it.field.text == "This is"
            await it.until(pilot, lambda: len(history.read(it.file)) == 1)
        (turn,) = history.read(it.file)
        assert turn.continuation == " half an answer?" and "broke off" in turn.error


async def test_esc_in_the_middle_of_a_stream_keeps_what_came(tmp_path: Path) -> None:
    go = threading.Event()
    with TextServer(
        events(piece(" half"), "[DONE]", pause=go), routes=("/v1/completions",), pages={"/v1/models": MODELS}
    ) as server:
        (tmp_path / "mdk.toml").write_text(f'[prompt]\nurl = "{server.url}"\n')
        it = Prompting(tmp_path)
        async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
            await it.ask(pilot, "x")
            await it.until(pilot, lambda: "x half" in it.text)
            await pilot.press("escape")
            await it.until(pilot, lambda: len(history.read(it.file)) == 1)
            go.set()
            assert "x half" in it.text and "by address" in it.line("#server")


# Again, edited, branched.


async def test_again_edit_and_branch(server: TextServer, tmp_path: Path) -> None:
    it = Prompting(tmp_path, at(server.url))
    old = Turn(5.0, "u", Request("Old", seed=7), " answer")
    history.append(it.file, [old, Turn(6.0, "u", Request("newer"), "!")])
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.until(pilot, lambda: "newer" in it.text and "ready" in it.line("#server"))
        await pilot.press("escape", "up", "up", "r")
        await it.until(pilot, lambda: len(server.asked) == 1 and "ready" in it.line("#server"))
        assert (server.asked[0]["prompts"], server.asked[0]["random_seed"]) == (["Old"], 8)
        await pilot.press("k", "k", "k", "e")
        assert it.field.text == "Old" and it.field.has_focus
        await pilot.press("escape", "b")
        assert it.field.text == "Old answer"
        await pilot.press(*" and", "ctrl+j")
        await it.until(pilot, lambda: len(history.read(it.file)) == 4)
    turns = history.read(it.file)
    assert [turn.prompt for turn in turns[2:]] == ["Old", "Old answer and"]
    assert [turn.parent for turn in turns[2:]] == [5.0, 5.0]


async def test_earlier_prompts_are_found(server: TextServer, tmp_path: Path) -> None:
    it = Prompting(tmp_path, at(server.url))
    history.append(
        it.file, [Turn(at_, "u", Request(text), " answer") for at_, text in ((1.0, "one"), (2.0, "two"))]
    )
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.until(pilot, lambda: "two" in it.text)
        await pilot.press("escape", "slash")
        await take(pilot, it, "one ans")
        assert it.field.text == "one"


# Probabilities.


async def test_tokens_are_coloured_numbered_and_listed(tmp_path: Path) -> None:
    it = Prompting(tmp_path)
    history.append(it.file, [ANSWER])
    async with it.app.run_test(size=(120, 40), notifications=True) as pilot:
        await it.until(pilot, lambda: "cat sat" in it.text)
        assert "perplexity" not in it.text
        await pilot.press("escape", "p")
        await it.until(pilot, lambda: "perplexity" in it.text)
        assert "tokens with p" in it.line("#parameters")
        await pilot.press("n")
        assert " cat(-0.1) sat(-1.0) [/x](-3.0)日本(-9.0)" in it.text
        await pilot.press("n")
        assert "cat(-0.1)" not in it.text
        await pilot.press("t")
        assert isinstance(it.app.screen, Details)
    assert it.app.failures == []


def test_each_band_of_probability_looks_different() -> None:
    looks = [band(number) for number in (-0.1, -1.0, -3.0, -9.0, float("-inf"))]
    assert len(set(looks[:4])) == 4 and looks[3] == looks[4]
    assert band(None) == band(float("nan")) == ""
    spans = answer_text(ANSWER, UNICODE, "colours").spans
    assert {str(span.style) for span in spans} >= {band(-0.1), band(-3.0), band(-9.0)}


def test_the_table_of_tokens_shows_what_else_was_likely() -> None:
    rows = token_table([ANSWER]).splitlines()
    assert rows[3].split() == ["'", "cat'", "-0.10", "90.48%"]  # its blank can be seen
    assert rows[-1].split() == ["日本", "-9.00", "0.01%", "本日", "60.65%"]
    assert "returned no log-probabilities" in token_table([Turn(1.0, "u", Request("x"), "y")])


def test_likelihoods_are_added_and_described() -> None:
    one = likelihood(TOKENS, "The cat")
    assert (one.tokens, one.size) == (4, 4) and one.nats == pytest.approx(13.1)
    assert one.perplexity == pytest.approx(26.45, abs=0.01)
    assert one.bits_per_byte == pytest.approx(13.1 / 0.693147 / 4, abs=0.001)
    assert one + Likelihood() == one
    assert words(one) == "4 tokens · log p -13.1 · perplexity 26.4 · 4.72 bits per byte"
    assert words(Likelihood()) == "no log-probabilities" and Likelihood(1e6, 1).perplexity == float("inf")
    assert verdict([one, one]) == "both find it equally likely" and verdict([one]) == ""


def test_each_of_two_answers_names_its_server() -> None:
    turns = [dataclasses.replace(ANSWER, answered_by=name) for name in ("iteration 100", "iteration 200")]
    assert ["iteration 100" in text.plain for text in side_by_side(turns, UNICODE)] == [True, False]


# Files.


async def test_all_prompts_of_a_file_are_asked_one_after_the_other(
    server: TextServer, tmp_path: Path
) -> None:
    (tmp_path / "p.txt").write_text("one\ntwo\n")
    it = Prompting(tmp_path, at(server.url))
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.until(pilot, lambda: "ready" in it.line("#server"))
        await pilot.press("escape", "f")
        assert isinstance(it.app.screen, OneLine)
        it.app.screen.query_one(Input).value = "p.txt"
        await pilot.press("enter")
        await it.until(pilot, lambda: "one goes on" in it.text and "two goes on" in it.text)
        await it.until(pilot, lambda: "prompt" not in it.line("#server"))
    assert [body["prompts"] for body in server.asked] == [["one"], ["two"]]


async def test_answers_are_exported_as_markdown_without_overwriting(tmp_path: Path) -> None:
    it = Prompting(tmp_path)
    history.append(it.file, [ANSWER])
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.until(pilot, lambda: "cat sat" in it.text)
        await pilot.press("escape")
        for said in ("1 answers in", "was not written: File exists"):
            await pilot.press("x")
            await it.until(pilot, lambda: isinstance(it.app.screen, OneLine))
            it.app.screen.query_one(Input).value = "report.md"
            await pilot.press("enter")
            await it.until(pilot, lambda said=said: said in toasts(it))
    assert "cat sat [/x]" in (tmp_path / "report.md").read_text()


# Keys and parameters.


async def test_enter_sends_if_the_settings_say_so(server: TextServer, tmp_path: Path) -> None:
    (tmp_path / "mdk.toml").write_text("[prompt]\nenter_sends = true\n")
    it = Prompting(tmp_path, at(server.url))
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.until(pilot, lambda: it.field.enter_sends and "ready" in it.line("#server"))
        await pilot.press("a", "ctrl+j", "b", "enter")
        await it.until(pilot, lambda: len(server.asked) == 1)
    assert server.asked[0]["prompts"] == ["a\nb"]


async def test_presets_and_stop_texts(server: TextServer, tmp_path: Path) -> None:
    it = Prompting(tmp_path, at(server.url), TRAINING)
    async with it.app.run_test(size=(80, 24), notifications=True) as pilot:
        await it.until(pilot, lambda: "ready" in it.line("#server"))
        await pilot.press("ctrl+t", "ctrl+n")
        form = it.app.screen
        assert isinstance(form, ParametersScreen)
        form.query_one("#stop", Input).value = r"\n, on"
        await pilot.press("enter")
        assert r"temperature 1.3 · top-p 0.98 · stop \n, on" in it.line("#parameters")
        await it.ask(pilot, "This")
        await it.until(pilot, lambda: "This goes \n" in it.text)
    assert server.asked[0]["stop_on_eol"] is True


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
def test_side_by_side(
    snap_compare: Any, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [dataclasses.replace(ANSWER, answered_by=f"iteration {n} of gpt3-7b") for n in (1000, 2000)]
    text = Request(ANSWER.prompt + ANSWER.continuation)
    scores = [
        dataclasses.replace(turn, at=2.0, scored=True, continuation="", request=text) for turn in answers
    ]
    monkeypatch.setattr(history, "read", lambda _path: [*answers, *scores])
    it = Prompting(Path("/home/user/mdk"), at("http://127.0.0.1:8028", iteration=2000))

    async def before(pilot: Pilot[Any]) -> None:
        await it.until(pilot, lambda: "sat" in it.text and "ready" in it.line("#server"))
        await pilot.press("escape", "p")
        await it.until(pilot, lambda: "perplexity" in it.text)
        await pilot.pause()

    assert snap_compare(it.app, terminal_size=size, run_before=before)
