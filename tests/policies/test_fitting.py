"""Views that fit: giant and odd results, floors, limits, old images, and no needless compaction."""

from __future__ import annotations

import base64
import copy
import struct
import zlib
from typing import Any

import pytest

from eventctx.errors import ContextOverflow
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.shorten import Limit, shorten
from eventctx.messages.tokens import FAMILIES
from eventctx.policies.pipeline import reduce_view
from eventctx.policies.policy import Proposal
from eventctx.policies.working_set import bound_tokens
from eventctx.testing.policies import view_of
from tests.policies.given import model, one_session, user
from tests.sessions import USER, tool_round


async def test_an_overflow_leaves_a_trace_in_the_audit_once_for_every_state() -> None:
    async with one_session(max_tokens=100) as (engine, ctx):
        await ctx.add_message({"role": "user", "content": "x" * 4_000})
        for _ in range(3):
            with pytest.raises(ContextOverflow):
                await ctx.get_messages_for_request()
        (row,) = (await engine.audit("s")).compactions
        assert row.outcome == "failed"
        assert "latest human message ~1,217" in (row.error or "")


async def test_a_view_on_an_irreducible_floor_is_not_compacted_again_and_again() -> None:
    async with one_session(max_tokens=1_000, on_overflow="send_floor") as (engine, ctx):
        await ctx.add_message({"role": "user", "content": "x" * 9_000})
        for _ in range(20):
            await ctx.get_messages_for_request()
        audit = await engine.audit("s")
        assert len(audit.compactions) <= 1
        assert all(row.floor_sent for row in audit.requests)


async def test_a_giant_tool_result_is_short_in_the_view_and_whole_in_the_log() -> None:
    async with one_session(max_tokens=50_000) as (engine, ctx):
        await ctx.add_message(USER)
        call, done = tool_round(1, size=600_000)
        await ctx.add_messages([call, done])
        view = await ctx.get_messages_for_request()
        text = view[-1]["content"][0]["content"]
        assert 10_000 < len(text) < 60_000
        assert "characters left out of message 2" in text
        assert (await ctx.get_messages())[-1] == done
        row = (await engine.audit("s")).requests[-1]
        assert (row.counts.kept, row.counts.shortened) == (2, 1)


MANY = ["ab"] * 10_000


FUNCTION = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
CALL, _ = tool_round(1)
ANSWERS = [
    [{"type": "text", "text": "ab"}] * 10_000,
    MANY,
    {"output": {"lines": MANY}},
    [{"type": "mystery", "payload": MANY}],
]


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        *[
            (CALL, {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": content}]})
            for content in ANSWERS
        ],
        ({"role": "assistant", "tool_calls": [FUNCTION]},
         {"role": "tool", "tool_call_id": "c1", "content": {"lines": MANY}}),
        ({"role": "assistant", "tool_calls": [
            {"id": "c1", "tool": "f", "arguments": {"list": MANY}}]},
         {"role": "tool", "tool_call_id": "c1", "content": "done"}),
        ({"role": "assistant", "content": [
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"list": MANY}}]},
         {"role": "tool", "tool_call_id": "c1", "content": "done"}),
    ],
)  # fmt: skip
async def test_arguments_and_results_of_any_shape_fit(
    call: dict[str, Any], answer: dict[str, Any]
) -> None:
    async with one_session(max_tokens=10_000) as (engine, ctx):
        await ctx.add_messages([USER, call, answer])
        await ctx.get_messages_for_request()
        assert (await engine.audit("s")).requests[-1].tokens <= 10_000
        assert (await ctx.get_messages())[-1] == answer


async def test_a_giant_result_beside_a_persons_words_is_shortened_and_the_words_stay() -> None:
    async with one_session(max_tokens=10_000) as (_, ctx):
        call, done = tool_round(1, size=200_000)
        done["content"].append({"type": "text", "text": "stop, please"})
        await ctx.add_messages([USER, call, done])
        view = await ctx.get_messages_for_request()
        assert view[-1]["content"][1] == {"type": "text", "text": "stop, please"}
        assert len(view[-1]["content"][0]["content"]) < 30_000


async def test_the_limit_on_messages_does_not_compact_at_every_request() -> None:
    async with one_session(policy="simple", max_messages=10) as (engine, ctx):
        for number in range(200):
            role = "assistant" if number else "user"
            await ctx.add_message({"role": role, "content": f"message {number}"})
            assert len(await ctx.get_messages_for_request()) <= 10
        assert len((await engine.audit("s")).compactions) <= 40


async def test_many_abandoned_calls_do_not_cost_what_stays() -> None:
    async with one_session(policy="simple", max_tokens=10_000, keep_recent=200) as (_, ctx):
        for number in range(300):
            await ctx.add_message(tool_round(number)[0])
        for number in range(40):
            await ctx.add_message({"role": "user", "content": f"question {number} " + "x" * 90})
        view = await ctx.get_messages_for_request()
        assert len([m for m in view if "question" in str(m)]) == 40


async def test_a_budget_that_shrinks_brings_the_view_down_to_its_floor() -> None:
    async with one_session(max_tokens=100_000, on_overflow="send_floor") as (engine, ctx):
        await ctx.add_messages([{"role": "system", "content": "x" * 66_000}, USER])
        for number in range(60):
            await ctx.add_messages(tool_round(number, 4_000))
        await ctx.get_messages_for_request()
        await ctx.get_messages_for_request(15_000)
        row = (await engine.audit("s")).requests[-1]
        assert row.floor_sent
        assert row.tokens < 23_000


@pytest.mark.parametrize("policy", ["ladder", "simple", "truncate", "importance"])
async def test_a_compaction_for_less_than_what_must_stay_names_the_floor_and_changes_nothing(
    policy: str,
) -> None:
    async with one_session(policy=policy, on_overflow="send_floor") as (engine, ctx):
        await ctx.add_message({"role": "system", "content": "be brief " * 50})
        for number in range(6):
            await ctx.add_message({"role": "user", "content": f"task {number} " * 100})
            await ctx.add_messages(tool_round(number + 1, size=2_000))
        before = [record async for record in engine.store.read("s")]
        for dry_run in (True, False):
            with pytest.raises(ContextOverflow, match="system messages") as caught:
                await ctx.compact(budget=300, dry_run=dry_run)
        with pytest.raises(ContextOverflow):
            await engine.dry_run("s", policy=policy, max_tokens=300)
        overflow = caught.value
        assert [record async for record in engine.store.read("s")] == before
        assert (overflow.budget, overflow.messages) == (300, 4)
        assert f"{overflow.floor} tokens in 4 messages" in str(overflow)
        assert f"nothing was changed; the smallest budget that works is {overflow.floor}" in str(
            overflow
        )
        with pytest.raises(ContextOverflow):
            await ctx.compact(budget=overflow.floor - 1)
        assert [record async for record in engine.store.read("s")] == before
        made = await ctx.compact(budget=overflow.floor)
        assert made.outcome == "applied" and made.after_tokens <= overflow.floor
        assert made.after_messages == 4


async def test_a_budget_that_system_messages_nearly_fill_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with one_session(max_tokens=4_000) as (engine, ctx):
        await ctx.add_message({"role": "system", "content": "Be careful. " * 450})
        await ctx.set_system_prompt("Be quick. " * 540)
        for n in range(3):
            await ctx.add_message({"role": "user", "content": f"Go on with {n}."})
            await ctx.get_messages_for_request()
        roomy = await engine.session("roomy", max_tokens=40_000)
        await roomy.add_message({"role": "system", "content": "Be careful. " * 900})
        await roomy.add_message({"role": "user", "content": "Go on."})
        await roomy.get_messages_for_request()
        room = (await engine.audit("s")).little_room
        assert (await engine.audit("roomy")).little_room is None
    (told,) = [one.getMessage() for one in caplog.records if "leaves" in one.getMessage()]
    assert "session s: a budget of 4,000 tokens leaves 7" in told and "raise max_tokens" in told
    assert room is not None and told.endswith(room.sentence)


# -- a person's images -----------------------------------------------------------------------------


Row = dict[str, Any]


def png(width: int, height: int) -> str:
    """The base64 of a PNG of so many pixels; only its header is read."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(header)) + b"IHDR" + header
    chunk += struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk).decode()


DATA = png(1_200, 1_000)
URL = f"data:image/png;base64,{DATA}"
WORDS = "This is the screen after the second click, and it must stay like that."
SOURCE = {"type": "base64", "media_type": "image/png", "data": DATA}
ANSWERED = {"type": "tool_result", "tool_use_id": "c", "content": [
    {"type": "text", "text": "shot"}, {"type": "image", "source": SOURCE}]}  # fmt: skip
SENT: dict[str, Row] = {
    "Anthropic": {"role": "user", "content": [
        {"type": "text", "text": WORDS}, {"type": "image", "source": SOURCE}]},
    "a PDF": {"role": "user", "content": [
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        {"type": "text", "text": WORDS}]},
    "OpenAI chat": {"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": URL}}, {"type": "text", "text": WORDS}]},
    "Responses": {"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": WORDS}, {"type": "input_image", "image_url": URL}]},
    "a recording": {"role": "user", "content": [
        {"type": "text", "text": WORDS},
        {"type": "input_audio", "input_audio": {"format": "wav", "id": "r1"}}]},
    "without a type": {"role": "user", "content": [
        {"type": "text", "text": WORDS},
        {"inlineData": {"mimeType": "image/png", "data": DATA}}]},
    "beside a result": {"role": "user", "content": [ANSWERED, {"type": "text", "text": WORDS}]},
    "several": {"role": "user", "content": [
        {"type": "text", "text": WORDS}, *[{"type": "image", "source": SOURCE}] * 9]},
    "alone": {"role": "user", "content": [{"type": "image", "source": SOURCE}]},
}  # fmt: skip
every = pytest.mark.parametrize("message", SENT.values(), ids=SENT)


@every
def test_a_line_takes_the_place_of_an_image_and_words_stay(message: Row) -> None:
    facts = read_facts(message)
    assert facts.human and facts.media
    short = shorten(copy.deepcopy(message), 1_234_567, Limit(media=0), facts)
    now = read_facts(short)
    assert now.human and not now.media and now.results == facts.results
    assert (WORDS in str(short)) == (WORDS in str(message))
    assert str(short).count("left out of message 1234567") == len(facts.media)
    for rates in FAMILIES.values():
        assert rates.tokens(now) <= bound_tokens(facts, Limit(media=0), rates)


@every
def test_a_step_of_a_pipeline_counts_what_is_left(message: Row) -> None:
    visible = view_of([message, user("on")], ())
    decided: Any = {0: ("shortened", "custom"), 1: ("kept", "custom")}
    (ref, _) = reduce_view(visible, Proposal(decided, {0: Limit(media=0)})).messages
    assert ref.tokens == visible.estimator.tokens(ref.facts) < visible.messages[0].tokens


def test_images_of_a_tool_or_a_harness_are_no_persons() -> None:
    for message in (
        {"role": "user", "content": [ANSWERED]},
        {"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>x</system-reminder>"},
            {"type": "image", "source": SOURCE}]},
    ):  # fmt: skip
        assert shorten(copy.deepcopy(message), 3, Limit(media=0)) == message


POLICIES = ["workset", "ladder", "simple", "truncate", "importance", "token-budget"]


@pytest.mark.parametrize("policy", POLICIES)
async def test_old_screens_make_room_and_the_words_beside_them_stay(policy: str) -> None:
    budget = 12_000
    async with one_session(policy=policy, max_tokens=budget) as (engine, ctx):
        for n in range(20):
            image = {"type": "image", "source": SOURCE}
            asked = {"type": "text", "text": f"Screen {n}: what is wrong with it?"}
            await ctx.add_message({"role": "user", "content": [asked, image]})
            view = await ctx.get_messages_for_request()
            assert str(view[-1]).count(DATA) == 1, "the one to be answered is shown"
            await ctx.add_message(model(f"On screen {n} nothing is wrong. " + "so " * 200))
        shown = str(view)
        assert shown.count(DATA) < 8 and "image left out of message" in shown
        assert all(f"Screen {n}: what is wrong with it?" in shown for n in range(20))
        assert all(DATA in str(row) for row in await ctx.get_messages() if row["role"] == "user")
        audit = await engine.audit("s")
        assert len(audit.compactions) < 12 and all(
            row.fallback is None for row in audit.compactions
        )
