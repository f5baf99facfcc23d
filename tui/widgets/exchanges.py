"""The questions so far, one below the other; each with the answers of one server, or of two side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from backends.inference.history import Turn

SHOWN = 50  # questions on the screen; the file has them all


class ExchangeView(Horizontal):
    """One question. `render_turns` says how its answers look now."""

    DEFAULT_CSS = """
    ExchangeView { height: auto; margin-bottom: 1; padding-left: 1; border-left: blank; }
    ExchangeView.-marked { border-left: outer $primary; }
    ExchangeView > Static { width: 1fr; height: auto; padding-right: 2; }
    .-ascii ExchangeView.-marked { border-left: ascii $primary; }
    """

    def __init__(
        self, turns: Sequence[Turn], render_turns: Callable[[Sequence[Turn]], Sequence[Content]]
    ) -> None:
        self._render_turns = render_turns
        self.turns = tuple(turns)
        super().__init__(*(Static(text, markup=False) for text in render_turns(self.turns)))

    def show(self, turns: Sequence[Turn] | None = None) -> None:
        """Draw again, with what came since."""
        self.turns = self.turns if turns is None else tuple(turns)
        for static, text in zip(self.query(Static), self._render_turns(self.turns), strict=False):
            static.update(text)

    @property
    def plain(self) -> str:
        return "\n".join(text.plain for text in self._render_turns(self.turns))


class Exchanges(VerticalScroll, can_focus=False):
    """Shows the newest `SHOWN`; one of them may be marked."""

    DEFAULT_CSS = "Exchanges { height: 1fr; padding: 1 1 0 1; scrollbar-size-vertical: 1; }"

    def __init__(
        self, render_turns: Callable[[Sequence[Turn]], Sequence[Content]], *, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._render_turns = render_turns
        self._views: list[ExchangeView] = []
        self._marked: int | None = None  # counted from the newest: 0

    def fill(self, exchanges: Sequence[Sequence[Turn]]) -> None:
        """Before what is there already."""
        views = [ExchangeView(turns, self._render_turns) for turns in exchanges[-SHOWN:]]
        first = self._views[0] if self._views else None
        self._views = views + self._views
        self.mount_all(views, before=first)
        self.call_after_refresh(self.scroll_end, animate=False)

    def add(self, turns: Sequence[Turn]) -> ExchangeView:
        view = ExchangeView(turns, self._render_turns)
        self._views.append(view)
        self.mount(view)
        if len(self._views) > SHOWN:
            self._views.pop(0).remove()
        self.mark(None)
        return view

    def drop(self, view: ExchangeView) -> None:
        if view in self._views:
            self._views.remove(view)
            view.remove()

    def redraw(self) -> None:
        for view in self._views:
            view.show()

    def mark(self, step: int | None) -> None:
        """Go `step` questions up (1) or down (-1); None: mark none, show the newest."""
        if step is None or not self._views:
            self._marked = None
        else:
            wanted = (-1 if self._marked is None else self._marked) + step
            self._marked = min(max(wanted, 0), len(self._views) - 1)
        for back, view in enumerate(reversed(self._views)):
            view.set_class(back == self._marked, "-marked")
        if self._marked is None:
            self.call_after_refresh(self.scroll_end, animate=False)
        else:
            self.scroll_to_widget(self._views[-1 - self._marked], animate=False)

    @property
    def marked(self) -> tuple[Turn, ...] | None:
        """The marked question's answers, else the newest question's."""
        if not self._views:
            return None
        return self._views[-1 - (self._marked or 0)].turns

    @property
    def plain(self) -> str:
        return "\n\n".join(view.plain for view in self._views)
