"""Verification: recompute every digest of a session or a whole store, and list the contradictions.

One pass from the first record to the head. Each record's digest is computed from its fields and
the digest of the record before it, so an edited, dropped, inserted or reordered record shows where
it is. The walk goes on from the stored digest, not from the computed one, so that one bad
record is one finding; it goes on after records that cannot be read, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec

from eventctx.errors import DecodeError, InvalidSetting, LogCorrupted, StreamNotFound
from eventctx.log.codec import decode_event, decode_known
from eventctx.log.events import SessionSigned, SessionStart
from eventctx.log.integrity import holds
from eventctx.log.naming import iso
from eventctx.log.record import GENESIS, Record, follows
from eventctx.log.store import EventStore, Receipt, StreamInfo
from eventctx.queries.verification import (
    ContentChecker,
    Findings,
    Signed,
    SnapshotChecker,
    Verification,
    VerificationAnswer,
    session_answer,
    sessions_gone,
    store_answer,
)
from eventctx.stores.location import open_store


async def verify(
    store: EventStore,
    stream: str,
    receipt: Receipt | Sequence[Receipt] | None = None,
    *,
    facts: bool = True,
) -> Verification:
    """Check a stream, fork parents included, from its first record to its last.

    Finds every edited, dropped, inserted or reordered record, and contents that are gone without a
    ``context:erased`` in the chain. A tail that was cut, or rewritten with new digests, shows only
    against a ``receipt`` (or several). No digest covers the facts of messages, on which views
    depend, and snapshots; they are made anew and compared, unless ``facts`` is false, which takes
    half the time. Raises StreamNotFound for a stream that is neither there nor in a receipt.
    """
    receipts = (receipt,) if isinstance(receipt, Receipt) else tuple(receipt or ())
    walk = _Walk(store, stream, receipts, facts)
    try:
        info = await store.head(stream)
    except LogCorrupted as error:
        walk.found.report(error.position, "unreadable", error.problem)
        return walk.result()
    if info is None and not receipts:
        raise StreamNotFound(stream)
    await walk.all(info)
    return walk.result()


class _Walk:
    """The state of one walk over the records of a stream; lives only inside ``verify``."""

    def __init__(
        self, store: EventStore, stream: str, receipts: Sequence[Receipt], facts: bool
    ) -> None:
        self.store = store
        self.stream = stream
        self.found = Findings()
        self.contents = ContentChecker(self.found, facts)
        self.snapshots = SnapshotChecker(self.found) if facts else None
        self.signatures = SignatureChecker(self.found)
        self.position = -1
        self.previous: bytes | None = GENESIS
        self.records = 0
        self._fork: int | None = None
        self._imported_at: int | None = None
        self._receipts = receipts
        self._met: dict[int, bytes] = {}
        self._wanted = {receipt.position for receipt in receipts}

    async def all(self, info: StreamInfo | None) -> None:
        """Check everything, and the receipts at the end."""
        if info is None:
            self.found.report(-1, "missing", "the session is not in the store")
        elif info.deleted:
            await self._tombstone(info)
        elif info.head < 0:
            self.found.report(0, "missing", "all records of the session were removed")
        else:
            await self._records(info)
            self._check_origin(info)
        self._compare_receipts(info)

    async def _records(self, info: StreamInfo) -> None:
        if self.snapshots is not None:
            await self.snapshots.load(self.store, info)
        # Not past the head that was read first: a live session grows meanwhile.
        start = 0
        while start <= info.head:
            try:
                async for record in self.store.read(self.stream, start=start, stop=info.head):
                    self._take(record)
                    start = record.position + 1
                break
            except LogCorrupted as error:
                if error.position < 0:
                    self.found.report(error.position, "unreadable", error.problem)
                    break
                start = self._pass_over(max(start, error.position), error)
        self._end(info)
        await self.contents.end(self.store, info)

    def _take(self, record: Record) -> None:
        self.records += 1
        expected = self.position + 1
        if record.position != expected:
            gap = f"positions {expected} to {record.position - 1} are missing"
            self.found.report(expected, "missing", gap)
        elif self.previous is not None and not follows(self.previous, record):
            self.found.report(
                record.position,
                "record",
                f"the {record.type} does not have the digest that follows from its fields and "
                "the record before: it was edited, inserted, or stands in another's place",
            )
        self.contents.take(record)
        if record.type == "session:signed":
            self.signatures.take(record, self.previous)
        if self.snapshots is not None and self.snapshots.waits:
            if self.found.problems:
                self.snapshots.give_up()
            self.snapshots.take(record)
        if record.type == "session:fork":
            self._fork = record.position
        if record.position == 0 and record.type == "session:start":
            self._imported_at = _imported_at(record)
        if record.position in self._wanted:
            self._met[record.position] = record.digest
        # The stored digest, not the computed one: else one bad record would condemn all later ones.
        self.previous = record.digest
        self.position = record.position

    def _pass_over(self, position: int, error: LogCorrupted) -> int:
        """Note a record that cannot be read, and return the position to go on from."""
        if position > self.position + 1:
            gap = f"positions {self.position + 1} to {position - 1} are missing"
            self.found.report(self.position + 1, "missing", gap)
        self.found.unreadable(position, error.problem)
        if self.snapshots is not None:
            self.snapshots.give_up()
        self.previous = None
        self.position = position
        return position + 1

    def _end(self, info: StreamInfo) -> None:
        if info.head > self.position:
            gap = f"positions {self.position + 1} to {info.head} are missing at the end"
            self.found.report(self.position + 1, "missing", gap)
        elif self.previous is not None and info.digest != self.previous:
            what = "the stream's head does not name its last record"
            self.found.report(self.position, "head", what)

    def _check_origin(self, info: StreamInfo) -> None:
        """A fork's first own record says that it is one; a fork that was moved has no parent."""
        if info.forked_at is not None and info.forked_at + 1 != self._fork:
            text = (
                f"the store says that it was forked from {info.parent!r} at {info.forked_at}, its "
                "records do not"
            )
            self.found.report(-1, "head", text)

    async def _tombstone(self, info: StreamInfo) -> None:
        """Check the one record that is left of a deleted session."""
        async for record in self.store.read(self.stream, start=info.head):
            self.records += 1
            self.position, self.previous = record.position, record.digest
            if record.position in self._wanted:
                self._met[record.position] = record.digest
            try:
                event = decode_known(record)
                before = bytes.fromhex(event.digest)
            except (DecodeError, ValueError) as error:
                self.found.report(record.position, "record", f"the deletion is damaged: {error}")
                return
            if record.position != event.position + 1 or not follows(before, record):
                what = "the record of the deletion does not follow from what was deleted"
                self.found.report(record.position, "record", what)
            self.found.deleted = event.records

    def _compare_receipts(self, info: StreamInfo | None) -> None:
        for receipt in self._receipts:
            digest = self._met.get(receipt.position)
            if digest == receipt.digest:
                continue
            self.found.report(receipt.position, "receipt", self._mismatch(receipt, digest, info))

    def _mismatch(self, receipt: Receipt, digest: bytes | None, info: StreamInfo | None) -> str:
        if digest is not None:
            what = "history up to here was rewritten"
            return f"the receipt names another digest: {what}{self._imported_anew()}"
        if info is not None and info.deleted:
            return f"the receipt is for position {receipt.position}, the session was deleted"
        if info is None or info.head < 0:
            return f"the receipt is for position {receipt.position}, and nothing is left"
        if receipt.position <= self.position:
            return f"the record at position {receipt.position}, which the receipt names, is gone"
        return (
            f"the receipt is for position {receipt.position}, the stream ends at "
            f"{self.position}: the tail was cut{self._imported_anew()}"
        )

    def _imported_anew(self) -> str:
        """What else may have made a receipt wrong: a file is imported in any store that has it."""
        if self._imported_at is None:
            return ""
        return (
            f"; or another program deleted it and imported its file anew (it was imported on "
            f"{iso(self._imported_at)})"
        )

    def result(self) -> Verification:
        """The findings so far."""
        digest = self.previous or b""
        return Verification(
            self.stream,
            self.records,
            self.contents.erased,
            tuple(self.found.problems),
            Receipt(self.stream, self.position, digest),
            self.found.deleted,
            tuple(self.signatures.signed),
        )


def _imported_at(start: Record) -> int | None:
    """When a session was imported; None for any other, and where that cannot be read."""
    try:
        event = decode_known(start)
    except DecodeError:
        return None
    return event.imported_at if isinstance(event, SessionStart) else None


class SignatureChecker:
    """Takes the records of a stream in order; ``signed`` are the signatures that hold."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self.signed: list[Signed] = []

    def take(self, record: Record, previous: bytes | None) -> None:
        """Check a ``session:signed``; ``previous`` is the digest of the record before it."""
        try:
            event = decode_event(record)
            if not isinstance(event, SessionSigned):
                return  # of a later release
            before = record.position - 1, (previous or b"").hex()
            if (event.position, event.digest) == before and holds(event):
                self.signed.append(Signed(event.position, event.public_key))
                return
            problem = "the signature is not that of its key over the records before it"
        except DecodeError as error:
            problem = str(error)
        except InvalidSetting as error:
            problem = f"the signature cannot be checked: {error}"
        self._found.report(record.position, "signature", problem)


Began = Callable[[str, int, int], None]
"""Gets the name of a session, the number of those that are done, and that of all."""


class StoreVerification(msgspec.Struct, frozen=True):
    """The outcome for every session, and the problems that belong to none of them."""

    sessions: tuple[Verification, ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True when nothing was found anywhere."""
        return not self.problems and all(one.ok for one in self.sessions)


def verification_answers(checked: StoreVerification) -> list[VerificationAnswer]:
    """A row for each session, and one without a name for what is wrong with the store itself."""
    rows = [session_answer(one) for one in checked.sessions]
    return [*rows, store_answer(checked.problems)] if checked.problems else rows


async def verify_store(
    store: EventStore,
    receipts: Mapping[str, Receipt],
    *,
    facts: bool = True,
    began: Began | None = None,
) -> StoreVerification:
    """Verify every session, those in ``receipts`` that are gone included, and the store itself.

    Damage never ends it. ``began`` is called with each session's name, the number of sessions that
    are done, and that of all.
    """
    sessions: list[Verification] = []
    problems: list[str] = []
    async for found in verifications(store, receipts, facts=facts, began=began):
        if isinstance(found, Verification):
            sessions.append(found)
        else:
            problems.append(found)
    return StoreVerification(tuple(sessions), tuple(problems))


async def verifications(
    store: EventStore,
    receipts: Mapping[str, Receipt],
    *,
    facts: bool = True,
    began: Began | None = None,
) -> AsyncIterator[Verification | str]:
    """Yield what ``verify_store`` finds: every session, then each problem of the store.

    Several sessions that have receipts and are gone are one problem of the store.

    Any number of sessions takes the memory of the largest, and of ``receipts``.
    """
    # Looked at first: what other processes append meanwhile cannot be missing then.
    inspection = await store.inspect()
    gone = set(receipts)
    count = deleted = 0
    if began is not None:
        async for info in store.streams():
            gone.discard(info.stream)
            count += 1
        count += len(gone)
        gone = set(receipts)
    done = 0
    async for name in _names(store, gone):
        if began is not None:
            began(name, done, count)
        one = await verify(store, name, receipts.get(name), facts=facts)
        deleted += one.deleted
        done += 1
        yield one
    if len(gone) > 1:
        # A store that was removed is one finding, not one a session.
        yield f"{sessions_gone(gone)}; if you removed it on purpose, delete its receipts"
    for finding in inspection.findings:
        yield finding
    missing = inspection.missing - deleted
    if missing > 0:
        yield f"{missing} records that were once stored are in no session"


async def _names(store: EventStore, known: set[str]) -> AsyncIterator[str]:
    """The names of all streams, then the one that only ``known`` names, where there is just one.

    What is left of ``known`` are the others.
    """
    async for info in store.streams():
        known.discard(info.stream)
        yield info.stream
    if len(known) == 1:
        yield next(iter(known))


KEPT_TWICE: Final = (
    "back it up with the server's own tools, and check what they restore with `eventctx verify`, "
    "or copy its sessions into a file: `eventctx copy URL FILE`"
)
"""Advice for a store on a server, which has no file to copy."""


@runtime_checkable
class _Copied(Protocol):
    async def backup(self, path: Path) -> None: ...


async def back_up(
    store: EventStore, path: Path, receipts: Mapping[str, Receipt]
) -> StoreVerification:
    """Copy a store to the new file ``path``, and verify the copy, which stays whatever is found.

    ``receipts`` were noted before the call, so the copy must hold what they are for. Raises
    InvalidSetting for a store that is no file, and what ``SqliteStore.backup`` raises.
    """
    if not isinstance(store, _Copied):
        raise InvalidSetting(f"backup: expected a store in a file, found {await _found(store)}")
    await store.backup(path)
    return await verify_file(path, receipts)


async def _found(store: EventStore) -> str:
    """The kind of a store that is no file, and another way to keep its sessions twice."""
    described = await store.describe()
    if described.kind == "memory":
        return "one that is in memory only"
    return f"one on a server ({described.kind}); {KEPT_TWICE}"


async def verify_file(path: Path, receipts: Mapping[str, Receipt]) -> StoreVerification:
    """Verify the store in a file that is not in use yet. Raises what opening a store raises."""
    copy = await open_store(f"sqlite:///{path}", create=False)
    try:
        return await verify_store(copy, receipts)
    finally:
        await copy.close()
