"""Carrying out the tool calls of one answer, in parallel, each with a result for the model."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import uuid
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from eventctx.aio import undisturbed
from eventctx.errors import EventctxError, ToolFailed
from eventctx.log.outcomes import described, failure_of
from eventctx.orchestrators.host.hooks import HookAnswers, error_payload
from eventctx.orchestrators.limits import Stopped, within
from eventctx.orchestrators.loops.recording import ids_of
from eventctx.orchestrators.loops.run import TurnRun
from eventctx.orchestrators.protocol import Answer, Ids, ToolOutcome, ToolRequest
from eventctx.orchestrators.providers.failures import as_failure
from eventctx.orchestrators.tools.functions import run_tool
from eventctx.orchestrators.tools.results import presented, told, told_by_hook
from eventctx.session.turns import Iteration

CANCELLED: Final = "The call was cancelled before it ended."
"""What the model is told of a call that was broken off."""


class Calls:
    """The calls of an answer. Whatever happens, each of them gets a result in the context."""

    def __init__(self, run: TurnRun, cycle: Iteration, answer: Answer) -> None:
        self._run = run
        self._cycle = cycle
        self._answer = answer
        self._group = uuid.uuid4().hex
        self._open = {call.id: call for call in answer.calls}
        self._known: dict[str, ToolOutcome] = {}
        self._refused: EventctxError | None = None

    async def carried_out(self) -> None:
        """Add the answer, run its calls, and add each result as soon as it is there."""
        try:
            await self._run.add_answer(self._answer)
        except asyncio.CancelledError as error:
            if error.__cause__ is None:
                await self._given_up()
            raise
        try:
            await self._all()
        except BaseException:
            await self._given_up()
            raise

    async def _all(self) -> None:
        tasks = [asyncio.create_task(self._one(call)) for call in self._answer.calls]
        try:
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await undisturbed(asyncio.wait(tasks))
            for task in tasks:
                if not task.cancelled():
                    task.exception()
            raise
        for task in tasks:
            task.result()
        if self._refused is not None:
            raise self._refused

    async def _given_up(self) -> None:
        """Give the calls that are open a result: models refuse a conversation without."""
        for call in list(self._open.values()):
            # What keeps results from being added has its own error already, on its way up.
            with contextlib.suppress(Exception):
                await self._result(
                    self._known.get(call.id, ToolOutcome(call, CANCELLED, is_error=True))
                )

    async def _one(self, call: ToolRequest) -> None:
        await self._result(await self._outcome(call))

    async def _result(self, outcome: ToolOutcome) -> None:
        self._open.pop(outcome.call.id, None)
        try:
            row = self._run.provider.result_message(outcome)
        except Exception as error:
            raise as_failure(self._run.chosen.name, error) from error
        await self._run.add(row)

    async def _outcome(self, call: ToolRequest) -> ToolOutcome:
        try:
            async with self._cycle.tool_call(call.name, call.id) as block:
                return await self._told(call, ids_of(block.scope))
        except Stopped:
            return ToolOutcome(call, CANCELLED, is_error=True)
        except Exception as error:
            return ToolOutcome(call, str(described(error)), is_error=True)

    async def _told(self, call: ToolRequest, ids: Ids) -> ToolOutcome:
        """A call between what the host is told of its beginning and its end."""
        host = self._run.host
        facts = {
            "tool_name": call.name,
            "tool_input": call.arguments,
            "tool_call_id": call.id,
            "parallel_group_id": self._group,
        }
        try:
            said = await self._heard(host.tell("tool:pre", ids, facts, about=call.name))
            if said.denied is not None:
                raise ToolFailed(call.name, f"denied by a hook: {said.denied}")
            changed = (said.data or {}).get("tool_input")
            arguments = changed if isinstance(changed, dict) else call.arguments
            facts["tool_input"] = arguments
            value = await self._executed(call, arguments, ids)
        except BaseException as error:
            status = failure_of(type(error))
            more = {"error": error_payload(error), "status": status}
            await host.tell_end(
                "tool:error",
                ids,
                facts | more,
                about=call.name,
                broken_off=status == "cancelled",
            )
            raise
        text, failed = told(value)
        self._known[call.id] = ToolOutcome(call, text, is_error=failed)
        shown = presented(value) if host.listens else None
        try:
            said = await self._heard(
                host.tell_end("tool:post", ids, facts | {"result": shown}, about=call.name)
            )
        except (asyncio.CancelledError, EventctxError):
            # The call itself had ended and is recorded so; what broke off is raised by ``_all``.
            return self._known[call.id]
        changed = shown if said.data is None else said.data.get("result", shown)
        if changed != shown:
            text, failed = told_by_hook(changed)
        return ToolOutcome(call, text, is_error=failed)

    async def _heard(self, telling: Coroutine[Any, Any, HookAnswers]) -> HookAnswers:
        """What hooks answered. That the context did not take an injection ends the turn."""
        try:
            return await telling
        except EventctxError as error:
            self._refused = self._refused or error
            raise

    async def _executed(self, call: ToolRequest, arguments: dict[str, Any], ids: Ids) -> Any:
        run = self._run
        if call.error is not None:
            raise ToolFailed(call.name, f"its arguments cannot be used: {call.error}")
        tool = run.tools.get(call.name)
        if tool is None:
            known = ", ".join(sorted(run.tools)) or "none"
            raise ToolFailed(call.name, f"there is no such tool; the tools are: {known}")
        run.stop.began(call.id, call.name)
        try:
            # A copy: the tool may keep or change it, and the answer's own is still to be sent.
            work = self._work(tool, copy.deepcopy(arguments), ids, call.id)
            return await within(work, run.settings.tool_timeout, run.stop)
        finally:
            run.stop.ended(call.id)

    async def _work(self, tool: Any, arguments: dict[str, Any], ids: Ids, call_id: str) -> Any:
        with self._dispatching(call_id):
            return await run_tool(tool, arguments, ids)

    @contextmanager
    def _dispatching(self, call_id: str) -> Iterator[None]:
        """Let Amplifier's tools find the call that they run for, by task, as its loops do."""
        coordinator, task = self._run.coordinator, asyncio.current_task()
        if coordinator is None:
            yield
            return
        contexts = getattr(coordinator, "_tool_dispatch_contexts", None)
        if contexts is None:
            with contextlib.suppress(AttributeError):
                contexts = coordinator._tool_dispatch_contexts = {}
        if not isinstance(contexts, dict):
            yield
            return
        contexts[task] = {"tool_call_id": call_id, "parallel_group_id": self._group}
        try:
            yield
        finally:
            contexts.pop(task, None)
