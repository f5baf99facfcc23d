"""The exception whose message is shown to the user."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can understand and mend.

    `message` is one sentence: what happened and where. `remedy` says what to try ("" when there is nothing to try).
    `status` is the exit status of a command that ends with it: 1 the thing itself failed, 2 wrong usage.
    """

    def __init__(self, message: str, remedy: str = "", *, status: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.status = status

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".rstrip()
