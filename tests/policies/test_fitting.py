"""When a compaction is due, the fit stage and its rules, and views that fit whatever comes."""

from __future__ import annotations

import base64
import copy
import struct
import zlib
from typing import Any

import msgspec
import pytest

from eventctx.errors import ContextOverflow, InvalidPlan
from eventctx.log.plan import Plan, expand, find, runs_of
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.shorten import Limit, shorten
from eventctx.messages.tokens import FAMILIES
from eventctx.policies.fit import fit
from eventctx.policies.pipeline import reduce_view
from eventctx.policies.policy import Budget, NewInsertion, Proposal
from eventctx.policies.rules import check
from eventctx.policies.trigger import due, make_budget
from eventctx.policies.working_set import bound_tokens, keep_whole
from eventctx.testing.policies import view_of
from tests.policies.given import ROOMY, Row, asks, model, one_session, system, tells, user, view
from tests.sessions import USER, tool_round

# -- when ----------------------------------------------------------------------------------------


def test_a_compaction_is_due_where_the_view_grew_to_the_threshold_again_or_is_too_large() -> None:
    budget = make_budget(1_000, 0.92, 0.5)
    assert (budget.threshold, budget.target) == (920, 500)
    for left, *sizes in (
        (0, (919, None), (920, "threshold"), (1_001, "budget")),
        (400, (920, "threshold")),
        (500, (919, None), (920, "threshold")),
        (530, (949, None), (950, "threshold")),
        (700, (1_000, None), (1_001, "budget")),
    ):
        assert [(tokens, due(tokens, 5, budget, left, None)) for tokens, _ in sizes] == sizes
    assert due(10, 101, budget, 0, 100) == "max_messages"
    assert due(10, 100, budget, 0, 100) is None


# -- fit -----------------------------------------------------------------------------------------


def test_what_fits_is_left_alone_then_old_results_go_first_then_arguments_then_rounds() -> None:
    rows = [user("go")]
    for n in range(6):
        rows += [asks(f"c{n}", size=3_000), tells(f"c{n}", 6_000)]
    visible = view(*rows)
    fitted = fit(visible, keep_whole(visible), ROOMY)
    assert (fitted.proposal.limits, fitted.overflow, fitted.tokens) == ({}, {}, visible.tokens)
    results = fit(visible, keep_whole(visible), Budget(40_000, 20_000, 15_000)).proposal.limits
    assert all(limit.arguments is None for limit in results.values())
    assert min(results) == 2  # the oldest result
    both = fit(visible, keep_whole(visible), Budget(10_000, 9_000, 6_000)).proposal.limits
    assert any(limit.arguments is not None for limit in both.values())
    dropped = fit(visible, keep_whole(visible), Budget(4_000, 3_600, 2_000)).proposal.dispositions
    gone = sorted(n for n, (d, _) in dropped.items() if d == "dropped")
    assert gone and gone == list(range(1, len(gone) + 1))


def test_the_round_in_progress_is_shortened_only_when_nothing_else_is_left() -> None:
    rounds = [(asks(f"{n}"), tells(f"{n}", 1_600)) for n in range(5)]
    visible = view(user("go"), *(row for one in rounds for row in one))
    limits = fit(visible, keep_whole(visible), Budget(2_600, 2_400, 2_000)).proposal.limits
    assert limits and 10 not in limits
    tight = fit(visible, keep_whole(visible), Budget(400, 300, 200))
    assert 10 in tight.proposal.limits
    assert tight.tokens <= 400 and tight.overflow == {}


def test_an_overflow_names_its_parts_and_they_add_up() -> None:
    rows = [system("s" * 3_300), user("pin " * 800), user("h" * 6_600), asks("c"), tells("c")]
    visible = view(*rows, pins=(1,))
    fitted = fit(visible, keep_whole(visible), Budget(1_000, 900, 500))
    assert sum(fitted.overflow.values()) == fitted.tokens > 1_000
    parts = "system messages", "latest human message"
    assert [fitted.overflow[part] for part in parts] == [1_004, 2_004]
    assert fitted.overflow["open round"] > 0


def test_shortened_arguments_stay_json_and_short_ones_stay_whole() -> None:
    row = asks("c", size=9_000)
    long = '{"path":"a.py","text":"' + "x" * 9_000 + '"}'
    row["tool_calls"][0]["function"]["arguments"] = long
    (call,) = shorten(row, 3, Limit(arguments=500))["tool_calls"]
    parsed = msgspec.json.decode(call["function"]["arguments"])
    assert parsed["path"] == "a.py" and len(parsed["text"]) < 700
    block = {"type": "tool_use", "id": "c", "input": {"deep": {"list": ["y" * 9_000, 5, None]}}}
    made = shorten({"role": "assistant", "content": [block]}, 3, Limit(arguments=500))
    first, *others = made["content"][0]["input"]["deep"]["list"]
    assert others == [5, None] and len(first) < 700
    item = {"type": "mcp_call", "id": "m", "name": "f", "arguments": long, "output": "y"}
    made = shorten(item, 3, Limit(arguments=500))
    assert len(msgspec.json.decode(made["arguments"])["text"]) < 700
    assert made["output"] == "y"


# -- rules for any policy ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({0: ("dropped", "x")}, "system messages stay"),
        ({1: ("dropped", "x")}, "pinned messages stay"),
        ({2: ("merged", "x")}, "the latest human message stays"),
        ({3: ("dropped", "x")}, "a tool round stands or falls as one"),
        ({4: ("summarised", "x")}, "a tool round stands or falls as one"),
        ({4: ("shortened", "x")}, "a shortened message has a limit"),
        ({5: None}, "every message has a disposition"),
    ],
)
def test_a_plan_that_breaks_a_rule_is_refused_by_name(changes: dict[int, Any], rule: str) -> None:
    rows = [system("s"), user("pin"), user("go"), asks("c"), tells("c"), model("x")]
    visible = view(*rows, pins=(1,))
    decided = {**keep_whole(visible).dispositions, **changes}
    proposal = Proposal({n: d for n, d in decided.items() if d is not None})
    with pytest.raises(InvalidPlan, match=rule) as caught:
        check(visible, proposal)
    assert set(caught.value.numbers) & set(changes) or rule.startswith("a tool round")


def test_a_plan_without_the_message_to_be_answered_or_that_splits_a_round_is_refused() -> None:
    after_a_person = [user("go"), model("x"), user("<system-reminder>y</system-reminder>")]
    for rows in (after_a_person, [model("x"), model("y")]):
        visible = view(*rows)
        decided = {**keep_whole(visible).dispositions, len(rows) - 1: ("dropped", "x")}
        with pytest.raises(InvalidPlan, match="the message to be answered stays"):
            check(visible, Proposal(decided))
    visible = view(user("go"), asks("c"), tells("c"))
    fine, note = (NewInsertion("notice", user("note"), before=place) for place in (1, 2))
    check(visible, Proposal(keep_whole(visible).dispositions, insertions=(fine,)))
    with pytest.raises(InvalidPlan, match="nothing is inserted into a round"):
        check(visible, Proposal(keep_whole(visible).dispositions, insertions=(note,)))


# -- plans ---------------------------------------------------------------------------------------


def test_runs_join_what_is_alike_are_found_by_number_and_make_a_small_plan() -> None:
    decided: list[Any] = [(n, "kept" if n % 10 else "dropped", "older") for n in range(100)]
    runs = runs_of(decided)
    assert len(runs) == 20
    assert list(expand(runs)) == decided
    for number, disposition, _ in decided:
        run = find(runs, number)
        assert run and run.disposition == disposition
    assert find(runs, 100) is find((), 0) is None
    decided = [(n, "dropped", "older") for n in range(9_990)]
    decided += [(n, "kept", "recent") for n in range(9_990, 10_000)]
    assert len(msgspec.json.encode(Plan(through=9_999, runs=runs_of(decided)))) < 200


# -- views that fit ------------------------------------------------------------------------------


async def test_a_view_on_an_irreducible_floor_is_told_once_and_not_compacted_again() -> None:
    async with one_session(max_tokens=100) as (engine, ctx):
        await ctx.add_message(user("x" * 4_000))
        for _ in range(3):
            with pytest.raises(ContextOverflow):
                await ctx.get_messages_for_request()
        (row,) = (await engine.audit("s")).compactions
        assert row.outcome == "failed"
        assert "latest human message ~1,217" in (row.error or "")
        sends = await engine.session("sends", max_tokens=1_000, on_overflow="send_floor")
        await sends.add_message(user("x" * 9_000))
        for _ in range(20):
            await sends.get_messages_for_request()
        audit = await engine.audit("sends")
        assert len(audit.compactions) <= 1
        assert all(row.floor_sent for row in audit.requests)


async def test_a_giant_result_beside_words_is_short_in_the_view_and_whole_in_the_log() -> None:
    async with one_session(max_tokens=50_000) as (engine, ctx):
        call, done = tool_round(1, size=600_000)
        done["content"].append({"type": "text", "text": "stop, please"})
        await ctx.add_messages([USER, call, done])
        result, words = (await ctx.get_messages_for_request())[-1]["content"]
        assert 10_000 < len(result["content"]) < 60_000
        assert "characters left out of message 2" in result["content"]
        assert words == {"type": "text", "text": "stop, please"}
        assert (await ctx.get_messages())[-1] == done
        row = (await engine.audit("s")).requests[-1]
        assert (row.counts.kept, row.counts.shortened) == (2, 1)


MANY = ["ab"] * 10_000


DONE = {"role": "tool", "tool_call_id": "c1", "content": "done"}
FUNCTION = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
AMPLIFIER = {"id": "c1", "tool": "f", "arguments": {"list": MANY}}
BLOCK = {"type": "tool_use", "id": "c1", "name": "f", "input": {"list": MANY}}
CALL, ANSWER = tool_round(1)


def answering(content: Any) -> Row:
    return {"role": "user", "content": [{**ANSWER["content"][0], "content": content}]}


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (CALL, answering([{"type": "text", "text": "ab"}] * 10_000)),
        (CALL, answering(MANY)),
        (CALL, answering({"output": {"lines": MANY}})),
        (CALL, answering([{"type": "mystery", "payload": MANY}])),
        ({"role": "assistant", "tool_calls": [FUNCTION]}, {**DONE, "content": {"lines": MANY}}),
        ({"role": "assistant", "tool_calls": [AMPLIFIER]}, DONE),
        ({"role": "assistant", "content": [BLOCK]}, DONE),
    ],
)
async def test_arguments_and_results_of_any_shape_fit(call: Row, answer: Row) -> None:
    async with one_session(max_tokens=10_000) as (engine, ctx):
        await ctx.add_messages([USER, call, answer])
        await ctx.get_messages_for_request()
        assert (await engine.audit("s")).requests[-1].tokens <= 10_000
        assert (await ctx.get_messages())[-1] == answer


async def test_the_limit_on_messages_does_not_compact_at_every_request() -> None:
    async with one_session(policy="simple", max_messages=10) as (engine, ctx):
        for number in range(200):
            await ctx.add_message((model if number else user)(f"message {number}"))
            assert len(await ctx.get_messages_for_request()) <= 10
        assert len((await engine.audit("s")).compactions) <= 40


async def test_many_abandoned_calls_do_not_cost_what_stays() -> None:
    async with one_session(policy="simple", max_tokens=10_000, keep_recent=200) as (_, ctx):
        await ctx.add_messages([tool_round(number)[0] for number in range(300)])
        await ctx.add_messages([user(f"question {number} " + "x" * 90) for number in range(40)])
        view = await ctx.get_messages_for_request()
        assert len([m for m in view if "question" in str(m)]) == 40


async def test_a_budget_that_shrinks_brings_the_view_down_to_its_floor() -> None:
    async with one_session(max_tokens=100_000, on_overflow="send_floor") as (engine, ctx):
        rounds = [row for number in range(60) for row in tool_round(number, 4_000)]
        await ctx.add_messages([system("x" * 66_000), USER, *rounds])
        await ctx.get_messages_for_request()
        await ctx.get_messages_for_request(15_000)
        row = (await engine.audit("s")).requests[-1]
        assert row.floor_sent
        assert row.tokens < 23_000


@pytest.mark.parametrize("policy", ["ladder", "simple", "truncate", "importance"])
async def test_a_compaction_below_the_floor_names_it_and_changes_nothing(policy: str) -> None:
    async with one_session(policy=policy, on_overflow="send_floor") as (engine, ctx):
        await ctx.add_message(system("be brief " * 50))
        for number in range(6):
            await ctx.add_messages([user(f"task {number} " * 100), *tool_round(number + 1, 2_000)])
        before = [record async for record in engine.store.read("s")]
        for dry_run in (True, False):
            with pytest.raises(ContextOverflow, match="system messages") as caught:
                await ctx.compact(budget=300, dry_run=dry_run)
        overflow, said = caught.value, str(caught.value)
        with pytest.raises(ContextOverflow):
            await engine.dry_run("s", policy=policy, max_tokens=300)
        assert (overflow.budget, overflow.messages) == (300, 4)
        assert f"{overflow.floor} tokens in 4 messages" in said
        assert f"nothing was changed; the smallest budget that works is {overflow.floor}" in said
        with pytest.raises(ContextOverflow):
            await ctx.compact(budget=overflow.floor - 1)
        assert [record async for record in engine.store.read("s")] == before
        made = await ctx.compact(budget=overflow.floor)
        assert (made.outcome, made.after_messages) == ("applied", 4)
        assert made.after_tokens <= overflow.floor


async def test_a_budget_that_system_messages_nearly_fill_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with one_session(max_tokens=4_000) as (engine, ctx):
        await ctx.add_message(system("Be careful. " * 450))
        await ctx.set_system_prompt("Be quick. " * 540)
        for n in range(3):
            await ctx.add_message(user(f"Go on with {n}."))
            await ctx.get_messages_for_request()
        roomy = await engine.session("roomy", max_tokens=40_000)
        await roomy.add_messages([system("Be careful. " * 900), user("Go on.")])
        await roomy.get_messages_for_request()
        room = (await engine.audit("s")).little_room
        assert (await engine.audit("roomy")).little_room is None
    (told,) = [one.getMessage() for one in caplog.records if "leaves" in one.getMessage()]
    assert "session s: a budget of 4,000 tokens leaves 7" in told and "raise max_tokens" in told
    assert room is not None and told.endswith(room.sentence)


# -- a person's images -----------------------------------------------------------------------------


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


@pytest.mark.parametrize("message", SENT.values(), ids=SENT)
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
    # A step of a pipeline counts what is left.
    visible = view_of([message, user("on")], ())
    decided: Any = {0: ("shortened", "custom"), 1: ("kept", "custom")}
    (ref, _) = reduce_view(visible, Proposal(decided, {0: Limit(media=0)})).messages
    assert ref.tokens == visible.estimator.tokens(ref.facts) < visible.messages[0].tokens


def test_images_of_a_tool_or_a_harness_are_no_persons() -> None:
    reminder = {"type": "text", "text": "<system-reminder>x</system-reminder>"}
    for content in ([ANSWERED], [reminder, {"type": "image", "source": SOURCE}]):
        message = {"role": "user", "content": content}
        assert shorten(copy.deepcopy(message), 3, Limit(media=0)) == message


@pytest.mark.parametrize(
    "policy", ["workset", "ladder", "simple", "truncate", "importance", "token-budget"]
)
async def test_old_screens_make_room_and_the_words_beside_them_stay(policy: str) -> None:
    async with one_session(policy=policy, max_tokens=12_000) as (engine, ctx):
        for n in range(20):
            asked = {"type": "text", "text": f"Screen {n}: what is wrong with it?"}
            screen = [asked, {"type": "image", "source": SOURCE}]
            await ctx.add_message({"role": "user", "content": screen})
            view = await ctx.get_messages_for_request()
            assert str(view[-1]).count(DATA) == 1, "the one to be answered is shown"
            await ctx.add_message(model(f"On screen {n} nothing is wrong. " + "so " * 200))
        shown = str(view)
        assert shown.count(DATA) < 8 and "image left out of message" in shown
        assert all(f"Screen {n}: what is wrong with it?" in shown for n in range(20))
        assert all(DATA in str(row) for row in await ctx.get_messages() if row["role"] == "user")
        compactions = (await engine.audit("s")).compactions
        assert len(compactions) < 12 and all(row.fallback is None for row in compactions)
