"""Ids of sessions, turns, traces and spans, and the rules by which every reader derives the same.

A span id is 16 lowercase hex digits and a trace id 32, neither all zero: the W3C trace context's
forms. A turn that ran inside a host's trace has that trace's id in its record; the id of every
other turn is derived from the session and the turn. So a log line, a live span, and a span folded
from the log years later have the same id, although none of them knows of the others.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol, TypeGuard, runtime_checkable
from uuid import UUID

from eventctx.errors import InvalidSessionId, InvalidSetting
from eventctx.log.arguments import shown
from eventctx.text import pattern

_SPAN_ID: Final = pattern(r"[0-9a-f]{16}")
_TRACE_ID: Final = pattern(r"[0-9a-f]{32}")
_NO_SPAN: Final = "0" * 16
_NO_TRACE: Final = "0" * 32
_MAX_TURN_ID: Final = 256


class RecordIds(NamedTuple):
    """The place of a record in a session."""

    turn_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    iteration: int | None = None

    def child(self, span_id: str) -> RecordIds:
        """The ids of a span inside this one."""
        return RecordIds(self.turn_id, span_id, self.span_id, self.iteration)


class Random:
    """Random bytes for ids and salts, read from ``os.urandom`` 4 KiB at a time.

    A system call for every 16 bytes would cost more than the id is worth, and each one releases the
    interpreter's lock. Callable from any thread; a forked child drops the inherited bytes and reads
    its own.
    """

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._chunks.clear)

    def __call__(self, size: int) -> bytes:
        """``size`` random bytes."""
        if size == 16:
            try:
                return self._chunks.pop()
            except IndexError:
                block = os.urandom(4096)
                self._chunks.extend([block[at : at + 16] for at in range(16, 4096, 16)])
                return block[:16]
        return os.urandom(size)

    def __repr__(self) -> str:
        return "random_bytes"


random_bytes: Final = Random()
"""The process's source of random bytes."""


@runtime_checkable
class CurrentSpan(Protocol):
    """Makes one of the engine's spans the current one in the host's tracing system.

    Spans that an instrumented HTTP client starts between ``enter`` and ``exit`` then nest under
    ours. The engine's own ``async with`` blocks call both, in one task and never across a
    ``yield``; none of the three methods may raise.
    """

    def enter(self, session_id: str, trace_id: str, span_id: str) -> object:
        """Make the span current; returns the token for ``exit``."""
        ...

    def exit(self, token: object) -> None:
        """Restore the span that was current before the ``enter`` that returned ``token``."""
        ...

    def ambient(self) -> tuple[str, str] | None:
        """Return trace id and span id of the current span; None when there is none."""
        ...


@lru_cache(maxsize=4096)
def derive_trace_id(session_id: str, turn_id: str) -> str:
    """Return the trace id of a turn without an ambient trace: 32 hex digits, never all zero.

    BLAKE2b with 16 bytes over the two ids, a zero byte between them.
    """
    text = f"{session_id}\0{turn_id}".encode("utf-8", "surrogatepass")
    return _not_zero(blake2b(text, digest_size=16).hexdigest())


def derive_span_id(session_id: str, event_id: bytes) -> str:
    """Return a span id for an operation that was recorded without one: 16 hex digits, never zero.

    ``event_id`` is the id of the record that ended the operation. BLAKE2b with 8 bytes over the
    session id and the event id, a zero byte between them.
    """
    text = session_id.encode("utf-8", "surrogatepass") + b"\0" + event_id
    return _not_zero(blake2b(text, digest_size=8).hexdigest())


def new_span_id(random: Callable[[int], bytes] = os.urandom) -> str:
    """Return a fresh span id: 16 hex digits, never all zero. ``random(n)`` returns n bytes."""
    while (span_id := random(8).hex()) == _NO_SPAN:
        pass
    return span_id


def new_turn_id(random: Callable[[int], bytes]) -> str:
    """Return a fresh turn id: a random UUID (version 4) in 32 hex digits."""
    return UUID(bytes=random(16), version=4).hex


def is_turn_id(value: object) -> TypeGuard[str]:
    """Whether ``value`` is a text of 1 to 256 printable characters."""
    return isinstance(value, str) and 0 < len(value) <= _MAX_TURN_ID and value.isprintable()


def chosen_turn_id(turn_id: str | None, random: Callable[[int], bytes]) -> str:
    """Return the turn id that a caller gave, else a fresh one. Raises InvalidSetting."""
    if turn_id is None:
        return new_turn_id(random)
    if is_turn_id(turn_id):
        return turn_id
    raise InvalidSetting(
        f"turn_id: expected a text of 1 to {_MAX_TURN_ID} printable characters, "
        f"found {shown(turn_id)}"
    )


def is_span_id(text: str) -> bool:
    """Whether ``text`` is 16 lowercase hex digits that are not all zero."""
    return _SPAN_ID.fullmatch(text) is not None and text != _NO_SPAN


def is_trace_id(text: str) -> bool:
    """Whether ``text`` is 32 lowercase hex digits that are not all zero."""
    return _TRACE_ID.fullmatch(text) is not None and text != _NO_TRACE


def _not_zero(digits: str) -> str:
    return digits if digits.strip("0") else digits[:-1] + "1"


# -- sessions ------------------------------------------------------------------------------------

MAX_SESSION_ID: Final = 256
"""Most characters of a session id; hosts' ids (UUIDs, W3C span pairs with an agent's name) have
far fewer."""

_PATH_CHARACTERS = frozenset("/\\")

_STARTED_BY_AMPLIFIER: Final = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}_(.+)", re.DOTALL)


def check_session_id(session: object) -> str:
    """Return ``session`` if it is a valid session id. Raises InvalidSessionId otherwise."""
    if not isinstance(session, str) or not session:
        raise InvalidSessionId(
            f"session id: expected a text of 1 or more characters, found {shown(session)}"
        )
    if len(session) > MAX_SESSION_ID:
        raise InvalidSessionId(
            f"session id: expected at most {MAX_SESSION_ID} characters, found {len(session)}"
        )
    if session in (".", "..") or not _PATH_CHARACTERS.isdisjoint(session):
        raise InvalidSessionId(f"session id: expected no path (/, \\, ..), found {session!r}")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in session):
        raise InvalidSessionId(f"session id: expected no control characters, found {session!r}")
    return session


def agent_in(session: str) -> str | None:
    """The name of the agent in the id of a session that another one of Amplifier's started.

    Such an id is the span of the parent, that of the session, and the agent:
    ``0000000000000000-4f1c…_explorer``. None for every other id.
    """
    found = _STARTED_BY_AMPLIFIER.fullmatch(session)
    return None if found is None else found[1]
