"""Strands agents with our plugin, where strands can be imported: ``make elsewhere``."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands", reason="an extra that is not in dev: eventctx[strands]")

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from strands import ToolContext, tool
from strands.agent import (
    NullConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.hooks import BeforeModelCallEvent, BeforeToolCallEvent
from strands.types.exceptions import ContextWindowOverflowException
from strands.vended_plugins.context_injector import ContextInjector

import eventctx
from eventctx.adapters.strands import EventctxAgentPlugin, rows
from eventctx.adapters.strands.agent_session import usage_of
from eventctx.adapters.strands.rows import sendable
from eventctx.engine import Engine, open_engine
from eventctx.log.usage import Usage
from eventctx.messages.encoding import decode_body, encode_plain
from eventctx.messages.parts import read_parts
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import AdapterContract, Reply, check_dialect
from eventctx.testing.strict_provider import violations
from tests.adapters.conftest import engine as engine
from tests.adapters.drivers.base import KNOWN
from tests.adapters.drivers.strands import (
    Scripted,
    StrandsDriver,
    agent,
    calls,
    check_requests,
    look,
)
from tests.adapters.logs import (
    NAMES,
    TURNS,
    audited,
    count,
    interrupted_at,
    links,
    names,
    payloads,
    settings_for,
    types_of,
)
from tests.adapters.test_dialects import ROUNDS, Dialect, Round, called, texts_of


class TestTheContract(AdapterContract):
    driver = StrandsDriver
    knows = KNOWN["Strands Agents"]


def test_a_synchronous_call_is_recorded_in_a_store_of_the_plugins_own(tmp_path: Path) -> None:
    plugin = EventctxAgentPlugin(tmp_path / "agents.db", "s")
    talks = agent(plugin, calls("look", place="here"), Reply("Seen."), tools=[look])
    assert str(talks("Look here.")) == "Seen.\n"
    plugin.close()

    async def check() -> None:
        async with eventctx.open(tmp_path / "agents.db") as engine:
            await check_requests(engine, "s", talks.model)
            assert (await types_of(engine))[-1] == "prompt:complete"

    asyncio.run(check())


async def test_an_agent_names_its_session_and_its_model_may_be_silent(engine: Engine) -> None:
    class Silent(Scripted):
        get_config = None

    talks = agent(EventctxAgentPlugin(engine), model=Silent([Reply("Yes.")]))
    assert str(await talks.invoke_async("There?")) == "Yes.\n"
    assert await names(engine) == [talks.session_id]
    (asked,) = await payloads(engine, "provider:request", talks.session_id)
    assert "model" not in asked


async def test_an_output_in_a_form_is_a_tool_and_its_prompt_no_persons(engine: Engine) -> None:
    class Found(BaseModel):
        """What was found."""

        number: int

    talks = agent(EventctxAgentPlugin(engine, "s"), Reply("Three."), calls("Found", number=3))
    result = await talks.invoke_async("How many?", structured_output_model=Found)
    assert result.structured_output == Found(number=3)
    await check_requests(engine, "s", talks.model)
    rows = [one.message for one in await engine.transcript("s")]
    assert [row.get("metadata") for row in rows] == [None, None, {"source": "hook"}, None, None]


async def test_an_agent_as_a_tool_has_a_linked_session_of_its_own(engine: Engine) -> None:
    plugin = EventctxAgentPlugin(engine, "s")
    first, second = calls("helper", input="first?"), calls("helper", "call_2", input="second?")
    leads = agent(plugin, first, Reply("So."), second, Reply("So again."))
    helps = agent(plugin, Reply("One."), Reply("Two."), name="the helper")
    leads.tool_registry.process_tools([helps.as_tool(name="helper")])
    for text in ("Help.", "Again."):
        await leads.invoke_async(text)
    assert await names(engine) == ["s", "s.the_helper"]
    await check_requests(engine, "s", leads.model)
    await check_requests(engine, "s.the_helper", helps.model)
    assert await links(engine, "s.the_helper") == [("s", "call_1")]
    told = await engine.transcript("s.the_helper")
    assert "first?" not in str([one.message for one in told])  # it begins anew for each call
    assert await count(engine, "context:messages_set", session="s.the_helper") == [1]
    elsewhere = EventctxAgentPlugin(engine, "s")
    leads = agent(elsewhere, calls("helper", "call_3", input="third?"), Reply("So."))
    helps = agent(elsewhere, Reply("Three."), name="the helper")
    leads.tool_registry.process_tools([helps.as_tool(name="helper")])
    await leads.invoke_async("Once more.")
    assert await links(engine, "s.the_helper") == [("s", "call_1")]


@pytest.mark.parametrize(
    ("total", "prompt"), [(112, 100), (142, 130)], ids=["counted as input", "counted beside it"]
)
def test_the_prompt_is_all_of_it_caches_included(total: int, prompt: int) -> None:
    told = {"inputTokens": 100, "outputTokens": 12, "totalTokens": total}
    told |= {"cacheReadInputTokens": 20, "cacheWriteInputTokens": 10}
    assert usage_of(told) == Usage(prompt=prompt, output=12, cache_read=20, cache_write=10)
    assert usage_of({"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}) is None


async def test_a_run_that_was_cancelled_is_a_cancelled_turn(engine: Engine) -> None:
    def cancel(event: BeforeModelCallEvent) -> None:
        event.agent.cancel()

    plugin = EventctxAgentPlugin(engine, "s")
    talks = agent(plugin, Reply("Yes."), watch=cancel, seam=BeforeModelCallEvent)
    assert (await talks.invoke_async("There?")).stop_reason == "cancelled"
    assert [one["status"] for one in await payloads(engine, "prompt:complete")] == ["cancelled"]


# -- conversations that others change, too --------------------------------------------------------


async def test_what_a_sliding_window_takes_out_is_recorded(engine: Engine) -> None:
    window = SlidingWindowConversationManager(window_size=2)
    answers = [Reply(f"Answer {number}.") for number in range(3)]
    talks = agent(EventctxAgentPlugin(engine, "s"), *answers, conversation_manager=window)
    for number in range(3):
        await talks.invoke_async(f"Question {number}?")
    await check_requests(engine, "s", talks.model)
    assert len(await engine.transcript("s")) == len(talks.messages) == 2
    assert await count(engine, "context:messages_set") == [2]
    first_set = (await types_of(engine)).index("context:messages_set")
    before = await engine.transcript("s", at=first_set - 1)
    assert "Question 0?" in str([one.message for one in before])


async def test_a_summary_of_strands_is_recorded_and_sent_again(engine: Engine) -> None:
    manager = SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=2)
    script: list[Any] = [Reply(f"Answer {number}.") for number in range(4)]
    script += [ContextWindowOverflowException("too long"), Reply("In short: questions.")]
    ours = EventctxAgentPlugin(engine, "s")
    talks = agent(ours, *script, Reply("Answer 4."), conversation_manager=manager)
    for number in range(5):
        await talks.invoke_async(f"Question {number}?")
    *_, (_, sent, _) = talks.model.seen
    assert "In short: questions." in str(sent)
    assert "Question 0?" not in str(sent)
    made = await count(engine, "provider:request", "provider:error", "context:messages_set")
    assert made == [6, 1, 1]
    last = await engine.request_view("s", 5)
    assert last.verified
    assert "In short: questions." in str(last.messages)


async def test_what_an_injector_adds_is_sent_with_the_view(engine: Engine) -> None:
    pages = [calls("look", f"call_{n}", place="x" * 3_000) for n in range(8)]
    ours = EventctxAgentPlugin(engine, "s", max_tokens=4_000, reserve_tokens=0)
    rains = ContextInjector(lambda context: "It rains.", trigger="everyTurn")
    talks = agent(ours, *pages, Reply("Seen."), tools=[look], before=[rains])
    await talks.invoke_async("Look.")
    assert await count(engine, "context:post_compact") != [0]
    last = [sent[-1]["content"][-1]["text"] for _, sent, _ in talks.model.seen]
    assert {one.strip() for one in last} == {"It rains."}
    assert len(talks.model.seen[-1][1]) < len(talks.messages)
    assert set(await audited(engine)) == {(1, 1)}


async def test_a_message_that_was_changed_in_its_place_is_recorded(engine: Engine) -> None:
    talks = agent(EventctxAgentPlugin(engine, "s"), Reply("Yes."), Reply("No."))
    await talks.invoke_async("My number is 7.")
    talks.messages[0]["content"][0]["text"] = "[redacted]"
    await talks.invoke_async("Still?")
    await check_requests(engine, "s", talks.model)
    assert await count(engine, "context:messages_set") != [0]


async def test_a_conversation_on_a_server_is_recorded_and_never_compacted(engine: Engine) -> None:
    class Kept(Scripted):
        stateful = True

    model = Kept([Reply("x" * 9_000), Reply("Yes."), Reply("Yes.")])
    small = {"max_tokens": 2_000, "max_tokens_fallback": 2_000, "reserve_tokens": 0}
    talks = agent(EventctxAgentPlugin(engine, "s", **small), model=model)
    for text in ("There?", "There?", "There?"):
        await talks.invoke_async(text)
    assert [len(sent) for _, sent, _ in model.seen] == [1, 1, 1]
    assert len(await engine.transcript("s")) == 6
    assert await audited(engine) == [(0, 0), (2, 0), (4, 0)]
    assert await count(engine, "context:post_compact") == [0]


# -- tools that fail, are refused, or ask a person -------------------------------------------------


async def test_a_tool_that_failed_and_one_that_was_refused(engine: Engine) -> None:
    def refuse(event: BeforeToolCallEvent) -> None:
        if event.tool_use["input"]["place"] == "here":
            event.cancel_tool = "not here"

    script = (calls("look", place="nowhere"), calls("look", "call_2", place="here"), Reply("Well."))
    watched: Any = {"tools": [look], "watch": refuse, "seam": BeforeToolCallEvent}
    talks = agent(EventctxAgentPlugin(engine, "s"), *script, **watched)
    await talks.invoke_async("Look.")
    await check_requests(engine, "s", talks.model)
    assert await count(engine, "tool:pre", "tool:post", "tool:error") == [1, 0, 1]
    assert [one["error_type"] for one in await payloads(engine, "tool:error")] == ["LookupError"]
    assert "not here" in str([one.message for one in await engine.transcript("s")])


async def test_a_run_that_waits_for_a_person_goes_on_with_the_answer(engine: Engine) -> None:
    def ask(event: BeforeToolCallEvent) -> None:
        event.interrupt("may-i", reason="really?")

    script = (calls("look", place="here"), Reply("Seen."))
    watched: Any = {"tools": [look], "watch": ask, "seam": BeforeToolCallEvent}
    talks = agent(EventctxAgentPlugin(engine, "s"), *script, **watched)
    (asked,) = (await talks.invoke_async("Look.")).interrupts
    answer = {"interruptResponse": {"interruptId": asked.id, "response": "y"}}
    assert str(await talks.invoke_async([answer])) == "Seen.\n"
    await check_requests(engine, "s", talks.model)
    assert await count(engine, "prompt:submit", "prompt:complete") == [2, 2]


async def test_a_tool_that_asks_a_person_is_called_again_with_the_answer(engine: Engine) -> None:
    @tool(context=True)
    async def ask(question: str, tool_context: ToolContext) -> str:
        """Ask the person."""
        return f"said {tool_context.interrupt('asked', reason=question)}"

    script = (calls("ask", question="really?"), Reply("Good."))
    talks = agent(EventctxAgentPlugin(engine, "s"), *script, tools=[ask])
    (asked,) = (await talks.invoke_async("Ask.")).interrupts
    assert [one["status"] for one in await payloads(engine, "tool:error")] == ["cancelled"]
    answer = {"interruptResponse": {"interruptId": asked.id, "response": "y"}}
    assert str(await talks.invoke_async([answer])) == "Good.\n"
    await check_requests(engine, "s", talks.model)
    assert await count(engine, "tool:pre", "tool:post", "tool:error") == [2, 1, 1]


class Answers(Scripted):
    """Reads pages at random, in one or two rounds a turn, and thinks before some answers."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__([])
        self.draw = draw
        self.number = 0
        self.rounds = 0

    async def stream(self, *given: Any, **named: Any) -> Any:
        self.number += 1
        thinks = "Pages first. " * 20 if self.draw.random() < 0.4 else None
        if self.rounds:
            self.rounds -= 1
            hows = self.draw.choices(["reads", "fails", "empty", "waits"], [6, 2, 1, 1], k=3)
            calls = [
                ToolRequest(f"call_{self.number}_{at}", "read", {"page": self.number, "how": how})
                for at, how in enumerate(hows[: self.draw.choice([1, 2, 3])])
            ]
            text = self.draw.choice(["", "", "I look.", " \n"])
            self.script = [Reply(text, calls=calls, thinking=thinks)]
        else:
            self.script = [Reply(f"Read {self.number}. " + "so " * 60, thinking=thinks)]
        async for event in super().stream(*given, **named):
            yield event


async def talk(engine: Any, seed: int, settings: dict[str, Any]) -> Answers:
    draw, waits = random.Random(seed), asyncio.Event()  # noqa: S311
    model, ours = Answers(draw), EventctxAgentPlugin(engine, "s", **settings)

    @tool
    async def read(page: int, how: str) -> str:
        """Read a page."""
        if how == "fails":
            raise LookupError(f"page {page} is torn")
        if how == "waits":
            waits.set()
            await asyncio.Event().wait()
        return "" if how == "empty" else f"page {page}: " + "words " * 200

    given = {"system_prompt": "Be brief.", "conversation_manager": NullConversationManager()}
    host = agent(ours, model=model, tools=[read], **given)
    for turn in range(TURNS):
        model.rounds = draw.choice([0, 1, 1, 2])
        waits.clear()
        work = host.invoke_async(f"Read page {turn}, please.")
        await interrupted_at(waits, work, lambda: draw.choice([0, 3, 30]))
    return model


@pytest.mark.parametrize("policy", NAMES)
async def test_bedrock_accepts_every_request_of_a_long_session(policy: str) -> None:
    async with open_engine("memory://") as engine:
        model = await talk(engine, len(policy), settings_for(policy))
        refused = [
            (number, one)
            for number, (_, sent, _) in enumerate(model.seen)
            for one in violations("bedrock", {"messages": sent})
        ]
        assert not refused, f"{len(refused)} of {len(model.seen)} requests: {refused[:3]}"
        assert (await engine.audit("s")).compactions
        assert (await engine.verify("s")).ok
        assert await count(engine, "context:messages_set") == [0]
        await check_requests(engine, "s", model)


CONTENT: dict[str, list[dict[str, Any]]] = {
    "user": [{"text": "Read."}, {"text": " "}, {"toolResult": {"toolUseId": "a", "content": []}}],
    "assistant": [
        *({"text": "Read."}, {"text": ""}),
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}},
        {"toolUse": {"toolUseId": "a", "name": "read", "input": {}}},
    ],
}
MESSAGES = st.sampled_from(["user", "assistant"]).flatmap(
    lambda role: st.fixed_dictionaries(
        {"role": st.just(role), "content": st.lists(st.sampled_from(CONTENT[role]), max_size=3)}
    )
)
PAIRS = ("bedrock/calls-answered", "bedrock/results-have-calls", "bedrock/call-ids-unique")


@given(st.lists(MESSAGES, max_size=8))
def test_what_is_sent_loses_nothing_and_keeps_the_rules(messages: list[dict[str, Any]]) -> None:
    messages = [{"role": "user", "content": [{"text": "Begin."}]}, *messages]
    before = deepcopy(messages)
    sent = sendable(messages)
    assert messages == before
    assert sendable(sent) == sent
    rules = (*PAIRS, "bedrock/one-result-a-call", "bedrock/prefill-without-space")
    assert not violations("bedrock", {"messages": sent}, without=rules)
    for word in ('"Read."', '"toolUse"', '"toolResult"'):
        assert json.dumps(sent).count(word) == json.dumps(messages).count(word)


# -- messages come back from the log as they were -------------------------------------------------


Row = dict[str, Any]


def native(rounds: Sequence[Round]) -> list[Row]:
    found: list[Row] = []
    for one, looks in called(rounds):
        found.append(said("user", {"text": one.question}))
        asked = [
            {"toolUse": {"toolUseId": call_id, "name": "look", "input": {"at": at}}}
            for call_id, at, _ in looks
        ]
        results = [
            result(call_id, *answers(at, text)) for at, (call_id, _, text) in enumerate(looks)
        ]
        found += [said("assistant", *asked), said("user", *results)] if looks else []
        found.append(said("assistant", {"text": one.answer}))
    return found


def said(role: str, *content: Row) -> Row:
    return {"role": role, "content": list(content)}


def result(call_id: str, *content: Row, status: str = "success") -> Row:
    return {"toolResult": {"toolUseId": call_id, "status": status, "content": list(content)}}


def answers(at: int, text: str) -> list[Row]:
    """A result as a text, as data, or as both."""
    return ([{"text": text}], [{"json": {"found": text}}], [{"text": text}, {"json": [at]}])[at % 3]


@settings(max_examples=25, deadline=None)
@given(ROUNDS)
def test_it_is_a_dialect(rounds: list[Round]) -> None:
    data = {text for one in rounds for _, text in one.calls[1::3]}  # of which JSON is read
    texts = [
        json.dumps(one, ensure_ascii=False)[1:-1] if one in data else one
        for one in texts_of(rounds)
    ]
    dialect = Dialect(
        native,
        lambda messages: [rows.row_of(one) for one in messages],
        lambda given: rows.messages_of(given, [], []),
        rows.identity,
    )
    check_dialect(dialect, native(rounds), texts)


PICTURE = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
S3 = {"location": {"type": "s3", "uri": "s3://bucket/file"}}
BLOCKS = [
    {"text": "hi"},
    {"text": ""},
    {"image": {"format": "gif", "source": {"bytes": PICTURE}}},
    {"image": {"format": "png", "source": S3}},
    {"document": {"format": "pdf", "name": "a", "source": {"bytes": b"%PDF"}}},
    {"document": {"format": "txt", "name": "b", "source": S3, "citations": {"enabled": True}}},
    {"video": {"format": "mp4", "source": {"bytes": b"\0"}}},
    {"audio": {"format": "mp3", "source": {"bytes": b"\0"}}},
    {"cachePoint": {"type": "default", "ttl": "5m"}},
    {"guardContent": {"text": {"text": "guard this", "qualifiers": ["query"]}}},
    {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
    {"reasoningContent": {"redactedContent": b"sealed"}},
    {"citationsContent": {"citations": [{"title": "t"}], "content": [{"text": "cited"}]}},
    {"citationsContent": {"citations": [], "content": [{"text": "one"}, {"text": "two"}]}},
    {"toolUse": {"toolUseId": "c", "name": "f", "input": {"a": [1]}, "reasoningSignature": "s"}},
    {"toolUse": {"toolUseId": "c", "name": "f", "input": "no object"}},
    result("c", {"text": "one"}, {"json": {"two": 2}}, {"image": {"format": "gif", "source": S3}}),
    result("c", {"text": "no"}, status="error"),
    {"text": "two keys", "cachePoint": {"type": "default"}},
    {"futureContent": {"data": b"new", "type": "future"}},
    {"futureText": "new"},
]


def through_the_log(row: Row) -> Row:
    return decode_body(encode_plain(row))  # type: ignore[no-any-return]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda one: "-".join(one))
def test_a_block_comes_back_whole(block: Row) -> None:
    row = through_the_log(rows.row_of(said("user", block)))
    assert rows.message_of(row) == said("user", block)


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        *((2, "image"), (4, "document"), (9, "text"), (10, "thinking"), (11, "thinking")),
        *((12, "text"), (14, "call"), (17, "result")),
    ],
)
def test_the_engine_reads_a_block_as_what_it_is(place: int, kind: str) -> None:
    (part,) = read_parts(rows.row_of(said("assistant", BLOCKS[place])))
    assert (part.kind, part.failed) == (kind, place == 17)


def test_values_of_a_program_that_are_no_json_become_texts() -> None:
    given = {"at": (1, float("inf")), "who": ValueError("x"), 3: b"a"}
    message = said("assistant", {"toolUse": {"toolUseId": "c", "name": "f", "input": given}})
    row = through_the_log(rows.row_of(message))
    assert row["content"][0]["input"]["at"] == [1, "inf"]
    assert rows.message_of(row)["content"][0]["toolUse"]["input"]["3"] == b"a"
    # So does data that was shortened.
    row = rows.row_of(said("user", result("c", {"json": {"long": "x" * 99}})))
    row["content"][0]["content"][0]["text"] = '{"long": "x…'
    back = rows.message_of(row)["content"][0]["toolResult"]["content"]
    assert back == [{"text": '{"long": "x…'}]


def test_a_request_that_shows_a_message_whole_has_that_very_message() -> None:
    sent = [said("user", {"text": "a"}), said("assistant", {"text": "b"}), said("user", BLOCKS[2])]
    held = [rows.row_of(one) for one in sent]
    summary = {"role": "user", "content": "In short."}
    first, last = rows.messages_of([summary, held[2]], sent, held)
    assert first == said("user", {"text": "In short."})
    assert last is sent[2]


def test_a_system_prompt_of_blocks_is_its_texts_and_tools_are_defined() -> None:
    cached: Row = {"cachePoint": {"type": "default"}}
    blocks: list[Row] = [{"text": "Be brief."}, cached, {"text": "So."}]
    assert rows.instructions_of(blocks) == "Be brief.\nSo."
    assert rows.instructions_of([blocks[1]]) is rows.instructions_of(None) is None
    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    spec = {"name": "look", "description": "Look.", "inputSchema": {"json": schema}}
    assert rows.tool_definitions([spec]) == [
        {"name": "look", "description": "Look.", "input_schema": schema}
    ]
