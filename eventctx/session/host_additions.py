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
from eventctx.projections.view.request_view import ViewState
from eventctx.session.open_session import OpenSession
from eventctx.session.transcript import body_of, stripped_by

MAX_ADDITIONS: Final = 256
"""Additions whose stored place is kept in memory, so that a repeated one is not stored again."""


class HostAdditions:
    """Records what a host adds to the requests of one live session."""

    def __init__(self, session: OpenSession) -> None:
        self._session = session

    async def set_system_prompt(self, text: str | None) -> bool:
        """As ``Context.set_system_prompt``."""
        body = None
        if text is not None:
            body = body_of(self._session, {"role": "system", "content": text})
        while True:
            view, version = await self._session.appends.settled()
            if await self._prompt_of(view) == (None if body is None else body.data):
                return False
            bodies = () if body is None else (body,)
            event = events.SystemPromptSet()
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
