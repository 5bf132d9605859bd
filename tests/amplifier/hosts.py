"""Sessions of the real Amplifier kernel, with doubles of its orchestrators (``loops.py``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from amplifier_core import AmplifierSession
from amplifier_core.loader import ModuleLoader
from amplifier_core.testing import MockCoordinator

from eventctx.adapters import amplifier
from eventctx.testing import ScriptedAmplifierProvider, ScriptedTool
from tests.amplifier.loops import LOOPS, LikeBasic

Mount = Callable[[Any, Any], Awaitable[Any]]


class Loader(ModuleLoader):
    """The kernel's loader, which also finds a test's own modules by name."""

    def __init__(self, coordinator: Any, given: dict[str, Mount]) -> None:
        super().__init__(coordinator=coordinator)
        self._given = given

    async def load(  # type: ignore[override]
        self, module_id: str, config: dict[str, Any] | None = None, *more: Any, **named: Any
    ) -> Any:
        """A test's mount function as the kernel would call it, else the loader's own way."""
        if module_id not in self._given:
            return await super().load(module_id, config, *more, **named)

        async def mount(host: Any) -> Any:
            return await self._given[module_id](host, config or {})

        return mount


def mounting(point: str, module: Any, name: str | None = None) -> Mount:
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
    store: Path | str = "memory://",
    config: Mapping[str, Any] | None = None,
    hooks: Mapping[str, Callable[[str, dict[str, Any]], Any]] | None = None,
    session_id: str = "session-1",
    parent_id: str | None = None,
    modules: Mapping[str, Mount] | None = None,
) -> AsyncIterator[AmplifierSession]:
    """A session of the real kernel, initialised; cleaned up at the end.

    A provider that has ``hooks`` gets the session's. ``loop`` is a name of ``LOOPS``, an
    orchestrator, or the id of a module that is installed; ``modules`` are mount functions by name.
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
            "context": {"module": context, "config": {"store": str(store), **(config or {})}},
        },
        "providers": [{"module": "provider-test"}],
        "tools": [{"module": f"tool-{tool.name}"} for tool in tools],
        "hooks": [{"module": "hooks-test"}],
    }
    made = AmplifierSession(plan, session_id=session_id, parent_id=parent_id)
    made.coordinator.loader = Loader(made.coordinator, given)
    await made.initialize()
    if hasattr(provider, "hooks"):
        provider.hooks = made.coordinator.hooks
    try:
        yield made
    finally:
        await made.cleanup()


class Telling(ScriptedAmplifierProvider):
    """A provider that tells the hooks of its calls, as Amplifier's own modules do.

    Of a request it tells what it sends, as when it is asked for raw payloads.
    """

    hooks: Any = None

    def asked(self, request: Any) -> dict[str, Any] | None:
        """What is told of a request."""
        rows = [message.model_dump(exclude_none=True) for message in request.messages]
        return {"raw": {"messages": rows}}

    async def complete(self, request: Any, **options: Any) -> Any:
        if (asked := self.asked(request)) is not None:
            await self._tell("llm:request", **asked)
        try:
            response = await super().complete(request, **options)
        except Exception as error:
            await self._tell("llm:response", status="error", error=str(error))
            await self._tell("provider:error", error={"type": "RateLimitError", "msg": "no"})
            raise
        counted = {"input": response.usage.input_tokens, "output": response.usage.output_tokens}
        await self._tell("llm:response", usage=counted, status="ok")
        return response

    async def _tell(self, event: str, **data: Any) -> None:
        if self.hooks is not None:
            told = {"provider": self.name, "model": self.model, **data}
            await self.hooks.emit(event, told)


class Named(MockCoordinator):
    """A coordinator of a session of another name."""

    session_id = parent_id = None

    def __new__(cls, session: str, parent: str | None = None) -> Named:
        return super().__new__(cls)

    def __init__(self, session: str, parent: str | None = None) -> None:
        super().__init__()
        self.session_id, self.parent_id = session, parent


@asynccontextmanager
async def mounted(
    config: Mapping[str, Any] | None = None, coordinator: Any = None, module: Any = amplifier
) -> AsyncIterator[Any]:
    """A context that is mounted under a coordinator that does nothing else."""
    coordinator = coordinator or MockCoordinator()
    cleanup = await module.mount(coordinator, {"store": "memory://", **(config or {})})
    try:
        yield coordinator.get("context")
    finally:
        await cleanup()


def tool(name: str, *script: Any) -> ScriptedTool:
    return ScriptedTool(name, *script, amplifier=True)
