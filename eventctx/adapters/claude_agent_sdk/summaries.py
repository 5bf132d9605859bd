"""Summaries of sessions: the SDK's own fold, as a projection with a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from eventctx.adapters.claude_agent_sdk.lines import TranscriptKey, entry_of, lines_in
from eventctx.log.store import EventStore, Snapshot

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionKey, SessionSummaryEntry

_VERSION: Final = 1
_NAME: Final = "claude-agent-sdk-summary"


async def summary_of(
    store: EventStore, transcript: TranscriptKey, mtime: int
) -> SessionSummaryEntry:
    """The summary of a main transcript, with the time of its last entry in milliseconds.

    The snapshot is named after the SDK's version, whose fold may change.
    """
    from claude_agent_sdk import __version__ as sdk
    from claude_agent_sdk import fold_session_summary

    name = f"{_NAME}-{sdk}"
    known = await store.load_snapshot(transcript.stream, name)
    if known is not None and known.version != _VERSION:
        known = None
    summary: Any = None if known is None else msgspec.json.decode(known.data)
    key: SessionKey = {"project_key": transcript.project, "session_id": transcript.session}
    last = None
    start = 0 if known is None else known.position + 1
    async for last in store.read(transcript.stream, start=start):
        entries: list[Any] = [entry_of(line) for line in lines_in(last)]
        summary = fold_session_summary(summary, key, entries)
    if last is not None:
        data = msgspec.json.encode(summary)
        snapshot = Snapshot(last.position, last.digest, _VERSION, data)
        store.save_snapshot(transcript.stream, name, snapshot)
    return cast("SessionSummaryEntry", {**summary, "mtime": mtime})
