"""How a span ended, as its record says it."""

from __future__ import annotations

import asyncio
from typing import Final, Literal

import msgspec

from eventctx.log.events import Status

MAX_ERROR_CHARACTERS: Final = 2_000
"""Characters of an error's words that a record keeps."""


def words_of(error: BaseException | None) -> str:
    """What an error says, short enough and fit for UTF-8 (file names may hold surrogates)."""
    try:
        text = str(error)[:MAX_ERROR_CHARACTERS]
    except Exception:
        text = "(it cannot be shown)"
    return text.encode("utf-8", "backslashreplace").decode()


def described(error: BaseException | None) -> str | None:
    """An error's type and words; None without one."""
    return None if error is None else f"{type(error).__name__}: {words_of(error)}"


def status_of(kind: type[BaseException] | None) -> Status:
    """The status of what an error of this kind ended; None: nothing did."""
    return "ok" if kind is None else failure_of(kind)


def failure_of(kind: type[BaseException]) -> Literal["error", "cancelled"]:
    """Whether an error of this kind is a cancellation."""
    return "cancelled" if issubclass(kind, asyncio.CancelledError) else "error"


class SpanOutcome(msgspec.Struct, frozen=True):
    """How a span ended; ``error_type`` and ``message`` describe what made it fail."""

    status: Status = "ok"
    error_type: str | None = None
    message: str | None = None

    @property
    def error(self) -> str | None:
        """The type and the message in one text; None where nothing failed."""
        return self.message if self.error_type is None else f"{self.error_type}: {self.message}"


OK: Final = SpanOutcome()


def outcome_of(error: BaseException | None) -> SpanOutcome:
    """How a span ended that this error left; None: no error did."""
    if error is None:
        return OK
    return SpanOutcome(failure_of(type(error)), type(error).__name__, words_of(error))
