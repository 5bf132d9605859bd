"""Command handlers of a host's additions: its system prompt, and messages for one request."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from eventctx.errors import WrongExpectedVersion
from eventctx.log import events
from eventctx.log.store import Address
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts_reader import is_from_hook
from eventctx.messages.ordered_diff import runs_of_numbers
from eventctx.projections.view.request_view import ViewState
from eventctx.session.open_session import OpenSession
from eventctx.session.transcript import body_of, stripped_by

MAX_ADDITIONS: Final = 256
"""Additions whose stored place is kept in memory, so that a repeated one is not stored again."""


class HostAdditions:
    """Records what a host adds to the requests of one live session."""

    def __init__(self, session: OpenSession) -> None:
        self._session = session
        self._of_hooks: dict[int, bool] = {}
        """System messages that were looked at, by number: whether a hook added them."""

    async def set_system_prompt(self, text: str | None, replaces: bool) -> bool:
        """As ``Context.set_system_prompt``."""
        body = None
        if text is not None:
            body = body_of(self._session, {"role": "system", "content": text})
        while True:
            view, version = await self._session.appends.settled()
            same = await self._prompt_of(view) == (None if body is None else body.data)
            replaced = await self._replaceable(view) if replaces and body is not None else []
            if same and replaced == [ref.number for ref in view.layout.refs if ref.replaced]:
                return False
            bodies = () if body is None else (body,)
            event = events.SystemPromptSet(replaced=runs_of_numbers(sorted(replaced)))
            stripped = stripped_by(self._session, view, event, bodies)
            draft = self._session.appends.draft(
                msgspec.structs.replace(event, unbound=stripped), bodies
            )
            # When another process wrote in between, compare with its prompt and try again.
            with contextlib.suppress(WrongExpectedVersion):
                if await self._session.appends.append_exactly(version, draft) is not None:
                    return True

    async def _prompt_of(self, view: ViewState) -> bytes | None:
        for one in view.layout.insertions:
            if one.kind == "system_prompt":
                place = Address(one.position, one.index)
                return (await self._session.bodies.texts([place]))[place]
        return None

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
        missing: int,
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
            prepared=prepared, messages=messages, additions=tuple(additions_made), missing=missing
        )
        draft = self._session.appends.draft(event, tuple(fresh.values()))
        record = (await self._session.appends.append(draft))[-1]
        if len(sent) + len(index) > MAX_ADDITIONS:
            sent.clear()
        sent.update({key: (record.position, place) for key, place in index.items()})
