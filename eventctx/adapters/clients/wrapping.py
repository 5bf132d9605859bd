"""``eventctx.wrap``: a client of Anthropic's or OpenAI's SDK whose calls are recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from eventctx.adapters.clients.recording import CallRecorder, CallUnderWay
from eventctx.adapters.clients.transport import is_async, library_of, recording_client
from eventctx.adapters.kit.loops import run_in
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.log.arguments import shown
from eventctx.sync.loop_thread import LoopThread
from eventctx.sync.proxy import SyncEngine, asynchronous

C = TypeVar("C")

_EXPECTED = "expected a client of the anthropic or openai SDK, such as AsyncAnthropic()"


def wrap(
    client: C, engine: Engine | SyncEngine, session: str, *, compact: bool = False, **settings: Any
) -> C:
    """A copy of ``client`` whose calls are recorded as the turns of ``session``.

    It has the client's type, options and connections, and its answers, streams and errors. One
    wrapped client is one conversation: wrap once for each. With ``compact`` the session's view is
    sent in place of the caller's messages, within ``max_tokens``; ``settings`` are those of
    ``engine.session``. A client without async takes an engine of ``eventctx.sync``.

    What cannot be recorded costs no answer: the caller's request is sent as it is, and the failure
    is logged and counted (``Engine.losses``). So is a call beside one that is under way.

    Raises InvalidSetting for another object than such a client, or an engine that does not fit it.
    """
    inner = getattr(client, "_client", None)  # no SDK gives it another name
    try:
        library_of(inner)
        copy: Callable[..., C] = client.copy  # type: ignore[attr-defined]
    except (LookupError, AttributeError):
        raise InvalidSetting(f"wrap: {_EXPECTED}, found {shown(client)}") from None
    observer: _Recording
    if isinstance(engine, SyncEngine):
        target, thread = asynchronous(engine)
        recorder = CallRecorder(target, session, compact, settings)
        observer = (
            _InLoop(recorder, thread.loop) if is_async(inner) else _Blocking(recorder, thread)
        )
    elif is_async(inner):
        recorder = CallRecorder(engine, session, compact, settings)
        observer = _InLoop(recorder, _running_loop())
    else:
        raise InvalidSetting(
            "wrap: expected an engine of eventctx.sync for a client without async "
            "(`with eventctx.sync.open(…) as engine`), found one of eventctx"
        )
    return copy(http_client=recording_client(inner, observer))


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidSetting(
            "wrap: expected a call in the event loop of the engine, found no loop that runs: wrap "
            "the client in the coroutine that opens the engine"
        ) from None


class _Recording:
    """Tells a recorder of calls, and keeps its faults from the caller."""

    def __init__(self, recorder: CallRecorder) -> None:
        self._recorder = recorder

    async def _begun(self, path: str, content: bytes) -> CallUnderWay | None:
        recorder = self._recorder
        if recorder.busy:
            recorder.engine.hooks.count_lost(wrap, "a call beside another one of its conversation")
            return None
        recorder.busy = True
        call = None
        try:
            call = await recorder.begin(path, content)
        except Exception as error:
            recorder.engine.hooks.count_error(wrap, error)
        finally:
            recorder.busy = call is not None
        return call

    async def _over(
        self,
        call: CallUnderWay | None,
        status: int,
        content: bytes | None,
        error: BaseException | None,
    ) -> None:
        recorder = self._recorder
        if call is None:
            return
        try:
            if content is None or error is not None:
                cancelled = isinstance(error, asyncio.CancelledError)
                await recorder.failed(None if cancelled else error)
            else:
                await recorder.answered(call, status, content)
        except Exception as fault:
            recorder.engine.hooks.count_error(wrap, fault)
        finally:
            recorder.busy = False


class _InLoop(_Recording):
    """For a client with async; the engine's loop may be another one than the client's."""

    def __init__(self, recorder: CallRecorder, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(recorder)
        self._loop = loop

    async def begin(self, path: str, content: bytes) -> CallUnderWay | None:
        begun: list[CallUnderWay | None] = []

        async def begin() -> None:
            begun.append(await self._begun(path, content))

        try:
            await run_in(self._loop, begin())
        except asyncio.CancelledError as error:
            # In another loop the call was begun all the same, and nobody else would end it.
            if begun:
                await self.ended(begun[0], 0, None, error)
            raise
        return begun[0]

    def ended(
        self, call: Any, status: int, content: bytes | None, error: BaseException | None
    ) -> Awaitable[Any]:
        return run_in(self._loop, self._over(call, status, content, error))


class _Blocking(_Recording):
    """For a client without async."""

    def __init__(self, recorder: CallRecorder, thread: LoopThread) -> None:
        super().__init__(recorder)
        self._thread = thread

    def begin(self, path: str, content: bytes) -> Any:
        return self._thread.call(lambda: self._begun(path, content))

    def ended(
        self, call: Any, status: int, content: bytes | None, error: BaseException | None
    ) -> Any:
        return self._thread.call(lambda: self._over(call, status, content, error))
