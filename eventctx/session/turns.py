"""The blocks of ``ctx.turn()``: turns, iterations, planning phases, model calls and tool calls.

Each block appends the records that ``log/turn_recorder.py`` makes of its beginning and its end,
and in between its scope is the running task's. A block is entered once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from eventctx.aio import finish, insist
from eventctx.errors import InvalidSetting, TurnError
from eventctx.log.arguments import check_optional_text, check_text, shown
from eventctx.log.events import InputTransformation, PlanStart, ToolPre
from eventctx.log.ids import RecordIds
from eventctx.log.turn_recorder import (
    IterationRecorder,
    ModelRequest,
    Operation,
    SpanOutcome,
    SpanRecord,
    TurnRecorder,
    TurnSpan,
    fit_for_log,
    outcome_of,
    usage_record,
)
from eventctx.log.usage import Usage, check_usage
from eventctx.session.activity import Emitter, enter_turn, new_turn, own
from eventctx.session.scope import Scope, enter_scope


class _Block:
    """The common part of the blocks: their scope, and the record of their end."""

    _ENTER = "enter this block with `async with` first"

    def __init__(self, emitter: Emitter, ids: RecordIds, span: TurnSpan[Operation] | None) -> None:
        self._emitter = emitter
        self._span = span
        self._scope: Scope | None = None
        self._leave: Callable[[], None] | None = None
        self.span_id = str(ids.span_id)

    @property
    def scope(self) -> Scope:
        """The scope of the records inside of the block. Raises TurnError before the block began."""
        if self._scope is None:
            raise TurnError(self._ENTER)
        return self._scope

    async def _record(self, made: SpanRecord, answer: str | None = None) -> None:
        await self._emitter.emit(made.event, self.scope.at(made.ids), answer)

    async def _record_end(self, error: BaseException | None, answer: str | None = None) -> None:
        if self._span is not None:
            ended = self._span.end(self._outcome(error))
            await insist(lambda: self._record(ended, answer))

    def _outcome(self, error: BaseException | None) -> SpanOutcome:
        return outcome_of(error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._record_end(error)
        finally:
            if self._leave is not None:
                self._leave()


class Turn(_Block):
    """One request/response cycle: ``async with ctx.turn() as turn``.

    ``number`` counts the session's turns from 1 and is set on entry. A turn inside a host's span
    joins the host's trace; else its trace id follows from the session and turn ids.
    """

    _ENTER = "the turn has not begun: enter it first, `async with ctx.turn() as turn`"

    def __init__(self, emitter: Emitter, turn_id: str, agent: str | None = None) -> None:
        self._turn: TurnRecorder = new_turn(emitter, turn_id)
        super().__init__(emitter, self._turn.ids, self._turn.span)
        self.turn_id = turn_id
        self.agent = agent
        self.number = 0

    async def __aenter__(self) -> Turn:
        scope, joined = enter_turn(self._emitter, self._turn)
        own(self._turn.span)
        try:
            self.number = await finish(self._emitter.begin_turn(scope, self.agent, joined))
        except asyncio.CancelledError as error:
            if error.__cause__ is None:  # it is in the log, and ``__aexit__`` will not be called
                self._scope = scope
                await self._record_end(error)
            raise
        self._scope = scope
        self._leave = enter_scope(scope, self._emitter.current_span)
        return self

    def iteration(self, number: int | None = None) -> Iteration:
        """Make the next provider/tool cycle of this turn (numbered from 1).

        Raises TurnError before the turn was entered and after it ended, and InvalidSetting.
        """
        if self._turn.span.ended:
            raise TurnError("this turn has ended: begin another one, `async with ctx.turn()`")
        return Iteration(self._emitter, self.scope, self._turn.iteration(number))


class Iteration(_Block):
    """One provider/tool cycle. It is no span of its own: it numbers the records inside."""

    _ENTER = "the iteration has not begun: enter it first, `async with turn.iteration() as cycle`"

    def __init__(self, emitter: Emitter, turn: Scope, cycle: IterationRecorder) -> None:
        super().__init__(emitter, turn.ids, None)
        self._place = turn.at(cycle.ids)
        self._cycle = cycle
        self._running: set[ToolCall] = set()

    @property
    def number(self) -> int:
        """The iteration's number."""
        return self._cycle.ids.iteration or 0

    async def __aenter__(self) -> Iteration:
        if self._scope is not None:
            raise TurnError("this iteration has begun already: make a new one, `turn.iteration()`")
        self._scope = self._place
        # The turn's span is the host's current one already.
        self._leave = enter_scope(self._place)
        return self

    def provider_call(self, model: str | None = None, provider: str | None = None) -> ProviderCall:
        """Make a model call: a span under the turn's. Report its usage on the block."""
        return ProviderCall(self._emitter, self.scope, self._cycle.model_call(model, provider))

    def tool_call(self, name: str, call_id: str | None = None) -> ToolCall:
        """Make a tool call: a span under that of the iteration's model call."""
        span = self._cycle.tool_call(name, call_id)
        return ToolCall(self._emitter, self.scope, span, self._running)

    def plan(self, name: str | None = None) -> PlanPhase:
        """Make a planning phase: a span under the turn's, with its own model calls."""
        span = self._cycle.plan(name)
        return PlanPhase(self._emitter, self.scope, span, self._cycle.inside(span))


class _Call(_Block):
    """A span inside an iteration. Its scope is known before it begins."""

    def __init__(self, emitter: Emitter, around: Scope, span: TurnSpan[Operation]) -> None:
        super().__init__(emitter, span.ids, span)
        self._scope = around.at(span.ids)
        self._begun = span

    async def _enter(self) -> None:
        # First the record, then the scope: a block that could not be entered changes no scope.
        begins = self._begun.begin()
        own(self._begun)
        await self._record(begins)
        self._enter_scope()

    def _enter_scope(self) -> None:
        self._leave = enter_scope(self.scope, self._emitter.current_span)


class PlanPhase(_Call):
    """A planning phase in progress."""

    def __init__(
        self,
        emitter: Emitter,
        around: Scope,
        span: TurnSpan[PlanStart],
        cycle: IterationRecorder,
    ) -> None:
        super().__init__(emitter, around, span)
        self.name = span.of.name
        self._cycle = cycle

    async def __aenter__(self) -> PlanPhase:
        await self._enter()
        return self

    def provider_call(self, model: str | None = None, provider: str | None = None) -> ProviderCall:
        """Make a model call: a span under the plan's. Report its usage on the block."""
        return ProviderCall(self._emitter, self.scope, self._cycle.model_call(model, provider))


class ProviderCall(_Call):
    """A model call in progress. ``prepared`` is the position of the request that it sends."""

    def __init__(
        self,
        emitter: Emitter,
        around: Scope,
        span: TurnSpan[ModelRequest],
        *,
        sends_view: bool = True,
    ) -> None:
        super().__init__(emitter, around, span)
        self._call = span
        self._sends_view = sends_view
        self._entered = False

    async def __aenter__(self) -> ProviderCall:
        if self._call.began and not self._entered:
            self._enter_scope()  # it began with its request
        else:
            # An adviser's call does not send the view, so its usage must not calibrate it.
            if self._sends_view:
                self._call.of.prepared = self._emitter.prepared_in(self.scope)
            await self._enter()
        self._entered = True
        return self

    @property
    def sends(self) -> TurnSpan[ModelRequest] | None:
        """The span, while it has not begun: it then begins with the request that it sends."""
        return None if self._call.began else self._call

    @property
    def came_in(self) -> None:
        """The scope of what comes with its request: the present one."""
        return None

    async def not_entered(self, error: BaseException) -> None:
        """Record the end of a call that began with its request, and is not entered any more."""
        if self._call.began and not self._entered:
            self._entered = True
            await self._record_end(error)

    @property
    def prepared(self) -> int | None:
        """Position of the request that the call sends; None where none was prepared."""
        return self._call.of.prepared

    @property
    def provider(self) -> str | None:
        """The provider's name. Set it where only the answer names it."""
        return self._call.of.provider or self._call.of.answered_by

    @provider.setter
    def provider(self, name: str | None) -> None:
        check_optional_text("provider", name)
        if name != self._call.of.provider:
            self._call.of.answered_by = name

    @property
    def model(self) -> str | None:
        """The model's name. Set it where the answer names another one than was requested."""
        return self._call.of.model

    @model.setter
    def model(self, name: str | None) -> None:
        check_optional_text("model", name)
        self._call.of.model = name

    async def usage(
        self,
        prompt: int | None,
        output: int | None = 0,
        *,
        cache_read: int | None = 0,
        cache_write: int | None = 0,
        reasoning: int | None = 0,
        cache_write_1h: int | None = 0,
    ) -> None:
        """Record the tokens that the provider counted; ``prompt`` includes the caches.

        ``cache_write_1h`` is the part of ``cache_write`` that lives an hour, which costs more.

        None, where a provider leaves a count out, is recorded as 0. Raises InvalidSetting for a
        number that counts no tokens, and records nothing: a wrong count would move every budget.
        """
        counts = dict(
            zip(
                Usage.__struct_fields__,
                (prompt, output, cache_read, cache_write, reasoning, cache_write_1h),
                strict=True,
            )
        )
        check_usage(counts)
        self._call.of.usage = Usage(**{name: count or 0 for name, count in counts.items()})
        await self._record(usage_record(self._call))

    async def usage_from(self, response: object) -> None:
        """Record the usage that an answer reports, why the model stopped, and the answer's id.

        ``response`` is the answer of Anthropic's Messages API, or of OpenAI's chat completions or
        responses, as its SDK returns it or as a dict; also the last chunk of a streamed completion.
        Usage that ``add_message`` took from the same answer is not recorded twice. Raises
        InvalidSetting for anything without usage.
        """
        from eventctx.session.sdk_objects import report_of

        found = report_of(response)
        if found.usage is None:
            raise InvalidSetting(
                "usage_from: expected the answer of an Anthropic or OpenAI API with its usage, "
                f"found {shown(response)}; for another API call usage(prompt, output)"
            )
        if found.model is not None:
            self.model = found.model
        self.finished(found.finish_reason, found.response_id, found.transformed)
        if self._emitter.first_usage(found.response_id):
            of = found.usage
            await self.usage(
                of.prompt,
                of.output,
                cache_read=of.cache_read,
                cache_write=of.cache_write,
                reasoning=of.reasoning,
                cache_write_1h=of.cache_write_1h,
            )

    def finished(
        self,
        reason: str | None = None,
        response_id: str | None = None,
        transformed: tuple[InputTransformation, ...] = (),
    ) -> None:
        """Note why the model stopped, the provider's name for its answer, and what it changed.

        Raises InvalidSetting for a reason or an id that is no text.
        """
        check_optional_text("reason", reason)
        check_optional_text("response_id", response_id)
        of = self._call.of
        of.finish_reason, of.response_id, of.transformed = reason, response_id, transformed


def adviser_call(
    emitter: Emitter, around: Scope, model: str | None, provider: str | None
) -> ProviderCall:
    """A model call that sends no view, such as a summarizer's in the span of a compaction."""
    cycle = IterationRecorder(around.ids, lambda _: emitter.new_span_id())
    span = cycle.model_call(model, provider)
    return ProviderCall(emitter, around, span, sends_view=False)


class ToolCall(_Call):
    """A tool call in progress."""

    def __init__(
        self,
        emitter: Emitter,
        around: Scope,
        span: TurnSpan[ToolPre],
        running: set[ToolCall],
    ) -> None:
        super().__init__(emitter, around, span)
        self.name = span.of.name
        self.call_id = span.of.call_id
        self._running = running
        self._answer: str | None = None
        self._failure: SpanOutcome | None = None

    async def __aenter__(self) -> ToolCall:
        await self._enter()
        self._running.add(self)
        return self

    def answered(self, text: str) -> None:
        """Note the text of the result, before the block ends.

        It is kept in the log while other calls of the answer run or have yet to begin, whose crash
        would take it along. A caller that adds each result as soon as its call ends needs none of
        this. Raises InvalidSetting for what is no text.
        """
        check_optional_text("answered", text)
        self._answer = text

    async def _record_end(self, error: BaseException | None, answer: str | None = None) -> None:
        self._running.discard(self)
        await super()._record_end(error, self._answer)

    async def _record(self, made: SpanRecord, answer: str | None = None) -> None:
        if answer is not None and not self._running:
            answer = answer if await self._emitter.has_open_calls(self.call_id) else None
        await super()._record(made, answer)

    def failed(self, kind: str, message: str = "") -> None:
        """Note that the tool returned a failure: the call then ends as ``tool:error``.

        Without it, only an exception that leaves the block is one. Raises InvalidSetting for what
        is no text.
        """
        check_text("kind", kind)
        check_text("message", message)
        self._failure = SpanOutcome("error", kind, fit_for_log(message))

    def _outcome(self, error: BaseException | None) -> SpanOutcome:
        return self._failure or outcome_of(error)
