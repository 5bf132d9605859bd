"""The streaming orchestrator: one model call, whose answer is passed on piece by piece.

A span must not stay open across a ``yield``, because context variables would leak into the reader.
So the turn runs in a task of its own and puts its chunks into a bounded queue (``Pieces``). The
bound makes the provider wait for a slow reader, so chunks never pile up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Final

from eventctx.aio import finish
from eventctx.orchestrators.host.hooks import Host
from eventctx.orchestrators.loops.model_call import ModelCaller
from eventctx.orchestrators.loops.run import Orchestrator, TurnRun, run_turn
from eventctx.orchestrators.protocol import Chunk, ContextManager, Finish, Ids, Response
from eventctx.session.turns import Turn

WAITING: Final = 16
"""Chunks that may wait for a slow reader before the provider has to wait."""


class StreamingOrchestrator(Orchestrator):
    """Asks once, and passes on the answer's pieces as they come. The model is offered no tools.

    A provider without ``stream`` gives its answer in one piece. ``settings`` are those of
    ``OrchestratorSettings``; unknown ones give a warning. Raises InvalidSetting.
    """

    NAME = "loop-streaming"

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
        """Chunks as they come, and the response as the last item. Raises as ``execute``.

        Closing it early (``aclosing``) ends the model call, which is recorded as cancelled, and
        adds the text so far as the assistant's message, because the person has seen it.
        """
        run = TurnRun(self.NAME, self.settings, context, providers, tools, hooks, coordinator)
        outlet = Pieces(run.host)

        async def once(run: TurnRun, turn: Turn) -> Finish:
            return await _ask_once(run, turn, outlet)

        task = asyncio.create_task(run_turn(run, prompt, turn_id, once))
        task.add_done_callback(lambda _: outlet.wake())
        try:
            while (chunk := await outlet.next(task)) is not None:
                yield chunk
            response = await task
        finally:
            outlet.close()
            # A reader that stops for whatever reason leaves behind a turn that has ended.
            if not task.done():
                task.cancel()
                await finish(asyncio.wait({task}))
            if not task.cancelled():
                task.exception()
        yield response

    async def _take_turn(self, run: TurnRun, turn: Turn) -> Finish:
        return await _ask_once(run, turn, Pieces(run.host, read=False))


async def _ask_once(run: TurnRun, turn: Turn, outlet: Pieces) -> Finish:
    run.check_stop()
    async with turn.iteration() as cycle:
        run.iterations = 1
        try:
            answer = await ModelCaller(run, cycle, outlet=outlet).answer()
        except BaseException:
            run.text = outlet.shown
            # An error while this message is added must not hide how the call ended.
            with suppress(Exception):
                if run.text:
                    await run.add({"role": "assistant", "content": run.text})
            raise
        await run.add_answer(answer)
    return "answered"


class Pieces:
    """A turn's chunks on their way to the reader, and to the host's hooks as content blocks.

    Without a reader (``read=False``) a chunk counts as shown as soon as it is put.
    """

    def __init__(self, host: Host, *, read: bool = True) -> None:
        self._host = host
        self._read = read
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
        """The text that the reader has, and the waiting text unless the reader has stopped."""
        chunks = self._given if self._closed else [*self._given, *self._waiting]
        return "".join([one.text for one in chunks if one.kind == "text"])

    def close(self) -> None:
        """Note that the reader takes no more."""
        self._closed = True

    def wake(self) -> None:
        """Let a waiting reader check whether the turn has ended."""
        self._changed.set()

    async def next(self, turn: asyncio.Task[Response]) -> Chunk | None:
        """The next piece for the reader; None when the turn has ended and no piece is left."""
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
        """Pass a chunk on as soon as there is room for it."""
        before = self._block
        if before is None or (before.block, before.kind) != (chunk.block, chunk.kind):
            await self.end(ids)
            self._block = chunk
            await self._host.tell("content_block:start", ids, _place(chunk))
        while len(self._waiting) >= WAITING:
            self._room.clear()
            await self._room.wait()
        (self._waiting if self._read else self._given).append(chunk)
        self._changed.set()
        self._block_texts.append(chunk.text)
        await self._host.tell("content_block:delta", ids, _place(chunk) | {"delta": chunk.text})

    async def end(self, ids: Ids) -> None:
        """Tell the hooks that the current block has ended."""
        block = self._block
        if block is None:
            return
        text, self._block_texts, self._block = "".join(self._block_texts), [], None
        content = {"type": block.kind, block.kind: text}
        await self._host.tell("content_block:end", ids, _place(block) | {"block": content})


def _place(chunk: Chunk) -> dict[str, Any]:
    return {"block_type": chunk.kind, "block_index": chunk.block}
