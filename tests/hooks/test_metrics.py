"""What records measure, what the sink makes of it, and that it is true of what was really sent."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import threading
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.hooks import metrics as sinks
from eventctx.hooks.metrics import MetricsSink
from eventctx.hooks.redact import DEFAULT
from eventctx.hooks.registry import Hooks
from eventctx.log import events as ev
from eventctx.projections.metrics import names
from eventctx.projections.metrics.fold import MAX_CALLS, evolve, fold, initial
from eventctx.projections.view.render import without_thinking
from eventctx.queries.requests import RequestView
from eventctx.stores.memory import MemoryStore
from tests.hooks.given import SECOND, E, Session, compacted, prepared, publish, span, whole_turn
from tests.hooks.measured import Gathered, by_position, summed
from tests.hooks.observing import agent
from tests.how_much import some
from tests.queries.explained import thirty
from tests.sessions import erase
from tests.transcripts import Story, stories

REUSED, CALLS = "eventctx.request.prefix.reused", "gen_ai.client.operation.duration"
CHAT = {"gen_ai.operation.name": "chat"}


def measured(session: Session, name: str) -> list[tuple[float, dict[str, str]]]:
    found = [one for one in fold(session.records) if one.instrument.name == name]
    return [(one.value, one.attributes) for one in found]


# -- what records measure ------------------------------------------------------------------------


def test_only_an_applied_compaction_has_tokens_before_and_after_and_each_a_duration():
    imported = msgspec.structs.replace(compacted(), trigger="imported", duration=0)
    session = Session().tell((compacted(),), (compacted("skipped"),), (imported,))
    by = {"eventctx.compaction.trigger": "threshold", "eventctx.compaction.strategy": "sliding"}
    both = [by, by | {"eventctx.compaction.trigger": "imported"}]
    for name, count in (("before", 1000), ("after", 400)):
        found = measured(session, f"eventctx.compaction.estimated_tokens.{name}")
        assert found == [(count, by) for by in both]
    durations = measured(session, "eventctx.compaction.duration")  # an imported one's is unknown
    outcomes = [(value, by["eventctx.compaction.outcome"]) for value, by in durations]
    assert outcomes == [(0.5, "applied"), (0.5, "skipped")]


def test_a_request_is_measured_against_its_budget_and_by_what_it_reuses_of_the_one_before():
    broken = {"budget": 320, "model": "m", "breaks": ("compaction", "set")}
    session = Session().tell((msgspec.structs.replace(prepared(), **broken),))
    model = {"gen_ai.request.model": "m"}
    assert measured(session, "eventctx.request.estimated_tokens") == [(400, model)]
    assert measured(session, "eventctx.request.budget.used") == [(1.25, model)]
    breaks = measured(session, "eventctx.request.breaks")
    assert breaks == [(1, {"eventctx.request.break": why}) for why in ("compaction", "set")]
    session = Session().tell((prepared(),))
    assert measured(session, REUSED) == []
    assert measured(session.tell((prepared(),)), REUSED) == [(1.0, {})]


def test_a_call_lasts_once_from_its_request_to_its_answer_and_says_how_it_failed():
    failed = ev.ProviderError(error_type="RateLimited", message="secret")
    session = Session().tell((ev.ProviderRequest(model="m1", provider="p"), 1))
    session.tell((ev.ProviderRequest(model="m2"), 2), (E.ANSWER, 1), (failed, 2))
    assert measured(session, CALLS) == [
        (2.0, CHAT | {"gen_ai.request.model": "m1", "gen_ai.provider.name": "p"}),
        (2.0, CHAT | {"gen_ai.request.model": "m2", "error.type": "RateLimited"}),
    ]
    for rows, durations in [
        ([(E.ANSWER, 1), (E.ASK, 2), (E.ASK, None), (E.ANSWER, None)], []),
        ([(E.ASK, 3), (E.ANSWER, 3), (LATE, 3)], [1.0]),
        ([(E.ASK, 1), (LOST, 1)], []),
        ([(E.ASK, 1), (LOST, 1), (E.ANSWER, 1)], [2.0]),  # presumed lost
    ]:
        assert [value for value, _ in measured(Session().tell(*rows), CALLS)] == durations
    turn = Session().tell((E.SUBMIT, 1), (ev.PromptComplete(status="lost"), 1))
    assert measured(turn, "gen_ai.invoke_agent.duration") == []


LATE = ev.ProviderError(error_type="Late")
LOST = ev.ProviderError(error_type="ProcessEnded", status="lost")


def test_usage_is_measured_for_its_call_before_or_after_the_answer_and_in_the_newest_names():
    session, asked = Session(), ev.ProviderRequest(model="m", provider="p")
    usage = ev.UsageReported(prompt=80, output=1, cache_read=20)
    session.tell((asked, 1), (usage, 1), (asked, 2), (E.ANSWER, 2))
    session.tell((msgspec.structs.replace(usage, output=2), 2))
    call = {"gen_ai.provider.name": "p", "gen_ai.request.model": "m"}
    read, written = ({"gen_ai.token.type": kind} for kind in ("input", "output"))
    chat = call | CHAT
    tokens = [(80, chat | read), (1, chat | written), (80, chat | read), (2, chat | written)]
    assert measured(session, "gen_ai.client.token.usage") == tokens
    assert measured(session, "eventctx.prompt.cached") == [(0.25, call)] * 2
    session = Session().tell((ev.ProviderRequest(model="m", provider="p"), 1))
    usage = ev.UsageReported(prompt=80, output=7, cache_read=20, cache_write=30, reasoning=3)
    session.tell((ev.ProviderResponse(model="m-1"), 1), (usage, 1))
    models = {"gen_ai.request.model": "m", "gen_ai.response.model": "m-1"}
    call = CHAT | {"gen_ai.provider.name": "p"} | models
    lead = "gen_ai.client.inference"
    counts = {"input_tokens": 80, "output_tokens": 7, "cache_read.input_tokens": 20}
    counts |= {"cache_write.input_tokens": 30, "reasoning.output_tokens": 3}
    for name, count in counts.items():
        by_modality = call | {"gen_ai.token.modality": "unknown"}
        assert measured(session, f"{lead}.usage.{name}") == [(count, by_modality)]
    for name in ("input_tokens", "output_tokens"):
        assert measured(session, f"{lead}.operation.{name}") == [(counts[name], call)]
    assert measured(session, f"{lead}.duration") == [(1.0, call)]


def test_a_turn_and_its_tools_are_measured_with_the_name_of_their_agent():
    failed = ev.ToolError(name="grep", error_type="OSError", message="a secret")
    ended = ev.PromptComplete(status="error", error="OSError: a secret")
    session = Session().tell((ev.PromptSubmit(number=1, agent="coder"), 1))
    session.tell((ev.ToolPre(name="read"), 2, 1), (ev.ToolPre(name="grep"), 3, 1))
    session.tell((ev.ToolPost(name="read"), 2, 1), (failed, 3), (ended, 1))
    session.tell((E.SUBMIT, 4), (E.DONE, 4), turn="t2")
    tool = {"gen_ai.tool.type": "function", "gen_ai.agent.name": "coder"}
    assert measured(session, "gen_ai.execute_tool.duration") == [
        (2.0, tool | {"gen_ai.tool.name": "read"}),
        (2.0, tool | {"gen_ai.tool.name": "grep", "error.type": "OSError"}),
    ]
    turn = {"gen_ai.operation.name": "invoke_agent"}
    failed = turn | {"gen_ai.agent.name": "coder", "error.type": "OSError"}
    assert measured(session, "gen_ai.invoke_agent.duration") == [(5.0, failed), (1.0, turn)]


def test_usage_that_was_left_out_and_values_that_no_instrument_takes_are_not_measured():
    inexact = ev.UsageReported(prompt=10, output=1, output_exact=False)
    beyond = ev.UsageReported(prompt=10, cache_read=11)
    session = Session().tell((ev.UsageReported(prompt=0, output=0),), (inexact,), (beyond,))
    found = measured(session, "gen_ai.client.token.usage")
    assert [(value, by["gen_ai.token.type"]) for value, by in found] == [(10, "input")] * 2
    assert [value for value, _ in measured(session, "eventctx.prompt.cached")] == [0.0]
    wrong = {"strategy": "s" * 200, "tokens_before": -1, "tokens_after": 0, "duration": -SECOND}
    session = Session().tell(
        (ev.RequestPrepared(renderer=1, last_message=0, messages=0, tokens=-5, digest=""),),
        (ev.UsageReported(prompt=-5, output=-1, cache_read=-9),),
        (msgspec.structs.replace(compacted(), **wrong),),
    )
    found = list(fold(session.records))
    values = [(one.instrument.name.removeprefix("eventctx.compaction"), one.value) for one in found]
    assert values == [("s", 1), (".estimated_tokens.after", 0)]
    assert found[0].attributes["eventctx.compaction.strategy"] == "_OTHER"


@pytest.mark.parametrize("kind", ["context:request_prepared", "context:erased"])
def test_where_it_cannot_be_read_what_was_sent_the_next_request_has_none_before(kind: str):
    session = Session().tell((prepared(),))
    session.raw(kind, b"junk")
    session.tell((prepared(),), (prepared(),))
    assert by_position(session.records, REUSED) == {3: 1.0}


def test_a_stream_begins_at_position_0_and_unknown_types_and_broken_payloads_measure_nothing():
    first, again = Session().tell((E.ASK, 1)), Session().tell((E.SUBMIT, 2), (E.ANSWER, 1))
    assert list(fold([*first.records, *again.records])) == []
    session = Session().tell((prepared(),))
    for kind in ("context:message_added", "context:post_compact", "usage:reported", "later:event"):
        session.raw(kind, b"junk", span(1))
    session.raw("context:post_compact", b"{}", version=9)
    session.tell((E.ASK, 1)).raw("provider:response", b"[]", span(1))
    session.tell((prepared(),))
    tokens = "eventctx.request.estimated_tokens"
    assert [one.instrument.name for one in fold(session.records)] == [tokens, tokens, REUSED]


def test_a_fold_remembers_a_bounded_number_of_calls():
    session, state = Session(), initial()
    for number in range(3 * MAX_CALLS):
        state = evolve(state, session.add(ev.ProviderRequest(), span(number + 1)))
    assert len(state.calls) == MAX_CALLS
    state = evolve(state, session.add(ev.ProviderResponse(), span(3 * MAX_CALLS)))
    found = [(one.instrument, one.value) for one in state.measured]
    assert found == [(names.OPERATION_DURATION, 1.0), (names.INFERENCE_DURATION, 1.0)]
    for number in range(3 * MAX_CALLS):
        state = evolve(state, session.add(ev.ToolPre(name="read"), span(number + 1)))
    assert len(state.open) == MAX_CALLS


# -- the sink ------------------------------------------------------------------------------------


OLDER = {"gen_ai.client.operation.duration", "gen_ai.client.token.usage"}


def test_who_opts_in_to_the_newest_conventions_gets_their_names_and_not_the_older_ones(
    monkeypatch: pytest.MonkeyPatch,
):
    newest = "gen_ai_latest_experimental"
    for chosen, latest in (("", 0), ("http", 0), (newest, 1), (f"http, {newest} ", 1)):
        monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", chosen)
        out, session = Gathered(), Session()
        whole_turn(session)
        publish(session, MetricsSink(out.provider))
        assert out.points() == summed(fold(session.records), latest=bool(latest))
        sent = set(out.metrics())
        assert OLDER & sent == (set() if latest else OLDER)
        assert any(name.startswith("gen_ai.client.inference.") for name in sent) == latest
        assert {"gen_ai.invoke_agent.duration", "gen_ai.execute_tool.duration"} <= sent


def test_parallel_sessions_do_not_mix():
    out = Gathered()
    sink = MetricsSink(out.provider)
    sessions = [Session(f"s{number}") for number in range(10)]
    for row in zip(*map(whole_turn, sessions), strict=True):
        for record in row:
            sink(record)
    assert out.points() == summed(one for each in sessions for one in fold(each.records))


def test_a_sink_holds_few_sessions_and_none_when_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sinks, "MAX_SESSIONS", 3)
    out = Gathered()
    sink, first = MetricsSink(out.provider), Session("first")
    sink(first.add(prepared()))
    for number in range(10):
        sink(Session(f"s{number}").add(prepared()))
    assert len(sink._states) == 3
    sink(first.add(prepared()))
    assert (REUSED, frozenset()) not in out.points()
    assert out.points()["eventctx.request.estimated_tokens", frozenset()]["count"] == 12
    out, session = Gathered(), Session().tell((prepared(),), (prepared(),))
    sink = MetricsSink(out.provider)
    for record in session.records:
        sink(record)
    sink.close()
    sink(session.add(prepared()))
    points = out.points()
    assert points["eventctx.request.estimated_tokens", frozenset()]["count"] == 3
    assert points[REUSED, frozenset()]["count"] == 1


def test_appends_are_measured_from_any_thread():
    out = Gathered()
    sink = MetricsSink(out.provider)
    threads = [threading.Thread(target=sink.appended, args=(0.002, 3)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    point = out.points()["eventctx.append.duration", frozenset()]
    bounds = names.APPEND_DURATION.boundaries
    assert (point["count"], point["max"], point["bounds"]) == (8, 0.002, bounds)


def failing(record: object) -> None:
    raise ValueError("a bug")


FAILING = frozenset({("eventctx.hook.handler", f"{__name__}.failing")})


async def test_errors_and_drops_of_hooks_are_reported_by_handler():
    out, hooks, session = Gathered(), Hooks(queue_limit=1), Session()
    hooks.on("*", failing)
    sink = MetricsSink(out.provider)
    sink.attach(hooks)
    sink.attach(hooks)

    async def slow(record: object) -> None: ...

    hooks.on("*", slow)
    for _ in range(5):
        hooks.publish(session.add(ev.MessageAdded()))
    points = out.points()
    assert points["eventctx.hook.errors", FAILING] == {"sum": 5}
    (dropped,) = [by for name, by in points if name == "eventctx.hook.drops"]
    assert "slow" in dict(dropped)["eventctx.hook.handler"]
    point = points["eventctx.hook.drops", dropped]
    assert point == {"sum": sum(hooks.stats().dropped.values())}
    assert 0 < point["sum"] < 5
    await hooks.close()
    sink.detach(hooks)
    assert out.points()["eventctx.hook.drops", dropped] == point


def test_sinks_of_one_provider_add_up_and_counts_stay_when_one_is_closed():
    out, record, registries = Gathered(), Session().add(ev.MessageAdded()), [Hooks(), Hooks()]
    sinks = [MetricsSink(out.provider) for _ in registries]

    def errors() -> Any:
        return out.points()["eventctx.hook.errors", FAILING]["sum"]

    for sink, hooks in zip(sinks, registries, strict=True):
        hooks.on("*", failing)
        sink.attach(hooks)
        hooks.publish(record)
    assert errors() == 2
    sinks[0].close()
    sinks[0].close()
    for hooks in registries:
        hooks.publish(record)
    assert errors() == 3
    sinks[0].attach(registries[0])
    assert errors() == 4


def test_a_provider_that_fails_is_told_of_once_and_harms_nobody(caplog: pytest.LogCaptureFixture):
    provider, session = Mock(get_meter=Mock(side_effect=RuntimeError("no meters today"))), Session()
    sink = MetricsSink(provider)
    with caplog.at_level(logging.INFO, "eventctx.hooks"):
        sink.resume([session.add(prepared())])
        sink.attach(Hooks())
        sink.appended(0.1, 1)
        sink(session.add(prepared()))
        sink.close()
    assert provider.get_meter.call_count == 1
    assert caplog.messages == ["metrics: no meters today; further ones are logged at DEBUG"]


@pytest.mark.parametrize(("redactor", "there"), [(DEFAULT, False), (None, True)])
def test_secrets_in_names_of_models_providers_and_errors_stay_out(redactor: Any, there: bool):
    key = "sk-ant-api03-" + "a1B2" * 12
    asked = ev.ProviderRequest(model=f"m?key={key}", provider="ann@example.org")
    session, out = Session().tell((asked, 1), (ev.ProviderError(error_type=key), 1)), Gathered()
    publish(session, MetricsSink(out.provider, redactor=redactor))
    output = repr(out.points())
    assert "gen_ai.client.operation.duration" in output
    assert (key in output, "ann@example.org" in output) == (there, there)


# -- metrics of real sessions ----------------------------------------------------------------------


async def broken_off(ctx: eventctx.Context) -> None:
    """A tool and a call that fail, and a turn that is cancelled during its call."""
    async with ctx.turn() as turn, turn.iteration() as cycle:
        with pytest.raises(OSError, match="secret"):
            async with cycle.tool_call("read", "c"):
                raise OSError("no such file: secret")
    with pytest.raises(TimeoutError):
        async with ctx.turn() as turn, turn.iteration() as cycle:
            await ctx.get_messages_for_request()
            async with cycle.provider_call("model-1", "acme"):
                raise TimeoutError("https://example.org/secret took too long")
    with pytest.raises(asyncio.CancelledError):
        async with ctx.turn() as turn, turn.iteration(1) as cycle, cycle.provider_call("model-2"):
            raise asyncio.CancelledError


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


async def check(engine: Engine, exact: bool = True) -> None:
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
        # The log knows two messages of the same bytes apart, and a view may leave thinking out.
        bare = [json.dumps(without_thinking(copy.deepcopy(one))) for one in story.messages]
        await check(engine, exact=len(set(bare)) == len(bare))

    asyncio.run(play())


@examples
@given(story=stories(), data=st.data())
def test_a_set_never_shares_more_than_its_bytes_do(story: Story, data: st.DataObject) -> None:
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


async def shares(engine: Engine) -> list[float]:
    return list(by_position([record async for record in engine.records("s")], REUSED).values())


async def test_an_erased_message_ends_what_is_shared_and_another_family_does_not() -> None:
    engine, ctx = await thirty()
    positions = [line.position for line in await engine.transcript("s")]
    await erase(ctx, ev.Erased(numbers=(15,), bodies=((positions[15], 0),)))
    await ctx.get_messages_for_request()
    await ctx.get_messages_for_request()
    assert await shares(engine) == [pytest.approx(0.5, abs=0.1), 1.0]
    await ctx.set_messages((await ctx.get_messages())[:29])
    await ctx.get_messages_for_request()
    assert 0.9 < (await shares(engine))[-1] < 1
    engine, ctx = await thirty()
    await ctx.get_messages_for_request(model="claude-sonnet-4")
    await ctx.get_messages_for_request(model="gpt-5")
    await ctx.compact(policy="simple", budget=300)
    await ctx.get_messages_for_request(model="claude-sonnet-4")
    *before, last = await shares(engine)
    assert before == [1.0, 1.0]
    assert last < 0.5


async def test_no_attribute_holds_an_id_or_what_an_error_said() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=1_200)
        await agent(ctx)
        await broken_off(ctx)
        await ctx.close()
        records = [record async for record in engine.records("s")]
    ids: set[Any] = {"s"}
    for record in records:
        ids |= {record.turn_id, record.span_id, record.parent_span_id}
    for one in fold(records):
        assert set(one.attributes) <= set(one.instrument.attributes), one
        assert ids.isdisjoint(one.attributes.values())
        assert not any("secret" in value for value in one.attributes.values())
