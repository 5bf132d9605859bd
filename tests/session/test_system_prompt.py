"""A host's system prompt: before every view, in no transcript, recorded when it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from tests.session.given import opened, prove, texts
from tests.sessions import model as answer
from tests.sessions import names, user

FROM_HOOK = {"role": "system", "content": "a hook's", "metadata": {"source": "hook"}}
STORED = {"role": "system", "content": "stored"}
DEVELOPER = {"role": "developer", "content": "for developers"}


async def derive(engine: Engine, *sent: list[dict[str, Any]]) -> None:
    """These are the requests that the log gives."""
    requests = (await engine.audit("s")).requests
    for row, rows in zip(requests, sent, strict=True):
        assert (await engine.request_view("s", position=row.position)).messages == rows
    await prove(engine)


async def test_prompt_and_memory_stand_before_everything_and_in_no_transcript() -> None:
    _, ctx = await opened(STORED, user("a"))
    assert await ctx.set_memory(["[Context from A]", "[Context from B]"]) is True
    assert await ctx.set_system_prompt("You help.") is True
    sent = await ctx.get_messages_for_request()
    rows = ["You help.", "[Context from A]", "[Context from B]", "stored", "a"]
    assert texts(sent) == rows
    assert {one["role"] for one in sent[:4]} == {"system"}
    assert texts(await ctx.get_messages()) == ["stored", "a"]


async def test_another_text_is_a_recorded_break_and_earlier_requests_still_derive() -> None:
    engine, ctx = await opened(user("a"))
    sent = []
    for prompt in ("one", "two", None):
        await ctx.set_system_prompt(prompt)
        sent.append(await ctx.get_messages_for_request())
    assert [texts(rows) for rows in sent] == [["one", "a"], ["two", "a"], ["a"]]
    breaks = [row.breaks for row in (await engine.audit("s")).requests]
    assert breaks == [(), ("insertion",), ("insertion",)]
    await derive(engine, *sent)


@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("policy", ["ladder", "truncate"])
async def test_prompt_and_memory_stay_through_compactions_and_what_it_replaces_costs_nothing(
    policy: str, replaces: bool
) -> None:
    stored = [{"role": "system", "content": "stored " * 4_000}] if replaces else []
    engine, ctx = await opened(*stored, policy=policy, max_tokens=2_000)
    prompt = "You help. " * 50
    await ctx.set_memory(["A", "B"])
    for number in range(30):
        rows = [user(f"question {number} " * 20), answer(f"answer {number} " * 20)]
        await ctx.add_messages(rows)
        await ctx.set_system_prompt(prompt, replaces_stored=replaces)
        sent = await ctx.get_messages_for_request()
        assert texts(sent)[:3] == [prompt, "A", "B"]
        assert not any("stored" in text for text in texts(sent))
        assert await ctx.get_token_count() <= 2_000
    assert any(row.outcome == "applied" for row in (await engine.audit("s")).compactions)
    await prove(engine)


async def test_a_compaction_that_could_only_drop_it_is_skipped_an_overflow_names_it() -> None:
    _, ctx = await opened(user("a"), max_tokens=500)
    await ctx.set_system_prompt("You help.")
    assert (await ctx.compact()).outcome == "skipped"
    await ctx.set_system_prompt("You help. " * 1_000)
    with pytest.raises(eventctx.ContextOverflow, match="the host's system prompt"):
        await ctx.get_messages_for_request()


MODEL = "claude-sonnet-5-5"  # it checks what its thinking was made after


async def test_thinking_signed_behind_another_prompt_is_left_out() -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
    done = {"type": "tool_result", "tool_use_id": "c1", "content": "ok"}
    _, ctx = await opened()
    await ctx.set_system_prompt("one")
    for role, content in (("user", "a"), ("assistant", [block, call]), ("user", [done])):
        await ctx.add_message({"role": role, "content": content})
    assert block in (await ctx.get_messages_for_request(model=MODEL))[2]["content"]
    await ctx.set_system_prompt("two")
    assert (await ctx.get_messages_for_request(model=MODEL))[2]["content"] == [call]


async def test_it_takes_the_place_of_stored_system_messages_but_for_a_hook_s() -> None:
    rows = [STORED, user("a"), FROM_HOOK, DEVELOPER, answer("b"), STORED, user("c")]
    engine, ctx = await opened(*rows)
    await ctx.set_system_prompt("You help.", replaces_stored=True)
    first = await ctx.get_messages_for_request()
    assert texts(first) == ["You help.", "a", "a hook's", "for developers", "b", "c"]
    assert await ctx.get_messages() == rows
    (row,) = (await engine.audit("s")).requests
    assert (row.counts.kept, row.counts.omitted) == (5, 2)
    # Without it they are in their places again.
    await ctx.set_system_prompt(None, replaces_stored=True)
    assert await ctx.get_messages_for_request() == rows
    await derive(engine, first, rows)
    # One that is pinned is not replaced.
    await ctx.set_system_prompt("You help.", replaces_stored=True)
    await ctx.pin(0)
    assert texts(await ctx.get_messages_for_request())[:3] == ["You help.", "stored", "a"]
    assert await ctx.set_system_prompt("You help.", replaces_stored=True) is False


async def test_a_system_message_that_comes_later_is_replaced_before_the_next_request() -> None:
    engine, ctx = await opened()
    for number in range(3):
        await ctx.add_message(user(str(number)))
        changed = await ctx.set_system_prompt("You help.", replaces_stored=True)
        assert changed is (number == 0)
        assert texts(await ctx.get_messages_for_request())[0] == "You help."
    await ctx.add_message(STORED)
    assert await ctx.set_system_prompt("You help.", replaces_stored=True) is True
    assert texts(await ctx.get_messages_for_request()) == ["You help.", "0", "1", "2"]
    assert (await names(engine)).count("context:system_prompt_set") == 2
    breaks = [row.breaks for row in (await engine.audit("s")).requests]
    assert breaks == [(), (), (), ("insertion",)]
    await prove(engine)


async def test_what_it_replaces_stays_so_after_a_restart_set_fork_and_clear(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s")
        receipt = (await ctx.add_messages([STORED, FROM_HOOK, user("a")]))[-1]
        await ctx.set_system_prompt("You help.", replaces_stored=True)
    for _ in range(2):
        async with eventctx.open(path) as engine:
            ctx = await engine.session("s")
            assert await ctx.set_system_prompt("You help.", replaces_stored=True) is False
            assert texts(await ctx.get_messages_for_request()) == ["You help.", "a hook's", "a"]
            await ctx.set_messages(await ctx.get_messages())
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s")
        await ctx.set_messages([STORED, user("b")])
        assert texts(await ctx.get_messages_for_request()) == ["You help.", "b"]
        await engine.fork("s", receipt.position + 1, "branch")
        branch = await engine.session("branch")
        assert texts(await branch.get_messages_for_request()) == ["You help.", "a hook's", "a"]
        await ctx.clear()
        await ctx.add_message(STORED)
        await ctx.set_system_prompt("You help.", replaces_stored=True)
        assert texts(await ctx.get_messages_for_request()) == ["You help."]
        await prove(engine)


async def test_why_and_diff_name_the_prompt_that_took_the_place_of_a_message() -> None:
    engine, ctx = await opened(STORED, user("a"))
    for prompt in (None, "You help.", None):
        async with ctx.turn():
            await ctx.set_system_prompt(prompt, replaces_stored=prompt is not None)
            await ctx.get_messages_for_request()
    why = await engine.why("s", 0, turn=2)
    assert why.ruling is not None
    assert (why.standing, why.ruling.cause.type) == ("replaced", "context:system_prompt_set")
    for turn, kind in ((2, "replaced"), (3, "restored")):
        found = (await engine.diff("s", turn - 1, turn)).differences
        assert [(one.number, one.kind) for one in found] == [(0, kind)]
    assert (await engine.why("s", 0, turn=3)).standing == "whole"


async def test_prompt_and_memory_change_apart_and_each_change_is_recorded_once() -> None:
    engine, ctx = await opened()
    wrong: list[Any] = ["a text", None, [1], [None], {"A": 1}]
    for one in wrong:
        with pytest.raises(eventctx.InvalidSetting, match="expected a list of texts"):
            await ctx.set_memory(one)
    assert await ctx.memory() == ()
    await ctx.set_memory(["A", "B"])
    assert await ctx.set_memory(["A", "B"]) is False
    await ctx.set_system_prompt("one")
    assert await ctx.set_system_prompt("one") is False
    await ctx.set_memory(["C"])
    assert await ctx.memory() == ("C",)
    await ctx.set_system_prompt("two")
    assert texts(await ctx.get_messages_for_request()) == ["two", "C"]
    await ctx.set_system_prompt(None)
    await ctx.add_message(user("a"))
    assert texts(await ctx.get_messages_for_request()) == ["C", "a"]
    await ctx.set_memory([])
    assert await ctx.memory() == ()
    assert texts(await ctx.get_messages_for_request()) == ["a"]
    assert (await names(engine)).count("context:system_prompt_set") == 6
    assert (await engine.verify("s")).ok


async def test_diff_names_the_row_that_changed_and_not_those_recorded_with_it() -> None:
    engine, ctx = await opened()
    await ctx.set_system_prompt("You help.")
    for memory in (["tabs", "one more"], ["spaces", "one more"]):
        async with ctx.turn():
            await ctx.add_message(user("a"))
            await ctx.set_memory(memory)
            await ctx.get_messages_for_request()
    found = await engine.diff("s", 1, 2)
    assert [one.message and one.message["content"] for one in found.went] == ["tabs"]
    assert [one.message and one.message["content"] for one in found.came] == ["spaces"]


async def test_memory_is_there_after_a_clear_a_restart_and_a_fork(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s")
        await ctx.set_system_prompt("You help.")
        await ctx.set_memory(["A", "B"])
        await ctx.clear()
        receipt = await ctx.add_message(user("again"))
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s")
        assert await ctx.set_memory(["A", "B"]) is False
        assert await ctx.set_system_prompt("You help.") is False
        await engine.fork("s", receipt.position, "branch")
        branch = await engine.session("branch")
        assert await branch.set_memory(["A", "B"]) is False
        sent = await branch.get_messages_for_request()
        assert texts(sent) == ["You help.", "A", "B", "again"]
        assert (await engine.verify("branch")).ok
