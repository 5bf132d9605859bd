"""The ledger: every demand of a person, and how each request held it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from eventctx.log.events import Known
from eventctx.log.naming import demand_name, message_name, position_name, request_name
from eventctx.log.wire import BodyAt
from eventctx.messages.mentions import SummaryMentions
from eventctx.messages.overlap import normal
from eventctx.messages.superseding import find_superseded
from eventctx.projections.timeline import instructions
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.instructions import Demanding, Phase, Removed, RemovedBy

Held = Literal["verbatim", "in_summary", "in_index", "shortened", "absent"]
"""- ``verbatim``: a message of the person that is in view has it, maybe a shortened one;
- ``in_summary``, ``in_index``: it is word for word in a summary or a message that a host put in
  the place of others, or in an index, notice or memory;
- ``shortened``: its message is in view, but this sentence was cut out;
- ``absent``: it is nowhere, or in other words only."""

HELD: Final[tuple[Held, ...]] = ("verbatim", "in_summary", "in_index", "shortened", "absent")
NOT_HELD: Final[tuple[Held, ...]] = ("shortened", "absent")
"""States in which the model is not told of a demand. Counts of absent demands count both."""


class HeldRun(msgspec.Struct, frozen=True):
    """Requests in a row, ``first`` to ``last`` (``2.3``), that hold a demand in the same way.

    ``where`` names what holds it besides its own message: another message (``#40``), or the record
    of an insertion (``@48``).
    """

    held: Held
    first: str
    last: str
    first_position: int
    last_position: int
    requests: int
    where: str | None = None


class TakenBack(msgspec.Struct, frozen=True):
    """Somebody said that a demand no longer holds, in the record at ``position`` (``at``: ``@48``).

    ``by`` is the message that takes it back (``#40``), where one was named.
    """

    at: str
    position: int
    said_by: Literal["person", "model"]
    by: str | None = None


class LeftTranscript(msgspec.Struct, frozen=True):
    """A demand's message left the transcript, by the record at ``position`` (``at``: ``@48``)."""

    by: RemovedBy
    at: str
    position: int


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """A demand of a person: number ``demand`` (from 1) in message ``number``; ``name``: ``#12.1``.

    ``stands`` is how the view asked about holds it, ``where`` as in a run; None for one that was
    taken back or left the transcript, and so holds no longer. ``requests`` counts those that it
    held in, ``held_in`` those of them that held it in any form, word by word. ``absent_since`` is
    the first request of those in a row, up to the view, that did not. ``superseded_by`` names the
    later demand (``#40.1``) that says the same with another value; then ``stands`` is None, too.
    """

    name: str
    number: int
    demand: int
    text: str
    turn: int | None
    stands: Held | None
    where: str | None
    requests: int
    held_in: int
    absent_since: str | None
    runs: tuple[HeldRun, ...]
    taken_back: TakenBack | None = None
    left: LeftTranscript | None = None
    superseded_by: str | None = None

    @property
    def is_absent(self) -> bool:
        """Whether it holds, and the view does not tell the model of it."""
        return self.stands in NOT_HELD


class Instructions(msgspec.Struct, frozen=True):
    """Every demand of a person in a session, in the order in which they were said.

    ``about`` names the request (``2.3``) whose view the answer is about; None for the view as it
    stands now. ``requests`` counts those up to there, ``known`` by how each is known. ``counts``
    has the demands that hold by ``stands``; ``superseded`` do not, since a later one took their
    place. ``erased`` messages may have held demands, too.
    ``sealed`` summaries were encrypted: their contents are not known.
    """

    session: str
    about: str | None
    requests: int
    known: dict[Known, int]
    counts: dict[Held, int]
    absent: int
    taken_back: int
    left: int
    erased: int
    sealed: int
    instructions: tuple[Instruction, ...]
    superseded: int = 0


class LedgerTexts(NamedTuple):
    """Demands by message number; normal texts of copies, and insertions, by address.

    ``erased`` messages of a person have no text.
    """

    demands: dict[int, tuple[str, ...]]
    copies: dict[BodyAt, str]
    inserted: dict[BodyAt, SummaryMentions]
    erased: int


class _Span(NamedTuple):
    """Requests ``first`` to ``last``, by index, that hold a demand in one way."""

    held: Held
    where: str | None
    first: int
    last: int


class Ledger:
    """Makes the ledger of one session; pure, over the fold and the texts.

    ``shown`` is how the view shows the messages that the answer is about.
    """

    def __init__(self, state: TimelineState, shown: Phase, texts: LedgerTexts) -> None:
        found = state.instructions
        self._demanding = list(found.demanding)
        self._phases = list(found.phases)
        self._known = found.known
        self._requests = list(state.changes.time.requests)
        self._shown = shown
        self._texts = texts
        self._saying: dict[str, list[Demanding]] = {}
        for one in self._demanding:
            for sentence in texts.demands[one.number]:
                self._saying.setdefault(normal(sentence), []).append(one)
        self._removed: dict[int, Removed] = {}
        for gone in found.removed:
            self._removed.setdefault(gone.number, gone)
        self._withdrawn = {(one.event.number, one.event.demand): one for one in found.withdrawn}
        self._later = self._superseded()

    def _superseded(self) -> dict[tuple[int, int], tuple[Demanding, int]]:
        """The demands, by message and place, that a later one which holds has replaced."""
        holding = [
            (asked, place, sentence)
            for asked in self._demanding
            for place, sentence in enumerate(self._texts.demands[asked.number], 1)
            if asked.number not in self._removed and (asked.number, place) not in self._withdrawn
        ]
        found = find_superseded([(asked.number, said) for asked, _, said in holding])
        return {
            (holding[one][0].number, holding[one][1]): holding[other][:2]
            for one, other in found.items()
        }

    def make(self, session: str, about: str | None, sealed: int) -> Instructions:
        """The answer. ``sealed`` summaries are encrypted."""
        found = tuple([one for asked in self._demanding for one in self._of_message(asked)])
        states = Counter(one.stands for one in found if one.stands is not None)
        return Instructions(
            session,
            about,
            len(self._requests),
            dict(self._known),
            {held: states[held] for held in HELD},
            sum(one.is_absent for one in found),
            sum(one.taken_back is not None for one in found),
            sum(one.left is not None for one in found),
            self._texts.erased,
            sealed,
            found,
            sum(one.superseded_by is not None for one in found),
        )

    def _of_message(self, asked: Demanding) -> Iterator[Instruction]:
        for demand, sentence in enumerate(self._texts.demands[asked.number], 1):
            yield self._instruction(asked, demand, sentence)

    def _instruction(self, asked: Demanding, demand: int, sentence: str) -> Instruction:
        number = asked.number
        removed = self._removed.get(number)
        withdrawn = self._withdrawn.get((number, demand))
        until = len(self._requests)
        for ended in (removed, withdrawn):
            if ended is not None:
                until = min(until, ended.request)
        later = self._later.get((number, demand))
        until = until if later is None else min(until, later[0].request)
        spans = self._spans(asked, normal(sentence), until)
        stands: Held | None = None
        where: str | None = None
        if removed is None and withdrawn is None and later is None:
            stands, where, again = self._in_phase(self._shown, asked, normal(sentence))
            if again:
                stands, where = "verbatim", message_name(again[0].number)
        counted = Counter[bool]()
        for span in spans:
            counted[span.held not in NOT_HELD] += span.last - span.first + 1
        absent_since = None
        if stands in NOT_HELD and spans:
            absent = _last_absent(spans)
            absent_since = self._name(absent[0].first) if absent else None
        return Instruction(
            name=demand_name(number, demand),
            number=number,
            demand=demand,
            text=sentence,
            turn=asked.turn,
            stands=stands,
            where=where,
            requests=counted.total(),
            held_in=counted[True],
            absent_since=absent_since,
            runs=tuple([self._run(span) for span in spans]),
            taken_back=None
            if withdrawn is None
            else TakenBack(
                position_name(withdrawn.position),
                withdrawn.position,
                withdrawn.event.said_by,
                None if withdrawn.event.by is None else message_name(withdrawn.event.by),
            ),
            left=None
            if removed is None
            else LeftTranscript(removed.by, position_name(removed.position), removed.position),
            superseded_by=None if later is None else demand_name(later[0].number, later[1]),
        )

    # -- how views hold a demand -----------------------------------------------------------------

    def _spans(self, asked: Demanding, sentence: str, until: int) -> list[_Span]:
        """The requests before ``until``, in rows that hold the demand in one way."""
        spans: list[_Span] = []
        for phase, first, last in instructions.phases_of(self._phases, asked, until):
            held, where, later = self._in_phase(phase, asked, sentence)
            again = next((one for one in later if one.request <= last), None)
            if again is None:
                _append(spans, _Span(held, where, first, last))
                continue
            said = max(first, again.request)
            if said > first:
                _append(spans, _Span(held, where, first, said - 1))
            _append(spans, _Span("verbatim", message_name(again.number), said, last))
        return spans

    def _in_phase(
        self, phase: Phase, asked: Demanding, sentence: str
    ) -> tuple[Held, str | None, list[Demanding]]:
        """How a phase holds a demand, what else does, and messages that repeat it later in it."""
        if self._in_message(phase, asked, sentence):
            return "verbatim", None, []
        others = [one for one in self._saying[sentence] if one is not asked]
        before = [one for one in others if one.number < phase.known]
        for other in before:
            if self._in_message(phase, other, sentence):
                return "verbatim", message_name(other.number), []
        for other_text in phase.others:
            if self._texts.inserted[other_text.body].holds("instruction", sentence):
                if other_text.kind is None:
                    return "in_summary", message_name(other_text.number), []
                held: Held = "in_summary" if other_text.kind == "summary" else "in_index"
                return held, position_name(other_text.body[0]), []
        later = [one for one in others if one.number >= phase.known]
        cut = asked.number in phase.cut
        return ("shortened" if cut else "absent"), None, later

    def _in_message(self, phase: Phase, one: Demanding, sentence: str) -> bool:
        if phase.has_whole(one.number):
            return True
        copy = phase.cut.get(one.number)
        return copy is not None and sentence in self._texts.copies[copy]

    # -- names -----------------------------------------------------------------------------------

    def _run(self, span: _Span) -> HeldRun:
        requests = self._requests
        return HeldRun(
            span.held,
            self._name(span.first),
            self._name(span.last),
            requests[span.first].position,
            requests[span.last].position,
            span.last - span.first + 1,
            span.where,
        )

    def _name(self, index: int) -> str:
        one = self._requests[index]
        return request_name(one.turn, one.iteration, one.position)


def _append(spans: list[_Span], span: _Span) -> None:
    """Add a span; one that goes on as the last one does makes that longer."""
    last = spans[-1] if spans else None
    if last is not None and (last.held, last.where) == (span.held, span.where):
        spans[-1] = last._replace(last=span.last)
    else:
        spans.append(span)


def _last_absent(spans: list[_Span]) -> list[_Span]:
    """The last spans in a row that do not hold the demand."""
    found: list[_Span] = []
    for span in reversed(spans):
        if span.held not in NOT_HELD:
            break
        found.insert(0, span)
    return found
