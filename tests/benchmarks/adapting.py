"""A model call of an agent framework with our adapter, beside the same call without it.

One run is a loop of rounds: the model calls a tool, the tool answers a kilobyte, at the end the
model says a text. Runs with and without the adapter and one durable append are timed in turns; the
model is the framework's own fake. The difference of two runs, by its model calls, is what the
adapter takes: it adds the answer and the result, prepares the request, and records the turn, the
call and the tool. Of that, a part is the framework's own: what it takes for seams that do nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import eventctx
from eventctx.engine import Engine
from eventctx.log.store import NO_STREAM
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import draft, message

FIGURE = "a model call of an adapter"
ALLOWED = 1_000.0
"""Microseconds that an adapter may take for a model call, beyond one durable append."""
ROUNDS = 30
CALLS = ROUNDS + 1
TEXT = "x" * 1_000

RunOnce = Callable[[], Awaitable[Any]]


class Pair(NamedTuple):
    """Makes a run without the adapter, one with seams that do nothing, and one with the adapter in
    a new session of this name."""

    bare: Callable[[], RunOnce]
    empty: Callable[[], RunOnce]
    ours: Callable[[Engine, str], Awaitable[RunOnce]]


async def measure(place: Place) -> list[Row]:
    return [
        row
        for name, made in (
            ("OpenAI Agents", openai_agents),
            ("LangChain", langchain),
            ("Pydantic AI", pydantic_ai),
        )
        for row in await _measured(place, name, made)
    ]


async def _measured(place: Place, name: str, made: Callable[[], Pair]) -> list[Row]:
    try:
        pair = made()
    except ImportError as error:
        return [missing(FIGURE, name, str(error))]
    samples, head = Samples(), -1
    async with eventctx.open(place.path("adapter.db")) as engine:
        await (await pair.ours(engine, "warm"))()
        await pair.bare()()
        await pair.empty()()
        for number in range(place.count(30, 4)):
            run, bare, empty = await pair.ours(engine, f"s{number}"), pair.bare(), pair.empty()
            await samples.time("bare", bare)
            await samples.time("empty", empty)
            await samples.time("ours", run)
            for _ in range(10):
                prepared = draft(message(head + 1))
                expected = NO_STREAM if head < 0 else head
                await samples.time(
                    "append", partial(engine.store.append, "beside", [prepared], expected)
                )
                head += 1
    return [_adapter(name, samples), _own_seams(name, samples)]


def _adapter(name: str, samples: Samples) -> Row:
    append = samples.micro("append")
    return Row(
        figure=FIGURE,
        name=name,
        value=_more(samples, "ours"),
        unit="µs",
        against=f"a durable append {append:,.0f} + {ALLOWED:,.0f}",
        floor=append + ALLOWED,
        limit=1.0,
        cpu=_more_processor(samples, "ours"),
        floor_cpu=samples.cpu("append"),
        note=f"the framework alone {samples.micro('bare') / CALLS:,.0f} µs",
    )


def _own_seams(name: str, samples: Samples) -> Row:
    return Row(
        figure=FIGURE,
        name=f"{name}: of that, seams that do nothing",
        value=_more(samples, "empty"),
        unit="µs",
        cpu=_more_processor(samples, "empty"),
    )


def _more(samples: Samples, name: str) -> float:
    """Microseconds of a model call beyond the framework's own."""
    return (samples.micro(name) - samples.micro("bare")) / CALLS


def _more_processor(samples: Samples, name: str) -> float | None:
    whole, bare = samples.cpu(name, CALLS), samples.cpu("bare", CALLS)
    return None if whole is None or bare is None else whole - bare


# -- the frameworks ------------------------------------------------------------------------------


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
