"""Agents of Microsoft Agent Framework with our middleware: runs, tools, lists, and rows."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agent_framework", reason="an extra: eventctx[agent-framework]")

from agent_framework import (
    Agent,
    AgentMiddleware,
    AgentSession,
    ChatMiddleware,
    Content,
    ContextProvider,
    FunctionMiddleware,
    InMemoryHistoryProvider,
    Message,
    MiddlewareTermination,
    SlidingWindowStrategy,
    UserInputRequiredException,
    tool,
)

import eventctx
from eventctx.adapters.agent_framework import EventctxAgents
from eventctx.adapters.agent_framework.rows import messages_of, rows_of
from eventctx.engine import Engine
from eventctx.messages.encoding import decode_body, encode_plain
from eventctx.messages.parts import read_parts
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import AdapterContract, Reply
from tests.adapters.drivers.agent_framework import (
    HOW,
    AgentFrameworkDriver,
    agent_of,
    read,
    reads,
    script,
    sent,
    talk,
    texts,
)
from tests.adapters.drivers.base import KNOWN
from tests.adapters.logs import audited, count, links, names, payloads


class TestTheContract(AdapterContract):
    driver = AgentFrameworkDriver
    knows = KNOWN["Microsoft Agent Framework"]


async def test_runs_that_failed_are_forgotten_as_the_framework_does(engine: Engine) -> None:
    session, unplugged = AgentSession(session_id="s"), OSError("unplugged")
    client = script(unplugged, "One.", reads(1), unplugged, "Three.", "Four.")
    agent = agent_of(client, EventctxAgents(engine), tools=[read])
    for run in (["Anybody?"], ["First?", "Second?"]):
        with pytest.raises(OSError, match="unplugged"):
            await talk(agent, *run, session=session)
    again = agent_of(client, EventctxAgents(engine), tools=[read])  # as another process would
    await talk(again, "Third?", "Fourth?", session=session)
    whole = ["First?", "One.", "Third?", "Three.", "Fourth?", "Four."]
    assert await texts(engine) == whole
    assert len(session.state["in_memory"]["messages"]) == len(whole)  # it stays its own
    assert (sent(client)[:2], sent(client)[-1]) == ([["Anybody?"], ["First?"]], whole[:-1])
    assert not any("agent_framework" in one.message for one in await engine.transcript("s"))
    assert await count(engine, "context:messages_set", "context:request_sent") == [2, 0]


@pytest.mark.parametrize("shared", [False, True])
async def test_an_agent_as_a_tool_has_a_linked_session_a_call(engine: Engine, shared: bool) -> None:
    ours = EventctxAgents(engine)
    helper = agent_of(script("Helped.", "Again."), ours, name="helper")
    asks = [ToolRequest(f"c{n}", "helper", {"task": f"Help {n}."}) for n in (1, 2)]
    as_tool = helper.as_tool(propagate_session=shared)
    leader = agent_of(script(Reply(calls=asks), "Done."), ours, name="leader", tools=[as_tool])
    await talk(leader, "Lead.")
    assert await texts(engine) == ["Lead.", "tool_use", "tool_result", "Done."]
    assert await count(engine, "session:linked") == [2]
    helped = [one for one in await names(engine) if one != "s"]
    assert helped == ["s.helper", "s.helper.c2"] or not shared
    # After what the framework's session holds by then, where it is shared.
    told = [(await texts(engine, one))[-2:] for one in helped]
    assert sorted(told) == [["Help 1.", "Helped."], ["Help 2.", "Again."]]
    assert sorted([await links(engine, one) for one in helped]) == [[("s", "c1")], [("s", "c2")]]
    for session in helped:
        assert await count(engine, "context:messages_set", session=session) == [0]


async def test_a_tool_that_waits_for_a_person_did_not_fail(engine: Engine) -> None:
    asks = Content.from_oauth_consent_request("https://example.org/consent")

    def look(place: str) -> str:
        raise UserInputRequiredException(contents=[asks])

    call = ToolRequest("c", "look", {"place": "attic"})
    await talk(agent_of(script(Reply(calls=[call])), EventctxAgents(engine), tools=[look]), "Look.")
    assert [one["status"] for one in await payloads(engine, "tool:error")] == ["cancelled"]


async def test_a_call_that_waits_for_approval_goes_on_when_it_has_it(engine: Engine) -> None:
    @tool(approval_mode="always_require")
    def look(place: str) -> str:
        return f"{place} seen"

    call = ToolRequest("c", "look", {"place": "attic"})
    client, session = script(Reply(calls=[call]), "Seen.", "Yes."), AgentSession(session_id="s")
    agent = agent_of(client, EventctxAgents(engine), tools=[look])
    (request,) = (await agent.run("Look.", session=session)).user_input_requests
    approval = Message("user", [request.to_function_approval_response(approved=True)])
    await talk(agent, approval, "Really?", session=session)
    looked = ["Look.", "tool_use", "tool_result", "Seen."]
    assert await texts(engine) == [*looked, "Really?", "Yes."]
    assert await audited(engine) == [(0, 0)] * 3


async def test_a_middleware_may_answer_in_the_tools_place(engine: Engine) -> None:
    class Cached(FunctionMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            context.result = "cached"
            raise MiddlewareTermination(result="cached")

    client, ours = script(reads(1), "Never asked."), EventctxAgents(engine)
    agent = agent_of(client, ours, tools=[read], middleware=[*ours.middleware, Cached()])
    session = await talk(agent, "Read.")
    assert await texts(engine) == ["Read.", "tool_use", "tool_result"]
    assert await count(engine, "tool:pre", "tool:post", "tool:error") == [1, 1, 0]
    await talk(agent, "Now?", session=session)
    assert sent(client)[1] == ["Read.", "assistant", "tool", "Now?"]
    assert await audited(engine) == [(0, 0)] * 2


async def test_a_stream_that_nobody_reads_to_its_end_is_a_cancelled_turn(engine: Engine) -> None:
    class Behind(ChatMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            await call_next()
            context.result.with_cleanup_hook(lambda: closed.append("closed"))

    closed: list[str] = []
    ours = EventctxAgents(engine)
    agent = agent_of(script("A long answer."), ours, middleware=[*ours.middleware, Behind()])
    running = agent.run("Tell.", session=AgentSession(session_id="s"), stream=True)
    async for _ in running:
        break
    await running.close()
    assert closed == ["closed"]
    assert [one["status"] for one in await payloads(engine, "prompt:complete")] == ["cancelled"]


def test_one_bundle_keeps_all_runs_in_one_session_of_its_store(tmp_path: Path) -> None:
    async def asked() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the framework calls the class experimental
            ours = EventctxAgents(tmp_path / "agents.db", "s")
            both: Any = {"middleware": [ours.bundle], "context_providers": [ours.history]}
        for text, said in (("First?", "One."), ("Second?", "Two.")):
            await Agent(script(said), **both).run(text)
        ours.close()
        async with eventctx.open(tmp_path / "agents.db") as engine:
            assert await texts(engine) == ["First?", "One.", "Second?", "Two."]

    asyncio.run(asked())


async def test_the_history_alone_stores_the_conversation(engine: Engine) -> None:
    client = script("One.", "Two.")
    ours = EventctxAgents(engine)
    await talk(Agent(client, context_providers=[ours.history]), "First?", "Second?")
    assert sent(client)[1] == ["First?", "One.", "Second?"]
    assert await texts(engine) == ["First?", "One.", "Second?", "Two."]


# -- lists that are not the conversation -----------------------------------------------------------


async def test_what_a_context_provider_adds_is_in_the_request_alone(engine: Engine) -> None:
    class Memory(ContextProvider):
        number = 0

        async def before_run(self, *, context: Any, **more: Any) -> None:
            self.number += 1
            context.extend_messages(self, [Message("user", [f"memory {self.number}"])])

    client, providers = script("One.", reads(1), "Two."), [InMemoryHistoryProvider(), Memory("m")]
    agent = agent_of(client, EventctxAgents(engine), context_providers=providers, tools=[read])
    await talk(agent, "First?", "Second?")
    second = ["First?", "One.", "memory 2", "Second?"]
    assert sent(client) == [["memory 1", "First?"], second, [*second, "assistant", "tool"]]
    assert (await texts(engine))[:3] == ["First?", "One.", "Second?"]
    assert await audited(engine) == [(0, 1)] * 3
    assert await count(engine, "context:messages_set") == [0]


def redacts(messages: list[Message]) -> list[Message]:
    if len(messages) > 1:
        messages[0].contents[0].text = "[redacted]"
    return messages


@pytest.mark.parametrize(
    ("changes", "last", "audit"),
    [
        (redacts, ["[redacted]", "One.", "b?", "Two.", "c?"], [(0, 0), (1, 1), (1, 1)]),
        (lambda all_: [*all_[:1], *all_[1:][-2:]], ["a?", "Two.", "c?"], [(0, 0), (0, 0), (2, 0)]),
    ],
    ids=["changed in its place", "cut in its middle"],
)
async def test_a_list_that_a_middleware_changed_is_no_conversation_that_went_back(
    engine: Engine, changes: Callable[[Any], Any], last: list[str], audit: list[tuple[int, int]]
) -> None:
    class Changes(ChatMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            context.messages = changes(context.messages)
            await call_next()

    client, ours = script("One.", "Two.", "Three."), EventctxAgents(engine)
    await talk(agent_of(client, ours, middleware=[Changes(), *ours.middleware]), "a?", "b?", "c?")
    assert sent(client)[-1] == last
    assert await audited(engine) == audit
    assert await count(engine, "context:messages_set") == [0]


@HOW
async def test_the_frameworks_compaction_is_recorded_as_it_is(engine: Engine, stream: bool) -> None:
    client, window = script("One.", "Two.", "Three."), SlidingWindowStrategy(keep_last_groups=1)
    agent = agent_of(client, EventctxAgents(engine), compaction_strategy=window)
    await talk(agent, "a?", "b?", "c?", stream=stream)
    assert sent(client) == [["a?"], ["b?"], ["c?"]]
    assert await audited(engine) == [(0, 0), (2, 0), (4, 0)]
    assert (await texts(engine))[-2:] == ["c?", "Three."]
    assert await count(engine, "context:messages_set") == [0]


@HOW
async def test_a_conversation_on_a_server_is_never_compacted(engine: Engine, stream: bool) -> None:
    client = script(reads(1), "One.", "Two.")
    client.conversation = "conversation_1"
    ours = EventctxAgents(engine, max_tokens=500, reserve_tokens=0)
    agent = agent_of(client, ours, tools=[read], default_options={"store": True})
    await talk(agent, "Again?", "Again?", stream=stream)
    assert sent(client) == [["Again?"], ["tool"], ["Again?"]]
    assert await texts(engine) == ["Again?", "tool_use", "tool_result", "One.", "Again?", "Two."]
    assert await count(engine, "context:post_compact", "context:messages_set") == [0, 0]
    for one in (await engine.audit("s")).requests:
        view = await engine.request_view("s", position=one.position)
        assert (view.verified, view.known, len(view.messages)) == (True, "observed", 1)


@HOW
async def test_our_history_for_each_call_is_the_view(engine: Engine, stream: bool) -> None:
    client = script(reads(1), "One.", reads(2), "Two.")
    ours = EventctxAgents(engine, max_tokens=1_400, reserve_tokens=0)
    each_call: Any = {"require_per_service_call_history_persistence": True}
    agent = agent_of(client, ours, tools=[read], context_providers=[ours.history], **each_call)
    await talk(agent, "Again?", "Again?", stream=stream)
    asked, round_ = "Again?", ["assistant", "tool"]
    both = [[asked, *round_, "One.", asked], [asked, "One.", asked, *round_]]
    assert sent(client) == [[asked], [asked, *round_], *both]
    read_once = ["Again?", "tool_use", "tool_result"]
    assert await texts(engine) == [*read_once, "One.", *read_once, "Two."]
    assert len(await ours.history.get_messages("s")) == 8
    assert await audited(engine) == [(0, 0)] * 4


async def test_an_answer_that_a_middleware_changed_is_the_one_that_stays(engine: Engine) -> None:
    class Redacts(AgentMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            await call_next()
            context.result.messages[-1].contents = [Content.from_text("[redacted]")]

    ours = EventctxAgents(engine)
    await talk(agent_of(script("Secret."), ours, middleware=[*ours.middleware, Redacts()]), "a?")
    assert await texts(engine) == ["a?", "[redacted]"]


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
    beside = {"a": 1, "_b": 2}
    given = Message("assistant", contents, author_name="bob", additional_properties=beside)
    (row,) = rows_of([given])
    (back,) = messages_of([decode_body(encode_plain(row))])
    assert [one.to_dict() for one in back.contents] == [one.to_dict() for one in contents]
    assert (back.role, back.author_name) == ("assistant", "bob")
    assert back.additional_properties == {"a": 1}
    kinds = {part.type: part.kind for part in read_parts(row)}
    assert (kinds["thinking"], kinds["image_url"]) == ("thinking", "image")
    assert kinds["mcp_server_tool_result"] == "hosted"


def test_a_call_whose_reasoning_the_view_leaves_out_goes_without_the_id_of_its_item() -> None:
    """As the client of the Responses API makes an answer, and keeps it with ``store=False``."""
    ids = {"openai": {"item_id": "fc_1", "other": 1}, "fc_id": "fc_1", "status": "completed"}
    thought = Content.from_text_reasoning(id="rs_1", text="Read it.", protected_data="c2VhbGVk")
    call = Content.from_function_call("c", "read", arguments="{}", additional_properties=ids)
    (row,) = rows_of([Message("assistant", [thought, call])])
    (made,) = messages_of([{**row, "content": row["content"][1:]}])
    left = {"openai": {"other": 1}, "status": "completed"}
    assert (made.contents[0].call_id, made.contents[0].additional_properties) == ("c", left)
