"""Agent Framework: lists that are not the conversation, and messages as rows."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("agent_framework", reason="an extra: eventctx[agent-framework]")

from agent_framework import (
    AgentMiddleware,
    AgentSession,
    ChatMiddleware,
    Content,
    ContextProvider,
    InMemoryHistoryProvider,
    Message,
    SlidingWindowStrategy,
)

from eventctx.adapters.agent_framework import EventctxAgents
from eventctx.adapters.agent_framework.rows import (
    messages_of,
    rows_of,
)
from eventctx.engine import Engine
from eventctx.messages.encoding import decode_body, encode_plain
from eventctx.messages.parts import read_parts
from tests.adapters.drivers.agent_framework import (
    HOW,
    agent_of,
    ask,
    count,
    read,
    reads,
    script,
    sent,
    texts,
)


class Memory(ContextProvider):
    def __init__(self) -> None:
        super().__init__("memory")
        self.number = 0

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: Any) -> None:
        self.number += 1
        context.extend_messages(self, [Message("user", [f"memory {self.number}"])])


async def test_what_a_context_provider_adds_is_in_the_request_alone(engine: Engine) -> None:
    client, session = script("One.", reads(1), "Two."), AgentSession(session_id="s")
    providers = [InMemoryHistoryProvider(), Memory()]
    agent = agent_of(client, EventctxAgents(engine), context_providers=providers, tools=[read])
    await agent.run("First?", session=session)
    await agent.run("Second?", session=session)
    assert sent(client) == [
        ["memory 1", "First?"],
        ["First?", "One.", "memory 2", "Second?"],
        ["First?", "One.", "memory 2", "Second?", "assistant", "tool"],
    ]
    assert (await texts(engine))[:3] == ["First?", "One.", "Second?"]
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 1)] * 3


async def test_a_content_that_was_changed_in_its_place_is_read_again(engine: Engine) -> None:
    class Redacts(ChatMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            if len(context.messages) > 1:
                context.messages[0].contents[0].text = "[redacted]"
            await call_next()

    client, session = script("One.", "Two."), AgentSession(session_id="s")
    ours = EventctxAgents(engine)
    agent = agent_of(client, ours, middleware=[Redacts(), *ours.middleware])
    await agent.run("Secret?", session=session)
    await agent.run("Second?", session=session)
    assert sent(client)[-1] == ["[redacted]", "One.", "Second?"]
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 0), (1, 1)]


@HOW
async def test_a_compaction_of_the_framework_is_recorded_not_fought(
    engine: Engine, stream: bool
) -> None:
    client, session = script("One.", "Two.", "Three."), AgentSession(session_id="s")
    window = SlidingWindowStrategy(keep_last_groups=1)
    agent = agent_of(client, EventctxAgents(engine), compaction_strategy=window)
    for number in range(3):
        await ask(agent, f"Question {number}?", session, stream)
    assert sent(client) == [["Question 0?"], ["Question 1?"], ["Question 2?"]]
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 0), (2, 0), (4, 0)]
    assert (await texts(engine))[-2:] == ["Question 2?", "Three."]
    assert await count(engine, "context:messages_set") == [0]


@HOW
async def test_a_conversation_on_a_server_is_observed_and_never_compacted(
    engine: Engine, stream: bool
) -> None:
    client, session = script(reads(1), "One.", "Two."), AgentSession(session_id="s")
    client.conversation = "conversation_1"
    agent = agent_of(
        client,
        EventctxAgents(engine, max_tokens=500, reserve_tokens=0),
        tools=[read],
        default_options={"store": True},
    )
    await ask(agent, "Again?", session, stream)
    await ask(agent, "Again?", session, stream)
    assert sent(client) == [["Again?"], ["tool"], ["Again?"]]
    assert await texts(engine) == ["Again?", "tool_use", "tool_result", "One.", "Again?", "Two."]
    assert await count(engine, "context:post_compact", "context:messages_set") == [0, 0]
    views = [
        await engine.request_view("s", position=one.position)
        for one in (await engine.audit("s")).requests
    ]
    assert [len(one.messages) for one in views] == [1, 1, 1]
    assert all(one.verified and one.known == "observed" for one in views)


@HOW
async def test_our_history_for_each_call_is_the_view(engine: Engine, stream: bool) -> None:
    client, session = script(reads(1), "One.", reads(2), "Two."), AgentSession(session_id="s")
    ours = EventctxAgents(engine, max_tokens=1_400, reserve_tokens=0)
    agent = agent_of(
        client,
        ours,
        tools=[read],
        context_providers=[ours.history],
        require_per_service_call_history_persistence=True,
    )
    await ask(agent, "Again?", session, stream)
    await ask(agent, "Again?", session, stream)
    round_ = ["assistant", "tool"]
    assert sent(client) == [
        ["Again?"],
        ["Again?", *round_],
        ["Again?", *round_, "One.", "Again?"],
        ["Again?", "One.", "Again?", *round_],
    ]
    read_once = ["Again?", "tool_use", "tool_result"]
    assert await texts(engine) == [*read_once, "One.", *read_once, "Two."]
    assert len(await ours.history.get_messages("s")) == 8
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 0)] * 4


async def test_an_answer_that_a_middleware_changed_is_the_one_that_stays(engine: Engine) -> None:
    class Redacts(AgentMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            await call_next()
            context.result.messages[-1].contents = [Content.from_text("[redacted]")]

    client, session = script("Secret.", "Yes."), AgentSession(session_id="s")
    ours = EventctxAgents(engine)
    agent = agent_of(client, ours, middleware=[*ours.middleware, Redacts()])
    await agent.run("First?", session=session)
    assert await texts(engine) == ["First?", "[redacted]"]


# -- rows ------------------------------------------------------------------------------------------


async def test_every_kind_of_content_comes_back_from_its_row() -> None:
    call = Content.from_function_call("c", "look", arguments={"at": "attic"})
    image = "data:image/png;base64,iVBORw0KGgo="
    contents = [
        Content.from_text("Hm.", annotations=[{"type": "citation", "title": "t"}]),
        Content.from_text_reasoning(text="Hm.", protected_data="sealed"),
        Content.from_text_reasoning(protected_data="sealed alone"),
        Content.from_uri(image, media_type="image/png"),
        Content.from_data(b"words", media_type="text/plain"),
        Content.from_uri("https://example.org/a.pdf", media_type="application/pdf"),
        Content.from_error(message="broken", error_code="500"),
        call,
        Content.from_function_result("c", result=[Content.from_text("a"), call]),
        Content.from_function_approval_request("r", call),
        Content.from_function_approval_response(True, "r", call),
        Content.from_usage({"input_token_count": 3}),
        Content.from_hosted_file("file_1"),
        Content.from_hosted_vector_store("store_1"),
        Content.from_mcp_server_tool_call("m", "search", server_name="wiki", arguments={"q": 1}),
        Content.from_mcp_server_tool_result("m", output=[Content.from_text("found")]),
        Content.from_code_interpreter_tool_call(call_id="i", inputs=[Content.from_text("1+1")]),
        Content.from_code_interpreter_tool_result(call_id="i", outputs=[Content.from_text("2")]),
        Content.from_shell_tool_call(call_id="h", commands=["ls"]),
    ]
    given = Message(
        "assistant", contents, author_name="bob", additional_properties={"a": 1, "_b": 2}
    )
    (row,) = rows_of([given])
    (back,) = messages_of([decode_body(encode_plain(row))])
    assert [one.to_dict() for one in back.contents] == [one.to_dict() for one in contents]
    assert (back.role, back.author_name, back.additional_properties) == (
        "assistant",
        "bob",
        {"a": 1},
    )
    kinds = {part.type: part.kind for part in read_parts(row)}
    assert kinds["thinking"] == "thinking"
    assert kinds["image_url"] == "image"
    assert kinds["mcp_server_tool_result"] == "hosted"


# -- items of the Responses API -------------------------------------------------------------------


def reasoned() -> Message:
    """An answer as the client of the Responses API makes it, and keeps it with ``store=False``."""
    ids = {"openai": {"item_id": "fc_1", "other": 1}, "fc_id": "fc_1", "status": "completed"}
    return Message(
        "assistant",
        [
            Content.from_text_reasoning(id="rs_1", text="Read it.", protected_data="c2VhbGVk"),
            Content.from_function_call(
                "call_1", "read", arguments="{}", additional_properties=dict(ids)
            ),
        ],
    )


def test_a_call_whose_reasoning_the_view_leaves_out_goes_without_the_id_of_its_item() -> None:
    (row,) = rows_of([reasoned()])
    (made,) = messages_of([{**row, "content": row["content"][1:]}])
    assert made.contents[0].additional_properties == {
        "openai": {"other": 1},
        "status": "completed",
    }
    assert made.contents[0].call_id == "call_1"


async def test_a_list_that_was_cut_in_its_middle_is_no_conversation_that_went_back(
    engine: Engine,
) -> None:
    class KeepsEnds(ChatMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            context.messages = [*context.messages[:1], *context.messages[1:][-2:]]
            await call_next()

    client, session = script("One.", "Two.", "Three."), AgentSession(session_id="s")
    ours = EventctxAgents(engine)
    agent = agent_of(client, ours, middleware=[KeepsEnds(), *ours.middleware])
    for text in ("First?", "Second?", "Third?"):
        await agent.run(text, session=session)
    assert sent(client)[-1] == ["First?", "Two.", "Third?"]
    assert await count(engine, "context:messages_set") == [0]
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 0), (0, 0), (2, 0)]
