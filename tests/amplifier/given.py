"""Reading the records that a session on the kernel left in its store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import eventctx
from eventctx.log.codec import decode_event
from eventctx.log.record import Record


async def records_of(path: Path, session: str = "session-1") -> list[Record]:
    """The session's records; it must verify."""
    async with eventctx.open(path) as engine:
        assert (await engine.verify(session)).ok
        return [record async for record in engine.records(session)]


def types(records: list[Record]) -> list[str]:
    """The types of records in order, without the session's start and messages."""
    left_out = ("session:start", "context:message_added")
    return [record.type for record in records if record.type not in left_out]


def events(records: list[Record], name: str) -> list[Any]:
    """The decoded events of one type."""
    return [decode_event(record) for record in records if record.type == name]


def spans(records: list[Record], name: str) -> list[Record]:
    """The records of one type."""
    return [record for record in records if record.type == name]


def unended(records: list[Record]) -> list[str]:
    """Beginnings without an end, and ends without a beginning, by type and span."""
    ends = {
        "prompt:submit": ("prompt:complete",),
        "provider:request": ("provider:response", "provider:error"),
        "tool:pre": ("tool:post", "tool:error"),
        "context:pre_compact": ("context:post_compact",),
        "plan:start": ("plan:end",),
    }
    wrong = []
    for began, ended in ends.items():
        for record in records:
            if record.type == began:
                found = [
                    one for one in records if one.span_id == record.span_id and one.type in ended
                ]
                if len(found) != 1:
                    wrong.append(f"{began} {record.span_id}: {[one.type for one in found]}")
    return wrong
