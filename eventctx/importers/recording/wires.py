"""Requests as they were sent, put together from a file's own records of them.

A wire form is made only if every message of the request is known by the hash that the file names:
as a content that the file holds, or as an answer in its transcript.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventctx.importers.source.items import RecordedContent, RecordedRequest
from eventctx.log.record import Record
from eventctx.log.wire import BodyAt, Injected, WireForm, hash_of, request_digest
from eventctx.messages.canonical import RULE, as_sent, canonical, message_digest
from eventctx.messages.carried import Carried, carried
from eventctx.messages.facts import Facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tokens import Estimator
from eventctx.projections.view.series import Series

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

_MOST_WAITING: Final = 256
"""Messages of the transcript that a later sent message may carry; older ones are given up."""

_MOST_RESOLVED: Final = 16
"""Requests whose whole lists of messages are kept, since the next ones begin with one of them."""


class _Known(NamedTuple):
    """A message that can be sent: where it is stored, its facts, the texts injected into it.

    ``salted`` is the digest of the stored body.
    """

    at: BodyAt
    salted: bytes
    facts: Facts
    injected: int


class _Sent(NamedTuple):
    """A content that is no message: where it is stored, and its size in characters."""

    at: BodyAt
    salted: bytes
    size: int


class _Messages(NamedTuple):
    """The messages of one request, with their hash and sums over them, counted by one estimator."""

    digests: Series[bytes]
    estimator: Estimator
    hash: Hash
    tokens: int
    injected: int


class Wires:
    """Takes contents, messages and requests in file order; ``form`` makes a request's wire form."""

    def __init__(self, *, records: bool) -> None:
        """``records``: whether the format is one that holds requests as they were sent."""
        self._records = records
        self._unknown = 0
        self._known: dict[bytes, _Known] = {}
        self._contents: dict[tuple[str, str], _Sent] = {}
        self._requests: dict[str, RecordedRequest] = {}
        self._positions: dict[str, int] = {}
        self._resolved: dict[str, _Messages] = {}
        self._waiting: list[tuple[int, dict[str, Any]]] = []
        self._gave_up = False

    # -- what a file holds -----------------------------------------------------------------------

    def said(self, number: int | None, record: Record, index: int, message: dict[str, Any]) -> None:
        """Note a message of the transcript; a compaction's own messages have no number."""
        if not self._records:
            return
        if message.get("role") == "assistant":
            self._note(message_digest(message), record, index, message, 0)
            return
        self._waiting.append((-1 if number is None else number, message))
        if len(self._waiting) > _MOST_WAITING:
            del self._waiting[0]
            self._gave_up = True

    def holds(self, item: RecordedContent) -> bool:
        """Whether a content is in the log already."""
        if item.kind == "message":
            return item.digest in self._known
        return (item.kind, item.key) in self._contents

    def carries(self, item: RecordedContent) -> tuple[tuple[int, ...], tuple[Injected, ...]]:
        """The numbers of the messages that a sent message carries, and what was put beside them."""
        if item.kind != "message":
            return (), ()
        found: Carried = carried(item.value, [message for _, message in self._waiting])
        if not found.messages and self._gave_up:
            return (), ()  # it may carry one that was given up
        numbers = [self._waiting[index][0] for index in found.messages]
        for index in reversed(found.messages):
            del self._waiting[index]
        injected = tuple([Injected(*span) for span in found.injected])
        return tuple(sorted({one for one in numbers if one >= 0})), injected

    def stored(self, item: RecordedContent, record: Record, injected: int) -> None:
        """Note the record in which a content was stored."""
        if item.kind == "message":
            self._note(item.digest, record, 0, item.value, injected)
        else:
            salted = record.bodies[0].digest
            size = len(canonical(item.value))
            self._contents[(item.kind, item.key)] = _Sent((record.position, 0), salted, size)

    def _note(
        self, digest: bytes, record: Record, index: int, message: dict[str, Any], injected: int
    ) -> None:
        salted = record.bodies[index].digest
        facts = read_facts(as_sent(message))
        self._known[digest] = _Known((record.position, index), salted, facts, injected)

    def remember(self, item: RecordedRequest) -> None:
        """Take a request; the call that it began names it later."""
        self._requests[item.id] = item

    @property
    def observed(self) -> int:
        """How many requests have a wire form."""
        return len(self._positions)

    @property
    def unanswered(self) -> int:
        """How many requests no answer in the file names: failed attempts, most of them."""
        return len(self._requests) - len(self._positions) - self._unknown

    def time_of(self, request: str | None) -> int | None:
        """When a request was sent."""
        item = self._requests.get(request or "")
        return None if item is None else item.time

    # -- the form --------------------------------------------------------------------------------

    def form(self, request: str, position: int, estimator: Estimator) -> WireForm | None:
        """The form of the request recorded at ``position``; None if a part of it is unknown."""
        item = self._requests.get(request)
        messages = None if item is None else self._messages(item, estimator)
        if item is None or messages is None or request in self._positions:
            self._unknown += item is not None and request not in self._positions
            return None
        base, keep = self._base(item)
        system = self._contents.get(("system", item.shape or ""))
        tools = self._contents.get(("tools", item.shape or ""))
        parameters = self._contents.get(("parameters", item.parameters or ""))
        if item.shape is not None and system is None and tools is None:
            self._unknown += 1
            return None
        self._positions[request] = position
        digests = messages.digests
        return WireForm(
            rule=RULE,
            digest=request_digest(
                messages.hash, *[one and one.salted for one in (system, tools, parameters)]
            ),
            tail=tuple([self._known[digests[at]].at for at in range(keep, len(digests))]),
            messages=len(digests),
            base=base,
            keep=keep,
            system=system and system.at,
            tools=tools and tools.at,
            parameters=parameters and parameters.at,
            cache_control=item.cache_control,
            message_tokens=messages.tokens,
            system_tokens=0 if system is None else estimator.tokens_of_json(system.size),
            tools_tokens=0 if tools is None else estimator.tokens_of_json(tools.size),
            injected=messages.injected,
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

    def _messages(self, item: RecordedRequest, estimator: Estimator) -> _Messages | None:
        """All messages of a request; None if one is not known, or an earlier request is not."""
        chain = [item]
        while chain[-1].keep and chain[-1].base not in self._resolved:
            below = self._requests.get(chain[-1].base or "")
            if below is None or len(chain) > len(self._requests):
                return None
            chain.append(below)
        last = chain[-1]
        found = self._sum((), estimator)
        if last.keep and last.base is not None:
            found = self._resolved[last.base]
        for one in reversed(chain):
            if one.keep > len(found.digests) or any(d not in self._known for d in one.tail):
                return None
            if one.keep < len(found.digests) or found.estimator != estimator:
                found = self._sum(found.digests[: one.keep], estimator)
            found = self._sum(one.tail, estimator, found)
            self._resolved.pop(one.id, None)
            self._resolved[one.id] = found
        while len(self._resolved) > _MOST_RESOLVED:
            del self._resolved[next(iter(self._resolved))]
        return found

    def _sum(
        self, digests: Iterable[bytes], estimator: Estimator, below: _Messages | None = None
    ) -> _Messages:
        added = list(digests)
        known = [self._known[one] for one in added]
        salted = [one.salted for one in known]
        tokens = sum(estimator.tokens(one.facts) for one in known)
        injected = sum(one.injected for one in known)
        if below is None:
            return _Messages(Series(added), estimator, hash_of(salted), tokens, injected)
        return _Messages(
            below.digests.extend(added),
            estimator,
            hash_of(salted, below.hash),
            below.tokens + tokens,
            below.injected + injected,
        )
