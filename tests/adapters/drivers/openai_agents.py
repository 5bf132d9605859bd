"""Drives the OpenAI Agents SDK, with its own scripted model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agents
import pytest
from agents import (
    Agent,
    ModelRetrySettings,
    ModelSettings,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from agents.run_config import CallModelData, ModelInputData
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.usage import Usage

from eventctx.adapters.openai_agents import AgentsSession
from eventctx.engine import Engine
from eventctx.testing import Reply, ScriptedAgent
from tests.adapters.drivers.base import Driver, calls_of

agents.set_tracing_disabled(True)


class Scripted(ScriptedModel, OpenAIResponsesModel):
    """One of the SDK's own models, whose answers are a script's."""

    def __init__(self, steps: list[Any]) -> None:
        super().__init__(steps)
        self.model = "gpt-5.2"
        self._client: Any = SimpleNamespace(base_url="https://api.example.org/v1")


class AgentsDriver(Driver):
    def __init__(self, engine: Engine, folder: Path, agent: ScriptedAgent) -> None:
        self._engine, self._scripted = engine, agent
        self._session: AgentsSession | None = None
        self._model = Scripted([step(one) for one in agent.script])
        again = ModelRetrySettings(
            max_retries=agent.retries, policy=lambda _: True, backoff={"initial_delay": 0}
        )
        self._agent = Agent(
            name="agent",
            instructions=agent.instructions,
            model=self._model,
            model_settings=ModelSettings(retry=again if agent.retries else None, max_tokens=900),
            tools=[function_tool(one, failure_error_function=None) for one in agent.tools],
        )

    async def ask(self, text: str, *, stream: bool = False) -> str:
        if self._session is None:
            agent = self._scripted
            self._session = await AgentsSession.open(self._engine, agent.session, **agent.settings)
        options = self._session.options(run_config=self._config())
        return str(await run(self._agent, text, stream, **options))

    def _config(self) -> RunConfig | None:
        keep = self._scripted.keep_last
        if keep is None:
            return None

        def cut(data: CallModelData[Any]) -> ModelInputData:
            return ModelInputData(data.model_data.input[-keep:], data.model_data.instructions)

        return RunConfig(call_model_input_filter=cut)

    def received(self) -> list[list[Any]]:
        return [self.request(one.system_instructions, one.input) for one in self._model.calls]


def step(reply: Reply | Exception) -> Any:
    if isinstance(reply, Exception):
        return ModelStep(error=reply)
    output: list[Any] = [assistant_message(reply.text)] if reply.text else []
    output += [function_call(one.name, one.arguments, call_id=one.id) for one in calls_of(reply)]
    used = reply.usage
    if used is None:
        return ModelStep(output=output, response_id=reply.response_id)
    total = used.prompt + used.output
    usage = Usage(
        requests=1, input_tokens=used.prompt, output_tokens=used.output, total_tokens=total
    )
    return ModelStep(output=output, usage=usage)


def agent_of(*script: str | list[Any], tools: Sequence[Any] = (), **more: Any) -> Agent[Any]:
    """An agent whose model answers with these texts and items."""
    steps = [[assistant_message(one)] if isinstance(one, str) else one for one in script]
    given = {"name": "a", "instructions": "Be brief.", "tools": [*tools], **more}
    return Agent(model=ScriptedModel(steps), **given)


def calls(agent: Agent[Any]) -> list[Any]:
    model = agent.model
    assert isinstance(model, ScriptedModel)
    return list(model.calls)


async def run(agent: Agent[Any], text: str = "hi", stream: bool = False, **options: Any) -> Any:
    if not stream:
        return (await Runner.run(agent, text, **options)).final_output
    streamed = Runner.run_streamed(agent, text, **options)
    async for _ in streamed.stream_events():
        pass
    return streamed.final_output


@function_tool(needs_approval=True)
def erase() -> str:
    return "erased"


async def approved(agent: Agent[Any], session: AgentsSession) -> str:
    """Let it erase, when a person has been asked."""
    asked = await Runner.run(agent, "Erase it.", **session.options(agent))
    state = asked.to_state()
    for one in asked.interruptions:
        state.approve(one)
    return str((await Runner.run(agent, state, **session.options(agent))).final_output)


HOW = pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])
