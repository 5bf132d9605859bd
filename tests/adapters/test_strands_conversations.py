"""Strands: conversations that others change, too, and tools that fail or ask a person."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest.importorskip("strands", reason="an extra that is not in dev: eventctx[strands]")

from strands import ToolContext, tool
from strands.agent import SlidingWindowConversationManager, SummarizingConversationManager
from strands.hooks import BeforeToolCallEvent
from strands.types.exceptions import ContextWindowOverflowException
from strands.vended_plugins.context_injector import ContextInjector

import eventctx
from eventctx.adapters.strands import EventctxAgentPlugin
from eventctx.engine import Engine
from eventctx.testing import Reply
from tests.adapters.drivers.strands import (
    Scripted,
    agent,
    calls,
    check_requests,
    look,
    payload,
    types,
)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with eventctx.open("memory://") as opened:
        yield opened


async def test_what_a_sliding_window_takes_out_is_recorded(engine: Engine) -> None:
    window = SlidingWindowConversationManager(window_size=2)
    answers = [Reply(f"Answer {number}.") for number in range(3)]
    talks = agent(EventctxAgentPlugin(engine, "s"), *answers, conversation_manager=window)
    for number in range(3):
        await talks.invoke_async(f"Question {number}?")
    await check_requests(engine, "s", talks.model)
    assert len(await engine.transcript("s")) == len(talks.messages) == 2
    assert (await types(engine, "s")).count("context:messages_set") == 2
    before = await engine.transcript("s", at=await first_set(engine) - 1)
    assert "Question 0?" in str([one.message for one in before])


async def first_set(engine: Engine) -> int:
    return (await types(engine, "s")).index("context:messages_set")


async def test_a_summary_of_strands_is_recorded_and_the_repeated_call_sends_it(
    engine: Engine,
) -> None:
    talks = agent(
        EventctxAgentPlugin(engine, "s"),
        *[Reply(f"Answer {number}.") for number in range(4)],
        ContextWindowOverflowException("too long"),
        *(Reply("In short: questions."), Reply("Answer 4.")),
        conversation_manager=SummarizingConversationManager(
            summary_ratio=0.5, preserve_recent_messages=2
        ),
    )
    for number in range(5):
        await talks.invoke_async(f"Question {number}?")
    sent = [str(one) for _, one, _ in talks.model.seen]
    assert "In short: questions." in sent[-1]
    assert "Question 0?" not in sent[-1]
    made = await types(engine, "s")
    assert [made.count(one) for one in ("provider:request", "provider:error")] == [6, 1]
    assert made.count("context:messages_set") == 1
    last = await engine.request_view("s", 5)
    assert last.verified
    assert "In short: questions." in str(last.messages)


async def test_what_an_injector_puts_behind_the_last_message_is_sent_with_the_view(
    engine: Engine,
) -> None:
    pages = [calls("look", f"call_{n}", place="x" * 3_000) for n in range(8)]
    talks = agent(
        EventctxAgentPlugin(engine, "s", max_tokens=4_000, reserve_tokens=0),
        *(*pages, Reply("Seen.")),
        tools=[look],
        before=[ContextInjector(lambda context: "It rains.", trigger="everyTurn")],
    )
    await talks.invoke_async("Look.")
    assert "context:post_compact" in await types(engine, "s")
    last = [sent[-1]["content"][-1]["text"] for _, sent, _ in talks.model.seen]
    assert {one.strip() for one in last} == {"It rains."}
    assert len(talks.model.seen[-1][1]) < len(talks.messages)
    rows = (await engine.audit("s")).requests
    assert {(row.additions, row.missing) for row in rows} == {(1, 1)}


async def test_a_message_that_was_changed_in_its_place_is_recorded(engine: Engine) -> None:
    talks = agent(EventctxAgentPlugin(engine, "s"), Reply("Yes."), Reply("No."))
    await talks.invoke_async("My number is 7.")
    talks.messages[0]["content"][0]["text"] = "[redacted]"
    await talks.invoke_async("Still?")
    await check_requests(engine, "s", talks.model)
    assert "context:messages_set" in await types(engine, "s")


async def test_a_conversation_that_a_server_keeps_is_recorded_whole_and_never_compacted(
    engine: Engine,
) -> None:
    class Kept(Scripted):
        stateful = True

    model = Kept([Reply("x" * 9_000), Reply("Yes."), Reply("Yes.")])
    small = {"max_tokens": 2_000, "max_tokens_fallback": 2_000, "reserve_tokens": 0}
    talks = agent(EventctxAgentPlugin(engine, "s", **small), model=model)
    for text in ("There?", "There?", "There?"):
        await talks.invoke_async(text)
    assert [len(sent) for _, sent, _ in model.seen] == [1, 1, 1]
    assert len(await engine.transcript("s")) == 6
    rows = (await engine.audit("s")).requests
    assert [(row.additions, row.missing) for row in rows] == [(0, 0), (0, 2), (0, 4)]
    assert "context:post_compact" not in await types(engine, "s")


# -- tools that fail, are refused, or ask a person -------------------------------------------------


async def test_a_tool_that_failed_and_one_that_was_refused(engine: Engine) -> None:
    def refuse(event: BeforeToolCallEvent) -> None:
        if event.tool_use["input"]["place"] == "here":
            event.cancel_tool = "not here"

    talks = agent(
        EventctxAgentPlugin(engine, "s"),
        *(calls("look", place="nowhere"), calls("look", "call_2", place="here"), Reply("Well.")),
        tools=[look],
        watch=refuse,
        seam=BeforeToolCallEvent,
    )
    await talks.invoke_async("Look.")
    await check_requests(engine, "s", talks.model)
    made = await types(engine, "s")
    assert [made.count(one) for one in ("tool:pre", "tool:post", "tool:error")] == [1, 0, 1]
    failed = await payload(engine, "s", "tool:error")
    assert failed["error_type"] == "LookupError"
    assert "not here" in str([one.message for one in await engine.transcript("s")])


async def test_a_run_that_waits_for_a_person_goes_on_with_the_answer(engine: Engine) -> None:
    def ask(event: BeforeToolCallEvent) -> None:
        event.interrupt("may-i", reason="really?")

    talks = agent(
        EventctxAgentPlugin(engine, "s"),
        *(calls("look", place="here"), Reply("Seen.")),
        tools=[look],
        watch=ask,
        seam=BeforeToolCallEvent,
    )
    result = await talks.invoke_async("Look.")
    (asked,) = result.interrupts
    answer = {"interruptResponse": {"interruptId": asked.id, "response": "y"}}
    assert str(await talks.invoke_async([answer])) == "Seen.\n"
    await check_requests(engine, "s", talks.model)
    made = await types(engine, "s")
    assert [made.count(one) for one in ("prompt:submit", "prompt:complete")] == [2, 2]


async def test_a_tool_that_asks_a_person_is_called_again_with_the_answer(engine: Engine) -> None:
    @tool(context=True)
    async def ask(question: str, tool_context: ToolContext) -> str:
        """Ask the person."""
        return f"said {tool_context.interrupt('asked', reason=question)}"

    talks = agent(
        EventctxAgentPlugin(engine, "s"),
        *(calls("ask", question="really?"), Reply("Good.")),
        tools=[ask],
    )
    (asked,) = (await talks.invoke_async("Ask.")).interrupts
    waits = await payload(engine, "s", "tool:error")
    assert waits["status"] == "cancelled"
    answer = {"interruptResponse": {"interruptId": asked.id, "response": "y"}}
    assert str(await talks.invoke_async([answer])) == "Good.\n"
    await check_requests(engine, "s", talks.model)
    made = await types(engine, "s")
    assert [made.count(one) for one in ("tool:pre", "tool:post", "tool:error")] == [2, 1, 1]
