"""Our store of Pydantic AI's conversations does what its own store in memory does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai.conversation_store", reason="an extra: eventctx[pydantic-ai]")

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.models.test import TestModel

import eventctx
from eventctx.adapters.pydantic_ai import EventctxConversations
from eventctx.engine import Engine
from tests.adapters.test_pydantic_ai import EVERY

Model: Any = TestModel
Model.__test__ = False


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


async def test_a_conversation_branches_and_the_branch_it_left_stays(
    store: ConversationStore,
) -> None:
    first = talk("a", "b")
    entries = await store.save(first)
    branched = await store.branch("c", at=1, expected_revision=first.revision)
    branched.messages.append(prompt("other"))
    await store.save(branched)
    assert said(await store.load("c")) == ["a", "other"]
    back = await store.branch("c", from_entry=entries[1].id, expected_revision=branched.revision)
    assert said(back) == ["a", "b"]
    with pytest.raises(UserError):
        await store.branch("c", from_entry="none", expected_revision=back.revision)


async def test_a_fork_shares_the_history_of_another_conversation(store: ConversationStore) -> None:
    await store.save(talk("a", "b", "c"))
    fork = await store.fork("c", at=2, new_conversation_id="d")
    fork.messages.append(prompt("other"))
    await store.save(fork)
    assert said(await store.load("d")) == ["a", "b", "other"]
    assert said(await store.load("c")) == ["a", "b", "c"]
    record = await store.read_record("d")
    assert record is not None
    assert record.forked_from == "c"
    first, second = await store.load_entries("c"), await store.load_entries("d")
    assert first is not None and second is not None
    assert [one.id for one in first[:2]] == [one.id for one in second[:2]]


async def test_who_saves_over_another_save_is_refused(store: ConversationStore) -> None:
    await store.save(talk("a"))
    one, other = await store.load("c"), await store.load("c")
    assert one is not None and other is not None
    one.messages.append(prompt("b"))
    await store.save(one)
    other.messages.append(prompt("c"))
    with pytest.raises(ConversationConflict):
        await store.save(other)
    with pytest.raises(ConversationConflict):
        await store.save(talk("d"))
    record = await store.read_record("c")
    assert record is not None
    with pytest.raises(ConversationConflict):
        await store.write_record(record, expected_revision="another")
    with pytest.raises(ConversationConflict):
        await store.delete_record("c", expected_revision="another")
    assert said(await store.load("c")) == ["a", "b"]


async def test_conversations_are_listed_by_scope_and_deleted(store: ConversationStore) -> None:
    for name, scope in (("a", "me"), ("b", "you"), ("c", "me")):
        await store.save(talk("hi", name=name), scope=scope)
    assert [one.conversation_id for one in await store.list_conversations()] == ["c", "b", "a"]
    mine = await store.list_conversations(scope="me", limit=1)
    assert [one.conversation_id for one in mine] == ["c"]
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
        assert loaded is not None and stale is not None
        loaded.messages.append(ModelResponse([TextPart("b")]))
        await theirs.save(loaded)
        mine = await ours.load("c")
        assert said(mine) == ["a", "b"]
        assert mine is not None
        mine.messages.append(prompt("c"))
        await ours.save(mine)
        with pytest.raises(ConversationConflict):
            await theirs.save(stale)
        fresh = EventctxConversations(beside)
        assert await fresh.read_entry(entry.id) == entry
        await theirs.delete("c")
        assert await ours.load("c") is None
        with pytest.raises(LookupError):
            await ours.read_entry(entry.id)
