"""The compactions of one session, told on the host's registry; its hooks may veto one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eventctx.adapters.amplifier import payloads
from eventctx.engine import Engine
from eventctx.log.codec import decode_known
from eventctx.log.events import PostCompact
from eventctx.log.record import Record
from eventctx.policies.advisers import CompactionAsked, Verdict
from eventctx.session.context import Context


class CompactionEvents:
    """Emits to ``hooks`` what became of each compaction, when ``tell`` is called."""

    def __init__(self, session: str, hooks: Any) -> None:
        self._session = session
        self._hooks = hooks
        self._ended: list[Record] = []

    def follow(self, engine: Engine, context: Context) -> list[Callable[[], None]]:
        """Listen to the session; returns the functions that end it."""
        return [
            context.on("context:post_compact", self._ended.append),
            engine.intercept("context:pre_compact", self._ask),
        ]

    async def _ask(self, request: CompactionAsked) -> Verdict | None:
        """Tell the host that a compaction begins; a denial is a veto."""
        if request.session != self._session:
            return None
        result = await self._hooks.emit("context:pre_compact", payloads.before(request))
        if getattr(result, "action", None) == "deny":
            return Verdict(veto=str(getattr(result, "reason", None) or "a hook of the host denied"))
        return None

    async def tell(self) -> None:
        """Tell the host of compactions that ended, with the specifications' field names."""
        while self._ended:
            record = self._ended.pop(0)
            event: PostCompact = decode_known(record)
            await self._hooks.emit("context:post_compact", payloads.after(record, event))
            if event.outcome == "applied":
                payload = payloads.compaction(record, event)
                await self._hooks.emit("context:compaction", payload)
                await self._hooks.emit("context:compact", payload)
