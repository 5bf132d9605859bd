"""The bodies of an append of more messages than an atomic batch takes: written before its records.

They mean nothing until a unit names their places, so the append stays all or nothing. If it fails
in the end, they are waste, and are destroyed; those of a process that died meanwhile are destroyed
with the next erasure or the deletion in their session.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from msgspec.structs import replace

from eventctx.errors import EventctxError
from eventctx.stores.jetstream.batch import Outgoing, send
from eventctx.stores.jetstream.connection import DOUBTS, ApiError, Link, Tries
from eventctx.stores.jetstream.layout import BATCH_MESSAGES, StoredBody
from eventctx.stores.jetstream.packing import BATCH_BYTES, Appending, BodyKey, bodies_before

_log = logging.getLogger("eventctx.stores")

_SEND_BYTES: Final = BATCH_BYTES // 2


class Destroys(Protocol):
    """Who can destroy messages of a session."""

    async def waste(self, session: str, sequences: list[int]) -> None:
        """Destroy messages that nothing names."""
        ...


class EarlyBodies:
    """Writes bodies before their records; in the store's loop."""

    def __init__(self, link: Link, destroys: Destroys) -> None:
        self._link = link
        self._destroys = destroys

    async def write(self, place: Appending) -> dict[BodyKey, StoredBody]:
        """Store all bodies of an append; where each of them lies."""
        written: dict[BodyKey, StoredBody] = {}
        waiting: list[tuple[BodyKey, StoredBody, int]] = []
        messages: list[Outgoing] = []
        size = 0
        most = self._link.client.max_payload

        async def flush() -> None:
            first = await self._sent(messages, place.session)
            for key, body, offset in waiting:
                written[key] = replace(body, sequence=first + offset)
            waiting.clear()
            messages.clear()

        for key, body, parts in bodies_before(self._link.names, place, most):
            own = sum(part.size for part in parts)
            if messages and (
                len(messages) + len(parts) > BATCH_MESSAGES or size + own > _SEND_BYTES
            ):
                await flush()
                size = 0
            size += own
            waiting.append((key, body, len(messages)))
            messages += parts
        if messages:
            await flush()
        return written

    async def _sent(self, messages: list[Outgoing], session: str) -> int:
        tries = Tries(self._link, f"append to {session!r}")
        while True:
            try:
                return await send(self._link, messages)
            except DOUBTS as error:
                await tries.after(error)
            except ApiError as error:
                if not error.passing:
                    raise self._link.translated(error, f"append to {session!r}") from error
                await tries.after(error)

    def waste(self, session: str, written: Mapping[BodyKey, StoredBody]) -> None:
        """Destroy the bodies of an append that failed, in the background."""
        sequences = [
            body.sequence + number
            for body in written.values()
            if body.sequence is not None
            for number in range(body.messages)
        ]
        self._link.keep(self._wasted(session, sequences))

    async def _wasted(self, session: str, sequences: list[int]) -> None:
        try:
            await self._destroys.waste(session, sequences)
        except EventctxError as error:
            _log.warning("%s: %d messages of a failed append were left: %s",
                         self._link.address.place, len(sequences), error)  # fmt: skip
