"""Pydantic AI agents with our capability, and our store of its conversations."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai.conversation_store", reason="an extra: eventctx[pydantic-ai]")

from pydantic_ai import Agent, BinaryImage, ImageUrl, ModelRetry
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
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
from eventctx.adapters.pydantic_ai import Eventctx, EventctxConversations
from eventctx.adapters.pydantic_ai.rows import MessageRows, messages_of, rows_of
from eventctx.engine import Engine
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import read_parts
from eventctx.testing import AdapterContract
from tests.adapters.drivers.base import KNOWN
from tests.adapters.drivers.pydantic_ai import PASSING, PydanticDriver
from tests.adapters.logs import audited, count, links, names, types_of, views


class TestTheContract(AdapterContract):
    driver = PydanticDriver
    knows = KNOWN["Pydantic AI"]


def reads(*pages: int) -> ModelResponse:
    return ModelResponse([ToolCallPart("read", {"page": one}, f"call_{one}") for one in pages])


def says(text: str) -> ModelResponse:
    return ModelResponse([TextPart(text)], usage=RequestUsage(input_tokens=310, output_tokens=12))


def read(page: int) -> str:
    return f"page {page}: " + "x" * 1_500


class Scripted:
    """A model that answers by a script, and keeps what it received."""

    def __init__(self, *script: ModelResponse) -> None:
        self.script, self.tools = list(script), list[str]()
        self.seen: list[list[ModelMessage]] = []
        self.model = FunctionModel(self._answer)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.seen.append(list(messages))
        self.tools = [one.name for one in info.function_tools]
        return self.script.pop(0)


def agent_of(
    scripted: Scripted, ours: Eventctx, *others: Any, tools: Any = (read,)
) -> Agent[None, Any]:
    given = {"instructions": "Be brief.", "capabilities": [*others, ours]}
    return Agent(scripted.model, tools=list(tools), **given)


def shown(rows: list[dict[str, Any]]) -> list[Any]:
    """What a model is shown of rows: neighbours of a role are one message for every provider."""
    found: list[Any] = []
    for row in rows:
        content, kinds = row["content"], {"system": "system-prompt", "assistant": "text"}
        if isinstance(content, str):
            kind = kinds.get(row["role"], "user-prompt")
            content = [{"type": "text", "text": content, "part_kind": kind}]
        for one in content:
            block = {name: one[name] for name in one if name not in (*PASSING, "item_id")}
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
    scripted = Scripted(*map(says, "ABC"))
    agent = agent_of(scripted, Eventctx(engine))
    first = await agent.run("a", conversation_id="one")
    await agent.run("b", conversation_id="two")
    await agent.run("c", message_history=first.all_messages())
    a, b, c = received(scripted)
    assert await shown_views(engine, "one") == [a, c]
    assert await shown_views(engine, "two") == [b]


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
    scripted = Scripted(*[reads(page, page + 100) for page in range(8)], says("All read."))
    ours = Eventctx(path, "s", max_tokens=4_000, reserve_tokens=0)
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


async def test_what_a_history_processor_removes_is_an_event(engine: Engine) -> None:
    scripted, cuts = Scripted(*map(says, "ABC")), ProcessHistory[None](lambda all_: all_[-3:])
    agent = agent_of(scripted, Eventctx(engine, "s"), cuts)
    result = await agent.run("a")
    for text in "bc":
        result = await agent.run(text, message_history=result.all_messages())
    assert [len(one) for one in scripted.seen] == [1, 3, 3]
    assert await shown_views(engine) == received(scripted)
    assert await count(engine, "context:messages_set") == [1]
    assert [missing for missing, _ in await audited(engine)] == [0, 0, 0]


async def test_a_tool_that_asks_for_another_try_and_a_refused_output(engine: Engine) -> None:
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
    assert await count(engine, "tool:error", "tool:post", "context:messages_set") == [1, 1, 0]
    found, sent = await shown_views(engine), received(scripted)
    assert found[:3] == sent[:3]
    # The feedback reaches each model as its own API wants it, here as a prompt in a fence.
    assert found[3][:-1] == sent[3][:-1]
    assert all("Say yes." in one[3][-1][1] for one in (found, sent))


PICTURES = [BinaryImage(b"abc", media_type="image/png"), ImageUrl("http://x/y.png")]
SHOWN = UserPromptPart(["hi", TextContent("there", metadata={"a": 1}), *PICTURES])
ANSWERED = [
    *(ThinkingPart("t", signature="g", provider_name="p"), TextPart("x", id="item_1")),
    *(ToolCallPart("f", {"a": None}, "c1", id="item_2"), ToolCallPart("f", '{"a":2}', "c2")),
]
RETURNED = [
    ToolReturnPart("f", {"r": [1, 2]}, "c1", metadata={"z": 1}),
    ToolReturnPart("f", ["text", {"d": 1}], "c2", outcome="failed"),
    *(UserPromptPart("more"), UserPromptPart(["one"])),
]
EVERY: list[ModelMessage] = [
    ModelRequest([SystemPromptPart("s"), SHOWN], instructions="i", metadata={"b": 2}),
    ModelResponse(ANSWERED, usage=RequestUsage(input_tokens=3), model_name="m"),
    ModelRequest(RETURNED),
    ModelResponse([TextPart("y")]),
    ModelRequest([RetryFeedbackPart("again", retry=RetryInfo(cause="model_retry"))]),
]


def logged(rows: Any) -> Any:
    return json.loads(json.dumps(rows))


def test_every_message_comes_back_whole_and_as_the_same_object_where_it_is_known() -> None:
    rows = [row for one in rows_of(EVERY, whole=True) for row in one]
    assert messages_of(logged(rows)) == EVERY
    known = MessageRows()
    back = known.messages_of(logged(known.of(EVERY)))
    assert all(one is other for one, other in zip(back, EVERY, strict=True))


def test_what_a_view_shortened_inserted_and_left_out_goes_back_as_messages() -> None:
    known = MessageRows()
    rows = logged(known.of(EVERY))
    answered = next(at for at, row in enumerate(rows) if row["content"][0]["type"] == "tool_result")
    rows[answered]["content"][1]["content"] = "te…"
    rows.insert(answered, {"role": "user", "content": "A note."})
    *before, note, results = known.messages_of(rows)[:4]
    assert before == EVERY[:2]
    assert isinstance(note.parts[0], UserPromptPart) and note.parts[0].content == "A note."
    assert [type(one) for one in results.parts] == [type(one) for one in EVERY[2].parts]
    shortened: Any = results.parts[1]
    assert (shortened.content, shortened.outcome) == ("te…", "failed")
    # An answer without its reasoning goes without the ids of its items.
    rows = logged(known.of(EVERY))
    answer = next(row for row in rows if row["role"] == "assistant")
    assert answer["content"].pop(0)["type"] == "thinking"
    back = known.messages_of(rows)
    (made,) = [one for one in back if isinstance(one, ModelResponse) and len(one.parts) == 3]
    ids = [[getattr(part, name, None) for part in made.parts] for name in ("id", "tool_call_id")]
    assert ids == [[None] * 3, [None, "c1", "c2"]]


def test_what_the_framework_says_is_no_persons_and_a_failed_result_is_one() -> None:
    rows = [row for one in rows_of(EVERY) for row in one]
    human = [read_facts(row).human for row in rows]
    assert (human.count(True), human[-1]) == (2, False)
    results = [part for row in rows for part in read_parts(row) if part.kind == "result"]
    assert [one.failed for one in results] == [False, True]


@pytest.mark.parametrize(
    ("inner", "first", "second"),
    [("s", "s.a", "s.b"), ("helper", "helper", "helper.b")],
    ids=["in the session around them", "beside each other in a session of their own"],
)
async def test_each_run_inside_a_tool_has_a_linked_session_to_itself(
    engine: Engine, inner: str, first: str, second: str
) -> None:
    outer = Eventctx(engine, "s", recall=False)
    ours = outer if inner == "s" else Eventctx(engine, inner, recall=False)
    sub = agent_of(Scripted(says("one"), says("two")), ours, tools=())

    async def ask() -> str:
        return str((await sub.run("2+2?")).output)

    asks = ModelResponse([ToolCallPart("ask", {}, one) for one in "ab"])
    main = agent_of(Scripted(asks, says("done")), outer, tools=[ask])
    assert (await main.run("Hi.")).output == "done"
    assert await names(engine) == sorted(["s", first, second])
    assert sorted(await links(engine, "s")) == [(first, "a"), (second, "b")]
    for session, requests in (("s", 2), (first, 1), (second, 1)):
        assert len(await shown_views(engine, session)) == requests
        replaced = await count(engine, "context:messages_set", "tool:error", session=session)
        assert replaced == [0, 0]


# -- our store of conversations does what its own store in memory does -----------------------------


@pytest.fixture(params=["ours", "in memory"])
async def store(request: pytest.FixtureRequest, engine: Engine) -> ConversationStore:
    """Ours, and the one that says what is right: each test passes with both."""
    if request.param == "ours":
        return EventctxConversations(engine)
    return InMemoryConversationStore()


def prompt(text: str) -> ModelMessage:
    return ModelRequest.user_text_prompt(text)


def talk(*texts: str, name: str = "c") -> Conversation:
    return Conversation(messages=[prompt(one) for one in texts], conversation_id=name)


def said(conversation: Conversation | None) -> list[str]:
    assert conversation is not None
    return [getattr(one.parts[0], "content", "") for one in conversation.messages]


async def grow(store: Any, conversation: Any, text: str) -> None:
    conversation.messages.append(prompt(text))
    await store.save(conversation)


async def test_a_conversation_comes_back_whole(store: ConversationStore) -> None:
    assert await store.load("c") is None
    saved = Conversation(messages=list(EVERY), conversation_id="c")
    saved.usage.requests = 3
    entries = await store.save(saved, scope="me")
    loaded = await store.load("c")
    assert loaded == saved
    assert [one.id for one in await store.load_entries("c") or []] == [one.id for one in entries]
    assert await store.load("c", scope="somebody") is None
    assert said(await store.load("c", limit=1)) == ["again"]


async def test_a_conversation_branches_and_the_branch_left_stays(store: ConversationStore) -> None:
    first = talk("a", "b")
    entries = await store.save(first)
    branched = await store.branch("c", at=1, expected_revision=first.revision)
    await grow(store, branched, "other")
    assert said(await store.load("c")) == ["a", "other"]
    back = await store.branch("c", from_entry=entries[1].id, expected_revision=branched.revision)
    assert said(back) == ["a", "b"]
    with pytest.raises(UserError):
        await store.branch("c", from_entry="none", expected_revision=back.revision)


async def test_a_fork_shares_the_history_of_another_conversation(store: ConversationStore) -> None:
    await store.save(talk("a", "b", "c"))
    fork = await store.fork("c", at=2, new_conversation_id="d")
    await grow(store, fork, "other")
    assert said(await store.load("d")) == ["a", "b", "other"]
    assert said(await store.load("c")) == ["a", "b", "c"]
    record = await store.read_record("d")
    assert record and record.forked_from == "c"
    first, second = [await store.load_entries(name) or [] for name in "cd"]
    assert [one.id for one in first[:2]] == [one.id for one in second[:2]] != []


async def test_who_saves_over_another_save_is_refused(store: ConversationStore) -> None:
    await store.save(talk("a"))
    one, other = await store.load("c"), await store.load("c")
    await grow(store, one, "b")
    record: Any = await store.read_record("c")
    for refused in (
        lambda: grow(store, other, "c"),
        lambda: store.save(talk("d")),
        lambda: store.write_record(record, expected_revision="another"),
        lambda: store.delete_record("c", expected_revision="another"),
    ):
        with pytest.raises(ConversationConflict):
            await refused()
    assert said(await store.load("c")) == ["a", "b"]


async def test_conversations_are_listed_by_scope_and_deleted(store: ConversationStore) -> None:
    for name, scope in (("a", "me"), ("b", "you"), ("c", "me")):
        await store.save(talk("hi", name=name), scope=scope)
    assert [one.conversation_id for one in await store.list_conversations()] == ["c", "b", "a"]
    (mine,) = await store.list_conversations(scope="me", limit=1)
    assert mine.conversation_id == "c"
    await store.delete("c", scope="you")
    assert await store.load("c") is not None
    await store.delete("c")
    assert await store.load("c") is None
    await store.save(talk("again", name="c"))
    assert said(await store.load("c")) == ["again"]


async def test_another_process_finds_what_one_saved_and_conflicts_with_it(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    async with eventctx.open(path) as engine, eventctx.open(path) as beside:
        ours, theirs = EventctxConversations(engine), EventctxConversations(beside)
        (entry,) = await ours.save(talk("a"))
        loaded, stale = await theirs.load("c"), await theirs.load("c")
        await grow(theirs, loaded, "b")
        mine = await ours.load("c")
        assert said(mine) == ["a", "b"]
        await grow(ours, mine, "c")
        with pytest.raises(ConversationConflict):
            await theirs.save(stale)
        fresh = EventctxConversations(beside)
        assert await fresh.read_entry(entry.id) == entry
        await theirs.delete("c")
        assert await ours.load("c") is None
        with pytest.raises(LookupError):
            await ours.read_entry(entry.id)
