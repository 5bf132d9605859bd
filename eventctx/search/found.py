"""The messages that a search of a store found, and their JSON.

A filter asks for more than words: who spoke, a tool, a failed result, a time. It is applied to the
messages themselves, since the index holds words and places alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from eventctx.errors import DecodeError, InvalidSetting, LogCorrupted
from eventctx.log.integrity import sound_bodies
from eventctx.log.naming import iso_or, message_name
from eventctx.log.store import Address, EventStore
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import Kind, decode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import Part, read_parts
from eventctx.messages.tool_rounds import name_called, own_id
from eventctx.projections import figures
from eventctx.search.index import Place
from eventctx.search.recall import Recall, Recalled

Role = Literal["system", "person", "host", "model", "result"]
"""``host``: a text in role user that a program wrote. ``result``: a tool's, in whichever role."""

_KINDS: Final[Mapping[Role, Kind]] = {
    "system": "system",
    "person": "human",
    "host": "user",
    "model": "assistant",
    "result": "result",
}
_READ_AT_ONCE: Final = 64
"""Calls that are read at a time; of a server that is one round trip."""


class MessageFilter(msgspec.Struct, frozen=True):
    """Messages of this ``role``, that call this ``tool`` or hold its result, with a failed result.

    ``since`` (inclusive) and ``until`` (exclusive) are UTC nanoseconds. A message without a time of
    its own passes neither. None and False ask for nothing.
    """

    role: Role | None = None
    tool: str | None = None
    errors: bool = False
    since: int | None = None
    until: int | None = None

    @property
    def asks(self) -> bool:
        """Whether it leaves out anything."""
        return self != MessageFilter()

    def in_time(self, place: Place) -> bool:
        """Whether the record at ``place`` is of the time asked for."""
        after = self.since is None or place.time >= self.since
        return after and (self.until is None or place.time < self.until)


def read_moment(text: str, *, is_end: bool = False) -> int:
    """UTC nanoseconds of ``2026-11-30`` or ``2026-11-30T14:00``; without an offset it is UTC.

    A day that is an end counts whole. Raises InvalidSetting.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidSetting(
            f"expected a day or a time such as 2026-11-30 or 2026-11-30T14:00, found {text[:40]!r}"
        ) from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    if is_end and len(text) <= len("2026-11-30"):
        moment += timedelta(days=1)
    return int(moment.timestamp()) * 10**9 + moment.microsecond * 1_000


EVERY: Final = MessageFilter()

Found = tuple[list[Recalled], dict[str, int | None]]
"""Messages, and the time in each session of records that the imported file has no time of."""


class FoundAnswer(msgspec.Struct, frozen=True):
    """A message that was found; its time is None where an imported file has none."""

    session: str
    name: str
    number: int
    position: int
    role: str
    time: str | None
    score: float
    snippet: str
    message: dict[str, Any]


async def find_messages(
    store: EventStore,
    recall: Recall,
    query: str,
    session: str | None,
    limit: int,
    only: MessageFilter = EVERY,
) -> Found:
    """The messages that match best; without words the latest of those that ``only`` lets through.

    Raises StreamNotFound, InvalidSessionId, InvalidSetting, StoreUnavailable.
    """
    if only.asks:
        found = []
        async with aclosing(_filtered(store, recall, query, session, only)) as passing:
            async for one in passing:
                found.append(one)
                if len(found) == limit:
                    break
    else:
        found = await recall.search(query, session, limit)
    sessions = {one.session for one in found}
    return found, {one: await _undated(store, one) for one in sessions}


async def count_messages(
    store: EventStore, recall: Recall, query: str, session: str | None, only: MessageFilter = EVERY
) -> int:
    """How many messages ``find_messages`` finds without a limit. Raises as it does."""
    if not only.asks:
        return await recall.count(query, session)
    count = 0
    async for _ in _filtered(store, recall, query, session, only):
        count += 1
    return count


async def _filtered(
    store: EventStore, recall: Recall, query: str, session: str | None, only: MessageFilter
) -> AsyncGenerator[Recalled, None]:
    """The matches of ``query`` that pass; without words all messages that do, the latest first.

    Raises StreamNotFound, InvalidSessionId, InvalidSetting, StoreUnavailable.
    """
    undated: dict[str, int | None] = {}
    callers: dict[str, _Callers] = {}
    by_time = only.since is not None or only.until is not None
    async for one in recall.matches(query, session, only.in_time):
        if by_time:
            if one.session not in undated:
                undated[one.session] = await _undated(store, one.session)
            if one.time == undated[one.session]:
                continue
        if only.role is not None and read_facts(one.message).kind != _KINDS[only.role]:
            continue
        parts = read_parts(one.message) if only.errors or only.tool is not None else []
        if only.errors and not any(part.failed for part in parts):
            continue
        if only.tool is not None:
            calls = callers.setdefault(one.session, _Callers(store, one.session))
            if only.tool.casefold() not in await calls.tools(one, parts):
                continue
        yield one


async def _undated(store: EventStore, session: str) -> int | None:
    """The time of the records of an imported file that has none: that of its import."""
    state = figures.initial()
    async for record in store.read(session, stop=0, bodies=False):
        state = figures.evolve(state, record)
    return figures.read(state).file.undated


class _Callers:
    """The tools of a session's calls: most results name the call alone."""

    def __init__(self, store: EventStore, session: str) -> None:
        self._store = store
        self._session = session
        self._places: dict[str, list[Address]] | None = None
        self._order: list[Address] = []
        self._names: dict[tuple[Address, str], str] = {}

    async def tools(self, message: Recalled, parts: Sequence[Part]) -> set[str]:
        """The names, folded, of the tools that a message calls or has results of."""
        found: set[str] = set()
        for part in parts:
            if part.kind not in ("call", "result", "hosted"):
                continue
            names = (
                [part.name]
                if part.name
                else [await self._called(one, message.position) for one in part.ids]
            )
            found |= {name.casefold() for name in names}
        return found

    async def _called(self, call: str, before: int) -> str:
        """The tool of the last call of this id up to a position; empty where there is none."""
        if name := name_called(call):
            return name
        if self._places is None:
            self._places = await self._read_places()
        places = [place for place in self._places.get(call, ()) if place.position <= before]
        if not places:
            return ""
        key = (places[-1], call)
        if key not in self._names:
            await self._read_names(places[-1])
        return self._names.setdefault(key, "")

    async def _read_names(self, place: Address) -> None:
        """Read the calls at a place, and at those before it: their results are asked about next."""
        end = bisect_right(self._order, place)
        some = [one for one in self._order[max(0, end - _READ_AT_ONCE) : end] if one != place]
        try:
            bodies = await sound_bodies(self._store, self._session, [*some, place])
        except LogCorrupted:  # what is damaged elsewhere says nothing of this one
            some = []
            bodies = await sound_bodies(self._store, self._session, [place])
        for at, body in zip([*some, place], bodies, strict=True):
            message = {} if body.data is None else decode_body(body.data)
            parts = read_parts(message) if isinstance(message, dict) else []
            for part in parts:
                if part.kind == "call":
                    self._names |= {(at, one): part.name or "" for one in part.ids}

    async def _read_places(self) -> dict[str, list[Address]]:
        found: dict[str, list[Address]] = defaultdict(list)
        async for record in self._store.read(self._session, bodies=False):
            for index, body in enumerate(record.bodies):
                try:
                    calls = decode_facts(body.facts).calls
                except DecodeError:
                    continue  # what cannot be read of one message says nothing of the others
                for call in calls:
                    found[own_id(call)].append(Address(record.position, index))
                if calls:
                    self._order.append(Address(record.position, index))
        return found


def found_answers(found: Found) -> list[FoundAnswer]:
    """The messages as JSON, the best first."""
    messages, undated = found
    return [
        FoundAnswer(
            one.session,
            message_name(one.number),
            one.number,
            one.position,
            one.role,
            iso_or(one.time, undated.get(one.session)),
            one.score,
            one.snippet,
            one.message,
        )
        for one in messages
    ]
