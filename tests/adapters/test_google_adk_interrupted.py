"""ADK's runs that are cancelled at any await, and go on. Where they run: ``test_google_adk.py``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="an extra that is not in dev: eventctx[google-adk]")

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import DatabaseSessionService, InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import Workflow
from google.genai import types
from pydantic import Field

from eventctx.adapters.google_adk import EventctxPlugin
from eventctx.adapters.google_adk.rows import identity, rows_of
from eventctx.engine import Engine, open_engine
from eventctx.testing.strict_provider import violations

USER, APP, SESSION = "user", "tests", "s"
GROWS = 1.2
"""By how much the steps of the event loop grow before a run is cancelled: the more there are, the
more pass while a thread of the store works."""


class Pause:
    """A place where a run waits for ever, which is left again for the runs after it."""

    def __init__(self) -> None:
        self.where: str | None = None
        self.reached = asyncio.Event()

    async def at(self, where: str) -> None:
        if self.where == where:
            self.reached.set()
            await asyncio.Event().wait()


class Signs(BaseLlm):
    """Calls ``tools`` at once, signed as Gemini does it, and answers when it has their results."""

    tools: list[tuple[str, dict[str, Any]]]
    pause: Any = None
    seen: list[LlmRequest] = Field(default_factory=list)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.seen.append(llm_request.model_copy(deep=False))
        await asyncio.sleep(0)
        number = len(self.seen)
        last = llm_request.contents[-1].parts or []
        if any(part.function_response for part in last):
            await self.pause.at(f"{self.name} answers")
            parts = [types.Part(text=f"Answer {number} of {self.name}.")]
        else:
            await self.pause.at(f"{self.name} calls")
            calls = [types.FunctionCall(name=name, args=args) for name, args in self.tools]
            parts = [types.Part(function_call=one) for one in calls]
            parts[0].thought_signature = bytes([number, 250, 251, 255])
            if number % 2:  # ADK leaves these words in place where it leaves out open calls
                parts.insert(0, types.Part(text=f"I look, {number}."))
        yield LlmResponse(content=types.Content(role="model", parts=parts))

    @property
    def name(self) -> str:
        return "lead" if "flash" in self.model else "reader"


PAGES = [("read", {"page": 1}), ("read", {"page": 9})]


def reader(pause: Pause) -> tuple[Any, list[Signs]]:
    async def read(page: int) -> str:
        """Read a page; the first is read when the other one begins."""
        for _ in range(page):
            await asyncio.sleep(0)
        await pause.at(f"page {page}")
        return f"page {page}"

    model = Signs(model="gemini-3-pro", tools=PAGES, pause=pause)
    return LlmAgent(name="reader", model=model, tools=[read]), [model]


def nested(pause: Pause) -> tuple[Any, list[Signs]]:
    agent, models = reader(pause)
    asks = [("reader", {"request": f"{one}?"}) for one in ("a", "b")]
    leads = Signs(model="gemini-3-flash", tools=asks, pause=pause)
    return LlmAgent(name="lead", model=leads, tools=[AgentTool(agent)]), [leads, *models]


class Storage:
    """What outlives a process: ADK's sessions and the path of our store."""

    def __init__(self, folder: Path, database: bool = False) -> None:
        folder.mkdir(exist_ok=True)
        url = f"sqlite+aiosqlite:///{folder}/adk.db"
        self.sessions: Any = DatabaseSessionService(url) if database else InMemorySessionService()
        self.store = str(folder / "eventctx.db")

    def runner(self, engine: Engine, root: Any) -> Runner:
        return Runner(
            app=App(name=APP, root_agent=root, plugins=[EventctxPlugin(engine)]),
            session_service=self.sessions,
            auto_create_session=True,
        )

    async def close(self) -> None:
        if isinstance(self.sessions, DatabaseSessionService):
            await self.sessions.close()

    async def events(self) -> list[types.Content]:
        found = await self.sessions.get_session(app_name=APP, user_id=USER, session_id=SESSION)
        return [one.content for one in found.events if one.content and one.content.parts]


async def ask(runner: Runner, text: str) -> None:
    message = types.Content(role="user", parts=[types.Part(text=text)])
    async for _ in runner.run_async(user_id=USER, session_id=SESSION, new_message=message):
        pass


async def check(
    engine: Engine,
    storage: Storage,
    models: list[Signs],
    where: str,
    *,
    session: str = SESSION,
    whole: bool = True,
) -> None:
    for model in models:
        for request in model.seen:
            contents = [one.model_dump(mode="json", exclude_none=True) for one in request.contents]
            body = {"model": model.model, "contents": contents}
            assert not violations("gemini", body), f"{where}: {violations('gemini', body)}"
    said = [identity(row) for row in rows_of(await storage.events())]
    rows = [one.message for one in await engine.transcript(session)]
    assert [identity(row) for row in rows] == said, where
    assert (await engine.verify(session)).ok, where
    requests = (await engine.audit(session)).requests
    assert not any(one.additions for one in requests), where
    assert not whole or not any(one.missing for one in requests), where


MAKE = pytest.mark.parametrize("make", [reader, nested], ids=lambda one: one.__name__)
ANEW = pytest.mark.parametrize("anew", [False, True], ids=["same engine", "another engine"])
WARNS = pytest.mark.filterwarnings("ignore:The `plugins` argument")  # ADK of its own tool
Make = Callable[[Pause], tuple[Any, list[Signs]]]


@WARNS
@MAKE
@ANEW
async def test_runs_that_are_cancelled_at_any_step_are_followed_by_sound_ones(
    make: Make, anew: bool, tmp_path: Path
) -> None:
    steps, ended = 0, False
    while not ended:
        storage = Storage(tmp_path / str(steps))
        root, models = make(Pause())
        async with open_engine(storage.store) as engine:
            runner = storage.runner(engine, root)
            await ask(runner, "Begin.")
            ended = await interrupted(ask(runner, "One."), steps)
            await interrupted(ask(runner, "Two."), steps // 2)
            if not anew:
                await go_on(engine, storage, runner, models, f"after {steps} steps")
        if anew:
            async with open_engine(storage.store) as engine:
                runner = storage.runner(engine, root)
                await go_on(engine, storage, runner, models, f"after {steps} steps")
        steps = int(steps * GROWS) + 5


async def interrupted(work: Coroutine[Any, Any, None], steps: int) -> bool:
    """Cancel a run after so many steps of the event loop; whether it had ended before."""
    asking = asyncio.ensure_future(work)
    for _ in range(steps):
        if asking.done():
            break
        await asyncio.sleep(0)
    ended = not asking.cancel()
    await asyncio.wait((asking,))
    return ended


@WARNS
@MAKE
@ANEW
@pytest.mark.parametrize("where", ["reader calls", "page 1", "page 9", "reader answers"])
async def test_sessions_in_a_database_go_on_behind_two_runs_that_were_cancelled(
    make: Make, anew: bool, where: str, tmp_path: Path
) -> None:
    """Not cancelled while ADK waits for its database: that may stay locked then."""
    storage, pause = Storage(tmp_path / "one", database=True), Pause()
    root, models = make(pause)
    async with open_engine(storage.store) as engine:
        runner = storage.runner(engine, root)
        await ask(runner, "Begin.")
        await cancel_two(runner, pause, where)
        if not anew:
            await go_on(engine, storage, runner, models, where)
    await storage.close()
    if anew:
        storage = Storage(tmp_path / "one", database=True)
        async with open_engine(storage.store) as engine:
            await go_on(engine, storage, storage.runner(engine, root), models, where)
        await storage.close()


@ANEW
async def test_a_call_that_adk_was_about_to_store_is_in_no_log(anew: bool, tmp_path: Path) -> None:
    storage, pause = Storage(tmp_path / "one"), Pause()
    storage.sessions = Stores(pause)
    root, models = reader(pause)
    async with open_engine(storage.store) as engine:
        runner = storage.runner(engine, root)
        await ask(runner, "Begin.")
        await cancel_two(runner, pause, "stores")
        if not anew:
            await go_on(engine, storage, runner, models, "stores")
    if anew:
        async with open_engine(storage.store) as engine:
            await go_on(engine, storage, storage.runner(engine, root), models, "stores")


async def test_a_workflow_that_shows_no_earlier_run_is_recorded_once(tmp_path: Path) -> None:
    """Also where words are said again, and a run between was interrupted."""
    storage, pause = Storage(tmp_path / "one"), Pause()
    agent, models = reader(pause)
    async with open_engine(storage.store) as engine:
        runner = storage.runner(engine, Workflow(name="flow", edges=[("START", agent)]))
        for where in ("page 9", "reader answers"):
            await ask(runner, "Begin.")
            await cancel_two(runner, pause, where)
            await ask(runner, "Begin.")
        await check(engine, storage, models, "workflow", session=f"{SESSION}.reader", whole=False)


class Stores(InMemorySessionService):
    """Sessions whose events with calls take their time."""

    def __init__(self, pause: Pause) -> None:
        super().__init__()
        self._pause = pause

    async def append_event(self, session: Any, event: Any) -> Any:
        if event.get_function_calls():
            await self._pause.at("stores")
        return await super().append_event(session, event)


async def cancel_two(runner: Runner, pause: Pause, where: str) -> None:
    """Cancel two runs in a row where they wait."""
    for text in ("One.", "Two."):
        pause.where = where
        pause.reached.clear()
        asking = asyncio.ensure_future(ask(runner, text))
        reached = asyncio.ensure_future(pause.reached.wait())
        await asyncio.wait((asking, reached), return_when=asyncio.FIRST_COMPLETED)
        assert asking.cancel()
        await asyncio.wait((asking,))
    pause.where = None


async def go_on(
    engine: Engine, storage: Storage, runner: Runner, models: list[Signs], where: str
) -> None:
    for text in ("Three.", "Four."):
        await ask(runner, text)
    await check(engine, storage, models, where)
