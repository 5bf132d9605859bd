"""Many appends in one call of the server, and the outcome of each.

The client computes the digests, so it must know each stream's head before it sends. It guesses from
what it saw last. The server compares the guess with the head, and a guess that was wrong comes back
with the real head, for the next round. Of two writers at once the unique key of stream and position
lets one through; the other one's transaction begins again.

Invariant: an append is refused only because of a head that the server confirmed after the append
was made, and appends of one stream are decided in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from eventctx.errors import EventctxError, InvalidSetting, LogCorrupted
from eventctx.log.record import Draft, Record, place
from eventctx.log.store import NO_STREAM, Appended, Expected, Receipt
from eventctx.stores.ack import Ack, Outcome
from eventctx.stores.postgres import encoding
from eventctx.stores.postgres.batch import MOST_RECORDS, Batch, RunResult
from eventctx.stores.postgres.connections import ServerConnection
from eventctx.stores.postgres.queries import ServerQueries
from eventctx.stores.rules import accepts, chain, conflict, retried_at, same_ids

_MOST_CACHED: Final = 10_000

_HEADS: Final = """
SELECT s.name, s.id, r.position, r.digest, r.id FROM eventctx.streams s
LEFT JOIN LATERAL (SELECT r.position, r.digest, r.id FROM eventctx.records r
  WHERE r.stream = s.id ORDER BY r.position DESC LIMIT 1) r ON true
WHERE s.name = ANY($1)
"""


class KnownHead(NamedTuple):
    """A stream's row id and its last record's position, digest and event id."""

    stream: int
    position: int
    digest: bytes
    event: bytes


class KnownHeads:
    """The heads of streams, bounded; a stream that is known not to exist has None."""

    def __init__(self) -> None:
        self._heads: dict[str, KnownHead | None] = {}

    def __contains__(self, stream: str) -> bool:
        return stream in self._heads

    def __getitem__(self, stream: str) -> KnownHead | None:
        return self._heads[stream]

    def remember(self, stream: str, head: KnownHead | None) -> None:
        """Note a stream's head."""
        if len(self._heads) >= _MOST_CACHED:
            self._heads.clear()
        self._heads[stream] = head

    def forget(self, stream: str | None = None) -> None:
        """Drop one stream's head, or all."""
        if stream is None:
            self._heads.clear()
        else:
            self._heads.pop(stream, None)

    def fetch(self, connection: ServerConnection, streams: Iterable[str]) -> None:
        """Read the heads of ``streams``. Raises LogCorrupted for one that lost all its records."""
        for stream, head in read_heads(connection, streams).items():
            self.remember(stream, head)


def read_heads(connection: ServerConnection, streams: Iterable[str]) -> dict[str, KnownHead | None]:
    """The heads of streams as they are now; None for one that does not exist."""
    found: dict[str, KnownHead | None] = dict.fromkeys(streams)
    names = encoding.blobs(encoding.TEXTS, [encoding.text(stream) for stream in found])
    for name, stream, position, digest, event in connection.rows(
        _HEADS, (encoding.TEXTS,), (names,)
    ):
        name = encoding.from_text(name)
        if position is None:
            raise LogCorrupted(name, 0, "all records of the session were removed")
        found[name] = KnownHead(stream, position, digest, event)
    return found


MOST_BYTES: Final = 512 * 2**20
"""Most bytes of one append: the server takes no parameter above a gigabyte."""


class WaitingAppend:
    """An append that is not decided yet, and the positions at which it may have been stored.

    A connection that was lost may have stored it where the server's head was then; the place is
    looked at again before anything else.
    """

    __slots__ = ("ack", "drafts", "expected", "size", "stream", "tried")

    def __init__(
        self, ack: Ack[Any], size: int, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> None:
        self.ack = ack
        self.size = size
        self.stream = stream
        self.drafts = drafts
        self.expected = expected
        self.tried: list[int] = []


class _Run:
    """The outcome of a stream's appends in one call: final if the server accepts them."""

    __slots__ = ("decided", "head", "left", "number", "sent")

    def __init__(self, head: KnownHead | None) -> None:
        self.head = head
        """The stream's head after the sent records."""
        self.number = 0
        """The run's number in the batch; 0 while nothing of it is sent."""
        self.sent: list[tuple[WaitingAppend, int, int, list[bytes]]] = []
        self.decided: list[tuple[WaitingAppend, Appended | None, EventctxError | None]] = []
        self.left: list[WaitingAppend] = []


class Types:
    """Numbers of the types of events; they never change."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def learn(self, connection: ServerConnection, drafts: Iterable[Draft]) -> None:
        """Learn the numbers of the drafts' types, and give one to each new type."""
        numbers = self._numbers
        unknown = {draft.type for draft in drafts if draft.type not in numbers}
        if not unknown:
            return
        names = encoding.blobs(encoding.TEXTS, [encoding.text(name) for name in sorted(unknown)])
        connection.rows(
            "INSERT INTO eventctx.types(name) SELECT n FROM unnest($1) n WHERE NOT EXISTS "
            "(SELECT FROM eventctx.types t WHERE t.name = n) ON CONFLICT (name) DO NOTHING",
            (encoding.TEXTS,),
            (names,),
        )
        for number, name in connection.rows(
            "SELECT t.id, t.name FROM eventctx.types t WHERE t.name = ANY($1)",
            (encoding.TEXTS,),
            (names,),
        ):
            self._numbers[encoding.from_text(name)] = number

    def of(self, drafts: Iterable[Draft]) -> list[int]:
        """The numbers of the drafts' types."""
        return [self._numbers[draft.type] for draft in drafts]


class AppendRounds:
    """Decides appends, round by round, on one connection."""

    def __init__(self, connection: ServerConnection, heads: KnownHeads, types: Types) -> None:
        self._connection = connection
        self._queries = ServerQueries(connection)
        self._heads = heads
        self._types = types
        self._fresh: set[str] = set()

    def forget_fresh(self) -> None:
        """From now on no head counts as confirmed: appends come that were made later."""
        self._fresh.clear()

    def round(self, waiting: Sequence[WaitingAppend]) -> tuple[list[Outcome], list[WaitingAppend]]:
        """Make one call of the server; returns the decided outcomes, and the appends to try again.

        Raises ConnectionLost, when all may be stored, and Refused, when nothing is.
        """
        outcomes, waiting = self._look_up(waiting)
        batch = Batch()
        runs: dict[str, _Run] = {}
        for one in waiting:
            run = runs.get(one.stream)
            if run is None:
                run = runs[one.stream] = _Run(self._heads[one.stream])
            if run.left:
                run.left.append(one)  # appends of one stream keep their order
            else:
                self._consider(batch, run, one)
        first, found = batch.send(self._connection) if len(batch) else (0, {})
        left: list[WaitingAppend] = []
        for stream, run in runs.items():
            left += self._settled(stream, run, first, found.get(run.number), outcomes)
        if left:
            order = {id(one): number for number, one in enumerate(waiting)}
            left.sort(key=lambda one: order[id(one)])
        return outcomes, left

    def _look_up(
        self, waiting: Sequence[WaitingAppend]
    ) -> tuple[list[Outcome], list[WaitingAppend]]:
        """Read the heads that are not known; appends to a name that is no text fail at once."""
        outcomes: list[Outcome] = []
        fit: list[WaitingAppend] = []
        unknown: set[str] = set()
        for one in waiting:
            stream = one.stream
            if stream in self._heads:
                fit.append(one)
                continue
            if stream not in unknown:
                try:
                    encoding.text(stream)
                except UnicodeEncodeError as error:
                    refused = InvalidSetting(f"append to {stream!r}: its name is no text: {error}")
                    outcomes.append((one.ack, None, refused))
                    continue
                if not one.tried and one.expected in (NO_STREAM, -1):
                    self._heads.remember(stream, None)  # nearly always right; the server checks it
                else:
                    unknown.add(stream)
            fit.append(one)
        if unknown:
            self._heads.fetch(self._connection, unknown)
            self._fresh.update(unknown)
        return outcomes, fit

    def _consider(self, batch: Batch, run: _Run, one: WaitingAppend) -> None:
        """Send an append with the run, or decide it, or leave it for the next round."""
        head, drafts = run.head, one.drafts
        last = -1 if head is None else head.position
        accepted = accepts(one.expected, last, None if head is None else head.event)
        repeated = bool(head is not None and drafts and head.event == drafts[-1].id)
        if not accepted or repeated or one.tried:
            # A refusal, or a comparison with stored records, needs a confirmed head.
            if run.sent or one.stream not in self._fresh:
                if not run.sent:
                    self._heads.forget(one.stream)
                run.left.append(one)
                return
            done = self._stored_before(one, last)
            if done is not None:
                run.decided.append((one, done, None))
                return
        try:
            if not accepted:
                raise conflict(one.stream, one.expected, last)
            _check_size(one)
            digests = chain(one.stream, None if head is None else head.digest, last + 1, drafts)
        except EventctxError as error:
            run.decided.append((one, None, error))
            return
        if len(batch) + len(drafts) > MOST_RECORDS:
            run.left.append(one)
            return
        self._send(batch, run, one, digests)

    def _send(self, batch: Batch, run: _Run, one: WaitingAppend, digests: list[bytes]) -> None:
        head, drafts = run.head, one.drafts
        first = 0 if head is None else head.position + 1
        self._types.learn(self._connection, drafts)
        number = None if head is None else head.stream
        if not run.number:
            previous = None if head is None else head.digest
            run.number = batch.run(number, one.stream, drafts[0].time, first, previous)
        ordinal = batch.add(run.number, first, drafts, self._types.of(drafts), digests)
        one.tried.append(first)
        run.sent.append((one, first, ordinal, digests))
        run.head = KnownHead(number or 0, first + len(drafts) - 1, digests[-1], drafts[-1].id)

    def _stored_before(self, one: WaitingAppend, last: int) -> Appended | None:
        """The records of an earlier try of this append; None if other records lie there."""
        count = len(one.drafts)
        named = retried_at(one.expected, last, count)
        for first in dict.fromkeys([*one.tried, *(() if named is None else (named,))]):
            if count and first + count - 1 <= last:
                done = stored(self._queries, one.stream, first, one.drafts)
                if done is not None:
                    return done
        return None

    def _settled(
        self, stream: str, run: _Run, first: int, found: RunResult | None, outcomes: list[Outcome]
    ) -> list[WaitingAppend]:
        """Take the server's answer about a run; returns the appends to try again."""
        if found is not None and not found.accepted:
            self._heads.remember(stream, _head_of(stream, found))
            self._fresh.add(stream)
            for one, position, _, _ in run.sent:
                one.tried.remove(position)
            again = [one for one, _, _, _ in run.sent] + [one for one, _, _ in run.decided]
            return again + run.left
        if run.decided:
            outcomes += [(one.ack, done, error) for one, done, error in run.decided]
        for one, position, ordinal, digests in run.sent:
            records = [
                place(draft, stream, position + n, first + ordinal + n, digest)
                for n, (draft, digest) in enumerate(zip(one.drafts, digests, strict=True))
            ]
            outcomes.append((one.ack, append_result(records), None))
        if run.sent and run.head is not None:
            made = run.head if found is None else run.head._replace(stream=found.stream)
            self._heads.remember(stream, made)
            self._fresh.add(stream)
        return run.left


def _check_size(one: WaitingAppend) -> None:
    count, size = len(one.drafts), one.size
    if count > MOST_RECORDS or size > MOST_BYTES:
        raise InvalidSetting(
            f"append to {one.stream!r}: expected at most {MOST_RECORDS} records and {MOST_BYTES} "
            f"bytes in one append, found {count} and {size}; make several appends of them"
        )


def _head_of(stream: str, found: RunResult) -> KnownHead | None:
    if found.head is None:
        raise LogCorrupted(stream, 0, "all records of the session were removed")
    assert found.digest is not None and found.event is not None  # noqa: S101 - columns
    return KnownHead(found.stream, found.head, found.digest, found.event)


def stored(
    queries: ServerQueries, stream: str, first: int, drafts: Sequence[Draft]
) -> Appended | None:
    """The records from ``first`` on, if they have the ids of ``drafts``; None if not."""
    found: list[Record] = []
    last = first + len(drafts) - 1
    while not found or found[-1].position < last:
        start = found[-1].position + 1 if found else first
        page = queries.page(stream, start, last, False, len(drafts), True).records
        if not page or not same_ids([r.id for r in page], drafts[start - first :][: len(page)]):
            return None
        found += page
    return append_result(found)


def append_result(records: Sequence[Record]) -> Appended:
    last = records[-1]
    return Appended(tuple(records), Receipt(last.stream, last.position, last.digest))
