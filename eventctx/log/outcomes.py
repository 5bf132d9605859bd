"""The outcome of a span for its record: a status, and the text of an error."""

from __future__ import annotations

import asyncio
from typing import Final, Literal

from eventctx.log.events import Status

MAX_ERROR_CHARACTERS: Final = 2_000
"""Most characters of an error's text that a record keeps."""


def words_of(error: BaseException | None) -> str:
    """The text of an error, cut to ``MAX_ERROR_CHARACTERS`` characters and encodable as UTF-8.

    File names may hold surrogates, which UTF-8 cannot encode; they become escapes.
    """
    try:
        text = str(error)[:MAX_ERROR_CHARACTERS]
    except Exception:
        text = "(it cannot be shown)"
    return text.encode("utf-8", "backslashreplace").decode()


def described(error: BaseException | None) -> str | None:
    """An error's type and text; None if there is no error."""
    return None if error is None else f"{type(error).__name__}: {words_of(error)}"


def status_of(kind: type[BaseException] | None) -> Status:
    """The status of a span that an error of this type ended; "ok" for None."""
    return "ok" if kind is None else failure_of(kind)


def failure_of(kind: type[BaseException]) -> Literal["error", "cancelled"]:
    """The status of a failed span: "cancelled" for a cancellation, else "error"."""
    return "cancelled" if issubclass(kind, asyncio.CancelledError) else "error"
