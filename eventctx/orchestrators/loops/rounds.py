"""The rounds of a turn: ask, run the tools that the model calls, ask again until it calls none.

An answer that paused is asked to go on. The calls of an answer run in parallel.

Invariant: after an answer was added, every call of it gets exactly one result in the context, also
when the turn fails or is cancelled; APIs refuse a conversation that lacks one. A result is added as
soon as its call ends, so a crash loses only the calls that were still running.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import uuid
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Final

from eventctx.aio import finish
from eventctx.errors import EventctxError, ToolFailed
from eventctx.log.turn_recorder import described
from eventctx.orchestrators.host.hooks import HookAnswers, Stopped, within
from eventctx.orchestrators.loops.model_call import ModelCaller, Outlet
from eventctx.orchestrators.loops.recording import ids_of
from eventctx.orchestrators.loops.run import TurnRun
from eventctx.orchestrators.protocol import Answer, Finish, Ids, ToolOutcome, ToolRequest
from eventctx.orchestrators.providers.failures import as_failure
from eventctx.orchestrators.tools.functions import run_tool
from eventctx.orchestrators.tools.results import (
    as_payload,
    reported_failure,
    text_of,
    text_of_replacement,
)
from eventctx.session.turns import Iteration, ToolCall, Turn

LIMIT: Final = (
    "You have used all the steps of this turn. Answer now without calling tools: "
    "say what is done and what is left."
)

PAUSED: Final = "pause_turn"
"""The end of an answer of Claude's that waits for a tool of its provider: it goes on when asked."""


async def take_rounds(
    run: TurnRun, turn: Turn, *, first: int = 1, outlet: Outlet | None = None
) -> Finish:
    """Take rounds until an answer calls no tool, or until ``max_iterations``.

    ``first`` is the number of the first one. ``outlet`` gets the pieces of each answer.
    """
    limit = run.settings.max_iterations
    for number in count(first):
        run.check_stop()
        async with turn.iteration() as cycle:
            run.iterations = number
            if limit is not None and number > limit:
                await run.remind(LIMIT)
                await run.add_answer(await _answer(run, cycle, outlet, may_call=False))
                return "iteration_limit"
            answer = await _answer(run, cycle, outlet, may_call=True)
            await ToolCalls(run, cycle, answer).carry_out()
            if not answer.calls and answer.finish_reason != PAUSED:
                return "answered"
    raise AssertionError("a count does not end")


async def _answer(
    run: TurnRun, cycle: Iteration, outlet: Outlet | None, *, may_call: bool
) -> Answer:
    """An answer. The shown part of one that did not come to its end is added as a message."""
    if outlet is not None:
        outlet.next_answer()
    try:
        return await ModelCaller(run, cycle, may_call=may_call, outlet=outlet).answer()
    except BaseException:
        if outlet is not None and outlet.shown:
            run.text = outlet.shown
            # An error while this message is added must not hide how the call ended.
            with suppress(Exception):
                await run.add({"role": "assistant", "content": run.text})
        raise


CANCELLED: Final = "The call was cancelled before it ended."
"""The result of a call that was broken off."""


class ToolCalls:
    """The calls of one answer."""

    def __init__(self, run: TurnRun, cycle: Iteration, answer: Answer) -> None:
        self._run = run
        self._cycle = cycle
        self._answer = answer
        self._group = uuid.uuid4().hex
        self._open = {call.id: call for call in answer.calls}
        self._known: dict[str, ToolOutcome] = {}
        self._refused: EventctxError | None = None

    async def carry_out(self) -> None:
        """Add the answer, run its calls, and add each result as soon as its call ends."""
        try:
            await self._run.add_answer(self._answer)
        except asyncio.CancelledError as error:
            if error.__cause__ is None:  # the answer was added all the same
                await self._give_up()
            raise
        try:
            await self._run_all()
        except BaseException:
            await self._give_up()
            raise

    async def _run_all(self) -> None:
        tasks = [asyncio.create_task(self._run_one(call)) for call in self._answer.calls]
        try:
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await finish(asyncio.wait(tasks))
            for task in tasks:
                if not task.cancelled():
                    task.exception()
            raise
        for task in tasks:
            task.result()
        if self._refused is not None:
            raise self._refused

    async def _give_up(self) -> None:
        """Add a result for each open call: the tool's own if it ended, else ``CANCELLED``."""
        for call in list(self._open.values()):
            # The error that ends the turn is on its way up; one of these must not replace it.
            with contextlib.suppress(Exception):
                await self._add_result(
                    self._known.get(call.id, ToolOutcome(call, CANCELLED, is_error=True))
                )

    async def _run_one(self, call: ToolRequest) -> None:
        await self._add_result(await self._outcome(call))

    async def _add_result(self, outcome: ToolOutcome) -> None:
        self._open.pop(outcome.call.id, None)
        try:
            row = self._run.provider.result_message(outcome)
        except Exception as error:
            raise as_failure(self._run.chosen.name, error) from error
        await self._run.add(row)

    async def _outcome(self, call: ToolRequest) -> ToolOutcome:
        try:
            async with self._cycle.tool_call(call.name, call.id) as block:
                return await self._run_reported(call, block)
        except Stopped:
            return ToolOutcome(call, CANCELLED, is_error=True)
        except Exception as error:
            return ToolOutcome(call, str(described(error)), is_error=True)

    async def _run_reported(self, call: ToolRequest, block: ToolCall) -> ToolOutcome:
        """Run a call, and tell the host's hooks of its start and its end."""
        host, ids = self._run.host, ids_of(block.scope)
        facts: dict[str, Any] = {
            "tool_name": call.name,
            "tool_input": call.arguments,
            "tool_call_id": call.id,
            "parallel_group_id": self._group,
        }
        async with host.telling_errors("tool:error", ids, facts, about=call.name):
            answers = await self._heard(host.tell("tool:pre", ids, facts, about=call.name))
            if answers.denied is not None:
                raise ToolFailed(call.name, f"denied by a hook: {answers.denied}")
            changed = (answers.data or {}).get("tool_input")
            arguments = changed if isinstance(changed, dict) else call.arguments
            facts["tool_input"] = arguments
            value = await self._executed(call, arguments, ids)
        text, failed = text_of(value)
        self._known[call.id] = ToolOutcome(call, text, is_error=failed)
        result = as_payload(value) if host.listens else None
        event, facts = "tool:post", facts | {"result": result}
        if failure := reported_failure(value):
            block.failed(*failure)
            event, error = "tool:error", {"type": failure.kind, "msg": failure.message}
            facts |= {"error": error, "status": "error"}
        try:
            answers = await self._heard(host.tell_end(event, ids, facts, about=call.name))
        except (asyncio.CancelledError, EventctxError):
            # The call itself had ended and is recorded so; ``_run_all`` raises what broke off.
            return self._known[call.id]
        changed = result if answers.data is None else answers.data.get("result", result)
        if changed != result:
            text, failed = text_of_replacement(changed)
        return ToolOutcome(call, text, is_error=failed)

    async def _heard(self, telling: Coroutine[Any, Any, HookAnswers]) -> HookAnswers:
        """The answers of hooks. If the context refuses an injection, its error ends the turn."""
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
        run.stop.tool_started(call.id, call.name)
        try:
            # A copy: the tool may keep or change it, and the answer itself will be sent again.
            work = self._work(tool, copy.deepcopy(arguments), ids, call.id)
            return await within(work, run.settings.tool_timeout, run.stop)
        finally:
            run.stop.tool_ended(call.id)

    async def _work(self, tool: Any, arguments: dict[str, Any], ids: Ids, call_id: str) -> Any:
        with self._dispatching(call_id):
            return await run_tool(tool, arguments, ids)

    @contextmanager
    def _dispatching(self, call_id: str) -> Iterator[None]:
        """Let Amplifier's tools find their call by the running task, as under Amplifier's loops."""
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
