"""The emitter: appends the records of turns and calls to the log of their session."""

from __future__ import annotations

import contextlib
from typing import Protocol

from eventctx.errors import InvalidSetting, WrongExpectedVersion
from eventctx.log.arguments import shown
from eventctx.log.events import CATALOGUE, Event, PromptSubmit, UsageReported
from eventctx.log.ids import CurrentSpan, derive_trace_id, new_span_id
from eventctx.log.turn_recorder import TurnRecorder
from eventctx.log.usage import Usage, check_usage
from eventctx.session.open_session import OpenSession
from eventctx.session.scope import Scope

MAX_REMEMBERED = 256
"""Turns and iterations for which the position of the last request is kept in memory."""


class Emitter(Protocol):
    """The interface through which turns use the session that records them."""

    @property
    def session_id(self) -> str:
        """The session's id."""
        ...

    @property
    def current_span(self) -> CurrentSpan | None:
        """Makes a span the host's current one; None without a trace sink."""
        ...

    def new_span_id(self) -> str:
        """Return a fresh span id."""
        ...

    async def begin_turn(self, scope: Scope, agent: str | None, trace_id: str | None) -> int:
        """Append the beginning of a turn and return the turn's number."""
        ...

    def prepared_in(self, scope: Scope) -> int | None:
        """Return the position of the last request of a turn's iteration; None without one."""
        ...

    async def emit(self, event: Event, scope: Scope) -> None:
        """Append an activity event without waiting for the disk."""
        ...


def new_turn(emitter: Emitter, turn_id: str) -> TurnRecorder:
    """Make the recorder of a turn whose span ids are the session's."""
    return TurnRecorder(lambda _: emitter.new_span_id(), turn_id)


def enter_turn(emitter: Emitter, turn: TurnRecorder) -> tuple[Scope, str | None]:
    """Enter a turn under the host's current span; return its scope, and the trace id that it joins.

    Outside of a host's span that trace id is None, and the scope's is derived from the session's id
    and the turn's.
    """
    span = emitter.current_span
    ambient = span.ambient() if span is not None else None
    trace_id, parent = ambient or (None, None)
    turn.enter(parent)
    session = emitter.session_id
    derived = derive_trace_id(session, str(turn.ids.turn_id))
    return Scope(session, *turn.ids, trace_id or derived), trace_id


class SessionEmitter:
    """The ``Emitter`` of one live session."""

    def __init__(self, session: OpenSession, current_span: CurrentSpan | None) -> None:
        self._session = session
        self.current_span = current_span

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._session.stream

    def new_span_id(self) -> str:
        """Return a fresh span id."""
        return new_span_id(self._session.random)

    async def begin_turn(self, scope: Scope, agent: str | None, trace_id: str | None) -> int:
        """Append ``prompt:submit`` and return the turn's number.

        Unlike other activity events it is waited for: the number is right only if no other turn
        began in between, in this process or another.
        """
        while True:
            view, version = await self._session.appends.settled()
            number = view.turns + 1
            began = PromptSubmit(number=number, agent=agent, trace_id=trace_id)
            draft = self._session.appends.draft(began, scope=scope)
            with contextlib.suppress(WrongExpectedVersion):
                if await self._session.appends.append_exactly(version, draft) is not None:
                    return number

    def remember(self, scope: Scope, position: int) -> None:
        """Note the position of the request that was prepared in a turn's iteration."""
        prepared = self._session.memory.prepared
        prepared.pop((scope.turn_id, scope.iteration), None)
        prepared[scope.turn_id, scope.iteration] = position
        if len(prepared) > MAX_REMEMBERED:
            del prepared[next(iter(prepared))]

    def prepared_in(self, scope: Scope) -> int | None:
        """Position of the request last prepared in a turn's iteration; None if there is none.

        An iteration without one has that of the turn's requests outside of any iteration.
        """
        prepared = self._session.memory.prepared
        outside = prepared.get((scope.turn_id, None))
        return prepared.get((scope.turn_id, scope.iteration), outside)

    async def emit(self, event: Event, scope: Scope) -> None:
        """Append an activity event in its place without waiting for the disk.

        Raises InvalidSetting for an event that a command writes, since only that command keeps the
        event's guarantees, for a value that its payload does not allow, and for no event.
        """
        _check(event)
        await self._session.appends.emit(self._session.appends.draft(event, scope=scope))

    def note(self, event: Event, scope: Scope, time: int | None = None) -> None:
        """As ``emit``, at once, in a session that has a turn. ``time`` is the event's, else now."""
        _check(event)
        self._session.appends.note(self._session.appends.draft(event, scope=scope, time=time))

    def send(self) -> None:
        """Let what was emitted go to the store now, without waiting for it."""
        self._session.appends.send()


def _check(event: object) -> None:
    """Raise InvalidSetting for what may not be emitted."""
    if not isinstance(event, Event):
        raise InvalidSetting(f"emit: expected an event of the catalogue, found {shown(event)}")
    name = str(event.__struct_config__.tag)
    if name in CATALOGUE and not CATALOGUE[name].emitted:
        raise InvalidSetting(
            f"emit: {name} is written by the command that it records; expected one of "
            f"{', '.join(sorted(one for one, row in CATALOGUE.items() if row.emitted))}"
        )
    if isinstance(event, UsageReported):
        check_usage({name: getattr(event, name) for name in Usage.__struct_fields__})
