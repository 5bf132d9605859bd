"""A host's system prompt: before every view, in no transcript, recorded when it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from tests.sessions import model as answer
from tests.sessions import user


async def prompts(engine: Engine, session: str = "s") -> int:
    records = [record async for record in engine.records(session)]
    return sum(record.type == "context:system_prompt_set" for record in records)


async def test_it_stands_before_everything_and_in_no_transcript() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.add_message({"role": "system", "content": "stored"})
        await ctx.add_message(user("a"))
        assert await ctx.set_system_prompt("You help.") is True
        sent = await ctx.get_messages_for_request()
        assert [one["content"] for one in sent] == ["You help.", "stored", "a"]
        assert [one["content"] for one in await ctx.get_messages()] == ["stored", "a"]


async def test_another_text_is_a_recorded_break_and_earlier_requests_still_derive() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.set_system_prompt("one")
        await ctx.add_message(user("a"))
        first = await ctx.get_messages_for_request()
        await ctx.set_system_prompt("two")
        second = await ctx.get_messages_for_request()
        await ctx.set_system_prompt(None)
        third = await ctx.get_messages_for_request()
        rows = (await engine.audit("s")).requests
        assert [row.breaks for row in rows] == [(), ("insertion",), ("insertion",)]
        for row, sent in zip(rows, (first, second, third), strict=True):
            view = await engine.request_view("s", position=row.position)
            assert view.verified
            assert view.messages == sent
        assert [one["content"] for one in first] == ["one", "a"]
        assert [one["content"] for one in second] == ["two", "a"]
        assert [one["content"] for one in third] == ["a"]


@pytest.mark.parametrize("policy", ["ladder", "truncate"])
async def test_it_stays_through_compactions_and_is_counted(policy: str) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", policy=policy, max_tokens=2_000)
        await ctx.set_system_prompt("You help. " * 50)
        for number in range(30):
            await ctx.add_message(user(f"question {number} " * 20))
            await ctx.add_message(answer(f"answer {number} " * 20))
            sent = await ctx.get_messages_for_request()
            assert sent[0] == {"role": "system", "content": "You help. " * 50}
            assert await ctx.get_token_count() <= 2_000
        audit = await engine.audit("s")
        assert any(row.outcome == "applied" for row in audit.compactions)
        for row in audit.requests:
            assert (await engine.request_view("s", position=row.position)).verified


async def test_a_compaction_that_could_only_take_it_out_is_skipped() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.set_system_prompt("You help.")
        await ctx.add_message(user("a"))
        assert (await ctx.compact()).outcome == "skipped"


async def test_an_overflow_names_it() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=500)
        await ctx.set_system_prompt("You help. " * 1_000)
        await ctx.add_message(user("a"))
        with pytest.raises(eventctx.ContextOverflow, match="the host's system prompt"):
            await ctx.get_messages_for_request()


MODEL = "claude-sonnet-5-5"  # it checks what its thinking was made after


async def test_thinking_signed_behind_another_prompt_is_left_out() -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.set_system_prompt("one")
        await ctx.add_message(user("a"))
        await ctx.add_message({"role": "assistant", "content": [block, call]})
        done = {"type": "tool_result", "tool_use_id": "c1", "content": "ok"}
        await ctx.add_message({"role": "user", "content": [done]})
        assert block in (await ctx.get_messages_for_request(model=MODEL))[2]["content"]
        await ctx.set_system_prompt("two")
        assert (await ctx.get_messages_for_request(model=MODEL))[2]["content"] == [call]


FROM_HOOK = {"role": "system", "content": "a hook's", "metadata": {"source": "hook"}}
STORED = {"role": "system", "content": "stored"}
DEVELOPER = {"role": "developer", "content": "for developers"}


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return [row["content"] for row in rows]


async def test_it_takes_the_place_of_stored_system_messages_but_for_a_hook_s() -> None:
    rows = [STORED, user("a"), FROM_HOOK, DEVELOPER, answer("b"), STORED, user("c")]
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        for row in rows:
            await ctx.add_message(row)
        await ctx.set_system_prompt("You help.", replaces_stored=True)
        sent = await ctx.get_messages_for_request()
        assert texts(sent) == ["You help.", "a", "a hook's", "for developers", "b", "c"]
        assert await ctx.get_messages() == rows
        (row,) = (await engine.audit("s")).requests
        assert (row.counts.kept, row.counts.omitted) == (5, 2)


async def test_a_system_message_that_comes_later_is_replaced_before_the_next_request() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        for number in range(3):
            await ctx.add_message(user(str(number)))
            changed = await ctx.set_system_prompt("You help.", replaces_stored=True)
            assert changed is (number == 0)
            assert texts(await ctx.get_messages_for_request())[0] == "You help."
        await ctx.add_message(STORED)
        assert await ctx.set_system_prompt("You help.", replaces_stored=True) is True
        assert texts(await ctx.get_messages_for_request()) == ["You help.", "0", "1", "2"]
        assert await prompts(engine) == 2
        requests = (await engine.audit("s")).requests
        assert [row.breaks for row in requests] == [(), (), (), ("insertion",)]
        for row in requests:
            assert (await engine.request_view("s", position=row.position)).verified


async def test_without_a_prompt_the_stored_system_messages_are_in_their_places_again() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        rows = [user("a"), STORED, answer("b")]
        for row in rows:
            await ctx.add_message(row)
        await ctx.set_system_prompt("You help.", replaces_stored=True)
        first = await ctx.get_messages_for_request()
        await ctx.set_system_prompt(None, replaces_stored=True)
        second = await ctx.get_messages_for_request()
        assert texts(first) == ["You help.", "a", "b"]
        assert second == rows
        requests = (await engine.audit("s")).requests
        for row, sent in zip(requests, (first, second), strict=True):
            view = await engine.request_view("s", position=row.position)
            assert view.verified
            assert view.messages == sent


async def test_what_it_replaces_stays_replaced_after_a_restart_a_set_a_fork_and_a_clear(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s")
        for row in (STORED, FROM_HOOK):
            await ctx.add_message(row)
        receipt = await ctx.add_message(user("a"))
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
        sent = await branch.get_messages_for_request()
        assert texts(sent) == ["You help.", "a hook's", "a"]
        await ctx.clear()
        await ctx.add_message(STORED)
        await ctx.set_system_prompt("You help.", replaces_stored=True)
        assert texts(await ctx.get_messages_for_request()) == ["You help."]
        assert (await engine.verify("s")).ok
        for row in (await engine.audit("s")).requests:
            assert (await engine.request_view("s", position=row.position)).verified


@pytest.mark.parametrize("policy", ["ladder", "truncate"])
async def test_what_it_replaces_costs_nothing_and_stays_through_compactions(policy: str) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", policy=policy, max_tokens=2_000)
        await ctx.add_message({"role": "system", "content": "stored " * 4_000})
        for number in range(40):
            await ctx.add_message(user(f"question {number} " * 20))
            await ctx.add_message(answer(f"answer {number} " * 20))
            await ctx.set_system_prompt("You help.", replaces_stored=True)
            sent = await ctx.get_messages_for_request()
            assert sent[0]["content"] == "You help."
            assert not any("stored" in row["content"] for row in sent)
            assert await ctx.get_token_count() <= 2_000
        audit = await engine.audit("s")
        assert any(row.outcome == "applied" for row in audit.compactions)
        for row in audit.requests:
            assert (await engine.request_view("s", position=row.position)).verified
        assert (await engine.verify("s")).ok


async def test_a_pinned_system_message_is_not_replaced() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        for row in (STORED, user("a")):
            await ctx.add_message(row)
        await ctx.set_system_prompt("You help.", replaces_stored=True)
        assert texts(await ctx.get_messages_for_request()) == ["You help.", "a"]
        await ctx.pin(0)
        assert texts(await ctx.get_messages_for_request()) == ["You help.", "stored", "a"]
        assert await ctx.set_system_prompt("You help.", replaces_stored=True) is False


async def test_why_and_diff_name_the_prompt_that_took_the_place_of_a_message() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        async with ctx.turn():
            for row in (STORED, user("a")):
                await ctx.add_message(row)
            await ctx.get_messages_for_request()
        async with ctx.turn():
            await ctx.set_system_prompt("You help.", replaces_stored=True)
            await ctx.get_messages_for_request()
        async with ctx.turn():
            await ctx.set_system_prompt(None)
            await ctx.get_messages_for_request()
        answer = await engine.why("s", 0, turn=2)
        assert answer.standing == "replaced"
        assert answer.ruling is not None
        assert answer.ruling.cause.type == "context:system_prompt_set"
        gone = (await engine.diff("s", 1, 2)).differences
        assert [(one.number, one.kind) for one in gone] == [(0, "replaced")]
        back = (await engine.diff("s", 2, 3)).differences
        assert [(one.number, one.kind) for one in back] == [(0, "restored")]
        assert (await engine.why("s", 0, turn=3)).standing == "whole"


# -- memory --------------------------------------------------------------------------------------


async def test_each_text_of_memory_is_a_row_of_its_own_behind_the_prompt() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.add_message({"role": "system", "content": "stored"})
        await ctx.add_message(user("a"))
        assert await ctx.set_memory(["[Context from A]", "[Context from B]"]) is True
        assert await ctx.set_system_prompt("You help.") is True
        sent = await ctx.get_messages_for_request()
        rows = ["You help.", "[Context from A]", "[Context from B]", "stored", "a"]
        assert [one["content"] for one in sent] == rows
        assert {one["role"] for one in sent[:3]} == {"system"}
        assert [one["content"] for one in await ctx.get_messages()] == ["stored", "a"]


async def test_prompt_and_memory_change_apart_and_each_change_is_recorded_once() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        assert await ctx.memory() == ()
        await ctx.set_memory(["A", "B"])
        assert await ctx.set_memory(["A", "B"]) is False
        await ctx.set_system_prompt("one")
        assert await ctx.set_system_prompt("one") is False
        await ctx.set_memory(["C"])
        assert await ctx.memory() == ("C",)
        await ctx.set_system_prompt("two")
        sent = await ctx.get_messages_for_request()
        assert [one["content"] for one in sent] == ["two", "C"]
        await ctx.set_system_prompt(None)
        await ctx.add_message(user("a"))
        sent = await ctx.get_messages_for_request()
        assert [one["content"] for one in sent] == ["C", "a"]
        await ctx.set_memory([])
        assert await ctx.memory() == ()
        sent = await ctx.get_messages_for_request()
        assert [one["content"] for one in sent] == ["a"]
        assert await prompts(engine) == 6
        assert (await engine.verify("s")).ok


async def test_diff_names_the_row_that_changed_and_not_those_recorded_with_it() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.set_system_prompt("You help.")
        for memory in (["tabs", "one more"], ["spaces", "one more"]):
            async with ctx.turn():
                await ctx.add_message(user("a"))
                await ctx.set_memory(memory)
                await ctx.get_messages_for_request()
        found = await engine.diff("s", 1, 2)
        assert [one.message and one.message["content"] for one in found.went] == ["tabs"]
        assert [one.message and one.message["content"] for one in found.came] == ["spaces"]


async def test_memory_is_there_after_a_clear_a_restart_a_fork_and_compactions(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s", max_tokens=2_000)
        await ctx.set_system_prompt("You help.")
        await ctx.set_memory(["A", "B"])
        for number in range(40):
            await ctx.add_message(user(f"question {number} " * 20))
            await ctx.add_message(answer(f"answer {number} " * 20))
            sent = await ctx.get_messages_for_request()
            assert [one["content"] for one in sent[:3]] == ["You help.", "A", "B"]
        audit = await engine.audit("s")
        assert any(row.outcome == "applied" for row in audit.compactions)
        for row in audit.requests:
            assert (await engine.request_view("s", position=row.position)).verified
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
        assert [one["content"] for one in sent] == ["You help.", "A", "B", "again"]
        assert (await engine.verify("branch")).ok


@pytest.mark.parametrize("texts", ["a text", None, [1], [None], {"A": 1}])
async def test_memory_that_is_no_list_of_texts_is_refused(texts: Any) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        with pytest.raises(eventctx.InvalidSetting, match="expected a list of texts"):
            await ctx.set_memory(texts)
