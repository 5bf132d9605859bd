"""Translates the server's errors to ``eventctx.errors``; the driver's error is only their cause.

Two exceptions stay inside of this folder. ``ConnectionLost``: the connection is gone, and what
was under way may have happened or not. ``Refused``: the server answered with an error, so nothing
happened.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from eventctx.errors import (
    EventctxError,
    InvalidSetting,
    LogCorrupted,
    NotAStore,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

Given = ParamSpec("Given")
Found = TypeVar("Found")


class ConnectionLost(Exception):
    """The connection broke, or could not be made; the fate of pending work is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(_one_line(message))


class Refused(Exception):
    """The server's error: its SQLSTATE and message. The transaction was rolled back."""

    def __init__(self, code: str, message: str) -> None:
        message = _one_line(message)
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message


def _one_line(message: str) -> str:
    return " ".join(message.split())


READ_ONLY: Final = "25006"
"""A transaction on a standby, or of a read-only user."""

DISORDER: Final = "40001"
"""Another transaction wrote first: the same work succeeds in a new one."""

_AGAIN: Final = frozenset({DISORDER, "40P01", "55P03", "23505"})
"""Serialization failure, deadlock, lock not available, a place that another process took first."""

_GONE: Final = frozenset(
    {
        "57014",  # cancelled by hand
        "57P01",  # shut down by an administrator, or the connection was terminated
        "57P02",  # another process of the server crashed
        "57P03",  # starting up, or shutting down
        "57P05",  # idle for too long
        "25P03",  # idle in a transaction for too long
        READ_ONLY,  # a primary that became a standby
        "53300",  # too many connections
        "53200",  # out of memory
        "0A000",  # a prepared statement whose tables were changed: a new connection has none
        "26000",  # a prepared statement that a pooler gave to another client
    }
)
_DAMAGE: Final = ("XX001", "XX002", "58P01")
"""Data corrupted, index corrupted, a file that is missing."""

_CANNOT_CONNECT: Final = ("28", "3D", "42")

_CODES: Final = {
    "28000": re.compile(
        r'authentication failed|no pg_hba\.conf entry|role ".*" does not exist|certificate|'
        "SSL was required|SSL error: (?!unexpected eof)|no password supplied"
    ),
    "3D000": re.compile(r'database ".*" does not exist'),
    "57P03": re.compile("the database system is "),  # starting up, shutting down, in recovery
    "53300": re.compile("too many clients|connection slots are reserved"),
}
"""libpq's messages when a server refuses a connection, or when we refuse the server."""

_ATTEMPT: Final = re.compile(r"^- host: (.*?), hostaddr: (?:'[^']*'|None): ", re.MULTILINE)
"""The driver's line for one of several addresses that it tried."""


def begins_again(error: Refused) -> bool:
    """Whether the same work may succeed in a new transaction."""
    return error.code in _AGAIN


def loses_connection(error: Refused) -> bool:
    """Whether the same work may succeed on a new connection, perhaps to another server."""
    return error.code in _GONE or error.code.startswith("08")


def not_connected(said: str) -> ConnectionLost | Refused:
    """The error for a connection that was not made, for which the driver gives a text alone.

    Another attempt may succeed, unless every host of the URL refuses this client. A server
    that is there and has no room or is not ready is Refused, too: it was reached.
    """
    _, *parts = _ATTEMPT.split(said)
    attempts = list(zip(parts[::2], parts[1::2], strict=True)) or [("", said)]
    text = "; ".join(
        dict.fromkeys(_one_line(one).removeprefix("connection failed: ") for _, one in attempts)
    )
    codes = {host: code for host, one in attempts if (code := _code_in(one))}
    busy = next((code for code in codes.values() if not is_hopeless(code)), None)
    if busy is not None:
        return Refused(busy, text)
    # A name may have several addresses, of which only one is the server's.
    if codes.keys() == {host for host, _ in attempts}:
        return Refused(next(iter(codes.values())), text)
    return ConnectionLost(text)


def _code_in(said: str) -> str | None:
    return next((code for code, pattern in _CODES.items() if pattern.search(said)), None)


def is_hopeless(code: str) -> bool:
    """Whether a refusal to connect concerns the client, not the state of the server."""
    return code[:2] in _CANNOT_CONNECT


def naming_damage(
    read: Callable[Concatenate[Any, str, Given], Found],
) -> Callable[Concatenate[Any, str, Given], Found]:
    """For a method that reads one stream: damage that the server finds is the stream's."""

    def named(self: Any, stream: str, /, *args: Given.args, **options: Given.kwargs) -> Found:
        try:
            return read(self, stream, *args, **options)
        except Refused as error:
            if error.code in _DAMAGE:
                raise _damage_error(error, stream) from error
            raise

    return named


def translate(error: Exception, place: str, stream: str = "") -> EventctxError:
    """The eventctx error for ``error``, with ``error`` as its cause.

    ``stream`` is the one that was used, if it was one alone.
    """
    if isinstance(error, EventctxError):
        return error
    if isinstance(error, Refused) and error.code in _DAMAGE:
        found: EventctxError = _damage_error(error, stream)
    else:
        found = _error_for(error, place)
    found.__cause__ = error
    return found


def _error_for(error: Exception, place: str) -> EventctxError:
    if isinstance(error, ConnectionLost):
        return StoreUnavailable(f"{place}: the server cannot be reached: {error}")
    if not isinstance(error, Refused):
        return InvalidSetting(f"{place}: an argument cannot be stored: {error}")
    code = error.code
    if code == READ_ONLY:
        return read_only(place)
    if code == "53100":
        return StoreFull(f"{place}: no space left on the server; free some and try again")
    if code == "42501":
        return StoreReadOnly(
            f"{place}: expected to be allowed to do this, but the server says: {error.message}; "
            "ask for the role that may, or connect as another user"
        )
    if code in ("42P01", "3F000", "42883"):
        return NotAStore(
            f"{place}: expected the tables of a store, but the server says: {error.message}"
        )
    if code.startswith(("22", "54")):
        return InvalidSetting(f"{place}: an argument cannot be stored: {error.message}")
    if loses_connection(error) or begins_again(error) or is_hopeless(code):
        return StoreUnavailable(f"{place}: the server refused: {error.message}")
    return StoreError(f"{place}: the server refused: {error}")


def _damage_error(error: Refused, stream: str) -> LogCorrupted:
    return LogCorrupted(stream, -1, f"the server finds its files damaged: {error.message}")


def unknown_fate(place: str, error: Exception, patience: float) -> StoreUnavailable:
    """The error for a write that was under way when the server was lost for good."""
    found = StoreUnavailable(
        f"{place}: the server was lost and not found again within {patience:g} s ({error}); what "
        "was under way may be stored or not. Doing it again is safe: the ids show what is stored"
    )
    found.__cause__ = error
    return found


def read_only(place: str) -> StoreReadOnly:
    """The error for a write to a store that can only be read."""
    return StoreReadOnly(
        f"{place}: expected a server that can be written, found a standby, or a store that was "
        "opened for reading; connect to the primary: list all servers in the URL and add "
        "target_session_attrs=read-write"
    )
