"""Histories of appends, reads and subscriptions, and a checker that knows nothing of stores.

A history is what clients saw: which appends they asked for, what they were answered, and what was
delivered to them. ``Stored`` is what is there when all faults are over. ``check`` compares both and
does no I/O, so each of its rules has a test with a history that breaks it (test_histories.py).

An append is *acknowledged*, *refused* (another writer was first, so it never happened), or
*unknown* (no answer until the end: it happened as a whole, or not at all).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from eventctx.log.record import GENESIS, Record, body_digest, follows

Outcome = Literal["acknowledged", "refused", "unknown"]

RULES = (
    *("lost", "duplicated", "gap", "chain broken", "content unsound", "one version twice"),
    *("half an append", "refused and there", "nobody's", "out of order"),
    *("log is not the streams", "short read", "not delivered", "delivered twice"),
    *("delivered out of order", "delivered and not there"),
)
"""Everything that can be wrong; each name is the ``rule`` of a finding."""


class Finding(NamedTuple):
    """A rule that does not hold, and where."""

    rule: str
    what: str


class Append(msgspec.Struct, frozen=True):
    """One append with its retries, as its writer saw it.

    ``expected`` is the last position that the writer had seen, -1 for a new stream. ``digests`` are
    those of the answer. Times are seconds of one clock.
    """

    writer: int
    stream: str
    expected: int
    ids: tuple[bytes, ...]
    began: float
    ended: float
    outcome: Outcome
    digests: tuple[bytes, ...] = ()
    first: int = -1
    """The position of its first record, as it was acknowledged."""


class Seen(NamedTuple):
    """A record as a subscriber got it, without its content."""

    stream: str
    position: int
    global_position: int
    id: bytes
    digest: bytes

    @classmethod
    def of(cls, record: Record) -> Seen:
        return cls(record.stream, record.position, record.global_position, record.id, record.digest)


class Look(msgspec.Struct, frozen=True):
    """A read of a whole stream that raised nothing: when it was asked for, and what it showed."""

    stream: str
    began: float
    records: tuple[Seen, ...]


class History(msgspec.Struct):
    """What all clients saw. ``delivered`` maps a subscriber's name to what it got, in order.

    A subscriber of one stream has a name that begins with ``session:`` and goes on with the stream.
    """

    appends: list[Append] = []
    looks: list[Look] = []
    delivered: dict[str, list[Seen]] = {}

    def acknowledged(self) -> list[Append]:
        return [one for one in self.appends if one.outcome == "acknowledged"]

    def longest_wait(self, since: float = 0.0) -> float:
        """The longest time from ``since`` on in which nothing was acknowledged, in seconds."""
        moments = sorted(one.ended for one in self.acknowledged() if one.ended >= since)
        if since:
            moments.insert(0, since)
        return max((b - a for a, b in pairwise(moments)), default=0.0)


class Stored(NamedTuple):
    """What a store holds in the end: every stream with its contents, and the log of them all."""

    streams: Mapping[str, Sequence[Record]]
    log: Sequence[Seen]


def check(
    history: History, stored: Stored, *, one_order: bool = True, fresh_reads: bool = True
) -> list[Finding]:
    """Everything that is wrong with a history; an empty list if nothing is.

    ``one_order``: a writer's appends to different streams stand in the log in the order in which it
    made them. ``fresh_reads``: a read that raises nothing shows all that had been acknowledged.
    """
    return [
        *_check_streams(stored),
        *_check_appends(history, stored),
        *_check_versions(history),
        *_check_writers(history, stored, one_order),
        *_check_log(stored),
        *_check_looks(history, fresh_reads),
        *_check_subscribers(history, stored),
    ]


def count(findings: Iterable[Finding]) -> Counter[str]:
    return Counter(one.rule for one in findings)


# -- what is stored --------------------------------------------------------------------------------


def _check_streams(stored: Stored) -> Iterator[Finding]:
    places: dict[bytes, list[tuple[str, int]]] = defaultdict(list)
    for stream, records in stored.streams.items():
        for expected, record in enumerate(records):
            if record.position != expected:
                yield Finding("gap", f"{stream}: {record.position} stands where {expected} should")
                break
        digest = GENESIS
        for record in records:
            places[record.id].append((stream, record.position))
            if not follows(digest, record):
                yield Finding("chain broken", f"{stream}@{record.position}")
            digest = record.digest
            for body in record.bodies:
                if body.data is None or body.salt is None:
                    yield Finding("content unsound", f"{stream}@{record.position}: none")
                elif body_digest(body.salt, body.data) != body.digest:
                    yield Finding("content unsound", f"{stream}@{record.position}")
    for where in places.values():
        if len(where) > 1:
            yield Finding("duplicated", f"one event at {where}")


def _check_appends(history: History, stored: Stored) -> Iterator[Finding]:
    at = {(name, one.position): one for name, own in stored.streams.items() for one in own}
    found = {(one.stream, one.id): one for one in at.values()}
    known: set[tuple[str, bytes]] = set()
    for append in history.appends:
        known |= {(append.stream, one) for one in append.ids}
        name = f"writer {append.writer}, {append.stream} after {append.expected}"
        if append.outcome == "acknowledged":
            if append.first != append.expected + 1:
                yield Finding("one version twice", f"{name}: acknowledged at {append.first}")
            wanted = zip(append.ids, append.digests, strict=True)
            for index, (event, digest) in enumerate(wanted, append.first):
                record = at.get((append.stream, index))
                if record is None or record.id != event or record.digest != digest:
                    yield Finding("lost", f"{name}: acknowledged at {index}")
            continue
        there = [found[append.stream, one] for one in append.ids if (append.stream, one) in found]
        if there and append.outcome == "refused":
            places = ", ".join(f"@{one.position}" for one in there)
            yield Finding("refused and there", f"{name}: {len(append.ids)} records, {places}")
        elif there:
            whole = [append.expected + 1 + index for index in range(len(append.ids))]
            if [one.position for one in there] != whole:
                yield Finding("half an append", f"{name}: {len(there)} of {len(whole)} records")
    for stream, event in found.keys() - known:
        yield Finding("nobody's", f"{stream}@{found[stream, event].position}")


def _check_log(stored: Stored) -> Iterator[Finding]:
    """The log of the whole store holds every record of every stream once, and rises."""
    places = [one.global_position for one in stored.log]
    if any(a >= b for a, b in pairwise(places)):
        yield Finding("log is not the streams", "global positions do not rise")
    log = Counter(stored.log)
    streams = Counter(Seen.of(one) for records in stored.streams.values() for one in records)
    for one in streams - log:
        yield Finding("log is not the streams", f"not in the log: {one.stream}@{one.position}")
    for one in log - streams:
        yield Finding("log is not the streams", f"only in the log: {one.stream}@{one.position}")


# -- what was answered -----------------------------------------------------------------------------


def _check_versions(history: History) -> Iterator[Finding]:
    """No two acknowledged appends expected the same version of a stream."""
    expected = Counter((one.stream, one.expected) for one in history.acknowledged())
    for (stream, version), times in expected.items():
        if times > 1:
            yield Finding("one version twice", f"{stream}: {times} appends after {version}")


def _check_writers(history: History, stored: Stored, one_order: bool) -> Iterator[Finding]:
    """What one writer was told of, one after the other, stands in that order."""
    placed = {
        (name, one.position): one.global_position
        for name, own in stored.streams.items()
        for one in own
    }
    last: dict[tuple[int, str], tuple[int, int]] = {}
    for append in sorted(history.acknowledged(), key=lambda one: one.began):
        here = placed.get((append.stream, append.first))
        if here is None:
            continue  # lost, which is another rule
        for scope in (append.stream, *([""] if one_order else [])):
            before = last.get((append.writer, scope), (-1, -1))
            place = (append.first if scope else here, here)
            if place[0] <= before[0] or place[1] <= before[1]:
                yield Finding("out of order", f"writer {append.writer}: {append.stream}")
            last[append.writer, scope] = place


def _check_looks(history: History, fresh_reads: bool) -> Iterator[Finding]:
    """A read that raises nothing has no gaps, and shows what was acknowledged before it began."""
    ends: dict[str, list[tuple[float, int, bytes]]] = defaultdict(list)
    for append in history.acknowledged():
        end = append.first + len(append.ids) - 1
        ends[append.stream].append((append.ended, end, append.digests[-1]))
    for look in history.looks:
        if [one.position for one in look.records] != list(range(len(look.records))):
            yield Finding("short read", f"{look.stream}: positions with gaps")
            continue
        wanted = [one for one in ends[look.stream] if fresh_reads and one[0] < look.began]
        for _, position, digest in wanted:
            if position >= len(look.records) or look.records[position].digest != digest:
                yield Finding(
                    "short read", f"{look.stream}: {len(look.records)} records, without {position}"
                )
                break


# -- what was delivered ----------------------------------------------------------------------------


def _check_subscribers(history: History, stored: Stored) -> Iterator[Finding]:
    """Each subscriber got exactly what is there, in order."""
    for name, got in history.delivered.items():
        stream = name.removeprefix("session:") if name.startswith("session:") else None
        there = [one for one in stored.log if stream in (None, one.stream)]
        times = Counter(got)
        for one in [one for one, often in times.items() if often > 1]:
            yield Finding("delivered twice", f"{name}: {one.stream}@{one.position}")
        for one in there:
            if one not in times:
                yield Finding("not delivered", f"{name}: {one.stream}@{one.position}")
        for one in times.keys() - set(there):
            yield Finding("delivered and not there", f"{name}: {one.stream}@{one.position}")
        place = [one.position if stream else one.global_position for one in got]
        if any(a > b for a, b in pairwise(place)):
            yield Finding("delivered out of order", name)
