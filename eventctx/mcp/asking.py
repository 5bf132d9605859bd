"""Which session a call comes from, where its program says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eventctx.errors import InvalidSessionId
from eventctx.log.ids import check_session_id

_THREAD: Final = "threadId"
"""Codex 0.169 names the thread of a call in its ``_meta``; its rollout has the same id.

Claude Code 2.1.330 names none in a call. It starts the server with ``CLAUDE_CODE_SESSION_ID``, but
the server stays when the person goes on with another session, and then that id is an old one.
"""


def asking_session(meta: Mapping[str, Any] | None) -> str | None:
    """The id of the session that a call comes from; None where its program does not say."""
    found = None if meta is None else meta.get(_THREAD)
    if not isinstance(found, str):
        return None
    try:
        return check_session_id(found)
    except InvalidSessionId:
        return None
