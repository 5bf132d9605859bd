"""Command handlers of a host's additions: system prompt, memory, messages for one request."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.errors import WrongExpectedVersion
from eventctx.log import events
from eventctx.log.codec import decode_known
from eventctx.log.record import Body
from eventctx.log.store import Address
from eventctx.messages.encoding import decode_body, encode_message
from eventctx.messages.facts import decode_facts
from eventctx.messages.facts_reader import is_from_hook
from eventctx.messages.overlap import runs_of_numbers
from eventctx.projections.view.request_view import ViewState
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
        view, _ = await self._session.appends.settled()
        rows = await self._rows(view)
        return tuple([decode_body(data)["content"] for data in rows.memory])

    def _row(self, text: str) -> bytes:
        return encode_message({"role": "system", "content": text})

    async def _set_rows(
        self, changed: Callable[[_Rows], _Rows], replaces: bool | None = None
    ) -> bool:
        """Record changed rows. With ``replaces`` None the replaced messages stay as they are."""
        while True:
            view, version = await self._session.appends.settled()
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
        additions: Sequence[tuple[int, dict[str, Any]]],
        missing: int | Sequence[dict[str, Any]],
    ) -> None:
        """As ``Context.record_sent``."""
        sent = self._session.memory.additions
        made = [(behind, body_of(self._session, message)) for behind, message in additions]
        keyed = [(behind, sha256(body.data or b"").digest(), body) for behind, body in made]
        fresh = {key: body for _, key, body in keyed if key not in sent}
        index = {key: place for place, key in enumerate(fresh)}
        additions_made = [
            events.Addition(behind, index[key])
            if key in index
            else events.Addition(behind, sent[key][1], sent[key][0])
            for behind, key, _ in keyed
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

    async def _difference(
        self, added: Sequence[Body], missing: int | Sequence[dict[str, Any]]
    ) -> int | None:
        """Tokens of the additions less those of the missing messages; None if these are unknown."""
        if missing == 0:
            missing = ()
        if isinstance(missing, int):
            return None
        view, _ = await self._session.appends.settled()
        gone = [body_of(self._session, message) for message in missing]
        sizes = [
            sum([view.estimator.tokens(decode_facts(body.facts)) for body in bodies])
            for bodies in (added, gone)
        ]
        return sizes[0] - sizes[1]
