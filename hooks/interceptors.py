"""Interceptors: awaited handlers that may change a compaction before it is decided.

Unlike observers they run before the append, one after the other by priority, and the agent waits
for them; their pins, texts and veto are recorded. An interceptor that raises, takes too long or
returns something else than a verdict has no effect: that is counted and logged, and the compaction
goes on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, overload

from eventctx.errors import InvalidSetting, UnknownEventName
from eventctx.hooks.handlers import name_of
from eventctx.log.arguments import check_int, shown
from eventctx.log.events import CATALOGUE
from eventctx.policies.advisers import NO_OBJECTION, CompactionAsked, Verdict

MAX_VETO: Final = 1_000
"""Most characters of a veto's reason that are recorded."""

EVENTS: Final = tuple([name for name, row in CATALOGUE.items() if row.interceptable])
"""The events that can be intercepted, from the catalogue."""

Interceptor = Callable[[CompactionAsked], Verdict | Awaitable[Verdict | None] | None]
"""Sync or async; None means no objection."""

F = TypeVar("F", bound=Interceptor)

_log = logging.getLogger("eventctx.hooks")


class Interceptors:
    """The interceptors of one engine.

    ``timeout``: seconds that each may take. ``failed`` is called with the name of each that failed.
    Raises InvalidSetting for a ``timeout`` that is not positive.
    """

    def __init__(
        self, *, timeout: float = 30.0, failed: Callable[[str], None] = lambda name: None
    ) -> None:
        if not timeout > 0:
            raise InvalidSetting(f"interceptor timeout: expected more than 0 s, found {timeout}")
        self._timeout = timeout
        self._failed = failed
        self._handlers: list[tuple[int, int, Interceptor]] = []
        self._registered = 0
        self.errors: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._handlers)

    @overload
    def on(self, name: str, handler: None = None, *, priority: int = 0) -> Callable[[F], F]: ...
    @overload
    def on(self, name: str, handler: Interceptor, *, priority: int = 0) -> Callable[[], None]: ...

    def on(
        self, name: str, handler: Interceptor | None = None, *, priority: int = 0
    ) -> Callable[[F], F] | Callable[[], None]:
        """Call ``handler`` before each event ``name``; lower priorities come first.

        With a handler, returns a function that unsubscribes it; without, a decorator that leaves
        the function as it is. Raises UnknownEventName for an event that cannot be intercepted,
        InvalidSetting for a handler that cannot be called.
        """
        if name not in EVENTS:
            from difflib import get_close_matches

            near = get_close_matches(name, EVENTS, n=1) if isinstance(name, str) else []
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UnknownEventName(
                f"interceptor: expected one of {list(EVENTS)}, found {shown(name)}{hint}"
            )
        if handler is None:

            def decorate(function: F) -> F:
                self._add(function, priority)
                return function

            return decorate
        return self._add(handler, priority)

    def _add(self, handler: Interceptor, priority: int) -> Callable[[], None]:
        if not callable(handler):
            raise InvalidSetting(f"interceptor: expected a function, found {shown(handler)}")
        check_int("priority", priority)
        self._registered += 1
        entry = (priority, self._registered, handler)
        self._handlers = sorted([*self._handlers, entry], key=lambda one: one[:2])

        def stop() -> None:
            self._handlers = [one for one in self._handlers if one is not entry]

        return stop

    async def ask(self, compaction: CompactionAsked) -> Verdict:
        """The joint verdict of all interceptors: every pin and text, and the first veto."""
        pins: dict[int, None] = {}
        texts: dict[str, None] = {}
        veto: str | None = None
        for _, _, handler in self._handlers:
            answer = await self._answer(handler, compaction)
            pins.update(dict.fromkeys(answer.pins))
            texts.update(dict.fromkeys(answer.texts))
            veto = veto if veto is not None else answer.veto
        return Verdict(tuple(sorted(pins)), veto, tuple(texts))

    async def _answer(self, handler: Interceptor, compaction: CompactionAsked) -> Verdict:
        try:
            answer: Any = handler(compaction)
            if inspect.isawaitable(answer):
                answer = await asyncio.wait_for(answer, self._timeout)
            return NO_OBJECTION if answer is None else _check(answer, compaction)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self._ignore(handler, error)
        except Exception as error:
            return self._ignore(handler, error)

    def _ignore(self, handler: Interceptor, error: BaseException) -> Verdict:
        name = name_of(handler)
        self.errors[name] += 1
        self._failed(name)
        with suppress(Exception):
            _log.warning("interceptor %s has no say: %s: %s", name, type(error).__name__, error)
        return NO_OBJECTION


def _check(answer: object, compaction: CompactionAsked) -> Verdict:
    if not isinstance(answer, Verdict):
        raise InvalidSetting(f"interceptor: expected a Verdict or None, found {answer!r}")
    if not all(type(number) is int for number in answer.pins):
        raise InvalidSetting(f"interceptor: expected message numbers, found {answer.pins!r}")
    unknown = set(answer.pins) - set(compaction.numbers)
    if unknown:
        raise InvalidSetting(
            f"interceptor: expected pins among the messages in view, found {sorted(unknown)}"
        )
    if answer.veto is not None and not isinstance(answer.veto, str):
        raise InvalidSetting(f"interceptor: expected a reason as veto, found {answer.veto!r}")
    texts: Any = answer.texts
    if not isinstance(texts, tuple | list) or not all(
        isinstance(text, str) and text.strip() for text in texts
    ):
        raise InvalidSetting(f"interceptor: expected texts that say something, found {texts!r}")
    veto = None if answer.veto is None else _in_utf8(answer.veto[:MAX_VETO])
    return Verdict(answer.pins, veto, tuple([_in_utf8(text) for text in texts]))


def _in_utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
