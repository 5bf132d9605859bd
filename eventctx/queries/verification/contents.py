"""Checks of bodies: their digests, their facts, and that only an erasure took them away."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from eventctx.errors import EventctxError, LogCorrupted
from eventctx.log.codec import HarnessBodies, decode_event, stored_harness_bodies
from eventctx.log.events import Erased, PostCompact
from eventctx.log.record import Body, Record
from eventctx.log.store import Address, EventStore, StreamInfo
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import READER, Facts, decode_facts, encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.queries.verification.findings import Findings

_MESSAGES: Final = frozenset(
    {
        "context:message_added",
        "context:messages_set",
        "context:system_prompt_set",
        "context:pre_compact",
        "context:post_compact",
        "context:request_prepared",
        "context:request_sent",
        "tool:post",
        "tool:error",
    }
)
"""Records whose bodies are messages, and so have facts; those of other records have none."""


class ContentChecker:
    """Takes the records of a stream in order; ``end`` judges the bodies that are gone."""

    def __init__(self, found: Findings, facts: bool) -> None:
        self._found = found
        self._facts = facts
        self._gone: dict[Address, int] = {}
        self._named: set[tuple[int, int]] = set()
        self._kept: set[tuple[int, int]] = set()

    @property
    def erased(self) -> int:
        """The number of bodies that a record of an erasure names."""
        return len(self._gone.keys() & self._named)

    def take(self, record: Record) -> None:
        """Check the bodies of a record."""
        factless = self._without_facts(record) if self._facts and record.bodies else frozenset()
        origins = stored_harness_bodies(record.type, record.payload)
        for index, body in enumerate(record.bodies):
            at = record.position
            if body.erased:
                self._gone[Address(at, index)] = at
            elif body.data is None:
                self._found.report(at, "body", f"body {index} is missing without being erased")
            elif body.salt is None:
                self._found.report(at, "body", f"body {index} has contents but no salt")
            elif sha256(body.salt + body.data).digest() != body.digest:
                self._found.report(at, "body", f"body {index} was edited")
            elif self._facts and index not in factless:
                self._check_facts(at, index, body, origins)
        if record.type == "context:erased":
            self._named |= _named_by(record)

    def _without_facts(self, record: Record) -> frozenset[int]:
        """The indexes of bodies that have no facts, since they are no messages."""
        if record.type not in _MESSAGES:
            return frozenset(range(len(record.bodies)))
        if record.type != "context:post_compact":
            return frozenset()
        try:
            event = decode_event(record)
        except EventctxError:
            return frozenset()  # the record itself is reported
        scores = event.scores if isinstance(event, PostCompact) else None
        return frozenset() if scores is None else frozenset({scores})

    def _check_facts(self, position: int, index: int, body: Body, origins: HarnessBodies) -> None:
        assert body.data is not None  # noqa: S101 - tells the type checker
        if not body.facts:
            self._found.report(position, "facts", f"the facts of body {index} are missing")
        elif not _facts_are_true(body.facts, body.data, index, origins):
            text = f"the facts of body {index} are not those of its message"
            self._found.report(position, "facts", text)

    async def end(self, store: EventStore, info: StreamInfo) -> None:
        """Report every body that is gone, and that no erasure in the chain names.

        A fork that was made after an erasure has it in the chain of its parent only.
        """
        unnamed = self._gone.keys() - self._named
        met = {info.stream}
        step: StreamInfo | None = info
        while unnamed and step is not None and step.parent is not None and step.parent not in met:
            met.add(step.parent)
            try:
                # A position above the fork's own beginning is another record in the parent.
                shared = -1 if step.forked_at is None else step.forked_at
                async for record in store.read(step.parent, start=shared + 1, bodies=False):
                    if record.type == "context:erased":
                        self._named |= {one for one in _named_by(record) if one[0] <= shared}
                step = await store.head(step.parent)
            except LogCorrupted:
                break  # reported with the parent
            unnamed = self._gone.keys() - self._named
        for position, index in sorted(unnamed):
            text = f"body {index} is gone, and no context:erased in the chain names it"
            self._found.report(position, "body", text)


def _named_by(record: Record) -> set[tuple[int, int]]:
    try:
        event = decode_event(record)
    except EventctxError:
        return set()  # the record itself is reported
    return set(event.bodies) if isinstance(event, Erased) else set()


def _facts_are_true(facts: bytes, data: bytes, index: int, origins: HarnessBodies) -> bool:
    """Whether stored facts equal those that this reader reads.

    Facts of another reader are compared in what no reader ever changed.
    """
    try:
        read = read_facts(
            decode_body(data),
            by_harness=index in origins.harness,
            observation=index in origins.observations,
        )
        if facts == encode_facts(read):
            return True  # nearly all
        stored = decode_facts(facts)
    except (EventctxError, msgspec.DecodeError):
        return False
    if stored.reader != READER:
        return _agree(stored, read)
    # Without the tokenizer its count cannot be made again, so it is not compared.
    return encode_facts(msgspec.structs.replace(stored, tokens=0)) == encode_facts(read)


def _agree(older: Facts, newer: Facts) -> bool:
    """Whether a later reader found at least the calls and results that an older one did.

    Older readers took an item's own id for a call's, so of an item only the dialect is compared.
    """
    if newer.item:
        return older.dialect == newer.dialect
    return (
        (older.role, older.dialect) == (newer.role, newer.dialect)
        and set(older.calls) <= set(newer.calls)
        and set(older.results) <= set(newer.results)
    )
