"""The command handler of observed requests: those that a program sent itself, as they were sent.

A request names what it repeats of the one before it, the messages of the transcript that were sent
as they stand there, and every other content once (``log/wire.py``). So its record does not grow
with the conversation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.errors import WrongExpectedVersion
from eventctx.log.codec import decode_known
from eventctx.log.events import ContentKind, RequestContent
from eventctx.log.record import Draft, make_body
from eventctx.log.turn_recorder import ModelRequest, TurnSpan, beginning_of
from eventctx.log.wire import BodyAt, CacheMark, WireForm, hash_of, request_digest
from eventctx.messages import calibration
from eventctx.messages.canonical import canonical, digest_of
from eventctx.messages.encoding import encode_message
from eventctx.messages.facts import Facts
from eventctx.messages.facts_reader import read_facts
from eventctx.projections.view import request_view
from eventctx.projections.view.request_view import ViewState
from eventctx.session.activity import SessionEmitter, own
from eventctx.session.open_session import OpenSession

_ASIDE: Final = 8
"""Messages at the end of the transcript that are compared beyond those that a request adds."""


class SentRequest(NamedTuple):
    """A request as it is sent: its ``messages``, and what stands beside them.

    ``rule`` is one of ``log.wire.APIS``. No part holds a ``cache_control``: these are
    ``cache_control``. ``parameters`` are all fields that are not named here.
    """

    rule: str
    messages: Sequence[Mapping[str, Any]]
    system: Any = None
    tools: Any = None
    parameters: Mapping[str, Any] = {}
    cache_control: tuple[CacheMark, ...] = ()
    model: str | None = None


class _Sent(NamedTuple):
    """A message that was sent: where it is stored, its salted digest, and its facts."""

    row: Mapping[str, Any]
    at: BodyAt
    salted: bytes
    facts: Facts


class _Content(NamedTuple):
    at: BodyAt
    salted: bytes


class ObservedRequests:
    """Records the requests of one live session that its program sent."""

    def __init__(self, session: OpenSession, emitter: SessionEmitter) -> None:
        self._session = session
        self._emitter = emitter
        self._last: tuple[int, list[_Sent]] | None = None
        self._contents: dict[str, _Content] | None = None

    async def record(self, sent: SentRequest, call: TurnSpan[ModelRequest] | None) -> int:
        """Record a request; return its position. ``call`` sends it, and begins with it.

        Raises InvalidMessage and what the store raises.
        """
        while True:
            view, version = await self._session.appends.settled()
            if self._contents is None:
                self._contents = await self._stored_contents(version)
            made = _Making(self._session, self._contents, version)
            rows = await self._rows(sent, view, made)
            parts = [made.part(kind, getattr(sent, kind)) for kind in _PARTS]
            position = version + 1 + len(made.drafts)
            form = self._form(sent, view, rows, parts)
            event = request_view.prepared(
                view,
                scale=calibration.scale(view.calibration, form.tokens - view.layout.tokens),
                model=sent.model,
                wire=form,
            )
            drafts = [*made.drafts, self._session.drafts.make(event)]
            if call is not None and (call.began or call.beginning):
                call = None  # another request, made at the same time, is the one that it sends
            if call is not None:
                call.of.prepared = position
                own(call)
                scope = self._session.drafts.scope.at(call.ids)
                drafts.append(self._session.drafts.make(beginning_of(call.of), scope=scope))
            enter = None if call is None else call.begun
            # When another process wrote in between, look at its records and try again.
            beginning = contextlib.nullcontext() if call is None else call.beginning_on_disk()
            with contextlib.suppress(WrongExpectedVersion), beginning:
                append = self._session.appends.append_exactly
                if await append(version, *drafts, then=enter) is not None:
                    self._contents.update(made.contents)
                    self._last = position, rows
                    self._emitter.remember(self._session.drafts.scope, position)
                    return position

    async def _stored_contents(self, head: int) -> dict[str, _Content]:
        """What earlier processes stored beside the messages."""
        found: dict[str, _Content] = {}
        read = self._session.store.read(self._session.stream, stop=head)
        async for record in read:
            if record.type == "context:request_content":
                event = decode_known(record)
                if isinstance(event, RequestContent) and event.kind != "message":
                    known = _Content((record.position, 0), record.bodies[0].digest)
                    found[f"{event.kind} {event.digest}"] = known
        return found

    async def _rows(self, sent: SentRequest, view: ViewState, made: _Making) -> list[_Sent]:
        """The messages of a request, each with its place in the log."""
        before = [] if self._last is None else self._last[1]
        kept = 0
        for one, row in zip(before, sent.messages, strict=False):
            if one.row is not row and one.row != row:
                break
            kept += 1
        rows, tail = before[:kept], sent.messages[kept:]
        taken = {one.at for one in rows}
        newest = list(view.layout.refs)[-(len(tail) + _ASIDE) :]
        free = [one for one in newest if (one.position, one.index) not in taken]
        texts = await self._session.bodies.texts([(one.position, one.index) for one in free])
        by_text = {texts[one.position, one.index]: one for one in reversed(free)}
        for row in tail:
            data = encode_message(row)
            ref = by_text.get(data)
            if ref is None or ref.shortened or ref.stripped:
                place = made.content("message", "", data)
                rows = [*rows, _Sent(row, place.at, place.salted, read_facts(dict(row)))]
            else:
                rows = [*rows, _Sent(row, (ref.position, ref.index), ref.digest, ref.facts)]
        return rows

    def _form(
        self,
        sent: SentRequest,
        view: ViewState,
        rows: list[_Sent],
        parts: list[_Content | None],
    ) -> WireForm:
        base, keep = None, 0
        if self._last is not None:
            for one, other in zip(self._last[1], rows, strict=False):
                if one.at != other.at:
                    break
                keep += 1
            base = self._last[0] if keep else None
        estimator = request_view.with_model(view, sent.model).estimator
        system, tools, parameters = parts
        return WireForm(
            rule=sent.rule,
            digest=request_digest(
                hash_of([one.salted for one in rows]),
                *[None if one is None else one.salted for one in parts],
            ),
            tail=tuple([one.at for one in rows[keep:]]),
            messages=len(rows),
            base=base,
            keep=keep,
            system=system and system.at,
            tools=tools and tools.at,
            parameters=parameters and parameters.at,
            cache_control=sent.cache_control,
            message_tokens=sum([estimator.tokens(one.facts) for one in rows]),
            system_tokens=_json_tokens(estimator, sent.system),
            tools_tokens=_json_tokens(estimator, sent.tools),
        )


_PARTS: Final[tuple[ContentKind, ...]] = ("system", "tools", "parameters")


class _Making:
    """The contents that one request stores besides its record, behind position ``version``."""

    def __init__(self, session: OpenSession, known: dict[str, _Content], version: int) -> None:
        self._session = session
        self._known = known
        self._version = version
        self.drafts: list[Draft] = []
        self.contents: dict[str, _Content] = {}

    def part(self, kind: ContentKind, value: Any) -> _Content | None:
        """Where a part of the request is stored; None for one that it does not have."""
        if value is None or (kind == "parameters" and not value):
            return None
        digest = digest_of(value).hex()
        key = f"{kind} {digest}"
        found = self._known.get(key)
        if found is None:
            found = self.content(kind, digest, msgspec.json.encode(value))
            self.contents[key] = found
        return found

    def content(self, kind: ContentKind, digest: str, data: bytes) -> _Content:
        """Store a content; it gets the next position."""
        body = make_body(data, b"", self._session.random)
        event = RequestContent(kind=kind, digest=digest)
        self.drafts.append(self._session.drafts.make(event, (body,)))
        return _Content((self._version + len(self.drafts), 0), body.digest)


def _json_tokens(estimator: Any, value: Any) -> int:
    return 0 if value is None else int(estimator.tokens_of_json(len(canonical(value))))
