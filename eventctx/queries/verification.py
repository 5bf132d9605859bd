"""The findings of a verification, their form for callers and as JSON, and the checks of bodies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from eventctx.errors import DecodeError, EventctxError, LogCorrupted
from eventctx.log.codec import HarnessBodies, decode_event, stored_harness_bodies
from eventctx.log.events import Erased, PostCompact
from eventctx.log.record import Body, Record
from eventctx.log.store import Address, EventStore, Receipt, Snapshot, StreamInfo
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import DEMANDS_SINCE, READER, Facts, decode_facts, encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tool_rounds import BY_NAME, answers_to, name_called, number_of
from eventctx.projections.view import request_view
from eventctx.projections.view import snapshot as view_snapshot
from eventctx.queries.encoding import fill
from eventctx.text import counted, html_table, summary_line

ProblemKind = Literal[
    "record",
    "body",
    "facts",
    "missing",
    "head",
    "receipt",
    "unreadable",
    "snapshot",
    "signature",
    "store",
]
"""``store``: it is wrong with the store itself, and at no position of a session."""


MAX_PROBLEMS: Final = 1_000
"""The most findings that are listed; a thoroughly damaged log has one per record."""


class Problem(msgspec.Struct, frozen=True):
    """One finding: the position of the record (-1: none in particular), the kind, and a text."""

    position: int
    kind: ProblemKind
    text: str


class Signed(msgspec.Struct, frozen=True):
    """A signature that holds: the key (hex) vouches for all records up to ``position``."""

    position: int
    public_key: str


class Verification(msgspec.Struct, frozen=True):
    """The outcome of a verification.

    ``records`` were read, ``erased`` bodies were erased on purpose, as records in the chain say.
    ``receipt`` is for the stream as it is now; keep it outside the store. ``deleted`` records went
    when the session was deleted on purpose. ``signed`` are the signatures that hold.
    """

    stream: str
    records: int
    erased: int
    problems: tuple[Problem, ...]
    receipt: Receipt
    deleted: int = 0
    signed: tuple[Signed, ...] = ()

    @property
    def ok(self) -> bool:
        """True when nothing was found."""
        return not self.problems

    def signed_to(self, public_key: str | None = None) -> int:
        """The last position that a key has signed (hex; None: any key), or -1."""
        own = [one.position for one in self.signed if public_key in (None, one.public_key)]
        return max(own, default=-1)

    def unsigned(self, public_key: str | None = None) -> int:
        """How many records are after ``signed_to``, those of signatures that hold left out."""
        last = self.signed_to(public_key)
        signatures = sum(one.position + 1 > last for one in self.signed)
        return self.receipt.position - last - signatures

    def __repr__(self) -> str:
        found = counted(len(self.problems), "problem") if self.problems else "ok"
        return summary_line(
            f"Verification {self.stream}: {found},", counted(self.records, "record")
        )

    def _repr_html_(self) -> str:
        rows = [(one.position, one.kind, one.text) for one in self.problems]
        return html_table(repr(self)[1:-1], ("position", "kind", "problem"), rows)


class VerificationAnswer(msgspec.Struct, frozen=True):
    """A row of ``verify``: of a session, or without a name what is wrong with the store itself."""

    session: str | None
    ok: bool
    records: int | UnsetType = UNSET
    erased: int | UnsetType = UNSET
    deleted: int | UnsetType = UNSET
    signed: tuple[Signed, ...] | UnsetType = UNSET
    problems: Sequence[Problem] = ()
    receipt: str | UnsetType | None = UNSET


def session_answer(found: Verification) -> VerificationAnswer:
    """The row of a session."""
    receipt = str(found.receipt) if found.ok else None
    return fill(VerificationAnswer, found, session=found.stream, receipt=receipt)


def store_answer(problems: Sequence[str]) -> VerificationAnswer:
    """The row of what is wrong with the store itself."""
    found = [Problem(-1, "store", text) for text in problems]
    return VerificationAnswer(None, ok=False, problems=found)


class Findings:
    """The problems of one walk, as they are found."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.deleted = 0
        self._unreadable: tuple[int, int, str] | None = None

    def report(self, position: int, kind: ProblemKind, text: str) -> None:
        """Add a problem, while there is room."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(position, kind, text))

    def unreadable(self, position: int, problem: str) -> None:
        """Add a record that cannot be read; neighbours with one cause become one problem."""
        last = self._unreadable
        if last is None or last[1] != position - 1 or last[2] != problem:
            self._unreadable = (position, position, problem)
            self.report(position, "unreadable", problem)
            return
        first = last[0]
        self._unreadable = (first, position, problem)
        if self.problems[-1].position == first:
            self.problems.pop()
        self.report(first, "unreadable", f"{problem} (positions {first} to {position})")


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
        if record.type == "context:erased":
            self._named |= _named_by(record)
        if not record.bodies:
            return  # three of four
        factless = self._without_facts(record) if self._facts else frozenset()
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


_SINCE: Final[Mapping[str, int]] = {
    **dict.fromkeys(("arguments", "media", "item"), 4),
    **dict.fromkeys(("observation", "action"), 5),
    **dict.fromkeys(("calls", "results", "server_calls", "server_results"), 6),
    **dict.fromkeys(("images", "digits", "wide", "spaces"), 7),
    **dict.fromkeys(("prose", "outcome"), 8),
    **dict.fromkeys(("demands", "demand_characters"), DEMANDS_SINCE),
}
"""Facts, and the reader since which they come out as they do now (``messages.facts.READER``)."""


def _facts_are_true(facts: bytes, data: bytes, index: int, origins: HarnessBodies) -> bool:
    """Whether stored facts equal those that this reader reads.

    Those of another reader are compared as far as both read alike.
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
        return _agree(stored, read) and (stored.reader > READER or _same(stored, read))
    # Without the tokenizer its count cannot be made again, so it is not compared.
    return encode_facts(
        msgspec.structs.replace(stored, tokens=0, weight=read.weight)
    ) == encode_facts(read)


def _agree(older: Facts, newer: Facts) -> bool:
    """Whether a later reader found at least the calls and results that an older one did.

    Older readers took an item's own id for a call's, so of an item only the dialect is compared.
    """
    if newer.item:
        return older.dialect == newer.dialect
    return (
        (older.role, older.dialect) == (newer.role, newer.dialect)
        and {*_answers_to(older.calls)} <= {*_answers_to(newer.calls)}
        and set(older.results) <= set(newer.results)
    )


def _answers_to(calls: Iterable[str]) -> Iterator[str]:
    return chain.from_iterable(map(answers_to, calls))


def _same(older: Facts, newer: Facts) -> bool:
    """Whether two facts are the same as far as an earlier reader reads as this one does.

    Each reader knows more of what is no person's; what this one calls a person's always was one.
    """
    if newer.item:
        return True
    persons = older.human or not newer.human or older.reader < _KNOWS_PERSONS
    alike = [name for name, since in _SINCE.items() if older.reader >= since]
    by_name = newer.role == "tool" and any(map(name_called, newer.results))
    since = _KNOWS_TOOL_NAMES if by_name else _NUMBERS_CALLS_BY_PLACE
    if older.reader < since and not older.results and (by_name or newer.results == (BY_NAME,)):
        alike.remove("results")
    if older.reader < _NUMBERS_CALLS_BY_PLACE and any(map(number_of, newer.calls)):
        alike = [name for name in alike if name not in ("calls", "arguments")]
    return persons and all(getattr(older, name) == getattr(newer, name) for name in alike)


_KNOWS_PERSONS: Final = 4
"""The reader since which no message became a person's that was none before."""

_KNOWS_TOOL_NAMES: Final = 10
"""The reader since which a result answers the call of the tool that it names as Ollama does."""

_NUMBERS_CALLS_BY_PLACE: Final = 13
"""The reader since which calls by name have their present ids, and a result needs no name."""


class SnapshotChecker:
    """Folds the request view up to the snapshot's position, and compares the bytes."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._snapshot: Snapshot | None = None
        self._state: Any = request_view.initial()

    async def load(self, store: EventStore, info: StreamInfo) -> None:
        """Read the snapshot of a stream; one of another version is never read."""
        snapshot = await store.load_snapshot(info.stream, view_snapshot.NAME)
        if snapshot is None or snapshot.version != view_snapshot.VERSION:
            return
        if snapshot.position > info.head:
            text = f"the snapshot is for position {snapshot.position}, behind the last record"
            self._found.report(info.head, "snapshot", text)
            return
        self._snapshot = snapshot

    @property
    def waits(self) -> bool:
        """Whether the snapshot's position has yet to come."""
        return self._snapshot is not None

    def give_up(self) -> None:
        """A record is damaged, so nothing can be derived any more."""
        self._snapshot = None

    def take(self, record: Record) -> None:
        """Fold a record, and compare at the snapshot's position."""
        if self._snapshot is None:
            return
        try:
            self._state = request_view.evolve(self._state, record)
        except DecodeError:  # of a later release, which alone can fold it
            self.give_up()
            return
        if record.position == self._snapshot.position:
            if self._snapshot.digest != record.digest:
                self._report(record, "names another digest than the record's")
            elif view_snapshot.dump(self._state) != self._snapshot.data:
                self._report(record, "does not follow from the records")
            self.give_up()

    def _report(self, record: Record, problem: str) -> None:
        text = f"the snapshot for position {record.position} {problem}; views may be wrong"
        self._found.report(record.position, "snapshot", text)


_NAMED: Final = 3
"""Sessions that a sentence names."""


def sessions_gone(names: Iterable[str]) -> str:
    """The sentence for several sessions that have receipts and are not in the store."""
    every = sorted(names)
    rest = f" and {len(every) - _NAMED:,} more" if len(every) > _NAMED else ""
    listed = ", ".join([repr(name) for name in every[:_NAMED]])
    return f"{len(every):,} sessions that have receipts are not in the store: {listed}{rest}"
