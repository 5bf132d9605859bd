"""Records the calls that a client makes, as the turns of one session.

The messages of a request are the conversation, as the caller keeps it. A request that ends in a
person's words begins a turn, and an answer without tool calls ends it. A tool call lasts from the
answer that makes it to the request that brings its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from eventctx.adapters.clients.exchange import ReadRequest, answered, asked, identity, with_rows
from eventctx.adapters.kit.host_session import HostSession, Row
from eventctx.engine import Engine
from eventctx.importers.formats.provider_answers import finish_of, usage_of
from eventctx.importers.source.harness import by_person
from eventctx.importers.source.lines import object_or_empty, text_or_none
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.part_queries import call_names, failed_results, words_of

_FAILED: Final = 400


class CallUnderWay(NamedTuple):
    """A call under way: the messages that it sends, and its body if it is not the caller's."""

    rows: list[Row]
    content: bytes | None = None


class CallRecorder:
    """Records the calls of one conversation. One call after the other; ``busy`` while one runs.

    With ``compacts`` the session's view is sent, else the caller's messages.
    """

    def __init__(
        self, engine: Engine, session: str, compacts: bool, settings: Mapping[str, Any]
    ) -> None:
        self.engine = engine
        self.busy = False
        self._session = session
        self._compacts = compacts
        self._settings = settings
        self._host: HostSession | None = None
        self._rows: list[Row] = []

    async def _opened(self) -> HostSession:
        if self._host is None:
            context = await self.engine.session(self._session, **self._settings)
            self._host = HostSession(context, identity)
            self._rows = await self._host.messages()
        return self._host

    async def begin(self, path: str, content: bytes) -> CallUnderWay | None:
        """Record a request before it leaves; None for one that is none to a model."""
        request = asked(path, content)
        if request is None:
            return None
        host = await self._opened()
        sent = request.rows
        rows = [*self._rows, *sent] if request.partial else sent
        await self._turn(host, rows)
        observed = not self._compacts or request.partial
        await host.mirror(rows, with_request=not observed)
        self._rows = rows
        await host.turns.iteration_began(None, request.sent.model)
        if observed:
            await host.context.observe_request(request.sent, call=host.turns)
            return CallUnderWay(rows)
        return CallUnderWay(rows, with_rows(request, await self._view(host, request)))

    async def _view(self, host: HostSession, request: ReadRequest) -> list[Row]:
        return await host.prepare(
            instructions=request.instructions, tools=request.sent.tools, model=request.sent.model
        )

    async def _turn(self, host: HostSession, rows: list[Row]) -> None:
        """Begin a turn where the person spoke last, and end the tools whose results are sent."""
        last = read_facts(rows[-1]) if rows else None
        person = last is not None and by_person(rows[-1], last)
        again = rows == self._rows  # an attempt after one that failed
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
        body, said = answered(content)
        finish = finish_of(body)
        if status >= _FAILED or finish is None:
            error = object_or_empty(body.get("error"))
            kind = text_or_none(error.get("type")) or f"HTTP {status}"
            words = text_or_none(error.get("message")) or "the answer was not read to its end"
            left = status < _FAILED and not error
            await host.turns.model_failed(kind, words, cancelled=left)
            host.turns.send()
            return
        await host.turns.model_known(
            model=text_or_none(body.get("model")),
            usage=usage_of(body.get("usage")),
            response_id=text_or_none(body.get("id")),
            finish_reason=finish,
        )
        await host.turns.model_answered()
        await host.mirror([*call.rows, *said])
        self._rows = [*call.rows, *said]
        calls = [item for row in said for item in call_names(row).items()]
        for call_id, name in calls:
            await host.turns.tool_began(name, call_id, call_id)
        if not calls:
            await host.turns.turn_ended()
        host.turns.send()

    async def failed(self, error: BaseException | None) -> None:
        """Record that a call failed; without an error the caller gave it up."""
        host = await self._opened()
        kind = "Cancelled" if error is None else type(error).__name__
        words = "" if error is None else str(error)
        await host.turns.model_failed(kind, words, cancelled=error is None)
        host.turns.send()
