"""Reading the records that a session on the kernel left in its store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import eventctx
from eventctx.log.codec import decode_event
from eventctx.log.record import Record

ENDS = {
    "prompt:submit": ("prompt:complete",),
    "provider:request": ("provider:response", "provider:error"),
    "tool:pre": ("tool:post", "tool:error"),
    "context:pre_compact": ("context:post_compact",),
    "plan:start": ("plan:end",),
}


async def records_of(
    path: Path, session: str = "session-1", *, bodies: bool = False
) -> list[Record]:
    """The session's records; it must verify, and what began in it must have ended once."""
    async with eventctx.open(path) as engine:
        assert (await engine.verify(session)).ok
        records = [one async for one in engine.records(session, bodies=bodies)]
    check_ends(records)
    return records


def check_ends(records: list[Record]) -> None:
    """Assert that what began has ended once."""
    for began in records:
        ends = [
            one.type
            for one in records
            if one.span_id == began.span_id and one.type in ENDS.get(began.type, ())
        ]
        assert len(ends) == (began.type in ENDS), f"{began.type} {began.span_id}: {ends}"


def bare(value: Any) -> Any:
    """A row, or a part of one, as Amplifier's command line saves it: without nulls and more."""
    if isinstance(value, dict):
        kept = [key for key in value if value[key] is not None and key != "thinking_block"]
        return {key: bare(value[key]) for key in kept}
    return [bare(one) for one in value] if isinstance(value, list) else value


def types(records: list[Record]) -> list[str]:
    """The types of records in order, without the session's start and messages."""
    left_out = ("session:start", "context:message_added")
    return [record.type for record in records if record.type not in left_out]


def spans(records: list[Record], name: str) -> list[Record]:
    """The records of one type."""
    return [record for record in records if record.type == name]


def events(records: list[Record], name: str) -> list[Any]:
    return [decode_event(record) for record in spans(records, name)]


async def audited(path: Path) -> Any:
    """The audit of the session, each of whose requests is made anew as it was sent."""
    async with eventctx.open(path) as engine:
        audit = await engine.audit("session-1")
        for row in audit.requests:
            assert (await engine.request_view("session-1", position=row.position)).verified
    return audit
