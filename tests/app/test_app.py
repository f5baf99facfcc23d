"""The application around the screens: navigation, appearance, failures and leaving."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from inspect import isawaitable
from pathlib import Path
from typing import Any, cast

import click
import pytest
from fake_runs import FAILED, FINISHED, SERVER, TRAINING, WORKSPACE, listing, seen
from textual import events
from textual.command import CommandList
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea
from waiting import at_rest, until_seen, until_so

from backends.errors import UserError
from backends.runs.watching import SeenRun
from backends.workspace import Workspace
from tui import application as command
from tui.app import PLACES, MdkApp
from tui.appearance import DEFAULT_THEME, Appearance, appearance
from tui.screens.details import Details
from tui.screens.failure import FailureScreen
from tui.screens.help import HelpScreen
from tui.screens.home import HomeScreen
from tui.widgets.listing import Listing
from tui.widgets.plot import Plot

ALL = (TRAINING, SERVER, FINISHED, FAILED)
SIZES = [(80, 24), (120, 40)]
HOSTILE = "[/x] [@click=app.quit]q[/] \x1b]52;c;aGk=\x07\x1b[2J [red]日本語\x9b31m\u202e tail"


def screen_text(app: MdkApp) -> str:
    return "\n".join(
        "".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()
    )


async def settled(pilot: Pilot[Any]) -> None:
    """Until the runs have come and everything is drawn."""
    app = cast("MdkApp", pilot.app)
    # Other lists may be empty: the workspace of the test has no checkpoints and no nodes.
    lists = lambda: app.screen.query(Listing) if app.current_mode in ("home", "runs") else ()  # noqa: E731
    await until_seen(pilot, lambda: app.runs is not None and all(one.marked for one in lists()))
    await at_rest(pilot)


async def at(pilot: Pilot[Any], place: str) -> None:
    """Until that screen is there, with its focus where it begins."""
    app = cast("MdkApp", pilot.app)
    await until_seen(pilot, lambda: app.current_mode == place and app.screen.is_mounted and app.focused)


CALM = Appearance(calm=True)


def application(*runs: SeenRun, look: Appearance = CALM, workspace: Workspace = WORKSPACE) -> MdkApp:
    return MdkApp(workspace, look, watch=listing(*runs))


# Navigation.


async def test_digits_lead_to_places_and_esc_leads_back(tmp_path: Path) -> None:
    app = application(workspace=Workspace(tmp_path))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        for key, place in (("6", "runs"), ("1", "home"), ("escape", "runs")):
            await pilot.press(key)
            await at(pilot, place)
        for place in PLACES:
            await pilot.press(place.key)
            await at(pilot, place.name)
            if isinstance(app.focused, Input | TextArea):
                await pilot.press("escape")
                await until_seen(pilot, lambda: app.focused is None)
    assert app.failures == []


async def test_input_right_after_a_digit_reaches_the_new_screen_in_order(
    tmp_path: Path,
) -> None:
    app = application(workspace=Workspace(tmp_path))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        for character in "5qe1":
            app.post_message(events.Key(character, character))
        app.post_message(events.Paste(" pasted "))
        app.post_message(events.Key("2", "2"))
        await until_seen(
            pilot,
            lambda: app.current_mode == "prompt" and app.screen.query_one(TextArea).text == "qe1 pasted 2",
        )
        assert app.failures == []


async def test_keys_typed_right_after_a_window_was_requested_go_to_it() -> None:
    app = application(*ALL)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        for key in ("ctrl+p", *"quit"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until_seen(
            pilot, lambda: bool(app.screen.query(Input)) and app.screen.query_one(Input).value == "quit"
        )
        assert app.is_running


async def test_each_of_several_quick_tabs_counts(tmp_path: Path) -> None:
    app = application(workspace=Workspace(tmp_path))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot)
        for key in ("4", *["tab"] * 4, "z"):
            app.simulate_key(key)
        await until_seen(pilot, lambda: app.current_mode == "monitor" and app.screen.query("#log.-zoomed"))


async def test_digits_are_text_in_a_text_field() -> None:
    app = application()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("5")
        await at(pilot, "prompt")
        await pilot.press("1", "q", "?")
        await until_seen(pilot, lambda: app.screen.query_one(TextArea).text == "1q?")
        assert app.current_mode == "prompt"
        await pilot.press("escape")
        await until_seen(pilot, lambda: app.focused is None)
        await pilot.press("1")
        await at(pilot, "home")


async def test_help_is_made_of_the_keys_of_the_screen() -> None:
    app = application(*ALL)
    async with app.run_test(size=(80, 40), notifications=True) as pilot:
        await pilot.press("6")
        await settled(pilot)
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        text = screen_text(app)
        assert (
            "Keys: Runs" in text
            and "Open the monitor on the marked run" in text
            and "Quit; runs go on" in text
        )
        await pilot.press("5")
        assert isinstance(app.screen, HelpScreen), "a window keeps the keys"
        await pilot.press("escape")
        assert app.current_mode == "runs" and not isinstance(app.screen, ModalScreen)


async def test_the_palette_does_what_a_key_of_the_screen_does(tmp_path: Path) -> None:
    app = application(workspace=Workspace(tmp_path))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("4")
        await at(pilot, "monitor")
        commands = {command.title: command for command in app.get_system_commands(app.screen)}
        assert commands["Read values with the crosshair"].help == "key ←→"
        assert {f"Go to {place.title}" for place in PLACES} <= set(commands)
        plot = app.screen.query_one(Plot)
        result = commands["Switch the y axis between linear and logarithmic"].callback()
        assert isawaitable(result) and await result and plot.view.log


async def test_help_shows_keys_with_one_meaning_in_one_row(tmp_path: Path) -> None:
    app = application(workspace=Workspace(tmp_path))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("4")
        await at(pilot, "monitor")
        await pilot.press("question_mark")
        await until_seen(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.pause()
        text = screen_text(app)
        assert (
            text.count("Read values with the crosshair") == 1 and "1 to 8" in text and "tab shift+tab" in text
        )


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
async def test_every_key_has_an_id_and_says_what_it_does(place: Any, tmp_path: Path) -> None:
    app = application(*ALL, workspace=Workspace(tmp_path))
    async with app.run_test(notifications=True) as pilot:
        await settled(pilot)
        await pilot.press(place.key)
        own = [b for b in app.screen.active_bindings.values() if type(b.node).__module__.startswith("tui.")]
        unnamed = [b.binding.key for b in own if not b.binding.id and b.binding.key not in TEXTUAL_KEYS]
        assert unnamed == []
        assert [b.binding.id for b in own if b.binding.id and not b.tooltip] == []


TEXTUAL_KEYS = {b.key for cls in (MdkApp.__mro__[2], *HomeScreen.__mro__[2:], *TextArea.__mro__) for b in getattr(cls, "BINDINGS", []) if hasattr(b, "key")} | {"ctrl+p"}  # fmt: skip
TEXTUAL_KEYS = {key for keys in TEXTUAL_KEYS for key in keys.split(",")}


async def test_the_palette_knows_the_places() -> None:
    app = application()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("ctrl+p")
        await pilot.press(*"Runs")
        found = app.screen.query_one(CommandList)
        await until_seen(pilot, lambda: (best := found.highlighted_option) and "Runs" in str(best.prompt))
        await pilot.press("enter")
        await at(pilot, "runs")


# Appearance.


def test_looks_follow_the_options_and_the_environment() -> None:
    assert appearance({}) == Appearance(DEFAULT_THEME)
    assert appearance({}, theme="nord", ascii_only=True) == Appearance("nord", ascii_only=True, calm=True)
    assert appearance({"NO_COLOR": "1"}, theme="nord").theme == "ansi-dark"
    assert appearance({"TERM": "linux"}) == Appearance("ansi-dark", own_colours=True)
    assert appearance({"TERM": "xterm", "COLORTERM": "truecolor"}) == Appearance(DEFAULT_THEME)
    assert appearance({"TERM": "linux"}, theme="nord").theme == "nord"
    assert appearance({"SSH_CONNECTION": "a"}).calm and appearance({"SSH_TTY": "/dev/pts/1"}).calm


@pytest.mark.parametrize(
    "place", [place for place in PLACES if place.name != "monitor"], ids=lambda place: place.name
)
async def test_ascii_draws_nothing_else(place: Any) -> None:
    title = "gpt: plain"
    plain = [seen(run.info.run, **{**{k: getattr(run.info, k) for k in ("phase", "iteration", "train_iters", "kind", "address", "ended")}, "title": title}, checkpoint=run.checkpoint, last=dict(run.last)) for run in ALL]  # fmt: skip
    app = application(*plain, look=Appearance(ascii_only=True, calm=True))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press(place.key)
        await settled(pilot)
        app.tell("news")
        await pilot.press("escape", "question_mark")
        await pilot.pause()
        assert {sign for sign in screen_text(app) if not sign.isascii()} == set()
        await pilot.press("escape")
        await pilot.pause()
        assert {sign for sign in screen_text(app) if not sign.isascii()} == set()


async def test_no_color_means_the_terminals_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = application(*ALL, look=appearance({"NO_COLOR": "1"}))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        for strip in app.screen._compositor.render_strips():
            for segment in strip.apply_filter(app.get_line_filters()[-1], app.screen.background_colors[1]):
                color = segment.style.color if segment.style else None
                assert color is None or color.is_default, (segment.text, color)


async def test_over_ssh_nothing_is_animated() -> None:
    app = application(look=appearance({"SSH_TTY": "x"}))
    async with app.run_test(notifications=True) as pilot:
        await settled(pilot)
        assert app.animation_level == "none"
        for place in ("3", "5"):
            await pilot.press(place)
            fields = [*app.screen.query(Input), *app.screen.query(TextArea)]
            assert fields and not any(field.cursor_blink for field in fields)
            await pilot.press("escape")


# Text from outside.


@pytest.mark.parametrize(
    "place", [place for place in PLACES if place.name != "monitor"], ids=lambda place: place.name
)
@pytest.mark.parametrize("size", SIZES)
async def test_hostile_text_is_text(place: Any, size: tuple[int, int]) -> None:
    from backends.text import clean_line

    # As the catalog returns it: without escape codes, but it still looks like markup.
    words: dict[str, Any] = {
        key: clean_line(HOSTILE) for key in ("title", "reason", "note", "save", "load", "stopping")
    }
    runs = (
        seen("2024-11-30/01-01-01", **words, phase="stopping", iteration=3, checkpoint=2),
        seen("2024-11-30/01-01-02", **words, phase="running", kind="serve", address="http://[::1]:8028"),
        seen("2024-11-30/01-01-03", **words, phase="failed", checkpoint=3),
    )
    app = application(*runs)
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.press(place.key)
        await settled(pilot)
        app.tell(HOSTILE)
        await until_seen(pilot, lambda: "[/x]" in screen_text(app), "the message")
        text = screen_text(app)
        assert not any((ord(sign) < 32 and sign != "\n") or 127 <= ord(sign) < 160 for sign in text)
    assert app.failures == []


# Failures.


class Unlucky(HomeScreen):
    def action_step(self, deed: str) -> None:
        raise ValueError(f"no luck {HOSTILE}")

    def on_listing_marked(self) -> None:
        if self._runs is not None and self._runs[0] is FAILED:
            raise ValueError(f"no luck {HOSTILE}")


async def test_a_key_that_fails_is_reported_and_the_screen_keeps_working(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tui.screens.home.HomeScreen", Unlucky)
    app = application(*ALL)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("n")
        await pilot.pause()
        assert isinstance(app.screen, Details) and "no luck [/x]" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, HomeScreen) and app.screen.is_running
    assert len(app.failures) == 1 and app.broken is None


async def test_a_screen_that_fails_is_replaced_and_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.screens.home.HomeScreen", Unlucky)
    app = application(*ALL)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot)
        failed = app.screen
        app.runs = (FAILED,)
        await until_so(lambda: isinstance(app.screen, FailureScreen))
        await pilot.pause()
        text = screen_text(app)
        assert "This screen failed" in text and "no luck [/x]" in text
        app.runs = ALL
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(app.screen, HomeScreen) and app.screen is not failed
        assert app.screen.is_running and "Watch a tiny GPT" in screen_text(app)
    assert len(app.failures) == 1 and app.broken is None


async def test_a_failing_thread_is_reported_in_a_window_that_can_be_copied() -> None:
    def failing(ended: threading.Event) -> Iterator[tuple[SeenRun, ...]]:
        yield (TRAINING,)
        raise RuntimeError("the disk [/x] is gone")

    app = MdkApp(WORKSPACE, Appearance(calm=True), watch=failing)
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        await settled(pilot)
        await until_seen(pilot, lambda: isinstance(app.screen, Details))
        assert "RuntimeError: the disk [/x] is gone" in str(app.screen.query_one(Static).render())
        await pilot.press("y", "escape")
        await pilot.pause()
        assert isinstance(app.screen, HomeScreen)


async def test_a_refusal_is_shown_with_its_remedy() -> None:
    app = application()
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        app.tell_failure(UserError("Nothing [/x] there.", "Look elsewhere."))
        await pilot.pause()
        text = screen_text(app)
        assert "Nothing [/x] there." in text and "Look elsewhere." in text
    assert app.failures == [], "a refusal is no failure"


async def test_an_application_that_cannot_go_on_ends_with_a_sentence_and_a_report() -> None:
    app = application()
    async with app.run_test(notifications=True):
        app._handle_exception(ValueError("of its own"))
    assert app.broken is not None
    assert "ValueError: of its own" in app.broken.message and "failure.txt" in app.broken.remedy
    report = Path(app.broken.remedy.partition(" is in ")[2].rstrip("."))
    assert "of its own" in report.read_text()


# Opening and leaving.


def test_no_screen_where_none_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    for environment, to_terminal in (({"TERM": "dumb"}, True), ({}, True), ({"TERM": "xterm"}, False)):
        with pytest.raises(UserError) as caught:
            command.refuse_without_screen(environment, to_terminal, Path("my train.log"))
        assert "mdk-tui summary 'my train.log'" in caught.value.remedy
    command.refuse_without_screen({"TERM": "xterm"}, True, None)


def test_an_unknown_theme_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="Did you mean mdk-dark"):
        command.check_theme("mdk-drak", ["mdk-dark", "nord"])
    command.check_theme("nord", ["mdk-dark", "nord"])


def test_leaving_says_what_goes_on(tmp_path: Path) -> None:
    here = Workspace(tmp_path)
    assert command.farewell([FINISHED.info], here, {}, tmp_path) == ""
    one = command.farewell([TRAINING.info, FINISHED.info], here, {}, tmp_path)
    assert one.startswith("the run goes on: mdk-tui attach\n")
    assert "mdk-tui stop 2024-11-30/09-32-12" in one
    two = command.farewell([TRAINING.info, SERVER.info], WORKSPACE, {}, tmp_path)
    assert two.startswith("2 runs go on: mdk-tui -w /home/user/mdk attach\n")


async def test_q_leaves() -> None:
    app = application(TRAINING)
    async with app.run_test(notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("q")
        await pilot.pause()
        assert not app.is_running


def test_options_of_the_group_reach_whoever_opens_the_application(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tui.cli import cli

    opened: list[tuple[Appearance, str]] = []

    class Fake:
        broken, runs, available_themes = None, (), {"nord": None}

        def __init__(self, workspace: Workspace, look: Appearance, opening: Any) -> None:
            opened.append((look, opening.screen))

        def run(self) -> None: ...

    monkeypatch.setattr("tui.app.MdkApp", Fake)
    monkeypatch.setattr(command, "refuse_without_screen", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.log").write_text("\n")
    cli.main(["--ascii", "--theme", "nord", "watch", "x.log"], standalone_mode=False)
    assert opened[0][0].ascii_only and opened[0][0].theme == "nord" and opened[0][1] == "monitor"


def test_help_of_the_group_imports_no_screen() -> None:
    out = io.StringIO()
    from tui.cli import cli

    out.write(cli.get_help(click.Context(cli)))
    assert "--ascii" in out.getvalue() and "--theme" in out.getvalue()
