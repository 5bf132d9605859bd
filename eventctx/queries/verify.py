"""Verification: recompute every digest of a stream and list the contradictions.

One pass from the first record to the head. Each record's digest is computed from its fields and
the digest of the record before it, so an edited, dropped, inserted or reordered record shows where
it stands. The walk goes on from the stored digest, not from the computed one, so that one bad
record is one finding.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Literal

import msgspec

from eventctx.errors import EventctxError, LogCorrupted
from eventctx.log.record import GENESIS, Body, Record, chain_digest
from eventctx.log.store import EventStore, Receipt
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import READER, decode_facts, encode_facts
from eventctx.messages.facts_reader import read_facts

ProblemKind = Literal["record", "body", "facts", "missing", "head", "receipt", "unreadable"]


class Problem(msgspec.Struct, frozen=True):
    """One finding: the position of the record, the kind, and a text for people."""

    position: int
    kind: ProblemKind
    text: str


class Verification(msgspec.Struct, frozen=True):
    """The outcome of a verification.

    ``records`` were read, ``erased`` bodies were erased on purpose. ``receipt`` is for the stream
    as it stands; keep it outside the store.
    """

    stream: str
    records: int
    erased: int
    problems: tuple[Problem, ...]
    receipt: Receipt

    @property
    def ok(self) -> bool:
        """True when nothing was found."""
        return not self.problems


MAX_PROBLEMS = 1_000
"""The most findings that are listed; a thoroughly damaged log has one per record."""


async def verify(
    store: EventStore, stream: str, receipt: Receipt | None = None, *, facts: bool = True
) -> Verification:
    """Check a stream, fork parents included, from its first record to its last.

    Finds every edited, dropped, inserted or reordered record. A tail that was cut, or rewritten
    with new digests, shows only against ``receipt``. No digest covers the facts of messages, on
    which views depend, so they are read anew and compared, unless ``facts`` is false, which takes
    half the time. Raises StreamNotFound.
    """
    info = await store.head(stream)
    checker = _Checker(stream, receipt, facts)
    try:
        # Not past the head that was read first: a live session grows meanwhile.
        async for record in store.read(stream, stop=None if info is None else info.head):
            checker.take(record)
    except LogCorrupted as error:
        checker.report(error.position, "unreadable", error.problem)
    if info is not None:
        checker.finish(info.head, info.digest)
    head, digest = checker.position, checker.previous
    return Verification(
        stream,
        checker.records,
        checker.erased,
        tuple(checker.problems),
        Receipt(stream, head, digest),
    )


def _facts_are_true(facts: bytes, data: bytes) -> bool:
    """Whether stored facts equal those that this reader reads; another reader's count as true."""
    try:
        stored = decode_facts(facts)
        if stored.reader != READER:
            return True
        if stored.tokens:
            # Without the tokenizer its count cannot be made again, so it is not compared.
            facts = encode_facts(msgspec.structs.replace(stored, tokens=0))
        return encode_facts(read_facts(decode_body(data))) == facts
    except (EventctxError, msgspec.DecodeError):
        return False


class _Checker:
    """The state of one walk over the records of a stream; lives only inside ``verify``."""

    def __init__(self, stream: str, receipt: Receipt | None, facts: bool) -> None:
        self.stream = stream
        self._facts = facts
        self.receipt = receipt
        self.position = -1
        self.previous = GENESIS
        self.records = 0
        self.erased = 0
        self.problems: list[Problem] = []
        self._met_receipt = False

    def report(self, position: int, kind: ProblemKind, text: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(position, kind, text))

    def take(self, record: Record) -> None:
        self.records += 1
        expected = self.position + 1
        if record.position != expected:
            gap = f"positions {expected} to {record.position - 1} are missing"
            self.report(expected, "missing", gap)
        elif chain_digest(self.previous, record.position, record) != record.digest:
            self.report(
                record.position,
                "record",
                f"the {record.type} does not have the digest that follows from its fields and "
                "the record before: it was edited, inserted, or stands in another's place",
            )
        for index, body in enumerate(record.bodies):
            salt, data = body.salt, body.data
            if salt is None or data is None or sha256(salt + data).digest() != body.digest:
                self._report_body(record.position, index, body)
            elif self._facts and body.facts and not _facts_are_true(body.facts, data):
                text = f"the facts of body {index} are not those of its message"
                self.report(record.position, "facts", text)
        if self.receipt is not None and record.position == self.receipt.position:
            self._met_receipt = True
            if record.digest != self.receipt.digest:
                self.report(
                    record.position,
                    "receipt",
                    "the receipt names another digest: history up to here was rewritten",
                )
        # The stored digest, not the computed one: else one bad record would condemn all later ones.
        self.previous = record.digest
        self.position = record.position

    def _report_body(self, position: int, index: int, body: Body) -> None:
        if body.data is not None and body.salt is not None:
            self.report(position, "body", f"body {index} was edited")
        elif body.erased:
            self.erased += 1
        else:
            self.report(position, "body", f"body {index} is missing without being erased")

    def finish(self, head: int, digest: bytes) -> None:
        if head > self.position:
            gap = f"positions {self.position + 1} to {head} are missing at the end"
            self.report(self.position + 1, "missing", gap)
        elif head != self.position or digest != self.previous:
            self.report(self.position, "head", "the stream's head does not name its last record")
        if self.receipt is not None and not self._met_receipt:
            self.report(
                self.receipt.position,
                "receipt",
                f"the receipt is for position {self.receipt.position}, the stream ends at "
                f"{self.position}: the tail was cut",
            )
