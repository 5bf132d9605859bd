"""Runs of the agent frameworks that install beside each other, on their own fake models."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from eventctx.engine import Engine
from tests.benchmarks.adapting.runs import CALLS, ROUNDS, TEXT, Pair, RunOnce


def openai_agents() -> Pair:
    import agents
    from agents import Agent, RunConfig, RunHooks, Runner, function_tool
    from agents.testing import ScriptedModel, assistant_message, function_call

    from eventctx.adapters.openai_agents import AgentsSession

    agents.set_tracing_disabled(True)

    @function_tool
    def read(page: int) -> str:
        """Read a page."""
        return f"page {page}: {TEXT}"

    def agent() -> Agent[Any]:
        rounds = [[function_call("read", {"page": n}, call_id=f"call_{n}")] for n in range(ROUNDS)]
        script: list[Any] = [*rounds, [assistant_message("All read.")]]
        model = ScriptedModel(script)
        return Agent(name="reader", instructions="Be brief.", model=model, tools=[read])

    def bare() -> RunOnce:
        return partial(Runner.run, agent(), "Read all.", max_turns=CALLS)

    def empty() -> RunOnce:
        config = RunConfig(call_model_input_filter=lambda data: data.model_data)
        more: Any = {"session": ListSession(), "hooks": RunHooks(), "run_config": config}
        return partial(Runner.run, agent(), "Read all.", max_turns=CALLS, **more)

    async def ours(engine: Engine, name: str) -> RunOnce:
        session = await AgentsSession.open(engine, name, max_tokens=10**7)
        reader = agent()
        return partial(Runner.run, reader, "Read all.", max_turns=CALLS, **session.options(reader))

    return Pair(bare, empty, ours)


class ListSession:
    """A session of the OpenAI Agents SDK that is a list."""

    session_id = "list"
    session_settings = None

    def __init__(self) -> None:
        self._items: list[Any] = []

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return list(self._items)

    async def add_items(self, items: list[Any]) -> None:
        self._items += items

    async def pop_item(self) -> Any:
        return self._items.pop()

    async def clear_session(self) -> None:
        self._items.clear()


def langchain() -> Pair:
    from langchain.agents import create_agent
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.tools import tool

    from eventctx.adapters.langchain import EventctxMiddleware

    class Scripted(FakeMessagesListChatModel):
        def bind_tools(self, tools: Any, **more: Any) -> Any:
            return self

    @tool
    async def read(page: int) -> str:
        """Read a page."""
        return f"page {page}: {TEXT}"

    def run(*middleware: Any) -> RunOnce:
        calls = [[{"name": "read", "args": {"page": n}, "id": f"call_{n}"}] for n in range(ROUNDS)]
        model = Scripted(
            responses=[*[AIMessage("", tool_calls=one) for one in calls], AIMessage("All read.")]
        )
        made: Any = create_agent(model, [read], system_prompt="Be brief.", middleware=middleware)
        return partial(made.ainvoke, {"messages": [HumanMessage("Read all.")]})

    class Empty(AgentMiddleware[Any, Any, Any]):
        async def abefore_agent(self, state: Any, runtime: Any) -> None: ...
        async def aafter_agent(self, state: Any, runtime: Any) -> None: ...
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(messages=request.messages))

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return await handler(request)

    async def ours(engine: Engine, name: str) -> RunOnce:
        return run(EventctxMiddleware(engine, session=name, max_tokens=10**7))

    return Pair(run, lambda: run(Empty()), ours)


def pydantic_ai() -> Pair:
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from eventctx.adapters.pydantic_ai import Eventctx

    def run(*capabilities: Any) -> RunOnce:
        pages = itertools.count()

        async def answer(messages: Any, info: Any) -> ModelResponse:
            page = next(pages)
            if page == ROUNDS:
                return ModelResponse(parts=[TextPart("All read.")])
            return ModelResponse(parts=[ToolCallPart("read", {"page": page}, f"call_{page}")])

        agent: Any = Agent(
            FunctionModel(answer), instructions="Be brief.", capabilities=capabilities
        )

        @agent.tool_plain
        async def read(page: int) -> str:
            """Read a page."""
            return f"page {page}: {TEXT}"

        return partial(agent.run, "Read all.")

    class Empty(AbstractCapability[Any]):
        async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
            return await handler()

        async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
            return request_context

        async def after_model_request(
            self, ctx: Any, *, request_context: Any, response: Any
        ) -> Any:
            return response

        async def wrap_tool_execute(
            self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
        ) -> Any:
            return await handler(args)

    async def ours(engine: Engine, name: str) -> RunOnce:
        return run(Eventctx(engine, name, recall=False, max_tokens=10**7))

    return Pair(run, lambda: run(Empty()), ours)


def agent_framework() -> Pair:
    from agent_framework import (
        Agent,
        AgentMiddleware,
        BaseChatClient,
        ChatMiddleware,
        ChatMiddlewareLayer,
        ChatResponse,
        Content,
        FunctionInvocationLayer,
        FunctionMiddleware,
        Message,
        tool,
    )

    from eventctx.adapters.agent_framework import EventctxAgents

    class Answers(BaseChatClient[Any]):
        page = 0

        def _inner_get_response(
            self, *, messages: Any, stream: bool, options: Any, **more: Any
        ) -> Any:
            return self._answer()

        async def _answer(self) -> ChatResponse:
            page, self.page = self.page, self.page + 1
            said = Content.from_text("All read.")
            if page < ROUNDS:
                said = Content.from_function_call(f"call_{page}", "read", arguments={"page": page})
            return ChatResponse(messages=Message("assistant", [said]))

    class Client(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], Answers):
        pass

    @tool
    async def read(page: int) -> str:
        """Read a page."""
        return f"page {page}: {TEXT}"

    def run(*middleware: Any) -> RunOnce:
        client = Client(function_invocation_configuration={"max_iterations": CALLS})
        made: Any = Agent(client, "Be brief.", tools=[read], middleware=list(middleware))
        return partial(made.run, "Read all.")

    class EmptyRun(AgentMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            await call_next()

    class EmptyCall(ChatMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            await call_next()

    class EmptyFunction(FunctionMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            await call_next()

    async def ours(engine: Engine, name: str) -> RunOnce:
        return run(*EventctxAgents(engine, name, max_tokens=10**7).middleware)

    return Pair(run, lambda: run(EmptyRun(), EmptyCall(), EmptyFunction()), ours)
