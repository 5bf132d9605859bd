"""What a session that mirrors an imported file takes, and what drafts ask of it in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eventctx.log.record import Draft

_ABOUT: Final = frozenset(("session:linked", "session:signed"))
"""Records about a session that change neither its conversation nor its turns."""

_ASKED: Final = {
    "context:message_added": "add a message",
    "context:messages_set": "set its messages",
    "context:set_ignored": "set its messages",
    "context:cleared": "clear it",
    "context:restored": "restore messages",
    "context:pinned": "pin messages",
    "context:unpinned": "unpin messages",
    "context:instruction_withdrawn": "take back an instruction",
    "context:system_prompt_set": "set its system prompt",
    "context:pre_compact": "compact it",
    "context:post_compact": "compact it",
    "context:request_prepared": "prepare a request",
    "context:request_sent": "record the request that was sent",
    "prompt:submit": "begin a turn",
}


def asked_of_mirror(drafts: Sequence[Draft]) -> str | None:
    """What drafts would do to a mirror, in words; None for those that a mirror takes."""
    for draft in reversed(drafts):
        if draft.type not in _ABOUT:
            return _ASKED.get(draft.type, f"record a {draft.type}")
    return None
