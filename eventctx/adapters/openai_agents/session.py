"""A session of the OpenAI Agents SDK that is a session of ours.

Alone it is storage (the SDK's ``Session`` protocol). With its ``options`` a run is recorded, too:
the turn, each model call with its request and usage, each tool; and what is sent is the compacted
view. Seams and traps are those of openai-agents 0.24 (docs/how-to/use-with-openai-agents.md).
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from agents import Agent, FunctionTool, MultiProvider, OpenAIProvider, RunConfig, RunHooks
from agents.run_config import CallModelData, ModelInputData

from eventctx.adapters.kit.host_run import HostRun
from eventctx.adapters.kit.host_session import HostSession, Row
from eventctx.adapters.kit.loops import EngineLoop, context_in_loop
from eventctx.adapters.openai_agents.failures import ReportingFormatter, install_runner
from eventctx.adapters.openai_agents.hooks import RecordingHooks
from eventctx.adapters.openai_agents.nested import NestedRuns
from eventctx.errors import InvalidSetting
from eventctx.log.turn_recorder import CallSettings, read_settings
from eventctx.sync.proxy import SyncEngine

if TYPE_CHECKING:
    from agents import Agent, SessionSettings, TResponseInputItem

    from eventctx.engine import Engine
    from eventctx.session.context import Context
    from eventctx.sync.proxy import SyncContext


class AgentsSession:
    """A ``Session`` for ``Runner.run(session=…)``; ``options`` are all that a run is given.

    One run at a time uses it, as with every session of the SDK. Runs in any event loop may use it
    while that of the engine runs; for ``run_sync``, make it of a context of ``eventctx.sync``.
    Raises InvalidSetting where a context of the async API is given and no event loop runs.
    """

    session_settings: SessionSettings | None = None

    def __init__(self, context: Context | SyncContext) -> None:
        self.context, loop = context_in_loop(context, "AgentsSession")
        self._loop = EngineLoop(loop)
        self.session_id = self.context.session_id
        if self.context is context:
            self._host = HostSession(self.context)
        else:
            self._host = self._loop.wait(_host_of(self.context))
        self._agent: str | None = None
        self._use(NestedRuns(None, self.session_id, {}))

    def _use(self, nested: NestedRuns) -> None:
        self._nested = nested
        self._hooks = RecordingHooks(HostRun(self._loop, self._opened), nested)

    async def _opened(self) -> HostSession:
        return self._host

    @classmethod
    async def open(cls, engine: Engine, session_id: str, **settings: Any) -> AgentsSession:
        """The session of this id; ``settings`` are those of ``engine.session``.

        Raises InvalidSetting for an engine of ``eventctx.sync``, whose context makes a session.
        """
        if isinstance(engine, SyncEngine):
            raise InvalidSetting(
                "AgentsSession.open: expected an engine of the async API, found one of "
                "eventctx.sync: write AgentsSession(engine.session(…))"
            )
        made = cls(await engine.session(session_id, **settings))
        made._use(NestedRuns(engine, session_id, settings))
        return made

    def __deepcopy__(self, memo: object) -> AgentsSession:
        """Itself: an agent that was copied records with the same adapter."""
        return self

    # -- the SDK's Session -----------------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The conversation, never compacted; of a ``limit`` the newest, oldest first.

        A negative limit is none, as in the SDK's own session.
        """
        self._hooks.run_may_begin()
        rows = await self._loop.run(self._host.messages())
        chosen = self.session_settings.limit if limit is None and self.session_settings else limit
        if chosen is not None and chosen >= 0:
            rows = rows[-chosen:] if chosen else []
        return cast("list[TResponseInputItem]", [item_of(row) for row in rows])

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items that the SDK stores; those of a request that was recorded already are known."""
        rows = [row_of(item) for item in cast("list[Row]", items)]
        if self._agent is not None and self._is_prompt(rows):
            await self._hooks.prompt_stored(self._agent)
        await self._loop.run(self._host.add(rows))
        await self._hooks.stored()

    def _is_prompt(self, rows: list[Row]) -> bool:
        """Whether a run begins with these; a streamed one stores them after its first call."""
        asked = any(isinstance(row, dict) and row.get("role") == "user" for row in rows)
        return asked and not self._host.expects(rows[0])

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item out of the conversation, and return it; None if there is none."""
        row = await self._loop.run(self._host.pop())
        return None if row is None else cast("TResponseInputItem", item_of(row))

    async def clear_session(self) -> None:
        """Empty the conversation; its history stays in the log."""
        await self._loop.run(self._host.clear())

    # -- a run -----------------------------------------------------------------------------------

    def options(
        self,
        agent: Agent[Any] | None = None,
        *,
        run_config: RunConfig | None = None,
        hooks: RunHooks[Any] | None = None,
    ) -> dict[str, Any]:
        """Keyword arguments for ``Runner.run``, ``run_sync`` and ``run_streamed``.

        The SDK stores the prompt of a run that is not streamed before it says which agent runs. If
        the ``agent`` is known from here, the prompt is in its turn; else it is before it.
        Your own ``run_config`` and ``hooks`` are kept. Where your ``call_model_input_filter`` or
        ``session_input_callback`` changes what is sent, your list is sent, and the difference
        from the view is recorded.
        """
        install_runner()
        self._agent = None if agent is None else agent.name
        config = RunConfig() if run_config is None else run_config
        own = config.call_model_input_filter

        async def decide(data: CallModelData[Any]) -> ModelInputData:
            given, asked = data.model_data, asked_of(data.agent, config, self._hooks.streams)
            host, whole = await self._take(data, asked)
            chosen = given if own is None else await _awaited(own(data))
            if host is None:
                return chosen
            rows = await self._loop.run(
                host.prepare(
                    instructions=chosen.instructions,
                    tools=tool_definitions(data.agent),
                    model=asked.model,
                )
            )
            if whole and chosen.input == given.input:
                sends = without_dropped_ids(rows, cast("list[Row]", given.input))
                if sends is not rows:
                    await self._loop.run(host.sent(rows, sends, exact=True))
                return ModelInputData(cast("list[TResponseInputItem]", sends), chosen.instructions)
            await self._loop.run(host.sent(rows, cast("list[Row]", chosen.input)))
            return chosen

        return {
            "session": self,
            "hooks": self._hooks.also_calling(hooks),
            "run_config": replace(
                config,
                call_model_input_filter=decide,
                tool_error_formatter=ReportingFormatter(self._hooks, config.tool_error_formatter),
            ),
        }

    async def _take(
        self, data: CallModelData[Any], asked: AskedModel
    ) -> tuple[HostSession | None, bool]:
        """The session whose request this is, None if it is not recorded; whether it is whole."""
        rows = cast("list[Row]", data.model_data.input)
        if self._nested.sends(rows):
            host = await self._loop.run(self._nested.host_of(rows, data.agent.name))
            if host is not None:
                await self._loop.run(host.mirror(rows, with_request=True))
                await self._loop.run(host.turns.iteration_began(*asked))
            return host, True
        whole = await self._loop.run(self._host.take(rows, adds=self._hooks.first_call))
        await self._hooks.request_begins(asked)
        return self._host, whole


async def _host_of(context: Context) -> HostSession:
    return HostSession(context)


async def _awaited(value: Any) -> ModelInputData:
    return cast("ModelInputData", await value if inspect.isawaitable(value) else value)


# -- items as rows --------------------------------------------------------------------------------
#
# A row is the item, but for what the Responses API does not know: ``EncryptedSession`` stores
# ``{"__enc__": 1, …}``, which has no role and no type. A row of the log needs one of them.

_OTHER: Final = "other_item"
"""The type of a row that holds an item without role and type."""


def row_of(item: Any) -> Row:
    """The row that an item is kept as."""
    known = not isinstance(item, dict) or "role" in item or "type" in item
    return item if known else {"type": _OTHER, "item": item}


def item_of(row: Row) -> Row:
    """The item that a row was made of."""
    item: Any = row.get("item")
    return item if row.get("type") == _OTHER and isinstance(item, dict) else row


def without_dropped_ids(rows: list[Row], given: list[Row]) -> list[Row]:
    """The rows of a view, where the SDK dropped the ids of reasoning from the list that it gave.

    With ``reasoning_item_id_policy="omit"`` it takes out ids that a session holds, because the API
    no longer knows them. The very rows, if it dropped none.
    """
    kept = {item.get("id") for item in given if item.get("type") == "reasoning"}
    if None not in kept or not any(_dropped(row, kept) for row in rows):
        return rows
    return [
        {name: value for name, value in row.items() if name != "id"} if _dropped(row, kept) else row
        for row in rows
    ]


def _dropped(row: Row, kept: set[Any]) -> bool:
    return row.get("type") == "reasoning" and row.get("id") not in kept


# -- the tools and the model of a request --------------------------------------------------------


def tool_definitions(agent: Agent[Any]) -> list[dict[str, Any]]:
    """The definitions of an agent's function tools, as the Responses API takes them.

    Tools of MCP servers and hosted tools are listed by servers, and do not count.
    """
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
        }
        for tool in agent.tools
        if isinstance(tool, FunctionTool)
    ]


class AskedModel(NamedTuple):
    """What is known of a model call before it is made, as ``iteration_began`` takes it."""

    provider: str | None
    model: str | None
    settings: CallSettings


def asked_of(agent: Agent[Any], config: RunConfig, streams: bool) -> AskedModel:
    """The model that will be called, and its settings, as far as the agent or the run says them."""
    model: Any = config.model if config.model is not None else agent.model
    name = model if isinstance(model, str) else getattr(model, "model", None)
    settings = agent.model_settings.resolve(config.model_settings)
    client = getattr(model, "_client", None)  # which the SDK's models show nowhere else
    url = getattr(model, "base_url", None) or getattr(client, "base_url", None)
    return AskedModel(
        _provider_of(model, name, config),
        name if isinstance(name, str) and name else None,
        read_settings(stream=streams, max_tokens=settings.max_tokens, url=url),
    )


_ROUTERS: Final = ("litellm", "any-llm")


def _provider_of(model: Any, name: Any, config: RunConfig) -> str | None:
    """The provider that the SDK takes for a model; None for a class of the program."""
    modules = [] if isinstance(model, str) else [one.__module__ for one in type(model).__mro__]
    if any(one.startswith("agents.models.openai") for one in modules):
        return "openai"
    routed = any(one.startswith("agents.extensions.models") for one in modules)
    if not routed and not isinstance(model, str | None):
        return None
    if not isinstance(config.model_provider, MultiProvider | OpenAIProvider) and not routed:
        return None
    prefix, slash, rest = str(name or "").partition("/")
    if prefix in _ROUTERS:
        prefix = rest.partition("/")[0]
    return prefix if slash else "openai"
