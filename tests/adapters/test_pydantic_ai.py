"""Pydantic AI agents with our capability, with models that follow a script."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai.conversation_store", reason="an extra: eventctx[pydantic-ai]")

from pydantic_ai import Agent, BinaryImage, ImageUrl, ModelRetry
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

import eventctx
from eventctx.adapters.pydantic_ai import Eventctx
from eventctx.adapters.pydantic_ai.rows import MessageRows, messages_of, rows_of
from eventctx.engine import Engine
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import read_parts
from eventctx.testing import AdapterContract
from tests.adapters.drivers.pydantic_ai import PydanticDriver
from tests.adapters.logs import links, names, types_of, views
from tests.adapters.test_pages import KNOWN


class TestTheContract(AdapterContract):
    driver = PydanticDriver
    knows = KNOWN["Pydantic AI"]


SMALL: dict[str, Any] = {"max_tokens": 4_000, "reserve_tokens": 0}
Script = list[ModelResponse | Exception]


def reads(*pages: int) -> ModelResponse:
    return ModelResponse([ToolCallPart("read", {"page": one}, f"call_{one}") for one in pages])


def says(text: str) -> ModelResponse:
    return ModelResponse([TextPart(text)], usage=RequestUsage(input_tokens=310, output_tokens=12))


LONG: Script = [*[reads(page, page + 100) for page in range(8)], says("All read.")]


def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + "x" * 1_500


class Scripted:
    """A model that answers by a script, and keeps what it received."""

    def __init__(self, *script: ModelResponse | Exception) -> None:
        self.script = list(script)
        self.seen: list[list[ModelMessage]] = []
        self.tools: list[str] = []
        self.model = FunctionModel(self._answer)

    def _next(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.seen.append(list(messages))
        self.tools = [one.name for one in info.function_tools]
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return self._next(messages, info)


def agent_of(
    scripted: Scripted, ours: Eventctx, *others: Any, tools: Any = (read,), **more: Any
) -> Agent[None, Any]:
    capabilities = [*others, ours]
    return Agent(
        scripted.model,
        tools=list(tools),
        instructions="Be brief.",
        capabilities=capabilities,
        **more,
    )


def shown(rows: list[dict[str, Any]]) -> list[Any]:
    """What a model is shown of rows: neighbours of a role are one message for every provider."""
    found: list[Any] = []
    for row in rows:
        content = row["content"]
        if isinstance(content, str):
            kind = {"system": "system-prompt", "assistant": "text"}.get(row["role"], "user-prompt")
            content = [{"type": "text", "text": content, "part_kind": kind}]
        passing = ("timestamp", "metadata", "is_error", "item_id", "outcome")
        for one in content:
            block = {name: one[name] for name in one if name not in passing}
            found.append((row["role"], json.dumps(block, sort_keys=True)))
    return found


async def shown_views(engine: Engine, session: str = "s") -> list[list[Any]]:
    """What every request shows, in order, without the instructions."""
    found = []
    for first, *rows in await views(engine, session):
        assert first == {"role": "system", "content": "Be brief."}
        found.append(shown(rows))
    return found


def received(scripted: Scripted) -> list[list[Any]]:
    return [shown([row for one in rows_of(sent) for row in one]) for sent in scripted.seen]


async def test_without_a_session_each_conversation_is_one(engine: Engine) -> None:
    scripted = Scripted(says("A."), says("B."), says("C."))
    agent = agent_of(scripted, Eventctx(engine))
    first = await agent.run("a", conversation_id="one")
    await agent.run("b", conversation_id="two")
    await agent.run("c", message_history=first.all_messages())
    assert len(await shown_views(engine, "one")) == 2
    assert len(await shown_views(engine, "two")) == 1
    assert (await shown_views(engine, "one"))[1] == received(scripted)[2]


async def test_the_model_searches_what_was_said_with_the_recall_tool(engine: Engine) -> None:
    asks = ModelResponse([ToolCallPart("recall_messages", {"query": "xyzzy"}, "call_r")])
    scripted = Scripted(says("Noted."), asks, says("It is xyzzy."))
    agent = agent_of(scripted, Eventctx(engine, "s"))
    first = await agent.run("The word is xyzzy.")
    result = await agent.run("Which word?", message_history=first.all_messages())
    returned = result.all_messages()[-2].parts[0]
    assert isinstance(returned, ToolReturnPart)
    assert "The word is xyzzy." in returned.content
    assert scripted.tools == ["read", "recall_messages"]
    await agent_of(other := Scripted(says("a")), Eventctx(engine, "t", recall=False)).run("a")
    assert other.tools == ["read"]


def test_it_serves_agents_that_are_called_synchronously(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    scripted, ours = Scripted(*LONG), Eventctx(path, "s", **SMALL)
    with asyncio.Runner() as runner:  # closes the loop, which Pydantic AI would leave open
        asyncio.set_event_loop(runner.get_loop())
        assert agent_of(scripted, ours).run_sync("Read all.").output == "All read."
    ours.close()
    ours.close()  # a second time does nothing

    async def look() -> None:
        async with eventctx.open(path) as engine:
            assert await shown_views(engine) == received(scripted)
            assert (await types_of(engine))[-1] == "prompt:complete"

    asyncio.run(look())


# -- what the host does to its messages ----------------------------------------------------------


async def test_what_a_history_processor_removes_is_an_event(engine: Engine) -> None:
    scripted = Scripted(says("A."), says("B."), says("C."))
    ours, cuts = Eventctx(engine, "s"), ProcessHistory[None](lambda messages: messages[-3:])
    agent = agent_of(scripted, ours, cuts)
    result = await agent.run("a")
    for text in "bc":
        result = await agent.run(text, message_history=result.all_messages())
    assert [len(one) for one in scripted.seen] == [1, 3, 3]
    assert await shown_views(engine) == received(scripted)
    assert (await types_of(engine)).count("context:messages_set") == 1
    assert [row.missing for row in (await engine.audit("s")).requests] == [0, 0, 0]


# -- what goes wrong -----------------------------------------------------------------------------


async def test_a_tool_that_asks_for_another_try_and_an_output_that_is_refused(
    engine: Engine,
) -> None:
    def picky(page: int) -> str:
        if page < 2:
            raise ModelRetry("Pages begin at 2.")
        return "Here."

    calls = [ModelResponse([ToolCallPart("picky", {"page": n}, f"c{n}")]) for n in (1, 2)]
    scripted = Scripted(*calls, says("No."), says("Yes."))
    agent = agent_of(scripted, Eventctx(engine, "s"), tools=[picky])

    @agent.output_validator
    def politely(text: str) -> str:
        if text == "No.":
            raise ModelRetry("Say yes.")
        return text

    assert (await agent.run("Read.")).output == "Yes."
    types = await types_of(engine)
    assert (types.count("tool:error"), types.count("tool:post")) == (1, 1)
    assert types.count("context:messages_set") == 0
    found, sent = await shown_views(engine), received(scripted)
    assert found[:3] == sent[:3]
    # The feedback reaches each model as its own API wants it, here as a prompt in a fence.
    assert found[3][:-1] == sent[3][:-1]
    assert "Say yes." in found[3][-1][1]
    assert "Say yes." in sent[3][-1][1]


# -- messages ------------------------------------------------------------------------------------

EVERY: list[ModelMessage] = [
    ModelRequest(
        [
            SystemPromptPart("s"),
            UserPromptPart(
                [
                    "hi",
                    TextContent("there", metadata={"a": 1}),
                    BinaryImage(b"abc", media_type="image/png"),
                    ImageUrl("http://x/y.png"),
                ]
            ),
        ],
        instructions="i",
        metadata={"b": 2},
    ),
    ModelResponse(
        [
            ThinkingPart("t", signature="g", provider_name="p"),
            TextPart("x", id="item_1"),
            ToolCallPart("f", {"a": None}, "c1", id="item_2"),
            ToolCallPart("f", '{"a":2}', "c2"),
        ],
        usage=RequestUsage(input_tokens=3),
        model_name="m",
    ),
    ModelRequest(
        [
            ToolReturnPart("f", {"r": [1, 2]}, "c1", metadata={"z": 1}),
            ToolReturnPart("f", ["text", {"d": 1}], "c2", outcome="failed"),
            UserPromptPart("more"),
            UserPromptPart(["one"]),
        ]
    ),
    ModelResponse([TextPart("y")]),
    ModelRequest([RetryFeedbackPart("again", retry=RetryInfo(cause="model_retry"))]),
]


def test_every_message_comes_back_whole_from_its_rows() -> None:
    rows = [row for one in rows_of(EVERY, whole=True) for row in one]
    assert messages_of(json.loads(json.dumps(rows))) == EVERY


def test_messages_that_are_shown_whole_go_back_as_the_same_objects() -> None:
    known = MessageRows()
    rows = known.of(EVERY)
    copied = json.loads(json.dumps(rows))
    back = known.messages_of(copied)
    assert all(one is other for one, other in zip(back, EVERY, strict=True))


def test_what_a_view_shortened_and_inserted_goes_back_as_messages() -> None:
    known = MessageRows()
    rows = json.loads(json.dumps(known.of(EVERY)))
    answered = next(at for at, row in enumerate(rows) if row["content"][0]["type"] == "tool_result")
    rows[answered]["content"][1]["content"] = "te…"
    rows.insert(answered, {"role": "user", "content": "A note."})
    back = known.messages_of(rows)
    assert back[:2] == EVERY[:2]
    note, results = back[2], back[3]
    assert isinstance(note.parts[0], UserPromptPart)
    assert note.parts[0].content == "A note."
    assert [type(one) for one in results.parts] == [type(one) for one in EVERY[2].parts]
    assert getattr(results.parts[1], "content", None) == "te…"
    assert getattr(results.parts[1], "outcome", None) == "failed"


def test_an_answer_whose_reasoning_the_view_leaves_out_goes_without_the_ids_of_its_items() -> None:
    known = MessageRows()
    rows = json.loads(json.dumps(known.of(EVERY)))
    answer = next(row for row in rows if row["role"] == "assistant")
    assert answer["content"].pop(0)["type"] == "thinking"
    back = known.messages_of(rows)
    (made,) = [one for one in back if isinstance(one, ModelResponse) and len(one.parts) == 3]
    assert [getattr(part, "id", None) for part in made.parts] == [None] * 3
    calls = [part for part in made.parts if isinstance(part, ToolCallPart)]
    assert [part.tool_call_id for part in calls] == ["c1", "c2"]


def test_what_the_framework_says_is_no_persons_and_a_failed_result_is_one() -> None:
    rows = [row for one in rows_of(EVERY) for row in one]
    facts = [read_facts(row) for row in rows]
    assert [one.human for one in facts].count(True) == 2
    assert not facts[-1].human
    results = [part for row in rows for part in read_parts(row) if part.kind == "result"]
    assert [one.failed for one in results] == [False, True]


# -- agents that tools run -------------------------------------------------------------------------


def asks(*call_ids: str) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("ask", {}, one) for one in call_ids])


def nested_agent(capability: Eventctx, *script: ModelResponse) -> Agent[Any, str]:
    answers = iter(script)

    async def answer(messages: list[ModelMessage], info: Any) -> ModelResponse:
        return next(answers)

    return Agent(FunctionModel(answer), capabilities=[capability])


async def check_sound(engine: Engine, session: str, requests: int) -> None:
    """Check that a session holds one run: each request verifies, and nothing was replaced."""
    rows = (await engine.audit(session)).requests
    assert len(rows) == requests
    for row in rows:
        assert (await engine.request_view(session, position=row.position)).verified
    types = [one.type async for one in engine.records(session)]
    assert {"context:messages_set", "tool:error"}.isdisjoint(types)


async def delegate(engine: Engine, outer: Eventctx, inner: Eventctx) -> None:
    sub = nested_agent(inner, says("one"), says("two"))
    main = nested_agent(outer, asks("a", "b"), says("done"))

    @main.tool_plain
    async def ask() -> str:
        """Ask."""
        return (await sub.run("2+2?")).output

    assert (await main.run("Hi.")).output == "done"


async def test_runs_inside_tools_that_have_the_session_around_them_are_linked_sessions(
    engine: Engine,
) -> None:
    ours = Eventctx(engine, "s", recall=False)
    await delegate(engine, ours, ours)
    assert await names(engine) == ["s", "s.a", "s.b"]
    assert sorted(await links(engine, "s")) == [("s.a", "a"), ("s.b", "b")]
    for session, requests in (("s", 2), ("s.a", 1), ("s.b", 1)):
        await check_sound(engine, session, requests)


async def test_of_runs_beside_each_other_in_one_session_one_has_it(engine: Engine) -> None:
    outer, inner = Eventctx(engine, "s", recall=False), Eventctx(engine, "helper", recall=False)
    await delegate(engine, outer, inner)
    assert await names(engine) == ["helper", "helper.b", "s"]
    assert sorted(await links(engine, "s")) == [("helper", "a"), ("helper.b", "b")]
    for session, requests in (("s", 2), ("helper", 1), ("helper.b", 1)):
        await check_sound(engine, session, requests)
