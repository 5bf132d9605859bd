"""Requests as they were sent, put together from a file's own records of them.

A wire form is made only if every message of the request is known by the hash that the file names:
as a content that the file holds, or as an answer in its transcript.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from eventctx.importers.recording.carried import Carried, find_carried
from eventctx.importers.recording.track import Track
from eventctx.importers.source.items import RecordedContent, RecordedRequest
from eventctx.log.record import Record
from eventctx.log.wire import BodyAt, Injected, WireForm, hash_of, request_digest
from eventctx.messages.encoding import RULE, as_sent, canonical, decode_body, message_digest
from eventctx.messages.facts import Facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tokens import Estimator
from eventctx.projections.view.series import Series

if TYPE_CHECKING:
    from hashlib import _Hash as Hash


_MOST_WAITING: Final = 256
"""Messages of the transcript that a later sent message may carry; older ones are given up."""

_MOST_CARRIED: Final = 32
"""Messages that were sent and that a client may write anew; those are the last ones."""

_MOST_RESOLVED: Final = 16
"""Requests whose whole lists of messages are kept, since the next ones begin with one of them."""


class _Known(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that can be sent: where it is stored, its facts, the texts injected into it.

    ``salted`` is the digest of the stored body.
    """

    at: BodyAt
    salted: bytes
    facts: Facts
    injected: int


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(_Known).decode


class _Sent(NamedTuple):
    """A content that is no message: where it is stored, and its size in characters."""

    at: BodyAt
    salted: bytes
    size: int


class _Upto(NamedTuple):
    """The messages of a request up to ``last``: their hash, and sums over them."""

    last: _Known
    hash: Hash
    tokens: int
    injected: int


class _Messages(NamedTuple):
    """The messages of one request, counted by one estimator."""

    messages: Series[_Upto]
    estimator: Estimator


class RecordedRequests:
    """Takes contents, messages and requests in file order; ``form`` makes a request's wire form."""

    def __init__(self, *, records: bool) -> None:
        """``records``: whether the format is one that holds requests as they were sent."""
        self.records = records
        self._unknown = 0
        self._known: dict[bytes, list[bytes]] = {}
        """Packed, since there is one for each message: 0.3 kB with its key, 0.6 kB as objects."""
        self._stored: set[bytes] = set()
        self._contents: dict[tuple[str, str], _Sent] = {}
        self._requests: dict[str, RecordedRequest] = {}
        self._doubtful: set[str] = set()
        self._lost: dict[str, str] = {}
        self._positions: dict[str, int] = {}
        self._resolved: dict[str, _Messages] = {}
        self._waiting: list[tuple[int, dict[str, Any]]] = []
        self._carried: list[tuple[int, dict[str, Any]]] = []
        self._gave_up = False

    # -- what a file holds -----------------------------------------------------------------------

    def note_message(
        self, number: int | None, record: Record, index: int, message: dict[str, Any]
    ) -> None:
        """Note a message of the transcript; a compaction's own messages have no number."""
        if not self.records or not isinstance(message.get("role"), str):
            return
        # A message that is sent as it is here is stored nowhere else.
        self._known.setdefault(message_digest(message), []).append(
            _pack_known(record, index, message, 0)
        )
        if message.get("role") == "assistant":
            return
        self._waiting.append((-1 if number is None else number, message))
        if len(self._waiting) > _MOST_WAITING:
            del self._waiting[0]
            self._gave_up = True

    def holds(self, item: RecordedContent) -> bool:
        """Whether a content is in the log already."""
        if item.kind == "message":
            return item.digest in self._stored
        return (item.kind, item.key) in self._contents

    def carries(self, item: RecordedContent) -> tuple[tuple[int, ...], tuple[Injected, ...]]:
        """The numbers of the messages that a sent message carries, and what was injected."""
        if item.kind != "message":
            return (), ()
        among = self._waiting
        found: Carried = find_carried(item.value, [message for _, message in among])
        if not found.messages and self._carried:
            # A client writes a message anew when its reminders change, as for another model.
            among = self._carried
            found = find_carried(item.value, [message for _, message in among])
        if not found.messages and self._gave_up:
            return (), ()  # it may carry one that was given up
        numbers = [among[index][0] for index in found.messages]
        taken = [among[index] for index in found.messages]
        for index in reversed(found.messages):
            del among[index]
        self._carried = (self._carried + taken)[-_MOST_CARRIED:]
        injected = tuple([Injected(*span) for span in found.injected])
        return tuple(sorted({one for one in numbers if one >= 0})), injected

    def stored(self, item: RecordedContent, record: Record, injected: int) -> None:
        """Note the record in which a content was stored."""
        if item.kind == "message":
            self._stored.add(item.digest)
            # It is the message of the transcript that was said last, in the form that was sent.
            same = self._known.setdefault(item.digest, [])
            same[-1:] = [_pack_known(record, 0, item.value, injected)]
        else:
            salted = record.bodies[0].digest
            size = len(canonical(item.value))
            self._contents[(item.kind, item.key)] = _Sent((record.position, 0), salted, size)

    def remember(self, item: RecordedRequest) -> None:
        """Take a request; the call that it began names it later.

        Of two requests with one id neither is believed, unless they are the same.
        """
        known = self._requests.setdefault(item.id, item)
        if msgspec.structs.replace(known, line=item.line, time=item.time) != item:
            self._doubtful.add(item.id)
            self._resolved.pop(item.id, None)

    @property
    def observed(self) -> int:
        """The number of requests that have a wire form."""
        return len(self._positions)

    @property
    def unanswered(self) -> int:
        """The number of requests that no answer in the file names, most of them failed attempts."""
        return len(self._requests) - len(self._positions) - self._unknown

    def time_of(self, request: str | None) -> int | None:
        """When a request was sent."""
        item = self._requests.get(request or "")
        return None if item is None else item.time

    # -- the form --------------------------------------------------------------------------------

    def form(self, request: str, position: int, estimator: Estimator) -> WireForm | str:
        """The form of the request recorded at ``position``; in words why there is none."""
        item = self._requests.get(request)
        if item is None:
            return "it is nowhere before its answer"
        if request in self._positions:
            return "an answer before this one names it, too"
        messages = self._messages(item, estimator)
        system = self._contents.get(("system", item.shape or ""))
        tools = self._contents.get(("tools", item.shape or ""))
        parameters = self._contents.get(("parameters", item.parameters or ""))
        if not isinstance(messages, str) and item.shape is not None and not (system or tools):
            messages = "its system prompt and its tools are not in the file"
        if isinstance(messages, str):
            self._unknown += 1
            return messages
        base, keep = self._base(item)
        self._positions[request] = position
        hashed, tokens, injected = _sums(messages.messages)
        return WireForm(
            rule=item.rule or RULE,
            digest=request_digest(
                hashed, *[one and one.salted for one in (system, tools, parameters)]
            ),
            tail=tuple([one.last.at for one in messages.messages[keep:]]),
            messages=len(messages.messages),
            base=base,
            keep=keep,
            system=system and system.at,
            tools=tools and tools.at,
            parameters=parameters and parameters.at,
            cache_control=item.cache_control,
            message_tokens=tokens,
            system_tokens=0 if system is None else estimator.tokens_of_json(system.size),
            tools_tokens=0 if tools is None else estimator.tokens_of_json(tools.size),
            injected=injected,
        )

    def _base(self, item: RecordedRequest) -> tuple[int | None, int]:
        """The position of the nearest request below that is in the log, and how much is kept."""
        keep, base = item.keep, item.base
        while keep and base is not None and base not in self._positions:
            below = self._requests[base]
            keep, base = min(keep, below.keep), below.base
        if not keep or base is None:
            return None, 0
        return self._positions[base], keep

    def _messages(self, item: RecordedRequest, estimator: Estimator) -> _Messages | str:
        """All messages of a request; in words why they are not known."""
        chain = [item]
        while chain[-1].keep and chain[-1].base not in self._resolved:
            below = self._requests.get(chain[-1].base or "")
            if below is None or len(chain) > len(self._requests):
                return "a request that it begins with is not in the file"
            chain.append(below)
            if below.id in self._lost:
                break  # so that each request costs one step, not one for each below it
        lost = next((self._lost[one.id] for one in chain if one.id in self._lost), None)
        if lost is not None:
            return self._lost.setdefault(item.id, lost)
        if any(one.id in self._doubtful for one in chain):
            return "the file holds two different requests of that id"
        last = chain[-1]
        found = _Messages(Series(), estimator)
        if last.keep and last.base is not None:
            found = self._resolved[last.base]
        for one in reversed(chain):
            if one.keep > len(found.messages):
                words = "it begins with more messages than the request that it names has"
                return self._lost.setdefault(item.id, words)
            if any(digest not in self._known for digest in one.tail):
                return self._lost.setdefault(item.id, "a message of it is not in the file")
            found = self._with(found, one, estimator)
            self._resolved.pop(one.id, None)
            self._resolved[one.id] = found
            if len(self._resolved) > _MOST_RESOLVED:
                del self._resolved[next(iter(self._resolved))]
        return found

    def _with(self, below: _Messages, item: RecordedRequest, estimator: Estimator) -> _Messages:
        """The first messages of ``below``, and those of the item's tail."""
        kept = below.messages.first(item.keep)
        if below.estimator != estimator:
            kept = Series(_sum_up(Series(), [one.last for one in kept], estimator))
        return _Messages(kept.extend(_sum_up(kept, self._tail(item), estimator)), estimator)

    def _tail(self, item: RecordedRequest) -> list[_Known]:
        """The messages of a tail. Of messages that are the same, the last ones are meant."""
        found: list[_Known] = []
        behind: Counter[bytes] = Counter()
        for digest in reversed(item.tail):
            same = self._known[digest]
            behind[digest] += 1
            found.append(_unpack(same[max(0, len(same) - behind[digest])]))
        return found[::-1]


def _pack_known(record: Record, index: int, message: dict[str, Any], injected: int) -> bytes:
    salted = record.bodies[index].digest
    # An item of the Responses API has no role, and is read as it is.
    facts = read_facts(as_sent(message) if "role" in message else message)
    return _pack(_Known((record.position, index), salted, facts, injected))


def _sums(messages: Series[_Upto]) -> tuple[Hash, int, int]:
    """The hash of all messages, their tokens, and the number of texts injected into them."""
    if not len(messages):
        return hash_of(()), 0, 0
    last = messages[-1]
    return last.hash, last.tokens, last.injected


def _sum_up(before: Series[_Upto], added: Iterable[_Known], estimator: Estimator) -> list[_Upto]:
    """The added messages, each with the sums over it and all before it."""
    hashed, tokens, injected = _sums(before)
    found = []
    for one in added:
        hashed = hash_of((one.salted,), hashed)
        tokens += estimator.tokens(one.facts)
        injected += one.injected
        found.append(_Upto(one, hashed, tokens, injected))
    return found


_NO_NUMBER: Final = -1
_NOTE: Final = 3
"""Numbers of a note: the message's own or ``_NO_NUMBER``, position, index of the body."""


class NotedMessages:
    """Reports messages to ``RecordedRequests``, at once or when the first request is met.

    The hash of every message would cost a file without recorded requests a sixth of its import, and
    0.3 kB of memory for each message. So only the place of a message is noted, and the messages
    before the first request are read back from the stream.
    """

    def __init__(self, requests: RecordedRequests, track: Track) -> None:
        self._requests = requests
        self._track = track
        # The stored messages of an earlier import may have been erased, and the file has them.
        self._notes = None if track.holds_records else array("i")

    def add(self, number: int | None, record: Record, index: int, message: dict[str, Any]) -> None:
        """Take a message; one of a compaction has no number."""
        if self._notes is None:
            self._requests.note_message(number, record, index, message)
        elif self._requests.records:
            place = (_NO_NUMBER if number is None else number, record.position, index)
            self._notes.extend(place)

    async def read_back(self) -> None:
        """Report every message so far; each later one is reported at once."""
        notes, self._notes = self._notes, None
        if not notes:
            return
        at = 0
        async for record in self._track.written():
            while at < len(notes) and notes[at + 1] == record.position:
                number, _, index = notes[at : at + _NOTE]
                message = decode_body(record.bodies[index].data or b"")
                known = None if number == _NO_NUMBER else number
                self._requests.note_message(known, record, index, message)
                at += _NOTE
