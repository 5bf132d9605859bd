"""A transcript made ready to be played: bodies and records once, for every policy and budget."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.log import events
from eventctx.log.codec import decode_known, encode_event
from eventctx.log.events import Event
from eventctx.log.record import Body, Record, make_body
from eventctx.log.store import EventStore
from eventctx.messages.encoding import encode_plain, plain_message
from eventctx.messages.facts import Facts, as_observation, encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tool_results import observes
from eventctx.projections.evidence import CarriedDemand, Need, carried_demands, needs
from eventctx.projections.view import request_view
from eventctx.queries.records import transcript_at

STREAM: Final = "what-if"
"""The session id in the records of a run; no store ever sees it."""

NO_ID: Final = bytes(16)


def body_of(message: Any) -> Body:
    """The body of a message with its facts. Raises InvalidMessage.

    The salt is fixed, so that insertions that are made again alike have one digest: what a
    provider's cache sees is equal then, too.
    """
    message = plain_message(message)
    return make_body(encode_plain(message), encode_facts(read_facts(message)), bytes)


def record_of(event: Event, position: int, bodies: tuple[Body, ...] = ()) -> Record:
    """The record of an event at ``position``, without id, time and digest: no fold reads them."""
    name, version, payload = encode_event(event)
    return Record(
        STREAM,
        position,
        -1,
        NO_ID,
        name,
        version,
        0,
        payload,
        bodies,
        None,
        None,
        None,
        None,
        b"",
    )


class Recording:
    """The messages of one session, in order, with their bodies, and where the model answered.

    A message's place is its number in a run; ``number_of(place)`` is its number in the session,
    which differs where a host replaced messages. Message ``n`` is body 0 of the record at position
    ``n``; a run's own records come after them. ``add`` is for a session that is still under way:
    what is read of all messages (``needs``, ``demands``, ``requests``) is read once.
    """

    def __init__(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        name: str = "",
        model: str | None = None,
        numbers: Sequence[int] | None = None,
        harness: Collection[int] = (),
        observations: Collection[int] = (),
        left_out: int = 0,
    ) -> None:
        """``harness`` are the places of messages that the log says a harness wrote.

        ``observations`` are those that it says are observations; others are told by their form,
        as in a live session.

        ``left_out`` messages of the session are not played. Raises InvalidMessage.
        """
        self.messages: list[dict[str, Any]] = []
        self.name = name
        self.model = model
        self.left_out = left_out
        self._numbers = numbers
        self.facts: list[Facts] = []
        self.records: list[Record] = []
        for number, message in enumerate(messages):
            self.add(message, harness=number in harness, observation=number in observations)

    def add(
        self, message: dict[str, Any], *, harness: bool = False, observation: bool = False
    ) -> int:
        """Add one more message; its place is returned. Raises InvalidMessage."""
        number = len(self.messages)
        self.messages.append(message)
        message = plain_message(message)
        facts = read_facts(message, by_harness=harness)
        action = self.facts[-1].action if self.facts else ""
        if observation or (facts.human and observes(message, action)):
            facts = as_observation(facts)
        # Each has a salt of its own: as in a log, a digest does not tell that two say the same.
        body = make_body(encode_plain(message), encode_facts(facts), number.to_bytes)
        self.facts.append(facts)
        self.records.append(record_of(events.MessageAdded(), number, (body,)))
        return number

    def __len__(self) -> int:
        return len(self.messages)

    def number_of(self, place: int) -> int:
        """The number of the message at ``place`` in its session."""
        return place if self._numbers is None else self._numbers[place]

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """The needs of every request."""
        return needs(self.messages)

    @cached_property
    def demands(self) -> tuple[CarriedDemand, ...]:
        """The demands of the persons in the session."""
        persons = [place for place, facts in enumerate(self.facts) if facts.human]
        return carried_demands(self.messages, persons)

    @cached_property
    def requests(self) -> frozenset[int]:
        """The number of messages before each request; every answer of the model has one."""
        answers = [facts.kind == "assistant" for facts in self.facts]
        return frozenset(
            before
            for before in range(1, len(answers))
            if answers[before] and not answers[before - 1]
        )


# -- sessions of a store -------------------------------------------------------------------------


class UnusedSession(msgspec.Struct, frozen=True):
    """A session that could not be used, and why."""

    session: str
    reason: str


async def recording_of(store: EventStore, stream: str) -> Recording:
    """The session up to its first compaction: what follows was done by a model that had forgotten.

    It ends before the first erased message, too. Raises InvalidSetting where no model answered
    until there, and StreamNotFound.
    """
    view = request_view.initial()
    last: int | None = None
    compacted = False
    async for record in store.read(stream, bodies=False):
        if record.type == "context:post_compact" and decode_known(record).outcome == "applied":
            compacted = True
            break
        view = request_view.evolve(view, record)
        last = record.position
    lines = [] if last is None else await transcript_at(store, stream, last)
    messages = []
    for line in lines:
        if line.message is None:
            break
        messages.append(line.message)
    used = lines[: len(messages)]
    whole = len(await transcript_at(store, stream)) if compacted else len(lines)
    recording = Recording(
        messages,
        name=stream,
        model=view.calibration.model,
        numbers=[line.number for line in used],
        harness=frozenset([at for at, line in enumerate(used) if line.origin is not None]),
        observations=frozenset(
            [at for at, line in enumerate(used) if line.origin == "observation"]
        ),
        left_out=max(0, whole - len(messages)),
    )
    if not recording.requests:
        until = " before its first compaction" if compacted else ""
        found = f"{len(messages)} messages and no answer" if messages else "no message"
        raise InvalidSetting(
            f"session {stream!r}: expected an answer of a model to a request{until}, found {found}"
        )
    return recording


async def recordings_of(
    store: EventStore, streams: Sequence[str]
) -> tuple[list[Recording], list[UnusedSession]]:
    """The sessions that can be played, and those that cannot. Raises StreamNotFound."""
    found: list[Recording] = []
    unused: list[UnusedSession] = []
    for stream in dict.fromkeys(streams):
        try:
            found.append(await recording_of(store, stream))
        except InvalidSetting as error:
            unused.append(UnusedSession(stream, str(error)))
    return found, unused
