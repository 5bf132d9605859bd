"""What ADK is given to send is accepted by Gemini. Where it runs: ``test_google_adk.py``."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="an extra that is not in dev: eventctx[google-adk]")

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from pydantic import Field

from eventctx.adapters.google_adk import EventctxPlugin
from eventctx.adapters.google_adk.rows import joined
from eventctx.engine import Engine, open_engine
from eventctx.testing.strict_provider import violations
from tests.adapters.long_talks import NAMES, TURNS, interrupted_at, settings_for


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

    ours = EventctxPlugin(engine, **settings)
    runner = Runner(
        app=App(name="a", root_agent=LlmAgent(name="a", model=model, tools=[read]), plugins=[ours]),
        session_service=InMemorySessionService(),
        auto_create_session=True,
    )

    async def ask(text: str) -> None:
        said = types.Content(role="user", parts=[types.Part(text=text)])
        async for _ in runner.run_async(user_id="u", session_id="s", new_message=said):
            pass

    for turn in range(TURNS):
        model.rounds = model.draw.choice([0, 1, 2, 3])
        waits.clear()
        await interrupted_at(waits, ask(f"Read page {turn}, please."))
    return model


@pytest.mark.parametrize("policy", NAMES)
async def test_gemini_accepts_every_request_of_a_long_session_at_a_small_budget(
    policy: str,
) -> None:
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
        audit = await engine.audit("s")
        assert audit.compactions
        assert {(one.additions, one.missing) for one in audit.requests} == {(0, 0)}
        assert (await engine.verify("s")).ok


def content(role: str, *parts: Any) -> types.Content:
    return types.Content(role=role, parts=[types.Part(**one) for one in parts])


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
