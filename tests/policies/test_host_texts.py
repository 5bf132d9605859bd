"""Texts that the host hands over stand in the compacted view, whatever the policy."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eventctx
from eventctx.log.codec import decode_event
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts_reader import read_facts
from eventctx.policies import advisers
from eventctx.policies.fit import Fitted, fit
from eventctx.policies.index import index_message
from eventctx.policies.ladder import Ladder
from eventctx.policies.planner import outline
from eventctx.policies.policy import Policy, PolicyState
from eventctx.policies.presets import Simple, Truncate
from eventctx.policies.working_set import insertion_tokens, keep_whole
from eventctx.policies.workset import Workset
from tests.policies.given import budget_of, compactions_of, examples, seen
from tests.sessions import filled
from tests.transcripts import Story, stories

RULE = "Deploy to staging only."
JOB = "Job 7 is still running.\nIt began at noon."


def hands(*texts: str) -> Any:
    return lambda asked: eventctx.Verdict(texts=texts)


def host_rows(request: Iterable[dict[str, Any]]) -> list[str]:
    return [
        str(one["content"]) for one in request if str(one["content"]).startswith(advisers.HEADER)
    ]


@pytest.mark.parametrize("name", ["ladder", "simple", "truncate", "token-budget", "workset"])
async def test_they_stand_in_the_view_of_every_policy_marked_as_no_persons(name: str) -> None:
    async with eventctx.open() as engine:
        engine.intercept("context:pre_compact", hands(RULE, JOB))
        ctx = await filled(engine, max_tokens=8_000, policy=name)
        (notice,) = host_rows(await ctx.get_messages_for_request(5_000))
        said = [f"| {line}" for line in (RULE, *JOB.splitlines())]
        assert notice.splitlines() == [advisers.HEADER, *said, advisers.END]
        assert not read_facts({"role": "user", "content": notice}).human
        (ended,) = await compactions_of(engine)
        assert ended.fallback is None
        assert ended.tokens_after < ended.threshold * 4 // 5


async def test_the_record_has_them_in_bodies_and_the_next_compaction_takes_its_own() -> None:
    handed = [hands("the first")(None), hands("the second", RULE)(None), None]
    async with eventctx.open() as engine:
        engine.intercept("context:pre_compact", lambda asked: handed.pop(0))
        ctx = await filled(engine, 60, max_tokens=40_000)
        for shown in (["| the first"], ["| the second", f"| {RULE}"], []):
            assert (await ctx.compact(keep="the port")).outcome == "applied"
            rows = host_rows(await ctx.get_messages_for_request())
            assert [line for row in rows for line in row.splitlines()[1:-1]] == shown
        records = [record async for record in engine.records("s", bodies=True)]
        _, record, _ = [one for one in records if one.type == "context:pre_compact"]
        began: Any = decode_event(record)
        assert (began.texts, began.texts_left_out, began.hint) == (2, 0, 0)
        held = [decode_body(body.data or b"")["content"] for body in record.bodies]
        assert held == ["the port", "the second", RULE]
        assert b"staging" not in record.payload
        assert (await engine.verify("s")).ok


async def test_too_long_ones_are_left_out_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with eventctx.open() as engine:
        engine.intercept("context:pre_compact", hands("x" * 3_000, RULE, "a \ud800 b"))
        ctx = await filled(engine, max_tokens=4_000)
        with caplog.at_level(logging.WARNING, "eventctx"):
            (notice,) = host_rows(await ctx.get_messages_for_request())
        assert "xxx" not in notice and RULE in notice
        assert "| a \\ud800 b" in notice, "a text that no file can hold is escaped"
        records = [one async for one in engine.records("s") if one.type == "context:pre_compact"]
        began: Any = decode_event(records[0])
        assert (began.texts, began.texts_left_out) == (2, 1)
        assert "1 of the 3 texts to keep in view are left out" in caplog.text


async def test_a_view_that_cannot_be_reduced_otherwise_is_not_compacted_for_them() -> None:
    async with eventctx.open() as engine:
        engine.intercept("context:pre_compact", hands(RULE))
        ctx = await engine.session("s", max_tokens=20_000)
        await ctx.add_message({"role": "user", "content": "hello " * 1_000})
        before = await ctx.get_messages_for_request()
        assert (await ctx.compact()).outcome == "skipped"
        assert await ctx.get_messages_for_request() == before


@pytest.mark.parametrize("wrong", [("",), (" \n",), (5,), "a text", None])
async def test_texts_that_say_nothing_or_are_no_texts_have_no_say(wrong: Any) -> None:
    async with eventctx.open() as engine:
        engine.intercept("context:pre_compact", lambda asked: eventctx.Verdict(texts=wrong))
        ctx = await filled(engine, max_tokens=4_000)
        assert host_rows(await ctx.get_messages_for_request()) == []
        assert sum(engine.interceptors.errors.values()) == 1


def test_what_a_program_wrote_is_no_persons_word() -> None:
    for message in (advisers.host_notice((RULE,)).message, index_message(["| #3: never"])):
        facts = read_facts(message)
        assert (facts.human, facts.demands) == (False, 0)


@examples
@given(
    story=stories(),
    policy=st.sampled_from([Ladder(), Simple(), Truncate(), Workset()]),
    tokens=st.sampled_from([300, 1_200, 4_000, 20_000]),
    texts=st.lists(st.text(min_size=1, max_size=400), max_size=4),
)
def test_with_them_a_view_fits_wherever_it_fits_without(
    story: Story, policy: Policy, tokens: int, texts: list[str]
) -> None:
    visible, budget = seen(story), budget_of(tokens)
    kept = advisers.choose_texts(texts, budget, visible.estimator)
    size = insertion_tokens(advisers.host_notice(kept), visible.estimator) if kept else 0
    assert size <= budget.target // advisers.SHARE
    found = outline(visible, policy, budget, PolicyState("budget"), kept)
    if not isinstance(found, Fitted):
        return
    floor = fit(visible, keep_whole(visible), budget)
    assert (found.tokens > budget.tokens) == bool(found.overflow)
    assert not found.overflow or floor.overflow
    ours = [one for one in found.proposal.insertions if advisers.is_notice(one)]
    assert len(ours) == bool(kept and not found.overflow) or floor.tokens + size > budget.tokens
