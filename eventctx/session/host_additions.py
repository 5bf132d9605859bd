"""Command handlers of a host's additions: its system prompt, and messages for one request."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
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
        self._sent: dict[bytes | None, tuple[int, int]] = {}

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
        made = [(behind, body_of(self._session, message)) for behind, message in additions]
        fresh = {body.data: body for _, body in made if body.data not in self._sent}
        index = {data: place for place, data in enumerate(fresh)}
        additions_made = [
            events.Addition(behind, index[body.data])
            if body.data in index
            else events.Addition(behind, self._sent[body.data][1], self._sent[body.data][0])
            for behind, body in made
        ]
        event = events.RequestSent(
            prepared=prepared, messages=messages, additions=tuple(additions_made), missing=missing
        )
        draft = self._session.appends.draft(event, tuple(fresh.values()))
        record = (await self._session.appends.append(draft))[-1]
        if len(self._sent) + len(index) > MAX_ADDITIONS:
            self._sent.clear()
        self._sent.update({data: (record.position, place) for data, place in index.items()})
