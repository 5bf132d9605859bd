"""A store of conversations for Pydantic AI, in the log.

A conversation is a session of its own, apart from the one that records its runs. Its messages
are the record of the conversation and all its entries, those of the branches it left included. A
save sets them in one append, of which only what is new takes room.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from eventctx.adapters.kit.given_engine import GivenEngine
from eventctx.adapters.pydantic_ai.rows import Row, messages_of, rows_of
from eventctx.engine import Engine
from eventctx.errors import StreamNotFound, WrongExpectedVersion
from eventctx.session.context import Context

PREFIX: Final = "pydantic-ai."
"""Prefix of the id of a conversation's session; the conversation's own id follows."""

MAX_CONVERSATIONS: Final = 64
"""Most conversations whose entries are held, to be found by their ids alone."""

_RECORD: Final = "pydantic_ai_record"
_ENTRY: Final = "pydantic_ai_entry"
_RECORDS: Final = TypeAdapter(ConversationRecord)


class _Stored(NamedTuple):
    """The content of a session: the conversation's record, and the rows of each entry by its id."""

    record: ConversationRecord
    entries: dict[str, list[Row]]


class EventctxConversations(ConversationStore):
    """Keeps conversations in a store of eventctx: ``load`` before a run, ``save`` after it.

    ``engine``: an engine, for its event loop and others; or the path or URL of a store, which is
    opened in a thread of its own until ``close``. A deleted conversation no longer loads; its
    history stays in the log until ``engine.delete`` or ``engine.erase`` destroys it. Raises
    InvalidSessionId for a ``conversation_id`` that no session can have.
    """

    def __init__(self, engine: Engine | str | os.PathLike[str]) -> None:
        self._given = GivenEngine(engine, "pydantic-ai")
        self._held: OrderedDict[str, dict[str, list[Row]]] = OrderedDict()
        self._writing = asyncio.Lock()

    def close(self) -> None:
        """Close the store that was opened here. An engine that was given stays open."""
        self._given.close()

    # -- Pydantic AI's primitives ----------------------------------------------------------------

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation; None if it is not stored."""
        stored = await self._given.run(self._stored_in(conversation_id))
        return None if stored is None else stored.record

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """The records of a scope, or all, the last saved first. Reads every conversation."""

        async def read() -> list[ConversationRecord]:
            names = [one async for one in self._names()]
            found = [await self._stored_in(name) for name in names]
            return [one.record for one in found if one is not None]

        records = await self._given.run(read())
        chosen = [one for one in records if scope is None or one.scope == scope]
        return sorted(chosen, key=lambda one: one.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries, in one append. Raises ConversationConflict."""
        new = {
            entry.id: _rows_of(entry, rows)
            for entry, rows in zip(
                new_entries, rows_of([one.message for one in new_entries], whole=True), strict=True
            )
        }
        await self._given.run(self._write(record, new, expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Make a conversation one that is not stored. Raises ConversationConflict."""
        await self._given.run(self._delete(conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """The entry of this id. Raises LookupError."""
        return _entry(entry_id, await self._given.run(self._rows(entry_id)))

    # -- in the engine's loop --------------------------------------------------------------------

    async def _names(self) -> Any:
        async for info in self._given.engine.each_session():
            if info.stream.startswith(PREFIX):
                yield info.stream.removeprefix(PREFIX)

    async def _stored_in(self, conversation: str) -> _Stored | None:
        try:
            found = await self._given.engine.transcript(PREFIX + conversation)
        except StreamNotFound:
            return None
        # An erased message is None; who follows the history to its entry gets a LookupError.
        return self._hold(conversation, [one.message for one in found if one.message is not None])

    def _hold(self, conversation: str, rows: Sequence[Row]) -> _Stored | None:
        stored = _stored(rows)
        self._held.pop(conversation, None)
        if stored is not None:
            self._held[conversation] = stored.entries
            if len(self._held) > MAX_CONVERSATIONS:
                self._held.popitem(last=False)
        return stored

    async def _rows(self, entry_id: str) -> list[Row]:
        for entries in reversed(self._held.values()):
            if entry_id in entries:
                return entries[entry_id]
        async for name in self._names():
            stored = await self._stored_in(name)
            if stored is not None and entry_id in stored.entries:
                return stored.entries[entry_id]
        raise LookupError(
            f"expected a stored entry, found none of the id {entry_id!r}: it was erased"
        )

    async def _opened(
        self, conversation: str, expected: str | None
    ) -> tuple[Context, _Stored | None]:
        """The session as it is in the store now, whoever wrote it, if its revision is expected."""
        context = await self._given.engine.session(PREFIX + conversation)
        stored = self._hold(conversation, await context.get_messages())
        if (None if stored is None else stored.record.revision) != expected:
            raise ConversationConflict(conversation)
        return context, stored

    async def _write(
        self, record: ConversationRecord, new: dict[str, list[Row]], expected: str | None
    ) -> None:
        conversation = record.conversation_id
        async with self._writing:
            context, stored = await self._opened(conversation, expected)
            entries = {**(stored.entries if stored is not None else {}), **new}
            if record.head_id is not None and record.head_id not in entries:
                entries = {**await self._line(record.head_id, conversation), **entries}
            rows = [_record_row(record), *[row for one in entries.values() for row in one]]
            await _set(context, rows, conversation)
            self._hold(conversation, rows)

    async def _line(self, head: str, conversation: str) -> dict[str, list[Row]]:
        """The entries up to one of another conversation, which a fork shares, oldest first."""
        line: dict[str, list[Row]] = {}
        at: str | None = head
        try:
            while at is not None:
                line[at] = await self._rows(at)
                at = line[at][0][_ENTRY]["parent_id"]
        except LookupError:
            raise ConversationConflict(conversation) from None
        return dict(reversed(line.items()))

    async def _delete(self, conversation: str, expected: str) -> None:
        async with self._writing:
            context, _ = await self._opened(conversation, expected)
            await _set(context, [], conversation)
            self._held.pop(conversation, None)


async def _set(context: Context, rows: Sequence[Row], conversation: str) -> None:
    try:
        await context.set_messages(rows)
    except WrongExpectedVersion as error:
        raise ConversationConflict(conversation) from error


def _record_row(record: ConversationRecord) -> Row:
    fields = _RECORDS.dump_python(record, mode="json")
    text = f"Conversation {record.conversation_id}."
    return {"role": "system", "content": text, _RECORD: fields}


def _rows_of(entry: ConversationEntry, rows: Sequence[Row]) -> list[Row]:
    """An entry's rows; the first one says which entry it is."""
    first, *rest = rows
    return [{**first, _ENTRY: {"id": entry.id, "parent_id": entry.parent_id}}, *rest]


def _stored(rows: Sequence[Row]) -> _Stored | None:
    if not rows:
        return None
    record = _RECORDS.validate_python(rows[0][_RECORD])
    return _Stored(record, {one[0][_ENTRY]["id"]: one for one in _by_entry(rows[1:])})


def _by_entry(rows: Sequence[Row]) -> Iterator[list[Row]]:
    starts = [at for at, row in enumerate(rows) if _ENTRY in row]
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        yield list(rows[start:end])


def _entry(entry_id: str, rows: Sequence[Row]) -> ConversationEntry:
    (message,) = messages_of(rows)
    return ConversationEntry(id=entry_id, parent_id=rows[0][_ENTRY]["parent_id"], message=message)
