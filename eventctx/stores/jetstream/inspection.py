"""Looks for damage outside of the sessions, and for sessions of which too little is left."""

from __future__ import annotations

import msgspec

from eventctx.errors import EventctxError, LogCorrupted
from eventctx.log.store import Inspection
from eventctx.stores.jetstream.layout import decode_registered, name_of
from eventctx.stores.jetstream.reading import Reader

_OF_SESSIONS = ("r", "b", "p", "e", "f")
_OF_SHARDS = ("n", "x", "d", "g", "t")


async def inspect(reader: Reader) -> Inspection:
    """See ``EventStore.inspect``. Asks the leader of every shard for every session's end."""
    findings: list[str] = []
    missing = 0
    for shard in range(reader.names.shards):
        stream = reader.names.stream(shard)
        try:
            await reader.heads.check(shard)
        except LogCorrupted as damage:
            findings.append(damage.problem)
        subject = reader.names.of_shard("n", shard)
        listed: set[str] = set()
        sequence = 1
        while True:
            page = await reader.asking.page(shard, subject, sequence)
            for message in page.messages:
                try:
                    entry = decode_registered(message.data)
                except msgspec.MsgspecError as error:
                    findings.append(f"{stream}: entry {message.sequence} of the registry: {error}")
                    continue
                if entry.deleted:
                    missing += entry.records
                    continue
                if entry.session in listed:
                    findings.append(f"{stream}: {entry.session!r} is in the registry twice")
                listed.add(entry.session)
                finding = await _end(reader, entry.session)
                if finding is not None:
                    findings.append(finding)
            if not page.pending:
                break
            sequence = page.messages[-1].sequence + 1
        findings += await _unlisted(reader, shard, listed)
    return Inspection(tuple(findings), missing)


async def _end(reader: Reader, session: str) -> str | None:
    """What is wrong with the end of a session that is in the registry."""
    try:
        head = await reader.heads.head(session)
    except LogCorrupted as damage:
        return damage.problem
    except EventctxError as error:
        return str(error)
    return None if head is not None else f"{session!r} is in the registry, and has no record"


async def _unlisted(reader: Reader, shard: int, listed: set[str]) -> list[str]:
    """Subjects of the shard's stream that no store writes, and sessions nobody registered."""
    findings: list[str] = []
    stream = reader.names.stream(shard)
    prefix = f"{reader.names.prefix}.{shard}."
    async for subject in reader.asking.subjects(shard):
        kind, _, written = subject.removeprefix(prefix).partition(".")
        if (kind in _OF_SESSIONS) is not bool(written) or kind not in _OF_SESSIONS + _OF_SHARDS:
            findings.append(f"{stream}: {subject!r} is a subject that no store writes")
        elif kind == "r" and name_of(written) not in listed:
            findings.append(f"{stream}: {name_of(written)!r} has records and is not registered")
    return findings
