"""Sessions of the real Amplifier kernel, with orchestrators that behave as Amplifier's own do.

The kernel is on the package index, its orchestrators are not. These two emit the same events and
add the same messages, in the same order, as loop-basic and loop-streaming; the code is ours.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from amplifier_core import AmplifierSession
from amplifier_core.loader import ModuleLoader
from amplifier_core.message_models import ChatRequest, Message, ToolSpec

Mount = Callable[[Any, Any], Awaitable[Any]]


class _Loop:
    """The common part of both loops: the tool loop."""

    ids_of_calls = False
    first_iteration = 0

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.most = (config or {}).get("max_iterations", 50)

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
        await self._emit(coordinator, hooks, "prompt:submit", {"prompt": prompt})
        await context.add_message({"role": "user", "content": prompt})
        name, provider = next(iter(providers.items()))
        for iteration in range(self.first_iteration, self.first_iteration + self.most):
            if coordinator.cancellation.is_cancelled:
                await self._complete(hooks, iteration, "cancelled")
                return ""
            payload = {"provider": name, "iteration": iteration}
            added = await self._emit(coordinator, hooks, "provider:request", payload)
            rows = await context.get_messages_for_request(provider=provider)
            if added.action == "inject_context" and added.ephemeral and added.context_injection:
                role = added.context_injection_role
                rows = [*rows, {"role": role, "content": added.context_injection}]
            await self._sending(rows)
            specs = [
                ToolSpec(name=tool.name, description=tool.description, parameters=tool.input_schema)
                for tool in tools.values()
            ]
            request = ChatRequest(messages=[Message(**row) for row in rows], tools=specs or None)
            try:
                response = await provider.complete(request)
            except Exception as error:
                problem = {"type": type(error).__name__, "msg": str(error)}
                await hooks.emit("provider:error", {"provider": name, "error": problem})
                raise
            await self._answered(hooks, name, provider, response)
            row: dict[str, Any] = {
                "role": "assistant",
                "content": [block.model_dump() for block in response.content],
            }
            if response.tool_calls:
                row["tool_calls"] = [
                    {"id": call.id, "tool": call.name, "arguments": call.arguments}
                    for call in response.tool_calls
                ]
            await context.add_message(row)
            if not response.tool_calls:
                text = "\n\n".join(getattr(one, "text", "") for one in response.content).strip()
                await self._done(hooks, text)
                await self._complete(hooks, iteration, "success")
                return text
            results = await asyncio.gather(
                *[self._run(coordinator, hooks, tools, call) for call in response.tool_calls]
            )
            for call, content in zip(response.tool_calls, results, strict=True):
                done = {"role": "tool", "tool_call_id": call.id, "content": content}
                await context.add_message(done)
        await self._complete(hooks, self.most, "incomplete")
        return ""

    async def _run(self, coordinator: Any, hooks: Any, tools: dict[str, Any], call: Any) -> str:
        payload: dict[str, Any] = {"tool_name": call.name, "tool_input": call.arguments}
        if self.ids_of_calls:
            payload["tool_call_id"] = call.id
        try:
            before = await self._emit(coordinator, hooks, "tool:pre", payload)
            if before.action == "deny":
                return f"Denied by hook: {before.reason}"
            result = await tools[call.name].execute(call.arguments)
            shown = result.model_dump() if hasattr(result, "model_dump") else result
            await self._emit(coordinator, hooks, "tool:post", {**payload, "result": shown})
            return str(result.get_serialized_output())
        except Exception as error:
            problem = {"type": type(error).__name__, "msg": str(error)}
            kept = payload if self.ids_of_calls else {"tool_name": call.name}
            await hooks.emit("tool:error", {**kept, "error": problem})
            return f"Error executing tool: {error}"

    async def _emit(self, coordinator: Any, hooks: Any, event: str, data: dict[str, Any]) -> Any:
        result = await hooks.emit(event, data)
        return await coordinator.process_hook_result(result, event, data.get("tool_name", "loop"))

    async def _complete(self, hooks: Any, iteration: int, status: str) -> None:
        payload = {"orchestrator": "loop", "turn_count": iteration, "status": status}
        await hooks.emit("orchestrator:complete", payload)

    async def _sending(self, rows: list[dict[str, Any]]) -> None: ...

    async def _answered(self, hooks: Any, name: str, provider: Any, response: Any) -> None: ...

    async def _done(self, hooks: Any, text: str) -> None: ...


class LikeBasic(_Loop):
    """No ids of tool calls, iterations from 0, ``provider:response`` and ``prompt:complete``."""

    async def _answered(self, hooks: Any, name: str, provider: Any, response: Any) -> None:
        usage = response.usage
        payload = {"provider": name, "usage": usage, "tool_calls": bool(response.tool_calls)}
        await hooks.emit("provider:response", payload)

    async def _done(self, hooks: Any, text: str) -> None:
        await hooks.emit("prompt:complete", {"response_preview": text[:200], "length": len(text)})


class LikeStreaming(_Loop):
    """Ids of tool calls, iterations from 1; its provider emits its own request and response."""

    ids_of_calls = True
    first_iteration = 1

    async def _answered(self, hooks: Any, name: str, provider: Any, response: Any) -> None:
        counted = {"input": response.usage.input_tokens, "output": response.usage.output_tokens}
        model = getattr(provider, "model", None)
        payload = {"provider": name, "model": model, "usage": counted, "status": "ok"}
        await hooks.emit("llm:response", payload)


LOOPS: dict[str, type[_Loop]] = {"basic": LikeBasic, "streaming": LikeStreaming}


class Loader(ModuleLoader):
    """The kernel's loader, which also finds a test's own modules by name."""

    def __init__(self, coordinator: Any, given: dict[str, Mount]) -> None:
        super().__init__(coordinator=coordinator)
        self._given = given

    async def load(  # type: ignore[override]
        self,
        module_id: str,
        config: dict[str, Any] | None = None,
        source_hint: Any = None,
        profile_hint: Any = None,
        coordinator: Any = None,
    ) -> Any:
        """A test's mount function as the kernel would call it, else the loader's own way."""
        if module_id not in self._given:
            return await super().load(
                module_id, config, source_hint=source_hint, coordinator=coordinator
            )

        async def mount(host: Any) -> Any:
            return await self._given[module_id](host, config or {})

        return mount


def mounting(point: str, module: Any, name: str | None = None) -> Mount:
    """A mount function that mounts ``module``."""

    async def mount(coordinator: Any, config: Any) -> None:
        await coordinator.mount(point, module, name=name)

    return mount


@asynccontextmanager
async def session(
    provider: Any,
    *tools: Any,
    loop: str | Any = "basic",
    loop_config: Mapping[str, Any] | None = None,
    context: str = "context-eventctx",
    config: Mapping[str, Any] | None = None,
    hooks: Mapping[str, Callable[[str, dict[str, Any]], Any]] | None = None,
    session_id: str = "session-1",
    parent_id: str | None = None,
    modules: Mapping[str, Mount] | None = None,
) -> AsyncIterator[AmplifierSession]:
    """A session of the real kernel, initialised; cleaned up at the end.

    ``loop`` is a name of ``LOOPS``, an orchestrator, or the id of a module that is installed;
    ``modules`` are mount functions by name.
    """
    module = loop if isinstance(loop, str) and loop not in LOOPS else "loop-test"
    orchestrator = LOOPS.get(loop, LikeBasic)() if isinstance(loop, str) else loop

    async def mount_hooks(coordinator: Any, config: Any) -> None:
        for event, handler in (hooks or {}).items():
            coordinator.hooks.register(event, handler, priority=5, name=f"test:{event}")

    given = {
        "loop-test": mounting("orchestrator", orchestrator),
        "provider-test": mounting("providers", provider, "scripted"),
        "hooks-test": mount_hooks,
    }
    given |= modules or {}
    given |= {f"tool-{tool.name}": mounting("tools", tool, tool.name) for tool in tools}
    plan = {
        "session": {
            "orchestrator": {"module": module, "config": dict(loop_config or {})},
            "context": {"module": context, "config": dict(config or {"store": "memory://"})},
        },
        "providers": [{"module": "provider-test"}],
        "tools": [{"module": f"tool-{tool.name}"} for tool in tools],
        "hooks": [{"module": "hooks-test"}],
    }
    made = AmplifierSession(plan, session_id=session_id, parent_id=parent_id)
    made.coordinator.loader = Loader(made.coordinator, given)
    await made.initialize()
    try:
        yield made
    finally:
        await made.cleanup()


def hook_result(**fields: Any) -> Any:
    """A HookResult of the kernel."""
    return import_module("amplifier_core").HookResult(**fields)


def as_text(value: Any) -> str:
    """JSON with sorted keys, to compare payloads by."""
    return json.dumps(value, sort_keys=True)
