"""Command handlers of hosts that take part in requests: additions to ours, and requests of theirs.

``HostAdditions`` records the system prompt, the memory and the messages that a host adds to the
requests that we prepare. ``RequestObserver`` records the requests that a program sent itself, as
they were sent.

Invariant: the record of an observed request does not grow with the conversation. It names what it
repeats of the request before it and the messages of the transcript that were sent unchanged, and
holds every other content once (``log/wire.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.errors import WrongExpectedVersion
from eventctx.log import events
from eventctx.log.codec import decode_known
from eventctx.log.events import ContentKind, RequestContent
from eventctx.log.record import Body, Draft, make_body
from eventctx.log.store import Address
from eventctx.log.turn_recorder import ModelRequest, TurnSpan, beginning_of
from eventctx.log.wire import BodyAt, CacheMark, WireForm, hash_of, request_digest
from eventctx.messages import calibration
from eventctx.messages.encoding import canonical, decode_body, digest_of, encode_message
from eventctx.messages.facts import Facts, decode_facts
from eventctx.messages.facts_reader import is_from_hook, read_facts
from eventctx.messages.overlap import runs_of_numbers
from eventctx.projections.view import request_view
from eventctx.projections.view.request_view import ViewState
from eventctx.session.activity import own
from eventctx.session.open_session import OpenSession
from eventctx.session.transcript import body_of, stripped_by

MAX_ADDITIONS: Final = 256
"""Additions whose stored place is kept in memory, so that a repeated one is not stored again."""


class _Rows(NamedTuple):
    """The stored bytes of the system rows that precede a view: at most one prompt, and memory."""

    prompt: tuple[bytes, ...]
    memory: tuple[bytes, ...]

    @property
    def in_order(self) -> tuple[bytes, ...]:
        return *self.prompt, *self.memory


class HostAdditions:
    """Records what a host adds to the requests of one live session."""

    def __init__(self, session: OpenSession) -> None:
        self._session = session
        self._counted: tuple[int, int] | None = None
        self._untold: int | None = None
        self._of_hooks: dict[int, bool] = {}
        """System messages that were looked at, by number: whether a hook added them."""

    async def set_system_prompt(self, text: str | None, replaces: bool) -> bool:
        """As ``Context.set_system_prompt``."""
        prompt = () if text is None else (self._row(text),)
        replaces = replaces and text is not None
        return await self._set_rows(lambda rows: _Rows(prompt, rows.memory), replaces)

    async def set_memory(self, texts: Sequence[str]) -> bool:
        """As ``Context.set_memory``."""
        memory = tuple([self._row(text) for text in texts])
        return await self._set_rows(lambda rows: _Rows(rows.prompt, memory))

    async def memory(self) -> tuple[str, ...]:
        """As ``Context.memory``."""
        view, _ = await self._session.appends.settle()
        rows = await self._rows(view)
        return tuple([decode_body(data)["content"] for data in rows.memory])

    def _row(self, text: str) -> bytes:
        return encode_message({"role": "system", "content": text})

    async def _set_rows(
        self, changed: Callable[[_Rows], _Rows], replaces: bool | None = None
    ) -> bool:
        """Record changed rows. With ``replaces`` None the replaced messages stay as they are."""
        while True:
            view, version = await self._session.appends.settle()
            before = await self._rows(view)
            after = changed(before)
            standing = [ref.number for ref in view.layout.refs if ref.replaced]
            replaced = standing
            if replaces is not None:
                replaced = await self._replaceable(view) if replaces else []
            if after == before and replaced == standing:
                return False
            bodies = [body_of(self._session, decode_body(data)) for data in after.in_order]
            event = events.SystemPromptSet(
                replaced=runs_of_numbers(sorted(replaced)), memory=len(after.memory)
            )
            stripped = stripped_by(self._session, view, event, bodies)
            draft = self._session.drafts.make(
                msgspec.structs.replace(event, unbound=stripped), bodies
            )
            # When another process wrote in between, compare with its rows and try again.
            with contextlib.suppress(WrongExpectedVersion):
                if await self._session.appends.append_exactly(version, draft) is not None:
                    return True

    async def _rows(self, view: ViewState) -> _Rows:
        """The system rows in force. Erased ones are left out."""
        found = [one for one in view.layout.insertions if one.kind == "system_prompt"]
        if not found:
            return _Rows((), ())
        texts = await self._session.bodies.texts([(one.position, one.index) for one in found])
        first = len(found) - await self._memory_at(found[0].position)
        kept = [(one.index, texts[one.position, one.index]) for one in found]
        return _Rows(
            tuple([data for index, data in kept if data is not None and index < first]),
            tuple([data for index, data in kept if data is not None and index >= first]),
        )

    async def _memory_at(self, position: int) -> int:
        """The number of memory's texts in the record at ``position``, which set the rows."""
        if self._counted is None or self._counted[0] != position:
            store, stream = self._session.store, self._session.stream
            async for record in store.read(stream, start=position, stop=position, bodies=False):
                event: events.SystemPromptSet = decode_known(record)
                self._counted = position, event.memory
        return 0 if self._counted is None else self._counted[1]

    async def _replaceable(self, view: ViewState) -> list[int]:
        """The stored system messages that a host's prompt replaces, in the order of the view."""
        stored = [ref for ref in view.layout.refs if ref.facts.role == "system"]
        unknown = [ref for ref in stored if ref.number not in self._of_hooks]
        places = [Address(ref.position, ref.index) for ref in unknown]
        texts = await self._session.bodies.texts(places) if places else {}
        for ref, place in zip(unknown, places, strict=True):
            data = texts[place]
            self._of_hooks[ref.number] = data is not None and is_from_hook(decode_body(data))
        return [
            ref.number
            for ref in stored
            if not self._of_hooks[ref.number] and ref.number not in view.pins
        ]

    async def record_sent(
        self,
        prepared: int,
        messages: int,
        additions: int | Sequence[tuple[int, dict[str, Any]]],
        missing: int | Sequence[dict[str, Any]],
    ) -> None:
        """As ``Context.record_sent``."""
        if isinstance(additions, int):
            lacking = missing if isinstance(missing, int) else len(missing)
            await self._record_untold(prepared, messages, additions, lacking)
            return
        sent = self._session.memory.additions
        made = [(after, body_of(self._session, message)) for after, message in additions]
        keyed = [(after, sha256(body.data or b"").digest(), body) for after, body in made]
        fresh = {key: body for _, key, body in keyed if key not in sent}
        index = {key: place for place, key in enumerate(fresh)}
        additions_made = [
            events.Addition(after, index[key])
            if key in index
            else events.Addition(after, sent[key][1], sent[key][0])
            for after, key, _ in keyed
        ]
        event = events.RequestSent(
            prepared=prepared,
            messages=messages,
            additions=tuple(additions_made),
            missing=missing if isinstance(missing, int) else len(missing),
            difference=await self._difference([body for _, body in made], missing),
        )
        draft = self._session.drafts.make(event, tuple(fresh.values()))
        record = (await self._session.appends.append(draft))[-1]
        if len(sent) + len(index) > MAX_ADDITIONS:
            sent.clear()
        sent.update({key: (record.position, place) for key, place in index.items()})

    async def _record_untold(
        self, prepared: int, messages: int, additions: int, missing: int
    ) -> None:
        """Record a request of which the host tells no text that it adds.

        What a host adds to every request is a part of what is sent with the view, which usage
        teaches. What it adds to one request alone must not be taken for that.
        """
        steady = self._untold is None or additions <= self._untold
        self._untold = additions
        event = events.RequestSent(
            prepared=prepared,
            messages=messages,
            missing=missing,
            difference=0 if steady else None,
            untold=additions,
        )
        await self._session.appends.emit(self._session.drafts.make(event))
        self._session.memory.reports.note_untold(prepared, additions)

    async def _difference(
        self, added: Sequence[Body], missing: int | Sequence[dict[str, Any]]
    ) -> int | None:
        """Tokens of the additions less those of the missing messages; None if these are unknown."""
        if missing == 0:
            missing = ()
        if isinstance(missing, int):
            return None
        view, _ = await self._session.appends.settle()
        gone = [body_of(self._session, message) for message in missing]
        sizes = [
            sum([view.estimator.tokens(decode_facts(body.facts)) for body in bodies])
            for bodies in (added, gone)
        ]
        return sizes[0] - sizes[1]


_ASIDE: Final = 8
"""Messages at the end of the transcript that are compared beyond those that a request adds."""


class ObservedRequest(NamedTuple):
    """A request as it is sent: its ``messages``, and all fields around them.

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


class RequestObserver:
    """Records the requests of one live session that its program sent."""

    def __init__(self, session: OpenSession) -> None:
        self._session = session
        self._last: tuple[int, list[_Sent]] | None = None
        self._contents: dict[str, _Content] | None = None

    async def record(self, sent: ObservedRequest, call: TurnSpan[ModelRequest] | None) -> int:
        """Record a request; return its position. ``call`` sends it, and begins with it.

        Raises InvalidMessage and what the store raises.
        """
        while True:
            view, version = await self._session.appends.settle()
            if self._contents is None:
                self._contents = await self._stored_contents(version)
            made = _Making(self._session, self._contents, version)
            rows = await self._rows(sent, view, made)
            parts = [made.part(kind, getattr(sent, kind)) for kind in _PARTS]
            position = version + 1 + len(made.drafts)
            form = self._form(sent, view, rows, parts)
            event = request_view.prepare_request(
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
                records = await append(version, *drafts, then=enter)
                if records is not None:
                    self._contents.update(made.contents)
                    self._last = position, rows
                    self._session.note_request(position, event, records[-1].time)
                    return position

    async def _stored_contents(self, head: int) -> dict[str, _Content]:
        """The contents other than messages that earlier processes stored."""
        found: dict[str, _Content] = {}
        read = self._session.store.read(self._session.stream, stop=head)
        async for record in read:
            if record.type == "context:request_content":
                event = decode_known(record)
                if isinstance(event, RequestContent) and event.kind != "message":
                    known = _Content((record.position, 0), record.bodies[0].digest)
                    found[f"{event.kind} {event.digest}"] = known
        return found

    async def _rows(self, sent: ObservedRequest, view: ViewState, made: _Making) -> list[_Sent]:
        """The messages of a request, each with its place in the log."""
        before = [] if self._last is None else self._last[1]
        kept = 0
        for one, row in zip(before, sent.messages, strict=False):
            if one.row is not row and one.row != row:
                break
            kept += 1
        rows, tail = before[:kept], sent.messages[kept:]
        taken = {one.at for one in rows}
        newest = view.layout.refs[-(len(tail) + _ASIDE) :]
        free = [one for one in newest if (one.position, one.index) not in taken]
        texts = await self._session.bodies.texts([(one.position, one.index) for one in free])
        by_text = {texts[one.position, one.index]: one for one in reversed(free)}
        for row in tail:
            data = encode_message(row)
            ref = by_text.get(data)
            if ref is None or ref.shortened or ref.stripped:
                place = made.content("message", "", data)
                rows.append(_Sent(row, place.at, place.salted, read_facts(dict(row))))
            else:
                rows.append(_Sent(row, (ref.position, ref.index), ref.digest, ref.facts))
        return rows

    def _form(
        self,
        sent: ObservedRequest,
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
    """The contents that one request stores with its record, after position ``version``."""

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
