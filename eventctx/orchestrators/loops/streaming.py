"""The streaming orchestrator: one model call, handed on piece by piece.

The turn runs in a task of its own, because no span may be open across a ``yield``; its chunks come
through a queue, so that a slow reader slows the provider down and nothing piles up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Final

from eventctx.aio import undisturbed
from eventctx.orchestrators.host.hooks import Host
from eventctx.orchestrators.loops.model_call import ModelCaller
from eventctx.orchestrators.loops.run import TurnRun, run_turn
from eventctx.orchestrators.loops.settings import settings_from
from eventctx.orchestrators.protocol import Chunk, ContextManager, Finish, Ids, Response
from eventctx.session.turns import Turn

WAITING: Final = 16
"""Chunks that may wait for a slow reader before the provider is made to wait."""


class StreamingOrchestrator:
    """Asks once, and hands on the answer's pieces as they come. The model is offered no tools.

    A provider without ``stream`` gives its answer in one piece. ``settings`` are those of
    ``OrchestratorSettings``; of unknown ones it warns. Raises InvalidSetting.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = settings_from(settings)

    async def execute(
        self,
        prompt: str,
        context: ContextManager,
        providers: Any,
        tools: Any = None,
        hooks: Any = None,
        *,
        turn_id: str | None = None,
        coordinator: Any = None,
    ) -> Response:
        """Run a turn to its end. Arguments and errors are those of ``EventsOrchestrator``."""
        pieces = self.stream(
            prompt,
            context,
            providers,
            tools,
            hooks,
            turn_id=turn_id,
            coordinator=coordinator,
        )
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Response):
                    return piece
        raise AssertionError("a stream ends with a response or raises")

    async def stream(
        self,
        prompt: str,
        context: ContextManager,
        providers: Any,
        tools: Any = None,
        hooks: Any = None,
        *,
        turn_id: str | None = None,
        coordinator: Any = None,
    ) -> AsyncGenerator[Chunk | Response, None]:
        """Chunks as they come, and last the response. Raises as ``execute``.

        Closing it early (``aclosing``) ends the model call, which is recorded as cancelled, and
        adds the text so far as the assistant's message: the person has seen it.
        """
        run = TurnRun(
            "loop-streaming", self.settings, context, providers, tools, hooks, coordinator
        )
        outlet = Pieces(run.host)

        async def once(run: TurnRun, turn: Turn) -> Finish:
            return await _once(run, turn, outlet)

        task = asyncio.create_task(run_turn(run, prompt, turn_id, once))
        task.add_done_callback(lambda _: outlet.wake())
        try:
            while (chunk := await outlet.next(task)) is not None:
                yield chunk
            response = await task
        finally:
            outlet.close()
            # Whoever stops reading, for whatever reason, leaves a turn that has ended.
            if not task.done():
                task.cancel()
                await undisturbed(asyncio.wait({task}))
            if not task.cancelled():
                task.exception()
        yield response


async def _once(run: TurnRun, turn: Turn, outlet: Pieces) -> Finish:
    run.check_stop()
    async with turn.iteration() as cycle:
        run.iterations = 1
        try:
            answer = await ModelCaller(run, cycle, outlet=outlet).answer()
        except BaseException:
            run.text = outlet.shown
            # What keeps a message from being added has no part in how the call ended.
            with suppress(Exception):
                if run.text:
                    await run.add({"role": "assistant", "content": run.text})
            raise
        await run.add_answer(answer)
    return "answered"


class Pieces:
    """A turn's chunks on their way to the reader, and to the host's hooks as content blocks."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: deque[Chunk] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._block: Chunk | None = None
        self._block_texts: list[str] = []
        self._given: list[Chunk] = []
        self._closed = False

    @property
    def began(self) -> bool:
        """Whether there was a piece."""
        return bool(self._given or self._waiting)

    @property
    def shown(self) -> str:
        """The text that the reader was given, and that which is on its way to one who reads on."""
        chunks = self._given if self._closed else [*self._given, *self._waiting]
        return "".join([one.text for one in chunks if one.kind == "text"])

    def close(self) -> None:
        """The reader takes no more."""
        self._closed = True

    def wake(self) -> None:
        """Let a reader that waits look whether the turn has ended."""
        self._changed.set()

    async def next(self, turn: asyncio.Task[Response]) -> Chunk | None:
        """The next piece for the reader; None when the turn ended and all were given."""
        while not self._waiting:
            if turn.done():
                return None
            self._changed.clear()
            await self._changed.wait()
        chunk = self._waiting.popleft()
        self._given.append(chunk)
        self._room.set()
        return chunk

    async def put(self, chunk: Chunk, ids: Ids) -> None:
        """Hand a chunk on, when there is room for it."""
        before = self._block
        if before is None or (before.block, before.kind) != (chunk.block, chunk.kind):
            await self.end(ids)
            self._block = chunk
            await self._host.tell("content_block:start", ids, _place(chunk))
        while len(self._waiting) >= WAITING:
            self._room.clear()
            await self._room.wait()
        self._waiting.append(chunk)
        self._changed.set()
        self._block_texts.append(chunk.text)
        await self._host.tell("content_block:delta", ids, _place(chunk) | {"delta": chunk.text})

    async def end(self, ids: Ids) -> None:
        """The block that began has ended."""
        block = self._block
        if block is None:
            return
        text, self._block_texts, self._block = "".join(self._block_texts), [], None
        described = {"type": block.kind, block.kind: text}
        await self._host.tell("content_block:end", ids, _place(block) | {"block": described})


def _place(chunk: Chunk) -> dict[str, Any]:
    return {"block_type": chunk.kind, "block_index": chunk.block}
