"""The eight rules of a request view, as properties over generated transcripts in every dialect."""

from __future__ import annotations

import asyncio
import copy
import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eventctx import Context
from eventctx.engine import Engine
from eventctx.errors import ContextOverflow
from eventctx.log import events
from eventctx.log.codec import decode_event, encode_event
from eventctx.log.events import Located
from eventctx.log.plan import Insertion, Plan, Run
from eventctx.log.record import Draft
from eventctx.log.store import ANY
from eventctx.messages.facts_reader import read_facts
from eventctx.policies.fit import fit
from eventctx.policies.named import POLICIES
from eventctx.policies.planner import visible_of
from eventctx.policies.policy import Budget
from eventctx.policies.working_set import keep_whole
from eventctx.projections.audit import AuditRow
from eventctx.projections.view import planned, request_view
from eventctx.projections.view import snapshot as view_snapshot
from eventctx.projections.view.layout import append, build
from eventctx.projections.view.render import without_thinking
from eventctx.projections.view.request_view import ViewState
from eventctx.queries.requests import fold, request_at
from eventctx.testing.strict_provider import Api, Violation, violations
from tests.how_much import some
from tests.policies.given import play
from tests.session.given import calling, opened, result, texts
from tests.sessions import append_event, body_of, compacted_by_hand, model, tool_round, user
from tests.transcripts import DIALECTS, Story, human, is_system, refusal, results_of, stories

examples = settings(
    max_examples=some(10, 200), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
CHECKS_PREFIX = "claude-sonnet-5-5"
budgets = st.sampled_from([300, 1_200, 4_000, 20_000])
ASKING = {"summarize", "native", "pipeline", "custom"}


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(examples, max_examples=some(20, 300))
@given(data=st.data(), budget=budgets)
def test_each_view_of_a_story_keeps_all_rules(
    dialect: str, data: st.DataObject, budget: int
) -> None:
    story = data.draw(stories(dialect))
    engine, requests = play("simple", story, budget, keep_recent=4)
    thinking = [_thinking(message) for message in story.messages]
    originals = [json.dumps(message) for message in story.messages]
    for seen, request in enumerate(requests, start=1):
        # A provider accepts it.
        assert refusal(request) is None, json.dumps(request, indent=1)
        assert broken(dialect, request) == (), json.dumps(request, indent=1)
        # System messages and the latest human message are in it.
        so_far = story.messages[:seen]
        assert all(message in request for message in so_far if is_system(message))
        people = [one for one in so_far if one.get("role") == "user" and "metadata" not in one]
        people = [one for one in people if not results_of(one)]
        assert not people or people[-1] in request
        # Thinking, and everything that is kept, is byte for byte what was added.
        for message in request:
            if json.dumps(message) not in originals and _thinking(message):
                assert _thinking(message) in thinking
    asyncio.run(follow_from_the_log(engine, requests, story, budget))


async def follow_from_the_log(
    engine: Engine, requests: list[Any], story: Story, budget: int
) -> None:
    """Requests follow from the log, from zero and from a snapshot; each fits the budget unless only
    the floor is left, keeps the order, and begins as the one before it but at a recorded break."""
    before: list[Any] = []
    for row, request in zip((await engine.audit("s")).requests, requests, strict=True):
        view = await engine.request_view("s", position=row.position)
        assert view.verified
        assert view.messages == request
        refs = [entry.ref for entry in view.entries if entry.kind == "message"]
        numbers = [ref.number for ref in refs if ref.facts.kind != "result"]  # type: ignore[union-attr]
        assert numbers == sorted(set(numbers))
        assert row.breaks or request[: len(before)] == before, row
        before = request
        assert row.floor_sent == (row.tokens > budget)
        if row.floor_sent:
            state = request_view.initial()
            async for record in engine.records("s", stop=row.position - 1):
                state = request_view.evolve(state, record)
            check_floor(row, state, refs, budget)
    state = await fold(engine.store, "s", request_view)
    restored = view_snapshot.load(view_snapshot.dump(state))
    assert restored.layout.entries() == state.layout.entries()
    assert restored.layout.measure() == state.layout.measure()
    assert request_view.prepare_request(restored) == request_view.prepare_request(state)
    options: dict[str, Any] = {"policy": "simple", "keep_recent": 4, "max_tokens": budget}
    again = await Engine(engine.store).session("s", **options)
    assert await again.get_messages() == story.messages


def check_floor(row: AuditRow, state: ViewState, refs: list[Any], budget: int) -> None:
    people = [ref for ref in refs if ref.facts.human]
    calls = [place for place, ref in enumerate(refs) if ref.facts.kind == "assistant"]
    # What is to be answered stays; a system message after it is no answer to it.
    to_answer = [place for place, ref in enumerate(refs) if ref.facts.kind != "system"][-1:]
    only_floor = all(
        ref.facts.kind == "system"
        or ref in people[-1:]
        or place in to_answer
        or (calls and place >= _start_of_round(refs, calls[-1]))
        for place, ref in enumerate(refs)
    )
    # More than the floor goes only where a floor above the budget went before, and still is.
    low = state.size_after_compaction
    visible = visible_of(state)
    proven = fit(visible, keep_whole(visible), Budget(budget, budget, budget)).overflow
    assert only_floor or (proven and budget < low and row.tokens <= low + low // 4)


def broken(dialect: str, request: list[dict[str, Any]]) -> tuple[Violation, ...]:
    """What a strict provider says of a request, sent as hosts send it: without their own keys."""
    api = APIS.get(dialect)
    if api is None or not request:
        return ()
    rows = [{key: row[key] for key in row if key != "metadata"} for row in request]
    if api == "anthropic":
        rows = [row for row in rows if not is_system(row)]
    body = {"input" if api == "openai-responses" else "messages": rows}
    return violations(api, body, without=["anthropic/prefill-without-space"]) if rows else ()


APIS: dict[str, Api] = {
    "anthropic": "anthropic",
    "openai": "openai-chat",
    "responses": "openai-responses",
}


@examples
@given(story=stories(), budget=budgets, data=st.data())
async def test_pinned_messages_are_in_every_view(
    story: Story, budget: int, data: st.DataObject
) -> None:
    pinned = data.draw(st.integers(0, len(story.messages) - 1))
    wanted = story.messages[pinned]
    _, ctx = await opened(policy="simple", keep_recent=2, **floor_of(budget))
    for number, message in enumerate(story.messages):
        await ctx.add_message(message)
        if number == pinned:
            await ctx.pin(number)
        request = await ctx.get_messages_for_request() if number >= pinned else []
        # A result without its call can be in no request, pinned or not, and neither can reasoning
        # without what it led to; thinking does not outlive what it is bound to.
        if number >= pinned and not results_of(wanted) and wanted.get("type") != "reasoning":
            assert wanted in request or without_thinking(copy.deepcopy(wanted)) in request


def floor_of(budget: int) -> dict[str, Any]:
    return {"on_overflow": "send_floor", "max_tokens": budget}


@examples
@given(story=stories(), budget=budgets, policy=st.sampled_from(["ladder", "simple"]))
async def test_thinking_is_in_a_request_only_behind_the_very_prefix_that_it_was_made_for(
    story: Story, budget: int, policy: str
) -> None:
    _, ctx = await opened(policy=policy, **floor_of(budget))
    requests: list[list[dict[str, Any]]] = []
    made_for: dict[str, int] = {}
    for message in story.messages:
        if message.get("role") == "assistant":
            requests.append(await ctx.get_messages_for_request(model=CHECKS_PREFIX))
            if _thinking(message):
                made_for.setdefault(json.dumps(_thinking(message)), len(requests) - 1)
        await ctx.add_message(message)
    requests.append(await ctx.get_messages_for_request(model=CHECKS_PREFIX))
    for request in requests:
        for message in request:
            first = made_for.get(json.dumps(_thinking(message)))
            if _thinking(message) and first is not None:
                before = requests[first]
                assert request[: len(before)] == before


@examples
@given(story=stories(), budget=budgets, policy=st.sampled_from(sorted(POLICIES.keys() - ASKING)))
async def test_what_is_to_be_answered_is_in_every_request(
    story: Story, budget: int, policy: str
) -> None:
    _, ctx = await opened(policy=policy, **floor_of(budget))
    for message in story.messages:
        await ctx.add_message(message)
        request = await ctx.get_messages_for_request()
        kind = read_facts(message).kind
        if kind in ("human", "user"):
            assert message in request
        if kind in ("human", "user", "assistant"):
            assert [one for one in request if not is_system(one)]


@examples
@given(story=stories(), budget=st.sampled_from([100, 300, 1_200]))
async def test_overflow_is_raised_where_the_floor_would_be_sent(story: Story, budget: int) -> None:
    raised: list[bool] = []
    _, ctx = await opened(max_tokens=budget)
    engine, floor = await opened(**floor_of(budget))
    for message in story.messages:
        await ctx.add_message(message)
        await floor.add_message(message)
        await floor.get_messages_for_request()
        try:
            await ctx.get_messages_for_request()
            raised.append(False)
        except ContextOverflow as overflow:
            assert overflow.floor > overflow.budget == budget
            assert sum(overflow.parts.values()) == overflow.floor
            raised.append(True)
    sent = [row.floor_sent for row in (await engine.audit("s")).requests]
    # Only the first of a run of overflows must agree: afterwards the two have other histories.
    assert (True in raised) == (True in sent)
    if True in sent:
        assert raised.index(True) == sent.index(True)


def as_of_ollama(message: dict[str, Any], ids: str) -> dict[str, Any]:
    """A row of OpenAI's chat in the form of Ollama's API; ``ids``: of no row, calls, or both."""
    if message["role"] == "tool" and ids == "nameless":
        return {"role": "tool", "content": message["content"]}
    if message["role"] == "tool":
        named = {**message, "tool_name": "read"}
        return named if ids == "both" else {k: v for k, v in named.items() if k != "tool_call_id"}
    calls = [
        {"function": {"name": "read", "arguments": json.loads(one["function"]["arguments"])}}
        | ({"id": one["id"]} if ids else {})
        for one in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": calls} if calls else message


@st.composite
def rows_of_ollama(draw: st.DrawFn) -> list[dict[str, Any]]:
    ids = draw(st.sampled_from(["", "calls", "both", "nameless"]))
    return [as_of_ollama(one, ids) for one in draw(stories("openai")).messages]


def waiting(call: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call, "name": "f", "arguments": "{}"}


LATE = [
    *[human("responses", "go"), waiting("x"), human("responses", "wait"), waiting("y")],
    {"type": "function_call_output", "call_id": "x", "output": "r"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]},
]
"""A late answer in a longer round of the Responses API."""


@examples
@example(rows=LATE)
@given(rows=stories().map(lambda story: story.messages) | rows_of_ollama())
async def test_a_layout_that_grew_is_the_one_built_anew(rows: list[dict[str, Any]]) -> None:
    engine, _ = await opened(*rows)
    found = list((await fold(engine.store, "s", request_view)).layout.refs)
    grown = build(())
    for count, ref in enumerate(found, start=1):
        grown = append(grown, ref)
        whole = build(found[:count])
        assert grown.entries() == whole.entries()
        assert grown.measure() == whole.measure()
        assert grown.omitted == whole.omitted


def _thinking(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if block.get("type") == "thinking"]


def _start_of_round(refs: list[Any], last: int) -> int:
    while last > 0 and refs[last - 1].facts.kind == "assistant":
        last -= 1
    return last


# -- events that later commands will write, given as records -------------------------------------


async def thirty(**options: Any) -> tuple[Engine, Context]:
    """A task, 28 messages of a model, and a person's last."""
    rows = [model(f"message {number}") for number in range(30)]
    rows[0], rows[29] = user("message 0"), user("message 29")
    return await opened(*rows, policy="simple", **options)


async def compacted() -> Engine:
    """Thirty messages, of which the task and the last ten are in view."""
    engine, ctx = await thirty()
    await ctx.compact()
    return engine


async def seen(engine: Engine) -> list[str]:
    ctx = await Engine(engine.store).session("s", policy="simple")
    return texts(await ctx.get_messages_for_request())


async def located(engine: Engine, number: int) -> Located:
    message = (await engine.transcript("s"))[number]
    async for record in engine.records("s", message.position, message.position):
        body = record.bodies[0]
        return Located(number, message.position, 0, body.digest, body.facts)
    raise AssertionError


async def test_a_restored_message_is_in_its_place_once_and_an_erasure_breaks() -> None:
    engine = await compacted()
    assert (await seen(engine))[:2] == ["message 0", "message 20"]
    pair = (await located(engine, 7), await located(engine, 3))
    await append_event(engine.store, events.Restored(messages=pair))
    assert (await seen(engine))[1:4] == ["message 3", "message 7", "message 20"]
    row = (await engine.audit("s")).requests[-1]
    assert row.breaks == ("restore",)
    assert (row.counts.kept, row.counts.dropped) == (13, 17)
    # Restoring what is in view already changes nothing.
    again = await located(engine, 25)
    for _ in range(2):
        await append_event(engine.store, events.Restored(messages=(again,)))
    assert len(await seen(engine)) == 13
    assert sum((await engine.audit("s")).requests[-1].counts) == 30
    await append_event(engine.store, events.Erased(numbers=(25,), bodies=((26, 0),)))
    await seen(engine)
    assert (await engine.audit("s")).requests[-1].breaks == ("erase",)


async def test_pins_hold_through_a_compaction_until_they_are_taken_away() -> None:
    engine, ctx = await thirty()
    await ctx.pin(2, 4)
    await ctx.unpin(4)
    await ctx.compact()
    assert (await seen(engine))[:2] == ["message 0", "message 2"]
    assert (await fold(engine.store, "s", request_view)).pins == {2}
    await ctx.get_messages()  # the other engine's request is seen by now
    await ctx.set_messages([user("fresh")])
    assert (await fold(engine.store, "s", request_view)).pins == frozenset()


async def test_a_request_may_have_insertions_of_its_own() -> None:
    engine = await compacted()
    state = await fold(engine.store, "s", request_view)
    body = body_of({"role": "system", "content": "Be brief."}, os.urandom)
    insertion = Insertion("system_prompt", 0)
    name, version, payload = encode_event(request_view.prepare_request(state))
    draft = Draft(os.urandom(16), name, version, 0, payload, (body,))
    # Prepared twice: the digest is known only once the insertion has its record.
    first = await engine.store.append("s", [draft], ANY)
    shown = planned.with_insertions(state, (insertion,), first.records[0])
    digest, entries, tokens = shown.layout.measure()
    event = events.RequestPrepared(1, 29, entries, tokens, digest, insertions=(insertion,))
    position = await append_event(engine.store, event, body)
    view = await request_at(engine.store, "s", position)
    assert view.verified
    assert view.messages[0] == {"role": "system", "content": "Be brief."}
    assert len(view.messages) == 12


async def test_a_summary_goes_with_what_it_stands_for() -> None:
    engine = await compacted()
    ctx = await Engine(engine.store).session("s", policy="simple")
    body = body_of(user("[a secret plan]"), os.urandom)
    plan = Plan(29, (Run(0, 28, "summarised", "summary"), Run(29, 29, "kept", "recent")))
    summary = Insertion("summary", 0, None, None, ((0, 28),))
    await append_event(
        engine.store, compacted_by_hand(Plan(plan.through, plan.runs, (), (summary,))), body
    )
    assert (await seen(engine))[0] == "[a secret plan]"
    (*_, last) = await ctx.get_messages()
    await ctx.set_messages([last])
    assert await ctx.get_messages_for_request() == [last]


async def test_a_summary_outlives_a_later_compaction_of_what_follows() -> None:
    engine, _ctx = await thirty()
    body = body_of(user("In short: all went well."), os.urandom)
    plan = Plan(
        through=29,
        runs=(Run(0, 19, "summarised", "summary"), Run(20, 29, "kept", "recent")),
        insertions=(Insertion("summary", 0, None, None, ((0, 19),)),),
    )
    await append_event(engine.store, compacted_by_hand(plan, messages_after=11), body)
    assert (await seen(engine))[:2] == ["In short: all went well.", "message 20"]
    again = await Engine(engine.store).session("s", policy="simple", keep_recent=4)
    await again.compact()
    assert (await seen(engine))[:2] == ["In short: all went well.", "message 26"]
    row = (await engine.audit("s")).requests[-1]
    assert (row.counts.summarised, row.counts.dropped, row.insertions) == (20, 6, 1)
    record = [r async for r in engine.records("s") if r.type == "context:post_compact"][-1]
    later: Any = decode_event(record)
    assert later.plan.insertions[0].at is not None
    assert record.bodies == ()


async def test_a_round_comes_back_in_the_order_of_the_transcript_also_behind_a_set() -> None:
    call, done = tool_round(1)
    rows = [user("go"), call, done, *[user(one) for one in "abcd"]]
    engine, ctx = await opened(*rows, policy="simple", keep_recent=2)
    edited = await ctx.get_messages()
    edited[1]["content"][0]["input"] = {"edited": 1}
    await ctx.set_messages(edited)
    await ctx.compact()
    # The call has a new number, the result its old, lower one.
    assert await ctx.restore(2) == (7, 2)
    view = await ctx.get_messages_for_request()
    assert refusal(view) is None
    assert done in view
    (row,) = (await engine.audit("s")).requests
    assert row.counts.omitted == 0


async def test_shortened_results_whose_call_a_set_took_out_count_once() -> None:
    rounds = [row for number in range(3) for row in tool_round(number, 6_000)]
    options: dict[str, Any] = {"max_tokens": 2_000, "protected_tool_results": 0}
    engine, ctx = await opened(user("go"), *rounds, user("on"), **options)
    await ctx.get_messages_for_request()
    await ctx.set_messages([m for m in await ctx.get_messages() if m["role"] == "user"])
    await ctx.get_messages_for_request()
    counts = (await engine.audit("s")).requests[-1].counts
    assert min(counts) >= 0 and sum(counts) == 5


async def test_a_late_answer_to_a_reused_call_id_is_a_recorded_break() -> None:
    asks = calling("x")
    engine, ctx = await opened(user("go"), asks, user("again"), asks, model("on"))
    before = await ctx.get_messages_for_request()
    await ctx.add_message(result("x", "late"))
    after = await ctx.get_messages_for_request()
    row = (await engine.audit("s")).requests[-1]
    assert after[: len(before)] == before or row.breaks == ("late_result",)
    assert row.breaks == ("late_result",)


async def test_a_set_keeps_the_thinking_that_the_host_brings() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "k"}
    text = {"type": "text", "text": "one"}
    old = {"role": "assistant", "content": [thinking, text]}
    new = {"role": "assistant", "content": [thinking, {"type": "text", "text": "two"}]}
    _, ctx = await opened(user("old"), user("q"), old)
    await ctx.set_messages([user("q"), old, new])
    view = await ctx.get_messages_for_request()
    assert view[1:] == [{"role": "assistant", "content": [text]}, new]
