"""Long and interrupted runs of ADK: Gemini accepts what is sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Coroutine
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="an extra that is not in dev: eventctx[google-adk]")

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.workflow import Workflow
from google.genai import types
from pydantic import Field

from eventctx.adapters.google_adk import EventctxPlugin
from eventctx.adapters.google_adk.rows import identity, joined, rows_of
from eventctx.engine import Engine, open_engine
from eventctx.testing.strict_provider import violations
from tests.adapters.drivers.google_adk import USER, ask, content, runner_of
from tests.adapters.logs import NAMES, TURNS, audited, interrupted_at, settings_for


class Reads(BaseLlm):
    """Reads pages at random, some in parallel; the first call of an answer is signed."""

    draw: Any
    rounds: int = 0
    pages: int = 0
    signed: dict[int, bytes | None] = Field(default_factory=dict)
    seen: list[list[types.Content]] = Field(default_factory=list)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.seen.append([one.model_copy(deep=True) for one in llm_request.contents])
        draw = self.draw
        parts = [types.Part(text="Pages first. " * 20, thought=True)] * (draw.random() < 0.3)
        if self.rounds:
            self.rounds -= 1
            parts += [types.Part(text="I look.")] * (draw.random() < 0.3)
            for at in range(draw.choice([1, 2, 3])):
                self.pages += 1
                signature = draw.randbytes(90) if at == 0 else None
                how = draw.choices(["reads", "fails", "waits"], [6, 2, 1])[0]
                call = types.FunctionCall(name="read", args={"page": self.pages, "how": how})
                parts.append(types.Part(function_call=call, thought_signature=signature))
                self.signed[self.pages] = signature
        else:
            parts.append(types.Part(text="Read. " + "so " * 60))
        yield LlmResponse(content=types.Content(role="model", parts=parts))


async def talk(engine: Engine, seed: int, settings: dict[str, Any]) -> Reads:
    model, waits = Reads(model="gemini-3-pro", draw=random.Random(seed)), asyncio.Event()  # noqa: S311

    async def read(page: int, how: str) -> str:
        """Read a page."""
        if how == "waits":
            waits.set()
            await asyncio.Event().wait()
        return "It is torn." if how == "fails" else f"page {page}: " + "words " * 200

    agent = LlmAgent(name="a", model=model, tools=[read])
    runner = runner_of(agent, EventctxPlugin(engine, **settings))
    for turn in range(TURNS):
        model.rounds = model.draw.choice([0, 1, 2, 3])
        waits.clear()
        await interrupted_at(waits, ask(runner, f"Read page {turn}, please."))
    return model


@pytest.mark.parametrize("policy", NAMES)
async def test_gemini_accepts_every_request_of_a_long_session(policy: str) -> None:
    async with open_engine("memory://") as engine:
        model = await talk(engine, len(policy), settings_for(policy))
        for number, contents in enumerate(model.seen):
            dumped = [one.model_dump(mode="json", exclude_none=True) for one in contents]
            refused = violations("gemini", {"model": model.model, "contents": dumped})
            assert not refused, f"request {number}: {refused}"
            for part in [part for one in contents for part in one.parts or ()]:
                if part.function_call is not None:
                    page = (part.function_call.args or {})["page"]
                    assert part.thought_signature == model.signed[page]
        assert (await engine.audit("s")).compactions
        assert set(await audited(engine)) == {(0, 0)}
        assert (await engine.verify("s")).ok


CALL = {"function_call": {"name": "f", "args": {}}}
RESULT = {"function_response": {"name": "f", "response": {"result": "one"}}}


def test_all_results_of_a_call_turn_are_one_content_in_front_of_a_persons_words() -> None:
    asked, calls = content("user", {"text": "hi"}), content("model", CALL, CALL)
    mixed = content("user", RESULT, {"text": "and"})
    sent = joined([asked, calls, mixed, content("user", RESULT), content("user", {"text": "go"})])
    whole = content("user", RESULT, RESULT, {"text": "and"})
    assert sent == [asked, calls, whole, content("user", {"text": "go"})]
    assert [one is other for one, other in zip(sent, [asked, calls], strict=False)] == [True, True]


def test_calls_behind_words_of_the_model_are_of_its_turn() -> None:
    said, words = content("user", {"text": "hi"}), content("model", {"text": "I look."})
    sent = joined([said, words, content("model", CALL), content("user", RESULT), words, words])
    looks = content("model", {"text": "I look."}, CALL)
    assert sent == [said, looks, content("user", RESULT), words, words]


# -- runs that are cancelled at any await, and go on -----------------------------------------------


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


class Storage:
    """What outlives a process: ADK's sessions and the path of our store."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.sessions = InMemorySessionService()
        self.store = str(folder / "eventctx.db")

    def runner(self, engine: Engine, root: Any) -> Runner:
        return runner_of(root, EventctxPlugin(engine), sessions=self.sessions)

    async def events(self) -> list[types.Content]:
        found: Any = await self.sessions.get_session(app_name="tests", user_id=USER, session_id="s")
        return [one.content for one in found.events if one.content and one.content.parts]


async def check(
    engine: Engine, storage: Storage, models: list[Signs], where: str, session: str = "s"
) -> None:
    """``session`` is another one's where an agent of a workflow has one, which may miss rows."""
    for model in models:
        for request in model.seen:
            contents = [one.model_dump(mode="json", exclude_none=True) for one in request.contents]
            body = {"model": model.model, "contents": contents}
            assert not violations("gemini", body), f"{where}: {violations('gemini', body)}"
    said = [identity(row) for row in rows_of(await storage.events())]
    rows = [one.message for one in await engine.transcript(session)]
    assert [identity(row) for row in rows] == said, where
    assert (await engine.verify(session)).ok, where
    for missing, additions in await audited(engine, session):
        assert additions == 0 and (missing == 0 or session != "s"), where


ANEW = pytest.mark.parametrize("anew", [False, True], ids=["same engine", "another engine"])


@ANEW
async def test_runs_cancelled_at_any_step_go_on_as_sound_ones(anew: bool, tmp_path: Path) -> None:
    steps, ended = 0, False
    while not ended:
        storage, where = Storage(tmp_path / str(steps)), f"after {steps} steps"
        agent, models = reader(Pause())
        async with open_engine(storage.store) as engine:
            runner = storage.runner(engine, agent)
            await ask(runner, "Begin.")
            ended = await interrupted(ask(runner, "One."), steps)
            await interrupted(ask(runner, "Two."), steps // 2)
            if not anew:
                await go_on(engine, storage, runner, models, where)
        if anew:
            async with open_engine(storage.store) as engine:
                await go_on(engine, storage, storage.runner(engine, agent), models, where)
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
        await check(engine, storage, models, "workflow", session="s.reader")


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


class Stores(InMemorySessionService):
    """Sessions whose events with calls take their time."""

    def __init__(self, pause: Pause) -> None:
        super().__init__()
        self._pause = pause

    async def append_event(self, session: Any, event: Any) -> Any:
        if event.get_function_calls():
            await self._pause.at("stores")
        return await super().append_event(session, event)


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
