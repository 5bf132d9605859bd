"""Drives the OpenAI Agents SDK, with its own scripted model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agents
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

agents.set_tracing_disabled(True)


class Scripted(ScriptedModel, OpenAIResponsesModel):
    """One of the SDK's own models, whose answers are a script's."""

    def __init__(self, steps: list[Any]) -> None:
        super().__init__(steps)
        self.model = "gpt-5.2"
        self._client: Any = SimpleNamespace(base_url="https://api.example.org/v1")


class AgentsDriver:
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
        if not stream:
            return str((await Runner.run(self._agent, text, **options)).final_output)
        streamed = Runner.run_streamed(self._agent, text, **options)
        async for _ in streamed.stream_events():
            pass
        return str(streamed.final_output)

    def _config(self) -> RunConfig | None:
        keep = self._scripted.keep_last
        if keep is None:
            return None

        def cut(data: CallModelData[Any]) -> ModelInputData:
            return ModelInputData(data.model_data.input[-keep:], data.model_data.instructions)

        return RunConfig(call_model_input_filter=cut)

    def received(self) -> list[list[Any]]:
        system = {"role": "system"}
        return [
            [system | {"content": one.system_instructions}, *one.input] for one in self._model.calls
        ]

    def shown(self, row: dict[str, Any]) -> Any:
        return row

    async def close(self) -> None:
        pass


def step(reply: Reply | Exception) -> Any:
    """A step of the SDK's scripted model."""
    if isinstance(reply, Exception):
        return ModelStep(error=reply)
    output: list[Any] = [assistant_message(reply.text)] if reply.text else []
    output += [
        function_call(one.name, one.arguments, call_id=one.id)
        for one in reply.calls
        if not isinstance(one, tuple)
    ]
    used = reply.usage
    if used is None:
        return ModelStep(output=output, response_id=reply.response_id)
    total = used.prompt + used.output
    usage = Usage(
        requests=1, input_tokens=used.prompt, output_tokens=used.output, total_tokens=total
    )
    return ModelStep(output=output, usage=usage)
