"""The rules for a session's id."""

from __future__ import annotations

import unicodedata

from eventctx.errors import InvalidSessionId
from eventctx.log.arguments import shown

MAX_SESSION_ID = 256
"""Most characters of a session id; hosts' ids (UUIDs, W3C span pairs with an agent's name) have
far fewer."""

_PATH_CHARACTERS = frozenset("/\\")


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
