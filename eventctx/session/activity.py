"""The emitter: appends the records of turns and calls to the log of their session."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from eventctx.errors import InvalidSetting, WrongExpectedVersion
from eventctx.log.arguments import shown
from eventctx.log.events import CATALOGUE, Event, PromptSubmit, UsageReported
from eventctx.log.ids import CurrentSpan, derive_trace_id, new_span_id
from eventctx.log.record import Body, Draft
from eventctx.log.turn_recorder import ModelRequest, TurnRecorder, TurnSpan
from eventctx.log.usage import Usage, check_usage
from eventctx.messages.tool_rounds import answered_calls
from eventctx.projections.silent_loss import ShownMessages, shown_in
from eventctx.projections.view.layout import open_calls
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.state import presumed_end
from eventctx.session.open_session import MAX_NOTED, LeftOpen, OpenSession
from eventctx.session.scope import Scope
from eventctx.session.transcript import body_of

if TYPE_CHECKING:
    from eventctx.session.sdk_objects import ApiReport


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

    def first_usage(self, response_id: str | None) -> bool:
        """Note that the usage of an answer is taken; return whether it is for the first time."""
        ...

    async def has_open_calls(self, beside: str | None) -> bool:
        """Whether calls of the transcript's last answer wait for an end, beside the one named."""
        ...

    async def emit(self, event: Event, scope: Scope, answer: str | None = None) -> None:
        """Append an activity event without waiting for the disk.

        ``answer`` is kept with the end of a tool call.
        """
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


# -- what a process left open --------------------------------------------------------------------

_OWNED: Final[WeakValueDictionary[str, TurnSpan[Any]]] = WeakValueDictionary()


def own(span: TurnSpan[Any]) -> None:
    """Note that this process begins a span, and will end it as long as the object lives."""
    _OWNED[str(span.ids.span_id)] = span


def _is_owned(span_id: str) -> bool:
    span = _OWNED.get(span_id)
    return span is not None and not span.ended


def _open_call(scope: Scope) -> TurnSpan[ModelRequest] | None:
    """The model call of this process that is open in a scope; None outside of any."""
    span = None if scope.span_id is None else _OWNED.get(scope.span_id)
    found = span is not None and not span.ended and isinstance(span.of, ModelRequest)
    return span if found else None


def left_open_in(view: ViewState) -> LeftOpen:
    """The spans that are open in a session as it is first loaded, without those of this process.

    The next turn here ends it as lost. That can only be presumed: another process may own it, and
    be alive. So what a reload shows open does not count, since it began while this process ran,
    nor a turn that went on since; and a real end may follow a presumed one.
    """
    open_now = [one.span_id for one in view.spans if not _is_owned(one.span_id)]
    return LeftOpen(frozenset(open_now), view.position)


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

        Spans that an earlier process left open are ended first, in the same append. It is waited
        for, unlike other activity events: the number is right only if no other turn began in
        between, in this process or another.
        """
        while True:
            view, version = await self._session.appends.settle()
            number = view.turns + 1
            began = PromptSubmit(number=number, agent=agent, trace_id=trace_id)
            drafts = [*await self._presumed_ends(view, version), (began, scope)]
            made = [self._session.drafts.make(event, scope=at) for event, at in drafts]
            with contextlib.suppress(WrongExpectedVersion):
                if await self._session.appends.append_exactly(version, *made) is not None:
                    self._session.memory.left_open = LeftOpen()
                    return number

    async def _presumed_ends(self, view: ViewState, head: int) -> list[tuple[Event, Scope]]:
        """The ends of what is still open of what an earlier process left open, innermost first."""
        session, left = self._session, self._session.memory.left_open
        ours = [
            one
            for one in reversed(view.spans)
            if one.span_id in left.spans and not _is_owned(one.span_id)
        ]
        if ours and head > left.head:
            went_on = {
                record.turn_id
                async for record in session.store.read(
                    session.stream, start=left.head + 1, stop=head, bodies=False
                )
                # A compaction that a crash left open is closed by whoever opens the session.
                if record.turn_id is not None and record.type != "context:post_compact"
            }
            ours = [one for one in ours if one.turn_id not in went_on]
        place = Scope(session.stream)
        ends = [presumed_end(one) for one in ours]
        return [(end.event, place.at(end.ids)) for end in ends]

    def prepared_in(self, scope: Scope) -> int | None:
        """Position of the request last prepared in a turn's iteration; None if there is none.

        An iteration without one has that of the turn's requests outside of any iteration.
        """
        prepared = self._session.memory.prepared
        outside = prepared.get((scope.turn_id, None))
        return prepared.get((scope.turn_id, scope.iteration), outside)

    async def take_usage(self, report: ApiReport, scope: Scope) -> None:
        """Record the usage in an API's answer, unless it was reported already.

        It is that of the model call whose block is open in ``scope``, else of the request that was
        last prepared there.
        """
        call = _open_call(scope)
        if call is not None:
            of = call.of
            of.finish_reason = of.finish_reason or report.finish_reason
            of.response_id = of.response_id or report.response_id
            of.model = of.model or report.model
            taken, prepared = of.usage is not None, of.prepared
        else:
            prepared = self.prepared_in(scope)
            taken = prepared in self._session.memory.usage_of
        if report.usage is None or taken or not self.first_usage(report.response_id):
            return
        if call is not None:
            call.of.usage = report.usage
        counts = msgspec.structs.asdict(report.usage)
        model = report.model if call is None else call.of.model
        await self.emit(UsageReported(**counts, model=model, prepared=prepared), scope)

    def first_usage(self, response_id: str | None) -> bool:
        """Note that the usage of an answer is taken; return whether it is for the first time.

        True for an answer without an id.
        """
        return response_id is None or _note_new(self._session.memory.usage_of, response_id)

    async def has_open_calls(self, beside: str | None) -> bool:
        """Whether calls of the transcript's last answer wait for an end, beside the one named.

        A call that has not begun yet is one of them. Raises what the store raises.
        """
        view = self._session.aggregate.view_if_held
        if view is None:
            view, _ = await self._session.appends.settle()
        own = () if beside is None else answered_calls((beside,), view.layout.pending)
        return bool(open_calls(view.layout).difference(own))

    async def emit(self, event: Event, scope: Scope, answer: str | None = None) -> None:
        """Append an activity event in its place without waiting for the disk.

        Raises InvalidSetting for an event that a command writes, since only that command keeps the
        event's guarantees, for a value that its payload does not allow, and for no event.
        """
        await self._session.appends.emit(self._draft(event, scope, answer))
        self._note_suspicion(event, scope)

    def note(
        self, event: Event, scope: Scope, answer: str | None = None, time: int | None = None
    ) -> None:
        """As ``emit``, at once, in a session that has a turn. ``time`` is the event's, else now."""
        self._session.appends.note(self._draft(event, scope, answer, time))
        self._note_suspicion(event, scope)

    def _note_suspicion(self, event: Event, scope: Scope) -> None:
        """Record what a reported prompt makes suspect: less was sent than the log tells."""
        if not isinstance(event, UsageReported):
            return
        session = self._session

        def shown_now() -> ShownMessages | None:
            view = session.aggregate.view_if_held
            return None if view is None else shown_in(view)

        if (loss := session.memory.reports.compare(event, shown_now)) is not None:
            session.appends.note(session.drafts.make(loss, (), scope))

    def _draft(
        self, event: Event, scope: Scope, answer: str | None, time: int | None = None
    ) -> Draft:
        _check(event)
        if isinstance(event, UsageReported) and event.prepared is not None:
            _note_new(self._session.memory.usage_of, event.prepared)
        return self._session.drafts.make(event, self._answer_bodies(event, answer), scope, time)

    def send(self) -> None:
        """Let what was emitted go to the store now, without waiting for it."""
        self._session.appends.send()

    def _answer_bodies(self, event: Event, answer: str | None) -> tuple[Body, ...]:
        # Without the call's id no view could tell which call it answers.
        call_id = getattr(event, "call_id", None)
        if answer is None or call_id is None:
            return ()
        # A tool's text may hold file names with surrogates, which no body can.
        text = answer.encode("utf-8", "backslashreplace").decode()
        row = {"role": "tool", "tool_call_id": call_id, "content": text}
        return (body_of(self._session, row),)


def _note_new(known: dict[int | str, None], key: int | str) -> bool:
    """Note a key among the last ``MAX_NOTED``; return whether it is new."""
    new = key not in known
    known[key] = None
    if len(known) > MAX_NOTED:
        del known[next(iter(known))]
    return new


def _check(event: object) -> None:
    """Raise InvalidSetting for what may not be emitted."""
    if not isinstance(event, Event):
        raise InvalidSetting(
            "emit: expected an event of the catalogue, such as "
            f"eventctx.log.events.PlanStart(name=…), found {shown(event)}"
        )
    name = str(event.__struct_config__.tag)
    if name in CATALOGUE and not CATALOGUE[name].emitted:
        raise InvalidSetting(
            f"emit: {name} is written by the command that it records; expected one of "
            f"{', '.join(sorted(one for one, row in CATALOGUE.items() if row.emitted))}"
        )
    if isinstance(event, UsageReported):
        check_usage({name: getattr(event, name) for name in Usage.__struct_fields__})
