"""An application that survives exceptions: a screen that fails is replaced by a report, and can be opened again.

Textual ends the application with a traceback when a handler raises an exception. Here the report is shown on a screen of
its own, where it can be copied. The application ends, with one sentence, only when it cannot go on itself.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textual._context import active_message_pump
from textual.dom import DOMNode

from backends.errors import UserError
from backends.files import write_atomic
from backends.text import clean
from tui.early_input import EarlyInput

FAILURES = 5  # after more failures the application ends: a new screen does not help


class SurvivingApp(EarlyInput):
    """`report` is what is known of the newest failure; `broken` why the application had to end, if it had to."""

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self.report = ""
        self.broken: UserError | None = None
        self.failures: list[BaseException] = []

    async def replace_failed_screen(self) -> None:
        """Show `report` instead of the screen that failed. Called in the event loop, outside that screen."""
        raise NotImplementedError

    def tell_failure(self, error: Exception) -> None:
        """Show `error` in a window above a screen that still works."""
        raise NotImplementedError

    async def run_action(
        self,
        action: Any,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Report an action that fails, and count its key as handled: whatever runs it continues."""
        try:
            return await super().run_action(action, default_namespace, namespaces)
        except Exception as error:
            self.tell_failure(error)
            return True

    def note_failure(self, error: BaseException) -> str:
        """Keep `error`; what is known of it, as text that is safe to show."""
        self.failures.append(error)
        self.report = clean("".join(traceback.format_exception(error)))
        return self.report

    def _handle_exception(self, error: Exception) -> None:
        # The only place that hears of every exception; there is no public one. The pump that failed has ended its loop.
        self.note_failure(error)
        pump = active_message_pump.get(None)
        if pump is None or pump is self or not self._running or len(self.failures) > FAILURES:
            self._end(error)
        else:
            self.call_later(self.replace_failed_screen)

    def _end(self, error: Exception) -> None:
        remedy = f"Runs are not affected. The report is in {path}." if (path := self._save_report()) else ""
        self.broken = UserError(
            f"The application failed: {type(error).__name__}: {clean(str(error))}", remedy
        )
        self._return_code = 1
        self._close_messages_no_wait()

    def _save_report(self) -> Path | None:
        from platformdirs import user_cache_path

        path = user_cache_path("mdk-tui") / "failure.txt"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, self.report)
        except OSError:
            return None
        return path
