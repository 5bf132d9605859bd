"""A conversation in recorded HTTP: requests that continue each other, and their answers.

A request continues a conversation if it has all that the conversation has, and more; or if it names
the conversation's last response (``previous_response_id``) or the provider's record of it
(``conversation``), and sends what is new alone; or if it begins with a compaction of it. Where it
has a message in another form, or has left one out, the conversation is set to what it has, so that
the view of every call is what was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, NamedTuple

from eventctx.importers.formats.amplifier_requests import RequestHistory
from eventctx.importers.formats.cassettes import rows
from eventctx.importers.formats.cassettes.rewriting import Continuation, Shown, aligned, rewriting
from eventctx.importers.formats.cassettes.rows import Row, SentRequests
from eventctx.importers.formats.provider_answers import answers, finish_of
from eventctx.importers.source.http_recording import Exchange
from eventctx.importers.source.items import (
    Branched,
    CallEnded,
    CompactionItem,
    Item,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    Warned,
)
from eventctx.importers.source.lines import (
    item_facts_or_none,
    list_or_empty,
    nanoseconds,
    object_or_empty,
    text_or_none,
)
from eventctx.importers.source.values import encode
from eventctx.log.usage import read_provider_usage
from eventctx.messages.facts import Facts
from eventctx.messages.tool_results import by_person

MESSAGES: Final = "/messages"
COMPACT: Final = "/responses/compact"
_STATE: Final = ("previous_response_id", "conversation")
_FAILED: Final = 400
_REFERRING: Final = frozenset(("compaction", rows.REFERENCE))
"""Types of items that stand for messages which the request does not have."""


class CassetteRequest(NamedTuple):
    """A request to a model: its body exactly as it was sent, and the body of the answer."""

    exchange: Exchange
    path: str
    sent: dict[str, Any]
    answer: dict[str, Any]
    provider: str | None


class RecordedConversation:
    """One conversation. ``items`` grow request by request.

    ``known`` are the messages of another one that its first request continues; None if it says
    that it continues one, and the file does not have that. ``on_tape``: requests of every API are
    observed.
    """

    def __init__(
        self,
        name: str,
        first: CassetteRequest,
        known: list[dict[str, Any]] | None = None,
        *,
        on_tape: bool = False,
    ) -> None:
        exchange = first.exchange
        self.number = exchange.number
        self.opening = Session(exchange.number, _begun(first), name)
        self.items: list[Item] = []
        self._rows: list[Row] = []
        self._places = 0
        self._transcript: list[int] = []
        self._before: Facts | None = None
        self._response: str | None = None
        self._conversation: str | None = None
        self._compacted: list[dict[str, Any]] = []
        self._requests = RequestHistory()
        self._sent = SentRequests(on_tape=on_tape)
        self._failed = False
        self._known = known
        self._at: dict[str, list[dict[str, Any]]] = {}

    def known_at(self, response: str) -> list[dict[str, Any]] | None:
        """The messages up to a response, if this conversation had it."""
        return self._at.get(response)

    def continued_by(self, request: CassetteRequest) -> bool:
        """Whether a request goes on with this conversation."""
        return self._step(request) is not None

    def shares(self, request: CassetteRequest) -> bool:
        """Whether a request has a message of this conversation, besides system prompts."""
        known = [row for row in self._rows if not row.is_system]
        return any(rows.is_(row, one) for one in rows.rows_of(request.sent) for row in known)

    def take(self, request: CassetteRequest, *, compacted: bool = False) -> None:
        """Add a request and its answer.

        ``compacted``: the client goes on with this conversation, but wrote it anew before.
        """
        line = request.exchange.number
        self._keep(request)
        if compacted:
            new = self._rewrite(line, rows.rows_of(request.sent))
        else:
            step = self._step(request) or self._first_step(request)
            self._compact(line, step)
            self._show(line, self._shown(step))
            new = step.new
        for message in new:
            self._add(line, message)
        self._call(request)

    def openings(self) -> Iterator[Hashable | None]:
        """The keys of the messages, one of which a request begins with if it has all of them.

        The last one is None where a client may leave out all that follows the system prompt.
        """
        for row in self._rows:
            if not row.is_system:
                yield rows.key_of(row.mark)
                if not row.may_be_left_out:
                    return
        yield None

    def states(self) -> list[tuple[str, str]]:
        """The fields of a request, and their values, that name what this conversation has."""
        names = zip(_STATE, (self._response, self._conversation), strict=True)
        return [(field, name) for field, name in names if name is not None]

    @property
    def least(self) -> int:
        """Messages besides system prompts that a request has at least if it has all of them."""
        return sum(not (row.is_system or row.may_be_left_out) for row in self._rows)

    # -- continuing ------------------------------------------------------------------------------

    def _step(self, request: CassetteRequest) -> Continuation | None:
        if not self._rows:
            return None
        sent = rows.rows_of(request.sent)
        if self._is_state(request.sent):
            return self._behind_state(sent)
        if _names_state(request.sent):
            return None
        again = self._failed or request.path == COMPACT
        return self._after_compaction(sent) or aligned(self._rows, sent, again)

    def _is_state(self, sent: dict[str, Any]) -> bool:
        previous, conversation = (_id(sent.get(key)) for key in _STATE)
        by_response = previous is not None and previous == self._response
        return by_response or (conversation is not None and conversation == self._conversation)

    def _behind_state(self, sent: list[dict[str, Any]]) -> Continuation:
        """The provider adds what it has; a request's instructions hold for this request alone."""
        system = [one for one in sent if rows.is_system(one)]
        before = [row for row in self._rows if row.is_system]
        talk = [(row, row.message) for row in self._rows if row not in before]
        known = [*before, *[None] * len(system)][: len(system)]
        shown: list[tuple[Row | None, dict[str, Any]]] = [*zip(known, system, strict=True), *talk]
        return Continuation(shown, [one for one in sent if one not in system])

    def _after_compaction(self, sent: list[dict[str, Any]]) -> Continuation | None:
        system = [one for one in sent if rows.is_system(one)]
        rest = sent[len(system) :]
        mark = rows.sealed_mark(rest[0]) if rest and rest[0].get("type") == "compaction" else None
        last = max((n for n, one in enumerate(rest) if _among(one, self._compacted)), default=None)
        before = [row for row in self._rows if row.is_system]
        if last is not None and any(one.get("type") == "compaction" for one in rest[: last + 1]):
            found = aligned(before, system, True)
            return found and found._replace(new=rest[last + 1 :], compacted=rest[: last + 1])
        if mark is None:
            return None
        for number, row in enumerate(self._rows):
            if rows.sealed_mark(row.message) == mark and row.place is not None:
                kept = [*before, *self._rows[number:]]
                found = aligned(kept, sent, self._failed)
                return found and found._replace(compacted=[], kept_from=row.place)
        return None

    def _first_step(self, request: CassetteRequest) -> Continuation:
        """The first request's messages, after those of another conversation."""
        sent = rows.rows_of(request.sent)
        if self._known is None:
            self._warn_of_unknown_state(request)
            return Continuation([], sent)
        system = [one for one in sent if rows.is_system(one)]
        before = [one for one in self._known if not rows.is_system(one)]
        return Continuation([], [*system, *before, *[one for one in sent if one not in system]])

    def _warn_of_unknown_state(self, request: CassetteRequest) -> None:
        for key in _STATE:
            name = _id(request.sent.get(key))
            if name is not None:
                told = f"it continues {key} {name}, of which the file does not have all"
                self.items.append(Warned(request.exchange.number, told))

    # -- what the model is shown -----------------------------------------------------------------

    def _compact(self, line: int, step: Continuation) -> None:
        if step.compacted is None:
            return
        left = tuple(step.compacted)
        self.items.append(CompactionItem(line, None, None, left, kept_from=step.kept_from))
        system = [row for row in self._rows if row.is_system]
        kept = [row for row, _ in step.shown if row is not None and row not in system]
        self._rows = [*system, *(Row(message, None) for message in left), *kept]
        self._compacted = []

    def _rewrite(self, line: int, sent: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Replace the known rows by the rewritten conversation; return the messages after it."""
        first = self._rows[0]
        if sent and first.is_system and rows.is_system(sent[0]):
            # A prompt that changed by the way is no part of what was compacted.
            self._show(line, [(first, sent[0]), *((row, row.message) for row in self._rows[1:])])
        found = rewriting(self._rows, sent)
        if found.went_back:
            self._show(line, [(row, row.message) for row in found.rows])
            return found.new
        messages = tuple([one.message for one in found.inserted])
        parts = tuple([(one.before, one.stands_for) for one in found.inserted])
        self.items.append(
            CompactionItem(line, None, None, messages, forgotten=found.left, parts=parts)
        )
        self._rows = found.rows
        return found.new

    def _shown(self, step: Continuation) -> Shown:
        """The messages of a step: system prompts, those of a compaction, and all others."""
        if not step.compacted:
            return step.shown
        inserted = [Row(one, None) for one in step.compacted]
        system = [pair for pair in step.shown if rows.is_system(pair[1])]
        others = [pair for pair in step.shown if not rows.is_system(pair[1])]
        return [*system, *((row, row.message) for row in inserted), *others]

    def _show(self, line: int, shown: Shown) -> None:
        """Set the conversation to what the request has of it, unless it is that already."""
        same = [row for row, message in shown if row is not None and rows.same(row, message)]
        if same == self._rows and len(same) == len(shown):
            return
        # What a compaction took out stays in the transcript with what it put in for that.
        stands = [row for row in self._rows if row.place is None]
        standing = stands == [row for row in same if row.place is None]
        hidden = self._hidden() if standing else {}
        order: list[int | dict[str, Any]] = []
        now: list[Row] = []
        for row, message in shown:
            if standing and row is not None and row.place is None:
                now.append(row)
            elif row is not None and row.place is not None and rows.same(row, message):
                order += [*hidden.pop(row.place, ()), row.place]
                now.append(row)
            else:
                order.append(message)
                now.append(Row(message, self._places, row is not None and row.answer))
                self._places += 1
        order += [place for left in hidden.values() for place in left]
        self._rows = now
        places = iter(
            range(self._places - sum(isinstance(one, dict) for one in order), self._places)
        )
        self._transcript = [next(places) if isinstance(one, dict) else one for one in order]
        self.items.append(Branched(line, None, tuple(order)))

    def _hidden(self) -> dict[int, list[int]]:
        """The places that are not shown, by the shown one after them; -1 is the end."""
        shown = {row.place for row in self._rows}
        found: dict[int, list[int]] = {}
        before: list[int] = []
        for place in self._transcript:
            if place in shown:
                found[place], before = before, []
            else:
                before.append(place)
        return {**found, -1: before}

    def _add(self, line: int, message: dict[str, Any], *, answer: bool = False) -> None:
        facts = item_facts_or_none(message)
        if facts is not None and facts.role == "user" and by_person(message, facts, self._before):
            self.items.append(TurnBegan(line, None))
        self._before = facts
        self.items.append(MessageItem(line, None, message, facts=facts))
        self._rows.append(Row(message, self._places, answer))
        self._transcript.append(self._places)
        self._places += 1

    # -- calls -----------------------------------------------------------------------------------

    def _keep(self, request: CassetteRequest) -> None:
        """Keep the exchange: its request without what it repeats, and its answer as it came.

        ``request.sent`` is the request exactly as it was sent, with its tools and parameters.
        """
        exchange = request.exchange
        sent = self._requests.rest(exchange.number, request.sent)
        whole = {**exchange.rest, "sent": sent, "answered": exchange.answered}
        self.items.append(Raw(exchange.number, "exchange", encode(whole)))

    def _call(self, request: CassetteRequest) -> None:
        exchange, answer, sent = request.exchange, request.answer, request.sent
        line = exchange.number
        model = text_or_none(answer.get("model")) or text_or_none(sent.get("model"))
        as_sent, items = self._sent.items(line, request.path, sent)
        self.items += items
        self.items.append(ModelCall(line, _begun(request), model, request.provider, sent=as_sent))
        compacts = request.path == COMPACT
        found = [] if compacts or exchange.status >= _FAILED else answers(answer)
        for message in found:
            self._add(line, message, answer=True)
            self._sent.note_spoken(message)
        self._failed = not found
        if compacts:
            output = list_or_empty(answer.get("output"))
            self._compacted = [one for one in output if item_facts_or_none(one) is not None]
        else:
            self._response = text_or_none(answer.get("id")) or self._response
            if self._response is not None and found:
                self._at[self._response] = [row.message for row in self._rows]
            conversation = answer.get("conversation", sent.get("conversation"))
            self._conversation = _id(conversation) or self._conversation
        finish = finish_of(answer)
        if exchange.status >= _FAILED:
            kind = text_or_none(object_or_empty(answer.get("error")).get("type"))
            finish = f"HTTP {exchange.status}" + (f" {kind}" if kind else "")
        ended = nanoseconds(answer.get("completed_at")) or exchange.time
        usage, name = read_provider_usage(answer.get("usage")), text_or_none(answer.get("id"))
        self.items.append(CallEnded(line, ended, usage, finish, name))


class RecordedConversations:
    """The conversations of a file, in the order in which they begin.

    They are found by what they begin with, so that a file of many costs no look at each of them
    for every request.
    """

    def __init__(self) -> None:
        self.all: list[RecordedConversation] = []
        self._by_opening: dict[Hashable | None, dict[int, int]] = {}
        self._by_state: dict[tuple[str, str], set[int]] = {}

    def take(
        self,
        request: CassetteRequest,
        begin: Callable[[int, CassetteRequest], RecordedConversation],
    ) -> RecordedConversation:
        """Add a request to the latest conversation that it continues, or to one that it begins.

        ``begin`` makes that one of its number, from 0, and its first request.
        """
        number = self._continued_by(request)
        if number is None:
            number = len(self.all)
            self.all.append(begin(number, request))
        conversation = self.all[number]
        conversation.take(request)
        for key in conversation.openings():
            self._by_opening.setdefault(key, {})[number] = conversation.least
        for state in conversation.states():
            self._by_state.setdefault(state, set()).add(number)
        return conversation

    def known_at(self, request: CassetteRequest) -> list[dict[str, Any]] | None:
        """The messages up to the response that a request names, of the conversation that had it."""
        previous = _id(request.sent.get(_STATE[0]))
        if previous is None:
            return None
        return next((at for one in self.all if (at := one.known_at(previous)) is not None), None)

    def _continued_by(self, request: CassetteRequest) -> int | None:
        sent = rows.rows_of(request.sent)
        begin = next((at for at, one in enumerate(sent) if not rows.is_system(one)), len(sent))
        talk = sent[begin:]
        if any(one.get("type") in _REFERRING for one in talk):
            found = set(range(len(self.all)))
        else:
            found = {
                number
                for key in {rows.opening_of(talk), None}
                for number, least in self._by_opening.get(key, {}).items()
                if least <= len(talk)
            }
            for name in _STATE:
                found |= self._by_state.get((name, _id(request.sent.get(name)) or ""), set())
        latest = sorted(found, reverse=True)
        return next((one for one in latest if self.all[one].continued_by(request)), None)


def _among(message: dict[str, Any], others: list[dict[str, Any]]) -> bool:
    return any(rows.is_(Row(other, None), message) for other in others)


def _names_state(sent: dict[str, Any]) -> bool:
    return any(_id(sent.get(key)) is not None for key in _STATE)


def _id(value: object) -> str | None:
    """``value``, or its ``id`` if it is an object; None unless that is a text."""
    return text_or_none(value.get("id") if isinstance(value, dict) else value)


def _begun(request: CassetteRequest) -> int | None:
    answer = request.answer
    if request.exchange.began is not None:
        return request.exchange.began
    return nanoseconds(answer.get("created", answer.get("created_at"))) or request.exchange.time
