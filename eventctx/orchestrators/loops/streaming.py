"""The streaming orchestrator: a tool loop whose answers are passed on piece by piece.

A span must not stay open across a ``yield``, because context variables would leak into the reader.
So the turn runs in a task of its own and puts its chunks into a bounded queue (``Pieces``). The
bound makes the provider wait for a slow reader, so chunks never pile up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import msgspec

from eventctx.aio import finish
from eventctx.errors import EventctxError
from eventctx.orchestrators.host.hooks import Host
from eventctx.orchestrators.loops.rounds import take_rounds
from eventctx.orchestrators.loops.run import Orchestrator, TurnRun, run_turn
from eventctx.orchestrators.protocol import Chunk, ContextManager, Finish, Ids, Response
from eventctx.session.turns import Turn

WAITING: Final = 16
"""Chunks that may wait for a slow reader before the provider has to wait."""


class StreamingOrchestrator(Orchestrator):
    """Asks, runs the tools that the model calls, and asks again until the model calls none.

    The pieces of each answer are passed on as they come, also of those that call tools.
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

        Closing it early (``aclosing``) ends the model call or the tools that run, which is
        recorded as cancelled. The text so far of an answer that is not whole is added as the
        assistant's message, because the person has seen it.
        """
        run = TurnRun(self.NAME, self.settings, context, providers, tools, hooks, coordinator)
        outlet = Pieces(run.host)

        async def rounds(run: TurnRun, turn: Turn) -> Finish:
            return await take_rounds(run, turn, outlet=outlet)

        task = asyncio.create_task(run_turn(run, prompt, turn_id, rounds))
        task.add_done_callback(lambda _: outlet.wake())
        try:
            while (chunk := await outlet.next(task)) is not None:
                yield chunk
            response = await task
        finally:
            outlet.close()
            # A reader that stops for whatever reason leaves a turn that has ended.
            if not task.done():
                task.cancel()
                await finish(asyncio.wait({task}))
            if not task.cancelled():
                task.exception()
        yield response

    async def _take_turn(self, run: TurnRun, turn: Turn) -> Finish:
        return await take_rounds(run, turn, outlet=Pieces(run.host, read=False))


class Pieces:
    """A turn's chunks on their way to the reader, and to the host's hooks as content blocks.

    Without a reader (``read=False``) a chunk counts as shown as soon as it is put. The reader's
    blocks count on from answer to answer; the hooks' begin anew, as under Amplifier's loops.
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
        self._blocks = 0
        self._first_block = 0
        self._closed = False

    @property
    def began(self) -> bool:
        """Whether there was a piece of the answer."""
        return self._blocks > self._first_block

    @property
    def shown(self) -> str:
        """The answer's text that the reader has, and what waits unless the reader has stopped."""
        chunks = self._given if self._closed else [*self._given, *self._waiting]
        first = self._first_block
        return "".join([one.text for one in chunks if one.kind == "text" and one.block >= first])

    def next_answer(self) -> None:
        """Take note that the chunks of another answer follow."""
        self._first_block = self._blocks
        self._given.clear()  # a long turn keeps the text of one answer only

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
        await self.show(chunk)
        self._block_texts.append(chunk.text)
        await self._host.tell("content_block:delta", ids, _place(chunk) | {"delta": chunk.text})

    async def show(self, chunk: Chunk) -> None:
        """Pass a chunk on to the reader alone, as soon as there is room for it."""
        while len(self._waiting) >= WAITING:
            self._room.clear()
            await self._room.wait()
        placed = msgspec.structs.replace(chunk, block=self._first_block + chunk.block)
        self._blocks = max(self._blocks, placed.block + 1)
        (self._waiting if self._read else self._given).append(placed)
        self._changed.set()

    async def end(self, ids: Ids) -> None:
        """Tell the hooks that the current block has ended, for whatever reason."""
        block = self._block
        if block is None:
            return
        text, self._block_texts, self._block = "".join(self._block_texts), [], None
        content = {"type": block.kind, block.kind: text}
        await self._host.tell_end("content_block:end", ids, _place(block) | {"block": content})


def _place(chunk: Chunk) -> dict[str, Any]:
    return {"block_type": chunk.kind, "block_index": chunk.block}


HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}
"""The headers of a host's answer; the last one keeps nginx from collecting the pieces."""


async def server_sent_events(
    pieces: AsyncIterator[Chunk | Response],
) -> AsyncGenerator[bytes, None]:
    """The events of ``StreamingOrchestrator.stream(...)``, each with an id that counts from 0.

    The events ``text`` and ``thinking`` carry ``{"text", "block"}``, ``response`` the whole
    ``Response``. The last event is ``message.end`` with ``{"turn_id", "finish"}``, or an ``error``
    with ``{"type", "message"}``. A program error is raised as it is, after an ``error`` event
    without details. Closing this closes ``pieces``.
    """
    number = 0
    try:
        async for piece in pieces:
            for name, data in _events(piece):
                yield _event(number, name, data)
                number += 1
    except EventctxError as error:
        yield _event(number, "error", {"type": type(error).__name__, "message": str(error)})
    except Exception:
        # The text of a server's own error belongs in its log, not in a stream that anyone reads.
        payload = {"type": "InternalError", "message": "the turn could not be finished"}
        yield _event(number, "error", payload)
        raise
    finally:
        close = getattr(pieces, "aclose", None)
        if callable(close):
            await close()


def _events(piece: Chunk | Response) -> list[tuple[str, Any]]:
    if isinstance(piece, Chunk):
        return [(piece.kind, {"text": piece.text, "block": piece.block})]
    end = {"turn_id": piece.turn_id, "finish": piece.finish}
    return [("response", msgspec.to_builtins(piece)), ("message.end", end)]


def _event(number: int, name: str, data: Any) -> bytes:
    encoded = msgspec.json.encode(_sound(data))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name.encode(), encoded)


def _sound(data: Any) -> Any:
    """The data with lone surrogates replaced: a model may write them, UTF-8 cannot hold them."""
    if isinstance(data, str):
        return data.encode("utf-8", "replace").decode()
    if isinstance(data, dict):
        return {name: _sound(value) for name, value in data.items()}
    return data
