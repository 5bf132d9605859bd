"""The rules for a session's id."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from eventctx.errors import InvalidSessionId
from eventctx.log.arguments import shown

MAX_SESSION_ID = 256
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
