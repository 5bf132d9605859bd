"""A summary never leaves a demand out: what its model did not say is added, word for word."""

from __future__ import annotations

import os
from typing import Any

import msgspec

import eventctx
from eventctx.log.events import MessageAdded
from eventctx.log.record import make_body
from eventctx.messages.demands import demands_in
from eventctx.messages.encoding import encode_message
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.shorten import Limit, shorten, words_left
from eventctx.policies.policy import Summary
from eventctx.policies.summary_text import MARK, demands_to_add, summary_message
from tests.policies.given import model, user

RULE = "Never touch the folder vendor/."


async def compacted(text: str) -> tuple[Any, list[Any]]:
    """A session of two summaries, the second of which takes the first one in."""
    requests: list[Any] = []

    async def summarizer(request: Any) -> str:
        requests.append(request)
        return text

    async with eventctx.open() as engine:
        ctx = await engine.session(
            "s", policy="summarize", summarizer=summarizer, fan_in=2, max_tokens=4_000,
            prepare_at=None,
        )  # fmt: skip
        for n in range(40):
            # More demands than a quarter of the budget has room for.
            words = (
                f"{RULE} {'It is late. ' * 30}"
                if n == 2
                else f"Keep the name step_{n}, {'as it is, ' * 12}in any case."
            )
            await ctx.add_message(user(words))
            await ctx.add_message(model("so " * 300))
            view = await ctx.get_messages_for_request()
            assert RULE in str(view) or n < 2
        audit = await engine.audit("s")
        assert all(row.fallback is None for row in audit.compactions), audit.compactions
    return view, requests


async def test_a_demand_that_the_model_leaves_out_is_added_and_outlives_later_summaries() -> None:
    view, requests = await compacted("All went well.")
    assert any(request.earlier for request in requests)
    (line,) = [one for row in view for one in str(row["content"]).splitlines() if RULE in one]
    assert line == f'{MARK} #4: "{RULE}"'
    assert any("word for word" in request.instruction for request in requests)


async def test_a_demand_that_the_model_repeats_is_not_added_again() -> None:
    view, _ = await compacted(f"They said: {RULE}")
    assert '#4: "' not in str(view)


def test_demands_beyond_the_room_are_left_out_and_not_named() -> None:
    summary = Summary("x", demands=((1, RULE), (2, "Keep the tests."), (3, "")))
    added, numbers = demands_to_add(summary, 50)
    assert (added, numbers) == ([(1, RULE)], ((1, 1), (3, 3)))
    message = summary_message(summary, ((1, 3),), 1, added)
    assert f'{MARK} #1: "{RULE}"' in message["content"].splitlines()
    assert not read_facts(message).human


def test_a_shortened_message_keeps_its_demands_and_its_size_is_known_before() -> None:
    code = "```\nnever mind this code\n```"
    text = f"{'Log. ' * 400}\n- {RULE}\n{'more ' * 400}\n{code}\nUse tabs only."
    for size in (0, 30, 250, 1_000):
        for content in (
            text,
            [{"type": "text", "text": text}, {"type": "text", "text": "z" * 900}],
        ):
            message = user(text) | {"content": content}
            facts = read_facts(message)
            said = demands_in(message)
            short = shorten(message, 7, Limit(prose=size))
            assert demands_in(short) == said == (RULE, "Use tabs only.")
            now = read_facts(short)
            assert now.prose <= words_left(facts, size)
            assert (now.demands, now.demand_characters) == (2, facts.demand_characters)


def test_demands_that_only_an_older_summary_quotes_are_added_without_room() -> None:
    rules = tuple([(n, f"Never touch the folder number_{n}.") for n in range(4)])
    added, numbers = demands_to_add(Summary("ok", demands=rules), 0, {0, 1, 3})
    assert [number for number, _ in added] == [0, 1, 3]
    assert numbers == ((0, 1), (3, 3))


async def test_a_summary_quotes_no_demand_that_was_taken_back() -> None:
    async def summarizer(request: Any) -> str:
        return "All went well."

    async with eventctx.open() as engine:
        ctx = await engine.session("s", policy="summarize", summarizer=summarizer, max_tokens=4_000)
        await ctx.add_message(user("Repair the parser."))
        await ctx.add_message(user(f"{RULE} Use tabs only. What about the rest?"))
        await ctx.withdraw_instruction(1, 1)
        for n in range(40):
            await ctx.add_message(user(f"Keep the name step_{n}, {'as it is, ' * 12}in any case."))
            await ctx.add_message(model("so " * 300))
            view = str(await ctx.get_messages_for_request())
    assert "[Summary: depth " in view
    assert (RULE in view, "Use tabs only." in view) == (False, True)


async def test_demands_that_an_older_reader_did_not_count_go_on_from_summary_to_summary() -> None:
    async def summarizer(request: Any) -> str:
        return "All went well."

    async with eventctx.open() as engine:
        ctx = await engine.session(
            "s", policy="summarize", summarizer=summarizer, fan_in=2, max_tokens=4_000,
            prepare_at=None,
        )  # fmt: skip
        await ctx.add_message(user("Repair the parser."))
        said = user(f"{RULE} What about the rest?")
        older = msgspec.structs.replace(read_facts(said), reader=4, demands=0, demand_characters=0)
        body = make_body(encode_message(said), encode_facts(older), os.urandom)
        await ctx._session.appends.append(ctx._session.drafts.make(MessageAdded(), (body,)))
        for n in range(60):
            await ctx.add_message(user(f"step {n}"))
            await ctx.add_message(model("so " * 300))
            view = str(await ctx.get_messages_for_request())
            assert RULE in view
    assert "[Summary: depth 2" in view
