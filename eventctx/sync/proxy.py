"""Synchronous faces of engine, context and blocks: one proxy, which knows no method by name."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from typing import Any

from eventctx import engine as engines
from eventctx.search import recall, tool
from eventctx.session import context as contexts
from eventctx.session import host_turns, turns
from eventctx.sync.loop_thread import LoopThread


class Proxy:
    """Has the attributes of an object of the async API; its calls return when they are done."""

    def __init__(self, target: Any, loop: LoopThread) -> None:
        self._target = target
        self._loop = loop

    def __repr__(self) -> str:
        return f"eventctx.sync: {self._target!r}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # such as ``__aenter__``, by which others know async objects
            raise AttributeError(name)
        found = getattr(self._target, name)
        if not callable(found) or isinstance(found, type):
            return self._face(found)

        @wraps(found)
        def called(*arguments: Any, **options: Any) -> Any:
            given = [_target_of(one) for one in arguments]
            named = {key: _target_of(one) for key, one in options.items()}
            return self._face(self._loop.call(lambda: found(*given, **named)))

        return called

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("_target", "_loop"):
            super().__setattr__(name, value)
        else:
            setattr(self._target, name, value)

    def __dir__(self) -> list[str]:
        return dir(self._target)

    def __enter__(self) -> Any:
        return self._face(self._loop.call(self._target.__aenter__))

    def __exit__(self, *error: Any) -> None:
        self._loop.call(lambda: self._target.__aexit__(*error))

    def _face(self, found: Any) -> Any:
        """``found``, or the face of an object of the async API."""
        if found is self._target:
            return self
        face = next((FACES[kind] for kind in type(found).__mro__ if kind in FACES), None)
        if face is not None:
            return face(found, self._loop)
        return self._each(found) if isinstance(found, AsyncIterator) else found

    def _each(self, found: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    item = self._loop.call(found.__anext__)
                except StopAsyncIteration:
                    return
                yield self._face(item)
        finally:
            close: Callable[[], Any] | None = getattr(found, "aclose", None)
            if close is not None:
                self._loop.call(close)


class SyncEngine(Proxy):
    """``eventctx.Engine`` without async. ``with`` closes it, and so does the program's end."""

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """Write all that is under way, release the store, and end the thread. Once is enough."""
        atexit.unregister(self.close)
        if self._loop.ended:
            return
        try:
            self._loop.call(self._target.close)
        finally:
            self._loop.end()


class SyncContext(Proxy):
    """``eventctx.Context`` without async."""


class SyncTurn(Proxy):
    """``eventctx.Turn`` without async."""


class SyncIteration(Proxy):
    """``eventctx.Iteration`` without async."""


class SyncPlanPhase(Proxy):
    """``eventctx.PlanPhase`` without async."""


class SyncProviderCall(Proxy):
    """``eventctx.ProviderCall`` without async."""


class SyncToolCall(Proxy):
    """``eventctx.ToolCall`` without async."""


class SyncHostReporter(Proxy):
    """``Context.following`` without async."""


class SyncRecall(Proxy):
    """``Engine.recaller`` without async."""


class SyncRecallTool(Proxy):
    """``eventctx.RecallTool`` without async."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The answer to a call of the model with these arguments, as a text."""
        return self._loop.call(lambda: self._target(*arguments, **options))


FACES: dict[type, type[Proxy]] = {
    engines.Engine: SyncEngine,
    contexts.Context: SyncContext,
    turns.Turn: SyncTurn,
    turns.Iteration: SyncIteration,
    turns.PlanPhase: SyncPlanPhase,
    turns.ProviderCall: SyncProviderCall,
    turns.ToolCall: SyncToolCall,
    host_turns.HostReporter: SyncHostReporter,
    recall.Recall: SyncRecall,
    tool.RecallTool: SyncRecallTool,
}


def in_its_loop(face: Proxy) -> tuple[Any, asyncio.AbstractEventLoop]:
    """The async object of a face, and the loop to which it belongs, for adapters."""
    return face._target, face._loop.loop


def _target_of(given: Any) -> Any:
    return given._target if isinstance(given, Proxy) else given


def asynchronous(engine: SyncEngine) -> tuple[engines.Engine, LoopThread]:
    """The async engine of ``engine``, and the thread of its loop."""
    return engine._target, engine._loop


def opened(loop: LoopThread, arguments: Any, options: Any) -> SyncEngine:
    """An open engine. Where it cannot be opened, the loop is ended before the error is raised."""
    try:
        target = loop.call(lambda: engines.open_engine(*arguments, **options))
    except BaseException:
        loop.end()
        raise
    engine = SyncEngine(target, loop)
    atexit.register(engine.close)
    return engine
