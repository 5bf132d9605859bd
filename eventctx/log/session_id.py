"""Which texts can name a session."""

from __future__ import annotations

import unicodedata

from eventctx.errors import InvalidSessionId

MAX_SESSION_ID = 256
"""Characters; hosts' own ids (UUIDs, W3C span pairs with an agent's name) stay far below."""

_PATH_CHARACTERS = frozenset("/\\")


def check_session_id(session: object) -> str:
    """Return a session id that can be used. Raises InvalidSessionId."""
    if not isinstance(session, str) or not session:
        raise InvalidSessionId(
            f"session id: expected a text of 1 or more characters, found {session!r}"
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
