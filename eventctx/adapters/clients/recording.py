"""Records the calls that a client makes, as the turns of one session.

The messages of a request are the conversation, as the caller keeps it. A request that ends in a
person's words begins a turn, and an answer without tool calls ends it. A tool call lasts from the
answer that makes it to the request that brings its result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from eventctx.adapters.clients.exchange import (
    Answered,
    Identities,
    ReadRequest,
    answered,
    asked,
    compaction_request,
    provider_of,
    with_rows,
)
from eventctx.adapters.clients.transport import OwnRequest
from eventctx.adapters.kit.host_session import HostSession, Row
from eventctx.engine import Engine
from eventctx.errors import CompactionError, ContextOverflow
from eventctx.importers.recorded_calls import (
    text_or_none,
)
from eventctx.log.turn_recorder import read_transformed
from eventctx.log.usage import read_provider_usage
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.native_compaction import beta_of
from eventctx.messages.parts import brings_compaction, call_names, failed_results, words_of
from eventctx.messages.tool_results import by_person
from eventctx.policies.advisers import ModelAnswer, SummaryRequest, summary_answer

_FAILED: Final = 400
_PAUSED: Final = "pause_turn"
"""Anthropic's word for an answer with which the caller asks on, in the same turn."""
_GOES_ON: Final = ("queued", "in_progress")


class CallUnderWay:
    """A call under way: the messages that it sends, and its body if it is not the caller's."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.content: bytes | None = None
        self.beta: str | None = None
        """The beta of Anthropic's API that ``content`` needs."""
        self.received: Callable[[], bytes] | None = None
        """The received part of the answer's body; None before there is an answer."""
        self.overflow: ContextOverflow | None = None
        self.background = False
        self.streamed = False

    def whole(self) -> bool:
        """Whether the answer was read to its end; a caller need not close it then."""
        content = None if self.received is None else self.received()
        return bool(content) and answered(content or b"").finish is not None

    def goes_on_in(self, request: ReadRequest) -> bool:
        """Whether ``request`` goes on from the messages of this call, whose answer is streamed.

        So its caller left the stream, which a ``break`` does not close: OpenAI's stream is closed
        only when it is collected, and two streams of one conversation are not read at once.
        """
        if self.received is None or not self.streamed or request.partial:
            return False
        return request.rows[: len(self.rows)] == self.rows


class CallsOf(NamedTuple):
    """Whose calls are recorded. With ``compact`` the session's view is sent, else the caller's
    messages; ``settings`` are those of the session."""

    session: str
    compact: bool
    settings: Mapping[str, Any]


class CallRecorder:
    """Records the calls of one conversation, one call after the other."""

    def __init__(self, engine: Engine, calls: CallsOf) -> None:
        self.engine = engine
        self.compacts = calls.compact
        self.under_way: CallUnderWay | None = None
        self._calls = calls
        self._host: HostSession | None = None
        self._sent: list[Row] = []
        self._answered: list[Row] = []
        self._last: ReadRequest | None = None
        self._url = ""
        self.again: Callable[[OwnRequest], Awaitable[tuple[int, bytes]]] | None = None
        """Sends a request like the present one with the caller's client."""
        self._identities = Identities()
        self._in_background: tuple[str, CallUnderWay] | None = None

    async def _opened(self) -> HostSession:
        if self._host is None:
            settings: dict[str, Any] = {**self._calls.settings}
            if self.compacts and settings.get("policy") == "native":
                settings.setdefault("summarizer", self._compact)
            context = await self.engine.session(self._calls.session, **settings)
            self._host = HostSession(context, self._identities)
            self._sent = self._answered = await self._host.messages()
        return self._host

    def read(self, path: str, content: bytes) -> ReadRequest | None:
        """The request in a body that is sent to ``path``; None for one that is none to a model."""
        return asked(path, content, self._last)

    async def begin(
        self, call: CallUnderWay, request: ReadRequest, url: str, replaceable: bool
    ) -> None:
        """Record a request before it leaves to ``url``."""
        self._in_background = None
        self._last, self._url = request, url
        self._identities.next_request()
        host = await self._opened()
        sent = request.rows
        rows = [*self._answered, *sent] if request.partial else self._with_summarised(sent)
        await self._turn(host, rows)
        prepared = self.compacts and replaceable and not request.partial
        await host.mirror(rows, with_request=prepared)
        self._sent = call.rows = rows
        call.background, call.streamed = request.background, request.streamed
        settings = request.settings(url)
        provider = provider_of(request.sent.rule, url, settings.server)
        await host.turns.iteration_began(provider, request.sent.model, settings)
        if prepared:
            try:
                view = await self._view(host, request)
                call.content, call.beta = with_rows(request, view), beta_of(view)
                return
            except ContextOverflow as overflow:  # the caller's own request leaves, and is observed
                call.overflow = overflow
        await host.context.observe_request(request.sent, call=host.turns)

    def _with_summarised(self, sent: list[Row]) -> list[Row]:
        """The conversation of a caller who leaves out what the API's summary stands for.

        Its list begins with the summary then, and the transcript goes on with all of it.
        """
        if not sent or not brings_compaction(sent[0]):
            return sent
        first = self._identities(sent[0])
        known = [self._identities(row) for row in self._answered]
        at = known.index(first) if first in known else 0
        return [*self._answered[:at], *sent]

    def asked_again(self, path: str) -> CallUnderWay | None:
        """The call whose answer is made in the background, if it is asked for at ``path``."""
        if self._in_background is None or self.under_way is not None:
            return None
        response_id, call = self._in_background
        if path.rstrip("/").endswith(f"/responses/{response_id}"):
            self.under_way = call
        return self.under_way

    async def _view(self, host: HostSession, request: ReadRequest) -> list[Row]:
        return await host.prepare(
            instructions=request.instructions,
            tools=request.sent.tools,
            model=request.sent.model,
            thinking=_thinking(request),
        )

    async def _compact(self, request: SummaryRequest) -> ModelAnswer:
        """The API's own summary, asked for as the caller's client asks. Raises CompactionError."""
        last, rows = self._last, list(request.native or ())
        own = None
        if last is not None:
            if last.instructions is not None and rows and rows[0].get("role") == "system":
                rows = rows[1:]  # the caller's own parameter, which is sent as it is
            own = compaction_request(last, self._url, rows, request.hint and request.instruction)
        if own is None or last is None or self.again is None:
            raise CompactionError("wrap: the API that is asked writes no summary of its own")
        status, content = await self.again(own)
        answer = answered(content)
        provider = provider_of(last.sent.rule, self._url, None)
        if status >= _FAILED:
            words = text_or_none(answer.error.get("message")) or f"HTTP {status}"
            raise CompactionError(f"provider {provider!r}: no summary was made: {words}")
        return summary_answer(answer.body, provider, last.sent.model)

    async def _turn(self, host: HostSession, rows: list[Row]) -> None:
        """Begin a turn where the person spoke last, and end the tools whose results are sent."""
        last = read_facts(rows[-1]) if rows else None
        person = last is not None and by_person(rows[-1], last)
        again = rows == self._sent  # an attempt after one that failed
        if not host.turns.in_turn or (person and not again):
            await host.turns.turn_began()
            return
        for row in rows[-host.turns.open_tools :] if host.turns.open_tools else ():
            failed = failed_results(row)
            for call_id in read_facts(row).results:
                if call_id in failed:
                    await host.turns.tool_failed(call_id, "ToolError", words_of(row))
                else:
                    await host.turns.tool_ended(call_id)

    async def answered(self, call: CallUnderWay, status: int, content: bytes) -> None:
        """Record the answer to a call, or that there is no whole one."""
        host = await self._opened()
        answer = answered(content)
        body, said, finish = answer.body, answer.rows, answer.finish
        if self._goes_on(call, status, body):
            return
        if status >= _FAILED or finish is None:
            await self._not_answered(host, call, status, answer)
            return
        await host.turns.model_known(
            model=text_or_none(body.get("model")),
            usage=read_provider_usage(body.get("usage")),
            response_id=text_or_none(body.get("id")),
            finish_reason=finish,
            transformed=read_transformed(
                body.get("input_transformations"), body.get("context_management")
            ),
        )
        await host.turns.model_answered()
        await host.mirror([*call.rows, *said])
        self._sent = self._answered = [*call.rows, *said]
        calls = [item for row in said for item in call_names(row).items()]
        for call_id, name in calls:
            await host.turns.tool_began(name, call_id, call_id)
        if not calls and finish != _PAUSED:
            await host.turns.turn_ended()

    def _goes_on(self, call: CallUnderWay, status: int, body: Row) -> bool:
        """Whether the answer is still made in the background, and will be asked for again."""
        waited = self._in_background is not None and self._in_background[1] is call
        response_id = text_or_none(body.get("id"))
        if call.background and response_id and body.get("status") in _GOES_ON:
            self._in_background = response_id, call
            return True
        if not waited or status >= _FAILED:
            return waited
        self._in_background = None
        return False

    async def _not_answered(
        self, host: HostSession, call: CallUnderWay, status: int, answer: Answered
    ) -> None:
        error, left = answer.error, status < _FAILED and answer.cut and not answer.error
        named = text_or_none(error.get("type")) or text_or_none(error.get("code"))
        without = "the answer was not read to its end" if left else "the answer holds no message"
        words = text_or_none(error.get("message")) or without
        await host.turns.model_failed(named or f"HTTP {status}", words, cancelled=left)
        words_said = [row for row in answer.rows if words_of(row)]
        if left and words_said:  # the person has read them, and the caller may keep them
            await host.mirror([*call.rows, *words_said])

    async def failed(self, call: CallUnderWay, error: BaseException | None) -> None:
        """Record that a call failed; without an error the caller gave it up."""
        if self._in_background is not None and self._in_background[1] is call:
            return
        host = await self._opened()
        kind = "Cancelled" if error is None else type(error).__name__
        words = "" if error is None else str(error)
        await host.turns.model_failed(kind, words, cancelled=error is None)


def _thinking(request: ReadRequest) -> Mapping[str, Any] | None:
    """The parameter of an Anthropic request, which decides what thinking its view may hold."""
    given = request.sent.parameters.get("thinking")
    return given if isinstance(given, Mapping) and isinstance(given.get("type"), str) else None
