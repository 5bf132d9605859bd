"""What a request that goes on with a conversation has of it, and what is new."""

from __future__ import annotations

from typing import Any, NamedTuple

from eventctx.importers.formats.cassettes import rows
from eventctx.importers.formats.cassettes.rows import Row

Shown = list[tuple[Row | None, dict[str, Any]]]
"""Rows of a conversation, each None for a new one, with the message that stands there now."""


class Continuation(NamedTuple):
    """What a request has: of the conversation, in order, and behind that.

    ``shown`` pairs a row of the conversation, or None, with the message that stands for it now.
    ``compacted`` are the messages that a compaction left; None without one. ``kept_from`` is the
    place from which on it left all.
    """

    shown: Shown
    new: list[dict[str, Any]]
    compacted: list[dict[str, Any]] | None = None
    kept_from: int | None = None


def aligned(known: list[Row], sent: list[dict[str, Any]], again: bool) -> Continuation | None:
    """A request's messages beside those of a conversation; None where it does not continue it.

    With ``again`` it may be the same request once more, as after an answer that failed.
    """
    shown: list[tuple[Row | None, dict[str, Any]]] = []
    at = 0
    for row in known:
        system = rows.is_system(row.message)
        while not system and at < len(sent) and rows.is_system(sent[at]):
            shown.append((None, sent[at]))
            at += 1
        if at < len(sent) and rows.is_(row, sent[at]):
            shown.append((row, sent[at]))
            at += 1
        elif not system and not rows.may_be_left_out(row):
            return None
    new = sent[at:]
    return Continuation(shown, new) if new or again else None
