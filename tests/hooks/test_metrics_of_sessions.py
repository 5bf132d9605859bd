"""Metrics of real sessions: equal live and from the log, and true of what was really sent."""

from __future__ import annotations

import asyncio
import copy
import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import eventctx
from eventctx.engine import Engine
from eventctx.hooks.metrics import MetricsSink
from eventctx.log import events as ev
from eventctx.log.codec import encode_event
from eventctx.log.ids import random_bytes
from eventctx.log.plan import Insertion
from eventctx.log.record import Draft
from eventctx.log.store import ANY
from eventctx.messages.tokens import UNANSWERED_TOKENS
from eventctx.projections.metrics import names
from eventctx.projections.metrics.fold import Measurement, fold
from eventctx.projections.view import request_view
from eventctx.projections.view.layout import build, with_end
from eventctx.projections.view.planned import RequestPrefix, reused_share
from eventctx.projections.view.refs import CallEnd, MessageRef
from eventctx.projections.view.render import without_thinking
from eventctx.projections.view.request_view import ViewState
from eventctx.queries.requests import RequestView
from eventctx.queries.requests import fold as fold_state
from eventctx.stores.memory import MemoryStore
from tests.hooks.measured import OPERATIONAL, Gathered, by_position, summed
from tests.how_much import some
from tests.queries.explained import thirty, user
from tests.sessions import body_of, erase
from tests.transcripts import Story, answer, calls, stories

REUSED = names.PREFIX_REUSED.name


async def worked(ctx: eventctx.Context, turns: int = 3) -> None:
    """Turns with tool rounds, calls whose usage comes late or never, and a failing tool."""
    for number in range(turns):
        async with ctx.turn(agent="coder") as turn:
            await ctx.add_message({"role": "user", "content": f"go {number}"})
            for step in range(5):
                async with turn.iteration() as cycle:
                    await ctx.get_messages_for_request(model="model-1")
                    async with cycle.provider_call("model-1", "acme") as call:
                        await call.usage(900 + step, 20, cache_read=100 * step)
                    key = f"c{number}.{step}"
                    block = {"type": "tool_use", "id": key, "name": "read", "input": {}}
                    await ctx.add_message({"role": "assistant", "content": [block]})
                    with pytest.raises(OSError):
                        async with cycle.tool_call("read", key):
                            raise OSError("no such file")
                    done = {"type": "tool_result", "tool_use_id": key, "content": "z" * 500}
                    await ctx.add_message({"role": "user", "content": [done]})


async def broken_off(ctx: eventctx.Context) -> None:
    """A call that fails, and a turn that is cancelled during its call."""
    with pytest.raises(TimeoutError):
        async with ctx.turn() as turn, turn.iteration() as cycle:
            await ctx.get_messages_for_request()
            async with cycle.provider_call("model-1", "acme"):
                raise TimeoutError("https://example.org/secret took too long")
    calling = asyncio.Event()

    async def endless() -> None:
        async with ctx.turn() as turn, turn.iteration(1) as cycle, cycle.provider_call("model-2"):
            calling.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(endless())
    await calling.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def measured_by(engine: Engine, session: str = "s") -> list[Measurement]:
    return list(fold([record async for record in engine.records(session)]))


async def test_metrics_of_a_live_session_equal_those_folded_from_its_log() -> None:
    out = Gathered()
    sink = MetricsSink(out.provider)
    async with eventctx.open() as engine:
        engine.on("*", sink)
        ctx = await engine.session("s", max_tokens=1_200)
        await ctx.add_message({"role": "user", "content": "Never touch b.py."})
        await worked(ctx)
        await ctx.compact(reason="to see")
        await ctx.compact()
        await ctx.clear()
        await worked(ctx, turns=1)
        await broken_off(ctx)
        await ctx.close()
        found = await measured_by(engine)
        audit = await engine.audit("s")
        assert not engine.hooks.stats().errors
    live = out.points()
    assert live == summed(found)
    compacted = [one for one in found if one.instrument is names.COMPACTIONS]
    assert len(compacted) == len(audit.compactions) >= 4
    assert {"manual", "threshold"} <= {one.attributes[names.TRIGGER] for one in compacted}
    outcomes = {one.attributes[names.COMPACTION_OUTCOME] for one in compacted}
    assert {"applied", "skipped"} <= outcomes
    assert {name for name, _ in live} == {
        one.name for one in names.sent_instruments(latest=False)
    } - OPERATIONAL
    breaks = {dict(by)["eventctx.request.break"] for name, by in live if "breaks" in name}
    assert {"compaction", "clear"} <= breaks
    errors = {dict(by).get("error.type") for name, by in live if "operation" in name}
    assert errors == {None, "TimeoutError", "CancelledError"}


async def test_the_requests_that_are_measured_are_those_of_the_audit() -> None:
    async with eventctx.open() as engine:
        await worked(await engine.session("s", max_tokens=1_200))
        found, rows = await measured_by(engine), (await engine.audit("s")).requests
    assert [one.value for one in found if one.instrument is names.REQUEST_TOKENS] == [
        row.tokens for row in rows
    ]
    assert [one.value for one in found if one.instrument is names.BUDGET_USED] == [
        row.tokens / 1_200 for row in rows
    ]
    assert [one.value for one in found if one.instrument is names.PROMPT_CACHED] == [
        100 * step / (900 + step) for _ in range(3) for step in range(5)
    ]
    assert {one.attributes["gen_ai.request.model"] for one in found if one.value == 20} == {
        "model-1"
    }


async def test_a_session_that_is_resumed_goes_on_as_its_log_says() -> None:
    store, out = MemoryStore(), Gathered()
    first = Engine(store)
    await worked(await first.session("s", max_tokens=1_200))
    before = [record async for record in first.records("s")]
    async with Engine(store) as engine:
        sink = MetricsSink(out.provider)
        sink.resume(before)
        engine.on("*", sink)
        ctx = await engine.session("s", max_tokens=1_200)
        await worked(ctx)
        await ctx.close()
        whole = await measured_by(engine)
    assert out.points() == summed(whole[len(list(fold(before))) :])
    assert any(0 < one.value < 1 for one in whole[1:] if one.instrument is names.PREFIX_REUSED)


async def test_a_fork_measures_its_own_records_and_goes_on_from_its_parents_last_request() -> None:
    out = Gathered()
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=1_200)
        await worked(ctx)
        parent = await measured_by(engine)
        head = [record.position async for record in engine.records("s")][-1]
        await engine.fork("s", head, "child")
        assert await measured_by(engine, "child") == []
        sink = MetricsSink(out.provider)
        sink.resume([record async for record in engine.records("child")])
        engine.on("*", sink)
        child = await engine.session("child", max_tokens=1_200)
        await child.add_message(user("and now?"))
        await child.get_messages_for_request()
        await child.close()
        found = await measured_by(engine, "child")
        assert await measured_by(engine) == parent
    assert out.points() == summed(found)
    names_of = [one.instrument.name for one in found]
    assert REUSED in names_of
    assert names.TOKEN_USAGE.name not in names_of


# -- the prefix that is reused -------------------------------------------------------------------


def share(before: RequestView, after: RequestView) -> float:
    """The same as bytes tell: the messages with which both requests begin, in tokens."""
    total = shared = 0
    same = True
    texts = [json.dumps(message) for message in after.messages]
    for place, (entry, message) in enumerate(zip(before.entries, before.messages, strict=True)):
        same = same and place < len(texts) and texts[place] == json.dumps(message)
        total += entry.tokens
        shared += entry.tokens if same else 0
    return shared / total if total else 1.0


async def check(engine: Engine, exact: bool = True) -> list[float]:
    """Compare every measured share with the bytes of the requests."""
    records = [record async for record in engine.records("s")]
    measured = by_position(records, REUSED)
    places = [one.position for one in records if one.type == "context:request_prepared"]
    assert list(measured) == places[1:]
    views = [await engine.request_view("s", position=place) for place in places]
    for before, after in pairwise(views):
        if before.changes or after.changes:
            continue  # what makes a row acceptable is not in the entries that the metric compares
        value, true = measured[after.position], share(before, after)
        assert value == true if exact else value <= true, (before, after)
    return list(measured.values())


def all_differ(messages: list[dict[str, Any]]) -> bool:
    """Whether no two messages are the same bytes, thinking apart, which a view may leave out.

    The log knows such two apart, and their bytes do not.
    """
    plain = [json.dumps(without_thinking(copy.deepcopy(message))) for message in messages]
    return len(set(plain)) == len(plain)


examples = settings(
    max_examples=some(10, 100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@examples
@given(
    story=stories(),
    budget=st.sampled_from([300, 1_200, 4_000]),
    policy=st.sampled_from(["ladder", "simple", "truncate"]),
    every=st.integers(1, 4),
)
def test_the_measured_share_is_that_of_the_bytes_that_were_sent(
    story: Story, budget: int, policy: str, every: int
) -> None:
    async def play() -> None:
        engine = Engine(MemoryStore())
        ctx = await engine.session("s", policy=policy, on_overflow="send_floor", max_tokens=budget)
        for number, message in enumerate(story.messages):
            await ctx.add_message(message)
            if number % every == 0:
                await ctx.get_messages_for_request()
        await check(engine, exact=all_differ(story.messages))

    asyncio.run(play())


@examples
@given(story=stories(), data=st.data())
def test_a_set_or_a_clear_is_never_said_to_share_more_than_its_bytes_do(
    story: Story, data: st.DataObject
) -> None:
    rows = st.lists(st.sampled_from(story.messages), max_size=len(story.messages))

    async def play() -> None:
        engine = Engine(MemoryStore())
        ctx = await engine.session("s", on_overflow="send_floor", max_tokens=1_200)
        for message in story.messages:
            await ctx.add_message(message)
        await ctx.get_messages_for_request()
        await ctx.set_messages(data.draw(rows))
        await ctx.get_messages_for_request()
        await check(engine, exact=False)

    asyncio.run(play())


async def test_a_shortened_or_dropped_message_shares_only_what_is_before_it() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s", max_tokens=1_200)
    await worked(ctx)
    found = await check(engine)
    assert 1.0 in found
    assert any(0 < one < 1 for one in found)


async def test_restored_messages_break_the_prefix_where_they_stand() -> None:
    engine, ctx = await thirty(keep_recent=6)
    await ctx.compact()
    await ctx.get_messages_for_request()
    await ctx.restore(3, 4)
    await ctx.get_messages_for_request()
    await check(engine)


async def test_what_is_set_anew_shares_the_messages_that_stayed() -> None:
    engine, ctx = await thirty()
    await ctx.set_messages([*(await ctx.get_messages())[:15], user("another")])
    await ctx.get_messages_for_request()
    (found,) = await check(engine)
    assert found == pytest.approx(0.5, abs=0.1)


async def prepared_by_hand(engine: Engine, *texts: str, model: str | None = None) -> None:
    """A request with insertions of its own, as another release may write it."""
    event = ev.RequestPrepared(
        renderer=1,
        last_message=29,
        messages=30 + len(texts),
        tokens=600,
        digest="",
        model=model,
        insertions=tuple([Insertion("memory", body) for body in range(len(texts))]),
    )
    name, version, payload = encode_event(event)
    bodies = tuple([body_of(user(text), random_bytes) for text in texts])
    await engine.store.append(
        "s", [Draft(random_bytes(16), name, version, 0, payload, bodies)], ANY
    )


async def test_insertions_of_one_request_alone_count_for_it_and_the_next() -> None:
    engine, _ = await thirty()
    await prepared_by_hand(engine, "remember this")
    await prepared_by_hand(engine)
    await prepared_by_hand(engine)
    first, second, third = await check(engine)
    assert (first, second, third) == (0.0, 0.0, 1.0)


async def test_a_model_of_another_family_changes_the_weights_and_not_what_is_shared() -> None:
    engine, ctx = await thirty()
    await ctx.get_messages_for_request(model="claude-sonnet-4")
    await ctx.get_messages_for_request(model="gpt-5")
    await ctx.compact(policy="simple", budget=300)
    await ctx.get_messages_for_request(model="claude-sonnet-4")
    found = list(by_position([r async for r in engine.records("s")], REUSED).values())
    assert found[:2] == [1.0, 1.0]
    assert found[2] < 0.5


async def test_an_erased_message_ends_what_is_shared() -> None:
    engine, ctx = await thirty()
    positions = [line.position for line in await engine.transcript("s")]
    await erase(ctx, ev.Erased(numbers=(15,), bodies=((positions[15], 0),)))
    await ctx.get_messages_for_request()
    await ctx.get_messages_for_request()
    found = list(by_position([r async for r in engine.records("s")], REUSED).values())
    assert found == [pytest.approx(0.5, abs=0.1), 1.0]
    await ctx.set_messages((await ctx.get_messages())[:29])
    await ctx.get_messages_for_request()
    *_, last = by_position([r async for r in engine.records("s")], REUSED).values()
    assert 0.9 < last < 1


async def refs_of(*messages: dict[str, Any]) -> list[MessageRef]:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    for message in messages:
        await ctx.add_message(message)
    state: ViewState = await fold_state(engine.store, "s", request_view)
    return list(state.layout.refs)


def sent(*refs: MessageRef) -> RequestPrefix:
    return RequestPrefix(replace(request_view.initial(), layout=build(refs)))


async def test_the_same_body_shown_in_another_way_is_another_message() -> None:
    question, reply = await refs_of(user("x" * 100), *answer("openai", "y" * 100))
    before = sent(question, reply)
    assert reused_share(before, sent(question, reply), frozenset()) == 1.0
    stripped = msgspec.structs.replace(reply, stripped=True)
    assert 0 < (reused_share(before, sent(question, stripped), frozenset()) or 0) < 1
    moved = msgspec.structs.replace(reply, number=7, position=70, tokens=1)
    assert reused_share(before, sent(question, moved), frozenset()) == 1.0


async def test_results_left_out_of_a_row_and_made_up_for_another_call_are_told_apart() -> None:
    go, call, row = await refs_of(
        user("go"),
        *calls("anthropic", ["a", "b"], "hm", 10),
        {"role": "user", "content": [one for key in "ab" for one in _block(key)]},
    )

    def of(*answered: str) -> MessageRef:
        facts = msgspec.structs.replace(call.facts, calls=answered)
        return msgspec.structs.replace(call, facts=facts)

    same = go.tokens + call.tokens
    share_of_row = reused_share(sent(go, call, row), sent(go, of("a"), row), frozenset())
    assert share_of_row == same / (same + row.tokens)
    share_of_made_up = reused_share(sent(go, of("a")), sent(go, of("b")), frozenset())
    assert share_of_made_up == same / (same + UNANSWERED_TOKENS)
    ended = with_end(build((go, of("a"))), "a", CallEnd(ended=True))
    later = RequestPrefix(replace(request_view.initial(), layout=ended))
    assert reused_share(sent(go, of("a")), later, frozenset()) == same / (same + UNANSWERED_TOKENS)


async def test_a_kept_answer_that_was_erased_ends_what_is_shared() -> None:
    go, call = await refs_of(user("go"), *calls("anthropic", ["a"], "hm", 10))
    kept = with_end(build((go, call)), "a", CallEnd(True, 7, b"digest"))
    view = RequestPrefix(replace(request_view.initial(), layout=kept))
    assert reused_share(view, view, frozenset()) == 1.0
    assert (reused_share(view, view, frozenset({(7, 0)})) or 0) < 1


def _block(key: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": key, "content": "r" * 50}]


async def test_no_attribute_holds_an_id_or_what_an_error_said() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=1_200)
        await worked(ctx)
        await broken_off(ctx)
        await ctx.close()
        found = await measured_by(engine)
        records = [record async for record in engine.records("s")]
    ids: set[Any] = {"s"}
    for record in records:
        ids |= {record.turn_id, record.span_id, record.parent_span_id}
    for one in found:
        assert set(one.attributes) <= set(one.instrument.attributes), one
        assert ids.isdisjoint(one.attributes.values())
        assert not any("secret" in value for value in one.attributes.values())
