"""``eventctx.wrap``: a client of Anthropic's or OpenAI's SDK whose calls are recorded."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from eventctx.adapters.clients.exchange import ReadRequest
from eventctx.adapters.clients.recording import CallRecorder, CallsOf, CallUnderWay
from eventctx.adapters.clients.transport import (
    Leaving,
    OwnRequest,
    is_async,
    is_recording,
    library_of,
    recording_client,
)
from eventctx.adapters.kit.loops import engine_in_loop, run_in
from eventctx.aio import finish, in_own_thread
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.log.arguments import shown
from eventctx.sync.loop_thread import LoopThread
from eventctx.sync.proxy import SyncEngine, asynchronous, opened

C = TypeVar("C")

_EXPECTED = "expected a client of the anthropic or openai SDK, such as AsyncAnthropic()"


def wrap(
    client: C,
    engine: Engine | SyncEngine | str | os.PathLike[str],
    session: str,
    *,
    compact: bool = False,
    **settings: Any,
) -> C:
    """A copy of ``client`` whose calls are recorded as the turns of ``session``.

    It has the client's type, options and connections, and its answers, streams and errors. One
    wrapped client is one conversation: wrap once for each. With ``compact`` the session's view is
    sent in place of the caller's messages, within ``max_tokens``; ``settings`` are those of
    ``engine.session``, and the policy ``native`` asks the client's own API. A client without async
    takes an engine of ``eventctx.sync``. The path or URL of a store is opened until the copy is
    closed, or the program ends.

    A failure to record costs no answer: the caller's request is sent as it is, and the failure
    is logged and counted (``Engine.hook_failures``). So is a call during another one.

    Raises InvalidSetting for another object than such a client, a client that is wrapped, or an
    engine that does not fit it; and what opening a store raises.
    """
    inner = getattr(client, "_client", None)  # no SDK gives it another name
    try:
        library_of(inner)
        copy: Callable[..., C] = client.copy  # type: ignore[attr-defined]
    except (LookupError, AttributeError):
        raise InvalidSetting(f"wrap: {_EXPECTED}, found {shown(client)}") from None
    if is_recording(inner):
        raise InvalidSetting(
            "wrap: expected a client that is not wrapped, found one that is: wrap the client that "
            "it was made from, once for each conversation"
        )
    observer = _observer(inner, engine, CallsOf(session, compact, settings))
    return copy(http_client=recording_client(inner, observer))


def _observer(inner: Any, engine: Any, calls: CallsOf) -> _InLoop | _Blocking:
    own = None
    if isinstance(engine, str | os.PathLike):
        engine = own = opened(LoopThread("eventctx-wrap"), [os.fspath(engine)], {})
    if isinstance(engine, SyncEngine):
        target, thread = asynchronous(engine)
        recorder = CallRecorder(target, calls)
        if is_async(inner):
            return _InLoop(recorder, own, thread.loop)
        return _Blocking(recorder, own, thread)
    if not isinstance(engine, Engine):
        raise InvalidSetting(
            f"wrap: expected an engine, or the path of a store, found {shown(engine)}"
        )
    if not is_async(inner):
        raise InvalidSetting(
            "wrap: expected an engine of eventctx.sync for a client without async "
            "(`with eventctx.sync.open(…) as engine`), or the path of a store, found an engine of "
            "eventctx"
        )
    return _InLoop(CallRecorder(engine, calls), None, engine_in_loop(engine, "wrap")[1])


class _Recording:
    """Tells a recorder of calls, and keeps its faults from the caller. ``own`` is closed with the
    client."""

    def __init__(self, recorder: CallRecorder, own: SyncEngine | None) -> None:
        self._recorder = recorder
        self._own = own
        self._endings: set[asyncio.Task[None]] = set()

    def _later(self, ending: asyncio.Task[None]) -> None:
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    def _fault(self, fault: Exception) -> None:
        self._recorder.engine.hooks.count_error(wrap, fault)

    async def _begun(self, leaving: Leaving) -> CallUnderWay | None:
        try:
            if leaving.content is not None:
                request = self._recorder.read(leaving.path, leaving.content)
                if request is not None:
                    return await self._begun_call(request, leaving)
        except Exception as error:
            self._fault(error)
            return None
        return self._recorder.asked_again(leaving.path)

    async def _begun_call(self, request: ReadRequest, leaving: Leaving) -> CallUnderWay | None:
        recorder, last = self._recorder, self._recorder.under_way
        if last is not None and (last.whole() or last.goes_on_in(request)):
            await self._left()
        if recorder.under_way is not None:
            recorder.engine.hooks.count_lost(wrap, "a call beside another one of its conversation")
            return None
        if recorder.compacts and not leaving.replaceable:
            recorder.engine.hooks.count_lost(wrap, "the view for a request whose body is signed")
        call, begun = CallUnderWay(), False
        recorder.under_way = call
        try:
            await recorder.begin(call, request, leaving.url, leaving.replaceable)
            begun = True
        finally:
            if not begun:
                recorder.under_way = None
        if call.overflow is not None:
            self._fault(call.overflow)
        return call

    async def _left(self) -> None:
        """End the call under way with the received part of its answer, which has no reader."""
        last = self._recorder.under_way
        if last is not None and last.received is not None:
            await self._over(last, 200, last.received(), None)

    async def _over(
        self,
        call: CallUnderWay | None,
        status: int,
        content: bytes | None,
        error: BaseException | None,
    ) -> None:
        recorder = self._recorder
        if call is None or call is not recorder.under_way:
            return
        try:
            if content is None or error is not None:
                cancelled = isinstance(error, asyncio.CancelledError)
                await recorder.failed(call, None if cancelled else error)
            else:
                await recorder.answered(call, status, content)
        except Exception as fault:
            self._fault(fault)
        finally:
            recorder.under_way = None


class _InLoop(_Recording):
    """For a client with async; the engine's loop may be another one than the client's."""

    def __init__(
        self, recorder: CallRecorder, own: SyncEngine | None, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(recorder, own)
        self._loop = loop

    async def begin(self, request: Leaving) -> CallUnderWay | None:
        begun: list[CallUnderWay | None] = []

        async def begin() -> None:
            begun.append(await self._begun(request))

        own, again = asyncio.get_running_loop(), request.again

        async def ask_again(asked: OwnRequest) -> tuple[int, bytes]:
            return await run_in(own, again(asked))  # type: ignore[misc]

        try:
            await self._others_ended()
            self._recorder.again = ask_again
            await run_in(self._loop, begin())
        except asyncio.CancelledError as error:
            # In another loop the call was begun all the same, and only this code can end it.
            if begun:
                await self.ended(begun[0], 0, None, error)
            raise
        except Exception as fault:  # the engine's loop has ended
            self._fault(fault)
        return begun[0] if begun else None

    async def ended(
        self, call: Any, status: int, content: bytes | None, error: BaseException | None
    ) -> None:
        if call is None:
            return
        try:
            # An SDK drains a body in a scope with a time limit, and a caller's may be cancelled.
            await finish(run_in(self._loop, self._over(call, status, content, error)))
        except Exception as fault:
            self._fault(fault)

    def left(self, call: Any, status: int, content: bytes | None, error: None) -> None:
        ended = self.ended(call, status, content, error)
        self._later(asyncio.get_running_loop().create_task(ended))

    async def close(self) -> None:
        try:
            await self._others_ended()
            await finish(run_in(self._loop, self._left()))
        except Exception as fault:
            self._fault(fault)
        finally:
            if self._own is not None:
                self._own.close()

    async def _others_ended(self) -> None:
        own = asyncio.get_running_loop()
        waited = [one for one in self._endings if one.get_loop() is own]
        if waited:
            await asyncio.wait(waited)


class _Blocking(_Recording):
    """For a client without async."""

    def __init__(self, recorder: CallRecorder, own: SyncEngine | None, thread: LoopThread) -> None:
        super().__init__(recorder, own)
        self._thread = thread

    def begin(self, request: Leaving) -> CallUnderWay | None:
        again = request.again

        async def ask_again(asked: OwnRequest) -> tuple[int, bytes]:
            asks = partial(again, asked)  # type: ignore[arg-type, misc]
            return await in_own_thread(asks, "eventctx-compact")  # type: ignore[no-any-return]

        self._recorder.again = ask_again
        return self._call(lambda: self._begun(request))  # type: ignore[no-any-return]

    def ended(
        self, call: Any, status: int, content: bytes | None, error: BaseException | None
    ) -> None:
        self._call(lambda: self._over(call, status, content, error))

    def left(self, call: Any, status: int, content: bytes | None, error: None) -> None:
        """A stream may be collected in any thread, also in the engine's own, which never waits."""
        over = self._over(call, status, content, error)
        if self._thread.is_current():
            self._later(self._thread.loop.create_task(over))
        else:
            self._call(lambda: over)

    def close(self) -> None:
        self._call(self._left)
        if self._own is not None:
            self._own.close()

    def _call(self, work: Callable[[], Any]) -> Any:
        try:
            return self._thread.call(work)
        except Exception as fault:  # the engine's thread has ended
            self._fault(fault)
            return None
