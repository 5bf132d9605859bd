"""Messages of Microsoft Agent Framework as rows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest.importorskip("agent_framework", reason="an extra: eventctx[agent-framework]")

from agent_framework import (
    AgentSession,
    Content,
    Message,
)

import eventctx
from eventctx.adapters.agent_framework import EventctxAgents
from eventctx.adapters.agent_framework.rows import (
    KnownContents,
    messages_of,
    rows_of,
)
from eventctx.engine import Engine
from eventctx.messages.encoding import decode_body, encode_plain
from eventctx.messages.parts import read_parts
from tests.adapters.drivers.agent_framework_runs import (
    agent_of,
    read,
    reads,
    script,
)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with eventctx.open("memory://") as opened:
        yield opened


async def test_messages_that_the_view_shows_whole_are_the_frameworks_own(engine: Engine) -> None:
    client, session = script(reads(1), "Read."), AgentSession(session_id="s")
    agent = agent_of(client, EventctxAgents(engine), tools=[read])
    mine = Message("user", [Content.from_text("Read.", raw_representation=object())])
    await agent.run(mine, session=session)
    for messages, _ in client.seen:
        assert messages[0].contents[0] is mine.contents[0]


async def test_what_the_framework_adds_behind_an_answer_is_in_no_row(engine: Engine) -> None:
    client, session = script(reads(1), "Read."), AgentSession(session_id="s")
    agent = agent_of(client, EventctxAgents(engine), tools=[read])
    await agent.run("Read page 1.", session=session)
    held = session.state["in_memory"]["messages"]
    assert [one.author_name for one in held] == [None, "agent", "agent", "agent"]
    assert held[1].contents[0].id is not None
    known = KnownContents()
    known.agent = "agent"
    rows = [one.message for one in await engine.transcript("s")]
    assert known.of(held) == rows


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


def test_a_call_with_its_reasoning_keeps_the_id_of_its_item() -> None:
    (row,) = rows_of([reasoned()])
    (made,) = messages_of([row])
    assert [one.to_dict() for one in made.contents] == [
        one.to_dict() for one in reasoned().contents
    ]
