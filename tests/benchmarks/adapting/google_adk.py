"""Runs of Google ADK, in a process of another environment: prints their rows as JSON.

``python -m tests.benchmarks.adapting.google_adk FOLDER quick|full``
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from eventctx.adapters.google_adk import EventctxPlugin
from eventctx.engine import Engine
from tests.benchmarks.adapting import print_rows
from tests.benchmarks.adapting.runs import ROUNDS, TEXT, Pair, RunOnce


class Scripted(BaseLlm):
    """Calls the tool in each round, and says a text at the end."""

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        page = (len(llm_request.contents) - 1) // 2
        part = types.Part(text="All read.")
        if page < ROUNDS:
            call = types.FunctionCall(id=f"call_{page}", name="read", args={"page": page})
            part = types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


class Empty(BasePlugin):
    """Has the seams of ours, and does nothing in them."""

    async def before_run_callback(self, **more: Any) -> None: ...
    async def after_run_callback(self, **more: Any) -> None: ...
    async def before_model_callback(self, **more: Any) -> None: ...
    async def after_model_callback(self, **more: Any) -> None: ...
    async def before_tool_callback(self, **more: Any) -> None: ...
    async def after_tool_callback(self, **more: Any) -> None: ...


async def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: {TEXT}"


def google_adk() -> Pair:
    def run(*plugins: BasePlugin, session: str = "s") -> RunOnce:
        agent = LlmAgent(
            name="reader",
            model=Scripted(model="scripted"),
            instruction="Be brief.",
            tools=[read],
            disallow_transfer_to_parent=True,
            disallow_transfer_to_peers=True,
        )
        runner = Runner(
            app=App(name="bench", root_agent=agent, plugins=[*plugins]),
            session_service=InMemorySessionService(),
            auto_create_session=True,
        )
        return partial(_run, runner, session)

    async def ours(engine: Engine, name: str) -> RunOnce:
        return run(EventctxPlugin(engine, max_tokens=10**7), session=name)

    return Pair(run, lambda: run(Empty(name="empty")), ours)


async def _run(runner: Runner, session: str) -> None:
    message = types.Content(role="user", parts=[types.Part(text="Read all.")])
    async for _ in runner.run_async(user_id="u", session_id=session, new_message=message):
        pass


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print_rows(Path(sys.argv[1]), sys.argv[2], "Google ADK", google_adk)
