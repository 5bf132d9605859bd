"""Orchestrators that behave as Amplifier's own do, written anew from what those were seen to do.

The kernel is on the package index, its orchestrators are not. These emit the same events with the
same payloads, in the same order, and store the same rows as loop-basic and loop-streaming.
``test_told.py`` holds the conversations of ``conversations.py`` on both and compares them,
where the real ones are at hand.

Left out: limits on iterations, goals, steering, rate limits, providers with ``stream``, and the
``content_blocks`` that some providers set next to ``content``.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass
from typing import Any

from amplifier_core.llm_errors import LLMError
from amplifier_core.message_models import ChatRequest, Message, ToolSpec
from amplifier_core.models import ToolResult

CLOSING = "The previous operation was cancelled. Results from completed tools have been preserved."


@dataclass
class Turn:
    """What ``execute`` was given, for the steps of one turn."""

    context: Any
    provider_name: str
    provider: Any
    tools: dict[str, Any]
    hooks: Any
    coordinator: Any
    iteration: int = 0
    cancel_told: bool = False

    async def told(self, event: str, data: dict[str, Any], about: str = "orchestrator") -> Any:
        """Emit an event and let the coordinator act on the hooks' answer."""
        answer = await self.hooks.emit(event, data)
        return await self.coordinator.process_hook_result(answer, event, about)

    async def failed(self, error: Exception) -> None:
        problem = _problem(type(error).__name__, str(error))
        payload: dict[str, Any] = {"provider": self.provider_name, **problem}
        if isinstance(error, LLMError):
            payload |= {"retryable": error.retryable, "status_code": error.status_code}
        await self.hooks.emit("provider:error", payload)


class Loop:
    name = ""
    names_in_rows = False
    """Whether the rows of results hold the tool's name."""

    failed = ""
    """What a result says before the error of a tool."""

    def __init__(self) -> None:
        self._pending: list[Any] = []

    async def execute(
        self,
        prompt: str,
        context: Any,
        providers: dict[str, Any],
        tools: dict[str, Any],
        hooks: Any,
        coordinator: Any = None,
        **_: Any,
    ) -> str:
        name, provider = next(iter(providers.items()))
        return await self._take_turn(
            Turn(context, name, provider, tools, hooks, coordinator), prompt
        )

    async def _take_turn(self, turn: Turn, prompt: str) -> str:
        raise NotImplementedError

    # -- requests --------------------------------------------------------------------------------

    async def _prepared(self, turn: Turn) -> ChatRequest | str:
        """The next request; a text if a hook denied it."""
        payload = {"provider": turn.provider_name, "iteration": turn.iteration}
        answer = await turn.told("provider:request", payload)
        if answer.action == "deny":
            return f"Operation denied: {answer.reason}"
        return self._request(turn, await self._rows(turn, answer))

    async def _rows(self, turn: Turn, answer: Any) -> list[dict[str, Any]]:
        """The prepared messages, with what hooks add to this one request."""
        rows = list(await turn.context.get_messages_for_request(provider=turn.provider))
        ephemeral = [answer] if _is_ephemeral(answer) else []
        for one in [*ephemeral, *self._pending]:
            if one.append_to_last_tool_result and rows and rows[-1]["role"] == "tool":
                text = f"{rows[-1]['content']}\n\n{one.context_injection}"
                rows[-1] = {**rows[-1], "content": text}
            else:
                rows.append({"role": one.context_injection_role, "content": one.context_injection})
        self._pending.clear()
        await self._sending(rows)
        return rows

    async def _sending(self, rows: list[dict[str, Any]]) -> None:
        """For hosts that write into the messages that they were given."""

    @staticmethod
    def _request(turn: Turn, rows: list[dict[str, Any]]) -> ChatRequest:
        specs = [
            ToolSpec(name=tool.name, description=tool.description, parameters=tool.input_schema)
            for tool in turn.tools.values()
        ]
        return ChatRequest(messages=[Message(**row) for row in rows], tools=specs or None)

    def _answer_row(self, response: Any, calls: list[Any]) -> dict[str, Any]:
        blocks = [block.model_dump() for block in response.content]
        row: dict[str, Any] = {"role": "assistant", "content": blocks}
        if calls:
            row["tool_calls"] = [
                {"id": call.id, "tool": call.name, "arguments": self._arguments(call)}
                for call in calls
            ]
        if getattr(response, "metadata", None):
            row["metadata"] = response.metadata
        return row

    def _arguments(self, call: Any) -> Any:
        return call.arguments

    # -- tools -----------------------------------------------------------------------------------

    async def _results(self, turn: Turn, calls: list[Any]) -> list[str]:
        """Run the calls side by side. If the task is killed, close the turn and go down with it."""
        group = str(uuid.uuid4())
        try:
            return await asyncio.gather(*[self._run(turn, call, group) for call in calls])
        except asyncio.CancelledError:
            lost = [
                '{"error": "Tool execution was cancelled by user", "cancelled": true, '
                f'"tool": "{call.name}"}}'
                for call in calls
            ]
            await self._add_results(turn, calls, lost)
            await self._tell_cancelled(turn)
            await turn.context.add_message({"role": "assistant", "content": CLOSING})
            raise

    async def _run(self, turn: Turn, call: Any, group: str) -> str:
        known = {"tool_name": call.name, "parallel_group_id": group, **self._ids(call)}
        facts = {**known, "tool_input": call.arguments}
        try:
            answer = await turn.told("tool:pre", facts, call.name)
            if answer.action == "deny":
                return f"Denied by hook: {answer.reason}"
            tool = turn.tools.get(call.name)
            if tool is None:
                missing = f"Error: Tool '{call.name}' not found"
                await turn.hooks.emit("tool:error", known | _problem("RuntimeError", missing))
                return missing
            value = await self._executed(turn, tool, call)
            payload = facts | {"result": self._as_told(value)}
            return await self._told_of_result(turn, call, payload, value)
        except Exception as error:
            problem = _problem(type(error).__name__, str(error))
            await turn.hooks.emit("tool:error", known | problem)
            return f"{self.failed}: {error}"

    async def _executed(self, turn: Turn, tool: Any, call: Any) -> Any:
        return await tool.execute(call.arguments)

    def _ids(self, call: Any) -> dict[str, Any]:
        """What the events of a tool say of its call, besides the tool's name."""
        return {}

    def _as_told(self, value: Any) -> Any:
        """A result in the payload of an event."""
        return value

    async def _told_of_result(
        self, turn: Turn, call: Any, payload: dict[str, Any], value: Any
    ) -> str:
        """Emit ``tool:post``; the text for the model is that of the copy that comes back."""
        answer = await turn.hooks.emit("tool:post", payload)
        await turn.coordinator.process_hook_result(answer, "tool:post", call.name)
        if _is_ephemeral(answer):
            self._pending.append(answer)
        copied = (answer.data or {}).get("result")
        if copied is None:
            return str(value.get_serialized_output())
        return json.dumps(copied) if isinstance(copied, dict | list) else str(copied)

    async def _add_results(self, turn: Turn, calls: list[Any], results: list[str]) -> None:
        for call, text in zip(calls, results, strict=True):
            row = {"role": "tool", "tool_call_id": call.id, "content": text}
            if self.names_in_rows:
                row["name"] = call.name
            await turn.context.add_message(row)

    # -- ends ------------------------------------------------------------------------------------

    async def _tell_cancelled(self, turn: Turn) -> None:
        cancellation = turn.coordinator.cancellation
        facts = {"orchestrator": self.name, "turn_count": turn.iteration}
        if not turn.cancel_told:
            turn.cancel_told = True
            await turn.hooks.emit("cancel:requested", {**facts, "state": str(cancellation.state)})
            await cancellation.trigger_callbacks()
        completed = {**facts, "was_immediate": cancellation.is_immediate}
        await turn.hooks.emit("cancel:completed", completed)

    async def _complete(self, turn: Turn, status: str, **more: Any) -> None:
        payload = {"orchestrator": self.name, "turn_count": turn.iteration, "status": status}
        await turn.hooks.emit("orchestrator:complete", payload | more)


class LikeBasic(Loop):
    """loop-basic: no ids in the events of tools, the tool's name alone in ``tool:error``.

    It passes the kernel a ``ToolResult`` as it is, so listeners get its text.
    """

    name = "loop-basic"
    failed = "Error executing tool"

    async def _take_turn(self, turn: Turn, prompt: str) -> str:
        answer = await turn.told("prompt:submit", {"prompt": prompt})
        if answer.action == "deny":
            return f"Operation denied: {answer.reason}"
        await turn.context.add_message({"role": "user", "content": prompt})
        cancellation = turn.coordinator.cancellation
        text: str | None = None
        while text is None:
            if cancellation.is_cancelled:
                await self._tell_cancelled(turn)
                await self._complete(turn, "cancelled")
                return ""
            request = await self._prepared(turn)
            if isinstance(request, str):
                return request
            try:
                text = await self._round(turn, request)
            except Exception as error:
                await turn.failed(error)
                raise
            if cancellation.is_immediate:
                return ""
        ended = {"response_preview": text[:200], "length": len(text)}
        await turn.hooks.emit("prompt:complete", ended)
        await self._complete(turn, "success" if text else "incomplete")
        return text

    async def _round(self, turn: Turn, request: ChatRequest) -> str | None:
        """A model call with its tools; the final text, or None while the turn goes on."""
        response = await turn.provider.complete(request)
        if turn.coordinator.cancellation.is_immediate:
            return await self._broken_off(turn)
        calls = response.tool_calls or []
        payload = {"provider": turn.provider_name, "usage": response.usage}
        await turn.hooks.emit("provider:response", payload | {"tool_calls": bool(calls)})
        if not calls and response.content:
            await turn.context.add_message(self._answer_row(response, []))
            return _text_of(response)
        if calls:
            await turn.context.add_message(self._answer_row(response, calls))
            await self._add_results(turn, calls, await self._results(turn, calls))
            if turn.coordinator.cancellation.is_immediate:
                await self._broken_off(turn)
                await turn.context.add_message({"role": "assistant", "content": CLOSING})
                return None
        turn.iteration += 1
        return None

    async def _broken_off(self, turn: Turn) -> None:
        await self._tell_cancelled(turn)
        await self._complete(turn, "cancelled")

    def _arguments(self, call: Any) -> Any:
        # The real loop takes empty arguments for missing ones, and looks for them in a dict.
        return call.arguments or call.get("arguments")

    async def _run(self, turn: Turn, call: Any, group: str) -> str:
        cancellation = turn.coordinator.cancellation
        cancellation.register_tool_start(call.id, call.name)
        try:
            return await super()._run(turn, call, group)
        finally:
            cancellation.register_tool_complete(call.id)


class LikeStreaming(Loop):
    """loop-streaming: ids in the events of tools, a failed tool as ``tool:post``.

    It emits no ``provider:response`` and no ``prompt:complete``.
    """

    name = "loop-streaming"
    names_in_rows = True
    failed = "Internal error executing tool"

    async def _take_turn(self, turn: Turn, prompt: str) -> str:
        goal = {"goal_turn": None, "goal_final": True, "continuations": None}
        try:
            text = await self._rounds(turn, prompt)
        except Exception:
            await self._complete(turn, "error", **goal)
            raise
        status = "success" if text else "incomplete"
        if turn.coordinator.cancellation.is_cancelled:
            status = "cancelled"
        await self._complete(turn, status, **goal)
        return text

    async def _rounds(self, turn: Turn, prompt: str) -> str:
        answer = await turn.told("prompt:submit", {"prompt": prompt})
        if answer.action == "deny":
            return f"Operation denied: {answer.reason}"
        if _is_ephemeral(answer):
            self._pending.append(answer)
        await turn.hooks.emit("execution:start", {"prompt": prompt})
        await turn.context.add_message({"role": "user", "content": prompt})
        while True:
            if turn.coordinator.cancellation.is_cancelled:
                await self._tell_cancelled(turn)
                turn.iteration = 0
                return ""
            turn.iteration += 1
            request = await self._prepared(turn)
            if isinstance(request, str):
                return request
            try:
                response = await turn.provider.complete(request)
            except Exception as error:
                await turn.failed(error)
                turn.iteration = 0
                raise
            await self._tell_blocks(turn, response)
            calls = turn.provider.parse_tool_calls(response)
            await turn.context.add_message(self._answer_row(response, calls))
            if not calls:
                await turn.hooks.emit("execution:end", {})
                return _text_of(response)
            await self._add_results(turn, calls, await self._results(turn, calls))
            if turn.coordinator.cancellation.is_cancelled:
                await self._tell_cancelled(turn)
                await turn.context.add_message({"role": "assistant", "content": CLOSING})
                turn.iteration = 0
                return ""

    async def _tell_blocks(self, turn: Turn, response: Any) -> None:
        total = len(response.content)
        for index, block in enumerate(response.content):
            place = {"block_index": index, "total_blocks": total}
            await turn.hooks.emit("content_block:start", {**place, "block_type": block.type})
            ended = {**place, "block": block.model_dump()}
            if response.usage:
                ended["usage"] = response.usage.model_dump()
            await turn.hooks.emit("content_block:end", ended)

    def _answer_row(self, response: Any, calls: list[Any]) -> dict[str, Any]:
        row = super()._answer_row(response, calls)
        thinking = next((one for one in response.content if one.type == "thinking"), None)
        if thinking is not None:
            row["thinking_block"] = thinking.model_dump()
        return row

    def _ids(self, call: Any) -> dict[str, Any]:
        return {"tool_call_id": call.id}

    def _as_told(self, value: Any) -> Any:
        return value.model_dump() if hasattr(value, "model_dump") else str(value)

    async def _executed(self, turn: Turn, tool: Any, call: Any) -> Any:
        cancellation = turn.coordinator.cancellation
        cancellation.register_tool_start(call.id, call.name)
        try:
            return await tool.execute(call.arguments)
        except Exception as error:
            return ToolResult(success=False, error={"message": str(error)})
        finally:
            cancellation.register_tool_complete(call.id)


LOOPS: dict[str, type[Loop]] = {"basic": LikeBasic, "streaming": LikeStreaming}


def _problem(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"type": kind, "msg": message}}


def _text_of(response: Any) -> str:
    return "\n\n".join([one.text for one in response.content if one.type == "text"])


def _is_ephemeral(answer: Any) -> bool:
    return bool(answer.action == "inject_context" and answer.ephemeral and answer.context_injection)
