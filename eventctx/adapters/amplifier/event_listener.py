"""Listens to the events of Amplifier's hook registry, and records them as a session's turns.

Orchestrators emit different events: loop-basic has no ids of tool calls and no ``execution:*``,
loop-streaming has no ``provider:response``, and none of them emits the end of a failed turn. So
every event is used, and none is required. Two kinds are ignored: events of other sessions on a
shared registry, and events of turns that one of our orchestrators records itself.

The bounds of a turn are recorded when they come. All events in between are only noted, with their
times, and recorded in order before the next call of the context, or after ``IDLE_SECONDS`` without
one (``caught_up``). The kernel calls a synchronous listener in a thread of its own, where it may
do no more than that; an asynchronous one costs it two changes of threads for every event.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from time import time_ns
from typing import Any, Final, NamedTuple

from eventctx.aio import KeyedLock, finish
from eventctx.errors import EventctxError
from eventctx.log.events import SessionEnd, Status
from eventctx.log.ids import agent_in, is_turn_id
from eventctx.log.turn_recorder import fit_for_log
from eventctx.log.usage import read_host_usage
from eventctx.messages.parts import Part, read_parts
from eventctx.messages.tool_results import (
    answer_of_copy,
    failure_of_copy,
    failure_of_row,
    text_of_result,
)
from eventctx.session.host_turns import HostReporter
from eventctx.session.pending import Idle

MAX_MESSAGE: Final = 2_000
"""Longest text of an error in a record, in characters."""

_log = logging.getLogger("eventctx.adapters.amplifier")

Data = Mapping[str, Any]
Step = Callable[[HostReporter, Data], Awaitable[None]]


class Noted(NamedTuple):
    """An event that is still to be recorded; ``time`` is in UTC nanoseconds.

    ``awaited`` tells that it came while an orchestrator of ours waited for an answer.
    """

    step: Step
    event: str
    data: Data
    time: int | None = None
    awaited: bool = False


class SentReports(NamedTuple):
    """Compares the last request with a report of it, and notes that no report came."""

    reported: Callable[[Data], Coroutine[Any, Any, None]]
    untold: Callable[[], Coroutine[Any, Any, None]]


class EventListener:
    """Listens to a host's registry for one session.

    ``following`` opens the session if necessary. ``owned`` returns, for a turn id, whether its
    orchestrator records it. ``call_id`` finds a tool call that the host names by tool and arguments
    only. ``sent`` compares requests with what the host tells of them. ``advising`` tells whether a
    provider of the plan works for a compaction: its calls are recorded there, and are no turn's.
    """

    def __init__(
        self,
        session: str,
        following: Callable[[], Awaitable[HostReporter]],
        owned: Callable[[object], bool],
        call_id: Callable[[str, object], tuple[str | None, int]],
        sent: SentReports | None,
        advising: Callable[[], bool] = lambda: False,
    ) -> None:
        self._session = session
        self._following = following
        self._owned = owned
        self._call_id = call_id
        self._sent = sent
        self._advising = advising
        self._began = False
        self._noted: deque[Noted] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle = Idle(self._idle_timeout)
        self._late: set[asyncio.Task[None]] = set()
        self._catching_up = KeyedLock()
        self._awaited = False

    def listeners(self) -> dict[str, Callable[[str, Data], Any]]:
        """Handlers by event name."""
        bounds: dict[str, Step] = {
            "prompt:submit": self._submitted,
            "prompt:complete": self._completed,
            "orchestrator:complete": self._completed,
            "execution:end": self._completed,
        }
        noted: dict[str, Step] = {
            "provider:request": self._iteration_began,
            "provider:response": self._answered,
            "provider:error": self._failed,
            "llm:response": self._responded,
            "tool:pre": self._tool_began,
            "tool:post": self._tool_ended,
            "tool:error": self._tool_failed,
        }
        if self._sent is not None:
            noted["llm:request"] = self._was_sent
        return {
            **{name: self._following_at_once(step) for name, step in bounds.items()},
            **{name: self._noting(step) for name, step in noted.items()},
        }

    def final_request(self, request: Any) -> object:
        """Note the request that a loop hands to its provider, with all that it added itself.

        Returns a ticket, which the loop gives back with the answer.
        """
        messages = [
            one.model_dump(exclude_none=True) if hasattr(one, "model_dump") else one
            for one in getattr(request, "messages", ())
        ]
        self._noting(self._was_sent)("llm:request", {"messages": messages})
        return len(messages)

    def _following_at_once(self, step: Step) -> Callable[[str, Data], Awaitable[None]]:
        async def handle(event: str, data: Data) -> None:
            if self._concerns_us(event, data):
                self._loop = asyncio.get_running_loop()
                await self.caught_up()
                await self._take(Noted(step, event, data))

        return handle

    def _noting(self, step: Step) -> Callable[[str, Data], None]:
        def note(event: str, data: Data) -> None:
            # The kernel calls this in a thread of its own.
            if event in _PROVIDERS_OWN and self._advising():
                return
            if self._concerns_us(event, data):
                if not self._noted:
                    self._idle.start()
                self._noted.append(Noted(step, event, data, time_ns(), self._awaited))
                if self._loop is not None:
                    self._idle.set(loop=self._loop)

        return note

    def _idle_timeout(self) -> None:
        if self._noted:
            late = asyncio.ensure_future(self._catch_up_late())
            self._late.add(late)
            late.add_done_callback(self._late.discard)

    async def _catch_up_late(self) -> None:
        await self.caught_up()
        with suppress(EventctxError):
            (await self._following()).send()

    def _concerns_us(self, event: str, data: Data) -> bool:
        if data.get("session_id") not in (None, self._session):
            return False
        if self._owned(data.get("turn_id")):
            self._awaited = event == "provider:request"
            return False
        # Events before the first turn concern no turn, so they must not open the session.
        self._began = self._began or self._awaited or event == "prompt:submit"
        return self._began

    async def caught_up(self) -> None:
        """Record the noted events. Every other event, and every call, calls this first."""
        if not self._noted:
            return
        async with self._catching_up(self._session):
            with suppress(EventctxError):
                await self._following()  # a cancellation while it opens costs no event
            while self._noted:
                try:
                    await self._take(self._noted[0])
                except Exception:
                    # The caller asks for something else, and must not fail for a payload.
                    event = self._noted[0].event
                    _log.exception("%s of session %r is not recorded", event, self._session)
                finally:
                    # Only now: while the event is in the queue, other callers wait for its record.
                    self._noted.popleft()

    async def _take(self, one: Noted) -> None:
        try:
            following = await self._following()
            following.told_at = one.time
            try:
                if one.step == self._was_sent and one.awaited:
                    await self._report_sent(one.data)
                else:
                    await one.step(following, one.data)
            finally:
                following.told_at = None
        except EventctxError as error:
            # The registry would print it. The next call of the context raises the error again.
            _log.warning("%s of session %r is not recorded: %s", one.event, self._session, error)

    async def end_session(self, following: HostReporter) -> SessionEnd:
        """Close the open turn, and return the event of the session's end."""
        await following.turn_ended("cancelled", "the host ended the session")
        return SessionEnd(reason="the host ended the session")

    # -- steps -----------------------------------------------------------------------------------

    async def _submitted(self, following: HostReporter, data: Data) -> None:
        self._awaited = False
        given = data.get("turn_id")
        turn_id = given if is_turn_id(given) else None
        await following.turn_began(turn_id, _text(data.get("agent")) or agent_in(self._session))

    async def _completed(self, following: HostReporter, data: Data) -> None:
        await self._request_ended()
        await following.turn_ended(_STATUS.get(str(data.get("status")), "ok"))

    async def _iteration_began(self, following: HostReporter, data: Data) -> None:
        await self._request_ended()
        await following.iteration_began(_text(data.get("provider")), _text(data.get("model")))

    async def _was_sent(self, following: HostReporter, data: Data) -> None:
        # Hooks and tools call models, too; their requests were not prepared here.
        if following.awaits_answer:
            await following.model_known(model=_text(data.get("model")))
            await following.request_prepared()
            await self._report_sent(data)

    async def _report_sent(self, data: Data) -> None:
        if self._sent is not None:
            await finish(self._sent.reported(data))

    async def _request_ended(self) -> None:
        if self._sent is not None:
            await finish(self._sent.untold())

    async def _responded(self, following: HostReporter, data: Data) -> None:
        raw = data.get("raw")
        raw = raw if isinstance(raw, Mapping) else {}
        await following.model_known(
            model=_text(data.get("model")),
            usage=read_host_usage(data.get("usage")),
            response_id=_text(raw.get("id")),
            finish_reason=_text(data.get("finish_reason")) or _text(raw.get("stop_reason")),
        )
        if data.get("status") == "error":
            await following.model_failed("ProviderError", _text(data.get("error")) or "")

    async def _answered(self, following: HostReporter, data: Data) -> None:
        await following.model_known(
            model=_text(data.get("model")),
            usage=read_host_usage(data.get("usage")),
            finish_reason=_text(data.get("finish_reason")),
        )
        await following.model_answered()

    async def _failed(self, following: HostReporter, data: Data) -> None:
        kind, message = error_of(data.get("error"), data)
        await following.model_failed(kind, message, cancelled="Cancel" in kind)

    async def _tool_began(self, following: HostReporter, data: Data) -> None:
        name = _text(data.get("tool_name")) or "unknown"
        call_id, alike = _text(data.get("tool_call_id")), 0
        if call_id is None:
            call_id, alike = self._call_id(name, data.get("tool_input"))
        await following.tool_began(name, call_id, _key(data), alike=alike)

    async def _tool_ended(self, following: HostReporter, data: Data) -> None:
        result, name = data.get("result"), _text(data.get("tool_name")) or "unknown"
        answer, failure = answer_of_copy(result), failure_of_copy(result)
        if failure is None:
            await following.tool_ended(_key(data), answer, name=name)
            return
        kind, message = fit_for_log(failure.kind), fit_for_log(failure.message)
        cancelled = "Cancel" in kind
        await following.tool_failed(
            _key(data), kind, message, cancelled=cancelled, answer=answer, name=name
        )

    async def _tool_failed(self, following: HostReporter, data: Data) -> None:
        kind, message = error_of(data.get("error"), data)
        # loop-basic gives no arguments with a failure, and so does not say which call it was.
        key = _key(data) if "tool_call_id" in data or "tool_input" in data else None
        name = _text(data.get("tool_name")) or "unknown"
        await following.tool_failed(key, kind, message, cancelled="Cancel" in kind, name=name)

    async def result_added(self, following: HostReporter, row: object) -> None:
        """Take a row that the host is about to add: results may tell how open calls ended."""
        if not isinstance(row, dict) or not following.open_tools:
            return
        for part in read_parts(row):
            if part.kind == "result" and part.ids:
                text = text_of_result(part)
                found = failure_of_row(text)
                failure = (
                    None if found is None else (fit_for_log(found.kind), fit_for_log(found.message))
                )
                await following.tool_result_added(part.ids[0], text, failure)


_PROVIDERS_OWN: Final = frozenset(("llm:request", "llm:response", "provider:error"))
"""Events that a provider's module may emit for any call, of a turn or not."""

_STATUS: Final[dict[str, Status]] = {
    "cancelled": "cancelled",
    "error": "error",
    "failed": "error",
}


def error_of(error: object, data: Data) -> tuple[str, str]:
    """Type and text of an error, in any of the forms that hosts use."""
    if isinstance(error, Mapping):
        kind, message = error.get("type"), error.get("msg", error.get("message"))
    else:
        kind, message = data.get("error_type"), data.get("error_message", error)
    text = ("" if message is None else str(message))[:MAX_MESSAGE]
    return _text(kind) or "Error", text.encode("utf-8", "backslashreplace").decode()


def _key(data: Data) -> object:
    call_id = data.get("tool_call_id")
    if isinstance(call_id, str):
        return call_id
    return data.get("tool_name"), _canonical(data.get("tool_input"))


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


class LastCalls:
    """Calls whose tools have not begun yet, in order."""

    def __init__(self) -> None:
        self._calls: list[Part] = []

    def noted(self, row: dict[str, Any]) -> None:
        """Take the calls of an answer in the place of those before; a row without any has none."""
        calls = [part for part in read_parts(row) if part.kind == "call"]
        self._calls = calls or self._calls

    def taken(self, name: str, given: object) -> tuple[str | None, int]:
        """The id of the first call of a tool with these arguments, once, and how many are left.

        The id is None if there is none.
        """
        wanted = _canonical_arguments(given)
        alike = [
            call
            for call in self._calls
            if call.name == name and _canonical_arguments(call.value) == wanted
        ]
        if not alike:
            return None, 0
        self._calls = [call for call in self._calls if call is not alike[0]]
        return alike[0].ids[0], len(alike) - 1


def _canonical_arguments(arguments: object) -> str:
    """Arguments in one form; some dialects have them as text."""
    if isinstance(arguments, str):
        with suppress(ValueError):
            arguments = json.loads(arguments)
    return json.dumps(arguments, sort_keys=True, default=str)
