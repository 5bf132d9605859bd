"""The figures of a whole store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from eventctx.errors import StoreError
from eventctx.log.events import ProviderResponse, SessionStart, UsageReported, takes_back
from eventctx.log.naming import iso
from eventctx.log.record import Record
from eventctx.log.store import EventStore, StoreDescription, StreamInfo
from eventctx.projections import figures, usage
from eventctx.queries.costs import CallCosts, CostSums, PriceTable, read_prices
from eventctx.queries.read_errors import ReadErrors
from eventctx.text import without_password

_SIZED: Final = figures.CHANGES.union(
    (
        "context:message_added",
        *("context:post_compact", "context:request_prepared", "usage:reported"),
    )
)
_STEP: Final = 1000


class LossRow(msgspec.Struct, frozen=True):
    """A handler's lost calls of one kind, ``error`` or ``dropped``; ``last`` is the latest time."""

    handler: str
    kind: str
    count: int
    last: str


class _HookFailure(Protocol):
    @property
    def handler(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def last(self) -> int: ...


class Stats(msgspec.Struct, frozen=True):
    """Figures of a store. ``tokens_saved`` sums the tokens that each compaction took out.

    ``tokens_saved_estimated`` is whether any of them is an estimate. ``calls_without_usage`` counts
    the model calls whose tokens are not recorded, ``copied_calls`` those that imported files hold
    more than once, which ``usage`` counts once, ``tool_calls_without_end`` the tool calls whose
    end is not, ``known`` the requests by how they are known. ``message_bytes`` are the JSON bytes
    of all messages, ``file_bytes`` the store's on disk, None where it is no file. ``description``
    is what the store says of itself, and what an acknowledged append survives there. ``losses`` is
    None where they cannot be read; the log may be sound all the same. ``costs`` are those of the
    calls in ``usage``.
    """

    store: str
    description: StoreDescription
    sessions: int
    forks: int
    records: int
    messages: int
    message_bytes: int
    turns: int
    requests: int
    known: dict[str, int]
    tool_calls: int
    compactions: int
    tokens_saved: int
    tokens_saved_estimated: bool
    calls_without_usage: int
    copied_calls: int
    tool_calls_without_end: int
    erased: int
    file_bytes: int | None
    types: dict[str, int]
    usage: dict[str, usage.UsageTotals]
    losses: tuple[LossRow, ...] | None
    costs: CallCosts


class _CopiedCalls:
    """Calls of imported sessions that another session holds, too: a resumed file begins with a copy
    of the one that it goes on from. A call is known by its answer's id and time."""

    def __init__(self) -> None:
        self._known: set[tuple[str, int]] = set()
        self.possible = False
        self._span: str | None = None

    def begin(self, start: SessionStart | None) -> None:
        """A session begins; only files of Claude Code hold copies and the ids to tell them by."""
        self.possible = start is not None and start.format == "claude-code"
        self._span = None

    def answered(self, record: Record, event: ProviderResponse | None) -> None:
        """Take an answer."""
        if event is not None and event.response_id is not None:
            key = event.response_id, record.time
            self._span = record.span_id if key in self._known else None
            self._known.add(key)

    def counts(self, record: Record) -> bool:
        """Whether a report of usage is that of a copied call."""
        return self._span is not None and record.span_id == self._span


class _Sums:
    """The sums over all records of a store, as far as they can be read: one session at a time."""

    def __init__(self, errors: ReadErrors, prices: PriceTable) -> None:
        self.costs = CostSums(prices)
        self.types: Counter[str] = Counter()
        self.known: Counter[str] = Counter()
        self.sessions = self.forks = 0
        self.messages = self.message_bytes = self.erased = 0
        self.compactions = self.tokens_saved = 0
        self.estimated = False
        self._taken_back: set[int] = set()
        self._copies = _CopiedCalls()
        self.copied_calls = 0
        self.used: usage.UsageState = usage.initial()
        self._sizes = figures.initial()
        self._errors = errors
        self._told = ReadErrors()  # what the sums of usage pass over, too, and tell

    def take(self, record: Record) -> None:
        """Take one record of the present session."""
        kind, bodies = record.type, record.bodies
        self.types[kind] += 1
        errors = self._errors
        if kind == "context:message_added" or kind == "context:messages_set":
            self.messages += len(bodies)
            self.message_bytes += sum([len(body.data or b"") for body in bodies])
        elif kind == "context:post_compact":
            self._note_taken_back(record)
        elif kind == "session:start":
            self._copies.begin(self._told.event(record))
        elif kind == "provider:response" and self._copies.possible:
            self._copies.answered(record, self._told.event(record))
        elif kind == "usage:reported" and self._copies.counts(record):
            self.copied_calls += 1
        elif kind == "usage:reported":
            self.used = errors.fold(usage.evolve, self.used, record)
            errors = self._told
            event = errors.event(record)
            if isinstance(event, UsageReported):
                self.costs.take(event)
        if kind in _SIZED:
            self._sizes = errors.fold(figures.evolve, self._sizes, record)
        if bodies:
            self.erased += sum([body.erased for body in bodies])

    def _note_taken_back(self, record: Record) -> None:
        event = self._told.event(record)
        if event is not None and takes_back(event):
            self._taken_back.add(record.position)

    def end(self, info: StreamInfo) -> None:
        """Add up a session, all of whose own records were taken."""
        found = figures.read(self._sizes)
        applied = [
            one
            for position, one in found.compactions.all().items()
            if position not in self._taken_back
        ]
        self._taken_back.clear()
        self._copies.begin(None)
        self.compactions += len(applied)
        self.tokens_saved += sum(one.taken_out for one in applied)
        self.estimated = self.estimated or any(one.estimated for one in applied)
        self.known.update(one.known for one in found.requests.all().values())
        self._sizes = figures.initial()
        if not info.deleted:
            self.sessions += 1
            self.forks += info.parent is not None


async def records_in(store: EventStore) -> int:
    """The number of records that are in a store; those of a fork's past are its parent's."""
    streams = store.streams()
    return sum([info.head - _inherited(info) async for info in streams if not info.deleted])


def _inherited(info: StreamInfo) -> int:
    """The last position that a session shares with the one that it was forked from; -1: none."""
    return -1 if info.forked_at is None else info.forked_at


async def stats_of(
    store: EventStore,
    url: str,
    path: Path | None,
    losses: Callable[[], Awaitable[Sequence[_HookFailure]]],
    errors: ReadErrors,
    done: Callable[[int], None] = lambda _: None,
    prices: PriceTable | None = None,
) -> Stats:
    """The figures of a store, which is named ``url`` and lies at ``path``.

    ``done`` is called with the number of records that were read. Losses that cannot be read are
    None, and what keeps them from it is noted in ``errors``. Costs are by ``prices``, or by the
    bundled table.
    """
    sums = _Sums(errors, prices or read_prices())
    count = 0
    async for info in store.streams():
        async for record in store.read(info.stream, start=_inherited(info) + 1):
            count += 1
            sums.take(record)
            if count % _STEP == 0:
                done(count)
        sums.end(info)
    types = sums.types
    return Stats(
        store=without_password(url),
        description=await store.describe(),
        sessions=sums.sessions,
        forks=sums.forks,
        records=sum(types.values()),
        messages=sums.messages,
        message_bytes=sums.message_bytes,
        turns=types["prompt:submit"],
        requests=types["context:request_prepared"],
        known=dict(sums.known),
        tool_calls=types["tool:pre"],
        compactions=sums.compactions,
        tokens_saved=sums.tokens_saved,
        tokens_saved_estimated=sums.estimated,
        copied_calls=sums.copied_calls,
        calls_without_usage=max(0, types["provider:request"] - types["usage:reported"]),
        tool_calls_without_end=max(0, types["tool:pre"] - types["tool:post"] - types["tool:error"]),
        erased=sums.erased,
        file_bytes=_bytes_of(path),
        types=dict(types.most_common()),
        usage=dict(sums.used.models),
        losses=await _losses(losses, errors),
        costs=sums.costs.all(),
    )


async def _losses(
    losses: Callable[[], Awaitable[Sequence[_HookFailure]]], errors: ReadErrors
) -> tuple[LossRow, ...] | None:
    try:
        found = await losses()
    except StoreError as error:
        errors.asides.append(str(error))
        return None
    return tuple([LossRow(one.handler, one.kind, one.count, iso(one.last)) for one in found])


def _bytes_of(path: Path | None) -> int | None:
    """Bytes of the store's file and of its write-ahead log; None without a file."""
    if path is None:
        return None
    parts = (path, path.with_name(path.name + "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())
