"""What a host puts beside the transcript: its system prompt, and what it adds to one request."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from eventctx.errors import WrongExpectedVersion
from eventctx.log import events
from eventctx.log.store import Address
from eventctx.projections.view.request_view import ViewState
from eventctx.session.aggregate import LiveSession
from eventctx.session.transcript import Transcript

MAX_ADDITIONS: Final = 256
"""Texts that a host added to requests and that are known again when it adds them again."""


class Additions:
    """Records what a host adds to the requests of one live session."""

    def __init__(self, live: LiveSession, transcript: Transcript) -> None:
        self._live = live
        self._transcript = transcript
        self._sent: dict[bytes | None, tuple[int, int]] = {}

    async def set_system_prompt(self, text: str | None) -> bool:
        """As ``Context.set_system_prompt``."""
        body = None
        if text is not None:
            body = self._transcript.body({"role": "system", "content": text})
        while True:
            view, version = await self._live.settled()
            if await self._prompt_of(view) == (None if body is None else body.data):
                return False
            bodies = () if body is None else (body,)
            event = events.SystemPromptSet()
            stripped = self._transcript.stripped(view, event, bodies)
            draft = self._transcript.draft(msgspec.structs.replace(event, unbound=stripped), bodies)
            # What another process wrote meanwhile is no reason to fail: look again.
            with contextlib.suppress(WrongExpectedVersion):
                if await self._live.append_exactly(version, draft) is not None:
                    return True

    async def _prompt_of(self, view: ViewState) -> bytes | None:
        for one in view.layout.insertions:
            if one.kind == "system_prompt":
                place = Address(one.position, one.index)
                return (await self._live.texts([place]))[place]
        return None

    async def record_sent(
        self,
        prepared: int,
        messages: int,
        additions: Sequence[tuple[int, dict[str, Any]]],
        missing: int,
    ) -> None:
        """As ``Context.record_sent``."""
        made = [(behind, self._transcript.body(message)) for behind, message in additions]
        fresh = {body.data: body for _, body in made if body.data not in self._sent}
        index = {data: place for place, data in enumerate(fresh)}
        told = [
            events.Addition(behind, index[body.data])
            if body.data in index
            else events.Addition(behind, self._sent[body.data][1], self._sent[body.data][0])
            for behind, body in made
        ]
        event = events.RequestSent(
            prepared=prepared, messages=messages, additions=tuple(told), missing=missing
        )
        draft = self._transcript.draft(event, tuple(fresh.values()))
        record = (await self._live.append(draft))[-1]
        if len(self._sent) + len(index) > MAX_ADDITIONS:
            self._sent.clear()
        self._sent.update({data: (record.position, place) for data, place in index.items()})
