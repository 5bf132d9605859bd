"""Drives agents of Google ADK, with a model that follows a script and sessions in a file."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from pydantic import Field

from eventctx.adapters.google_adk import EventctxPlugin
from eventctx.adapters.google_adk.rows import contents_of, instructions_of, joined, rows_of
from eventctx.engine import Engine
from eventctx.testing import Reply, ScriptedAgent
from tests.adapters.drivers.base import Driver, calls_of

USER = "user"
PASSING = ("id", "tool_use_id", "native_id", "name")


class GoogleAdkDriver(Driver):
    def __init__(self, engine: Engine, folder: Path, agent: ScriptedAgent) -> None:
        self._session = agent.session
        self._model = Scripted(model="gemini-scripted", script=list(agent.script))
        plugins: list[Any] = [] if agent.keep_last is None else [KeepLast(agent.keep_last)]
        if agent.retries:
            plugins.append(AsksAgain(self._model))
        self._ours = EventctxPlugin(engine, **agent.settings)
        root = LlmAgent(
            name="agent",
            model=self._model,
            instruction=agent.instructions,
            generate_content_config=types.GenerateContentConfig(max_output_tokens=900),
            tools=list(agent.tools),
            disallow_transfer_to_parent=True,
            disallow_transfer_to_peers=True,
        )
        self._runner = runner_of(root, *plugins, self._ours, sessions=SessionsInFile(folder))

    async def ask(self, text: str, *, stream: bool = False) -> str:
        mode = StreamingMode.SSE if stream else StreamingMode.NONE
        message = types.Content(role="user", parts=[types.Part(text=text)])
        said, pieces = "", 0
        events = self._runner.run_async(
            user_id=USER,
            session_id=self._session,
            new_message=message,
            run_config=RunConfig(streaming_mode=mode),
        )
        async for event in events:
            pieces += bool(event.partial)
            texts = [one.text for one in (event.content and event.content.parts) or [] if one.text]
            said = "".join(texts) if not event.partial else said
        assert pieces or not stream, "the host did not stream"
        return said

    def received(self) -> list[list[Any]]:
        seen = self._model.seen
        return [self.request(instructions_of(one.config), rows_of(one.contents)) for one in seen]

    def shown(self, row: dict[str, Any]) -> Any:
        if row["role"] == "system":
            return row["role"], row["content"]
        blocks = [{k: v for k, v in one.items() if k not in PASSING} for one in row["content"]]
        return row["role"], json.dumps(blocks, sort_keys=True)

    def shown_view(self, rows: Sequence[dict[str, Any]]) -> list[Any]:
        system = [row for row in rows if row["role"] == "system"]
        said = [row for row in rows if row["role"] != "system"]
        sent = rows_of(joined(contents_of(said, [], [])))  # also the engine's own, as ADK has them
        return [self.shown(row) for row in [*system, *sent]]

    async def close(self) -> None:
        await self._ours.close()


class Scripted(BaseLlm):
    """Answers by a script, streamed in two pieces, and keeps what it received."""

    script: list[Any]
    seen: list[LlmRequest] = Field(default_factory=list)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.seen.append(llm_request.model_copy(deep=False))
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        if stream:
            half = types.Content(role="model", parts=[types.Part(text=step.text[:3])])
            yield LlmResponse(content=half, partial=True)
        yield answer(step)


class KeepLast(BasePlugin):
    def __init__(self, number: int) -> None:
        super().__init__(name="keep_last")
        self._number = number

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        llm_request.contents = llm_request.contents[-self._number :]


class AsksAgain(BasePlugin):
    """Answers for a call that failed, by asking the model once more: ADK goes on with that."""

    def __init__(self, model: BaseLlm) -> None:
        super().__init__(name="asks_again")
        self._model = model

    async def on_model_error_callback(
        self, *, callback_context: Any, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        async for response in self._model.generate_content_async(llm_request):
            return response
        return None


def answer(reply: Reply) -> LlmResponse:
    parts = [types.Part(text=reply.text)] if reply.text else []
    for one in calls_of(reply):
        call = types.FunctionCall(name=one.name, args=one.arguments)
        parts.append(types.Part(function_call=call))
    used = reply.usage
    return LlmResponse(
        content=types.Content(role="model", parts=parts),
        finish_reason=types.FinishReason.STOP if reply.finish_reason else None,
        usage_metadata=used
        and types.GenerateContentResponseUsageMetadata(
            prompt_token_count=used.prompt, candidates_token_count=used.output
        ),
    )


class SessionsInFile(InMemorySessionService):
    """Sessions that outlive a process that is killed."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._path = folder / "sessions"
        self._loaded = False

    async def get_session(self, **named: Any) -> Any:
        if not self._loaded and self._path.exists():
            self._loaded = True
            from google.adk.events.event import Event

            keys = ("app_name", "user_id", "session_id")
            found = await super().create_session(**{key: named[key] for key in keys})
            for line in self._path.read_text().splitlines():
                await super().append_event(found, Event.model_validate_json(line))
        self._loaded = True
        return await super().get_session(**named)

    async def append_event(self, session: Any, event: Any) -> Any:
        made = await super().append_event(session, event)
        if not event.partial:
            with self._path.open("a") as file:
                file.write(made.model_dump_json() + "\n")
                file.flush()
                os.fsync(file.fileno())
        return made


def content(role: str, *parts: Any) -> types.Content:
    return types.Content(role=role, parts=[types.Part(**one) for one in parts])


def runner_of(root: Any, *plugins: Any, sessions: Any = None) -> Runner:
    return Runner(
        app=App(name="tests", root_agent=root, plugins=[*plugins]),
        session_service=InMemorySessionService() if sessions is None else sessions,
        auto_create_session=True,
    )


async def ask(runner: Runner, text: str, user: str = USER) -> None:
    """Ask in session ``s``."""
    said = content("user", {"text": text})
    async for _ in runner.run_async(user_id=user, session_id="s", new_message=said):
        pass
