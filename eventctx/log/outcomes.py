"""How a span ended, in the words of its record, and texts made short enough for the log."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from eventctx.errors import ProviderFailed
from eventctx.log.events import Status

MAX_ERROR_CHARACTERS: Final = 2_000
"""Characters of an error's text that a record keeps."""


def fit_for_log(text: str, characters: int = MAX_ERROR_CHARACTERS) -> str:
    """The first ``characters`` of a text, fit for UTF-8 (file names may hold surrogates)."""
    return text[:characters].encode("utf-8", "backslashreplace").decode()


def words_of(error: BaseException | None, characters: int = MAX_ERROR_CHARACTERS) -> str:
    """The text of an error, short enough for the log, whatever its ``__str__`` does."""
    try:
        return fit_for_log(str(error), characters)
    except Exception:
        return "(it cannot be shown)"


def described(error: BaseException | None) -> str | None:
    """An error's type and text; None without one."""
    return None if error is None else f"{type(error).__name__}: {words_of(error)}"


def status_of(kind: type[BaseException] | None) -> Status:
    """The status of a span that an error of this kind ended; None stands for no error."""
    return "ok" if kind is None else failure_of(kind)


def failure_of(kind: type[BaseException]) -> Literal["error", "cancelled"]:
    """The status of a failed span: "cancelled" for a cancellation, else "error"."""
    import asyncio  # what reads outcomes runs no loop: the folds, and the help of commands

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

LOST: Final = SpanOutcome(
    "lost",
    "ProcessEnded",
    "the process ended before this was recorded as ended; it may have done its work",
)
"""The presumed end of a span that a process left open."""


def outcome_of(error: BaseException | None) -> SpanOutcome:
    """How a span ended that this error left; None: no error did."""
    if error is None:
        return OK
    return SpanOutcome(failure_of(type(error)), _type_of(error), words_of(error))


def _type_of(error: BaseException) -> str:
    """The class of an error; of a failed model call the provider's own class, or its status."""
    if isinstance(error, ProviderFailed):
        if error.__cause__ is not None:
            return type(error.__cause__).__name__
        if error.status is not None:
            return str(error.status)
    return type(error).__name__
