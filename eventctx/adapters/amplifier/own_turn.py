"""A turn that its orchestrator records with blocks, inside a host that tells of it as well."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from types import TracebackType

from eventctx.context import Context
from eventctx.turns import Turn


class OwnTurn:
    """``async with`` it: the session is opened, and the turn's id is known as somebody's own."""

    def __init__(
        self,
        opened: Callable[[], Awaitable[Context]],
        turn_id: str | None,
        agent: str | None,
        owned: set[str],
    ) -> None:
        self._opened = opened
        self._turn_id = uuid.uuid4().hex if turn_id is None else turn_id
        self._agent = agent
        self._owned = owned
        self._turn: Turn | None = None

    async def __aenter__(self) -> Turn:
        context = await self._opened()
        turn = context.turn(self._turn_id, agent=self._agent)
        self._owned.add(turn.turn_id)
        self._turn = await turn.__aenter__()
        return self._turn

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._turn is not None:
            await self._turn.__aexit__(kind, error, trace)
