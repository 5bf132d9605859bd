"""The SDK's hooks of a run, which report its turn, its model calls and its tools."""

from __future__ import annotations

from typing import Any, cast

from agents import (
    Agent,
    AgentHookContext,
    FunctionTool,
    ModelResponse,
    RunContextWrapper,
    RunHooks,
    Tool,
    ToolErrorFormatterArgs,
    ToolTimeoutError,
)
from agents.items import TResponseInputItem

from eventctx.adapters.kit.host_run import HostRun, tool_failed
from eventctx.adapters.kit.host_session import HostSession, Row
from eventctx.adapters.openai_agents.failures import fail_run
from eventctx.adapters.openai_agents.nested import NestedRuns
from eventctx.log.turn_recorder import CallSettings
from eventctx.log.usage import OPENAI_RESPONSES, read_usage


class RecordingHooks(RunHooks[Any]):
    """Reports a run as a turn, and calls the caller's own hooks first."""

    def __init__(self, reports: HostRun[HostSession], nested: NestedRuns) -> None:
        self._reports = reports
        self._nested = nested
        self._inner = RunHooks[Any]()
        self._run: object = None
        self._over = False
        self._begun = False
        self._tools: dict[str, str] = {}
        self._raised: dict[str, BaseException] = {}
        self.first_call = True
        """Whether the run has made no model call yet."""
        self.streams = False
        """Whether the run is streamed, as far as the runner says it."""

    def also_calling(self, inner: RunHooks[Any] | None) -> RecordingHooks:
        """These hooks, which also call the caller's ``inner`` ones from now on."""
        self._inner = RunHooks[Any]() if inner is None else inner
        return self

    async def request_begins(self, asked: tuple[str | None, str | None, CallSettings]) -> None:
        """A model call is about to be prepared: its provider, model and settings."""
        self.first_call = False
        await self._reports.do(lambda host: host.turns.iteration_began(*asked))

    async def stored(self) -> None:
        """The SDK stored items: after the last answer of a run, its turn is over."""
        if self._over:
            self._over = False
            await self._reports.do(lambda host: host.turns.turn_ended())

    def run_may_begin(self) -> None:
        """The SDK read the session: what comes next belongs to no turn that a prompt began."""
        self._begun = False

    async def prompt_stored(self, agent: str) -> None:
        """The SDK is about to store the prompt of a run, whose turn begins with it."""
        await self.stored()
        await self._reports.do(lambda host: host.turns.turn_began(agent=agent))
        self._begun = True

    # -- failures --------------------------------------------------------------------------------

    async def run_failed(self, error: BaseException) -> None:
        """The run ended with this exception."""
        tools, self._tools = self._tools, {}
        self._over = self._begun = False
        self._raised.clear()

        async def failed(host: HostSession) -> None:
            await self._nested.run_ended(error)
            await fail_run(host.turns, tools, error)

        await self._reports.do(failed)

    def tool_raised(self, failed: ToolErrorFormatterArgs[Any]) -> None:
        """The SDK makes a text for the model of what a tool raised; the call ends with it."""
        if failed.error is not None:
            self._raised[failed.call_id] = failed.error

    def nested_run_failed(self, asked: object, error: BaseException) -> None:
        """A run inside a tool, with this input, ended with this exception."""
        call_id = self._nested.call_of(asked)
        if call_id is not None:
            self._raised[call_id] = error

    # -- the SDK's -------------------------------------------------------------------------------

    async def on_agent_start(self, context: AgentHookContext[Any], agent: Agent[Any]) -> None:
        """A run began, or another agent took over in it, which shares the run's usage."""
        await self._inner.on_agent_start(context, agent)
        if context.usage is not self._run:
            self._run, self.first_call = context.usage, True
            await self._reports.do(lambda _: self._nested.run_ended())
            if not self._begun:
                await self.prompt_stored(agent.name)
            self._begun = False

    async def on_agent_end(
        self, context: AgentHookContext[Any], agent: Agent[Any], output: Any
    ) -> None:
        """The run has its final output; the SDK stores the last items after this."""
        await self._inner.on_agent_end(context, agent, output)
        self._over = True

    async def on_handoff(
        self, context: RunContextWrapper[Any], from_agent: Agent[Any], to_agent: Agent[Any]
    ) -> None:
        """Another agent takes over."""
        await self._inner.on_handoff(context, from_agent, to_agent)

    async def on_llm_start(
        self,
        context: RunContextWrapper[Any],
        agent: Agent[Any],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """The request leaves."""
        await self._inner.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse
    ) -> None:
        """The model answered."""
        await self._inner.on_llm_end(context, agent, response)

        async def answered(host: HostSession) -> None:
            usage = read_usage(response.usage, OPENAI_RESPONSES)
            await host.turns.model_known(usage=usage, response_id=response.response_id)
            await host.turns.model_answered()
            await host.answered(cast("list[Row]", response.to_input_items()))

        await self._reports.do(answered)

    async def on_tool_start(
        self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool
    ) -> None:
        """A local tool began."""
        await self._inner.on_tool_start(context, agent, tool)
        call_id = getattr(context, "tool_call_id", None)
        key = call_id or tool.name
        self._tools[key] = tool.name
        await self._reports.tool(tool.name, call_id).begin()
        self._nested.tool_began(key, getattr(context, "tool_arguments", None))

    async def on_tool_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool, result: object
    ) -> None:
        """A local tool returned, or the SDK made a text of its failure."""
        await self._inner.on_tool_end(context, agent, tool, result)
        key = getattr(context, "tool_call_id", None) or tool.name
        answer = result if isinstance(result, str) else None
        self._tools.pop(key, None)
        error = self._raised.pop(key, None) or _error_told(tool, answer)

        async def ended(host: HostSession) -> None:
            await self._nested.tool_ended(key, error)
            if error is None:
                await host.turns.tool_ended(key, answer, name=tool.name)
            else:
                await tool_failed(host.turns, key, error, answer=answer, name=tool.name)

        await self._reports.do(ended)


def _error_told(tool: Tool, answer: str | None) -> Exception | None:
    """The error of which this is the SDK's own text, for an exception that no hook gets."""
    seconds = tool.timeout_seconds if isinstance(tool, FunctionTool) else None
    error = None if seconds is None else ToolTimeoutError(tool.name, seconds)
    return error if str(error) == answer else None
