from __future__ import annotations

import logging
import threading

import msgspec
import pytest
from opentelemetry import metrics as otel

from eventctx.hooks import metrics as sinks
from eventctx.hooks.metrics import MetricsSink
from eventctx.hooks.redact import DEFAULT
from eventctx.hooks.registry import Hooks
from eventctx.log import events as ev
from eventctx.projections.metrics import names
from eventctx.projections.metrics.fold import MAX_CALLS, evolve, fold, initial
from tests.hooks.given import SECOND, Session, compacted, prepared, publish, span, whole_turn
from tests.hooks.measured import Gathered, by_position, summed


def measured(session: Session, name: str) -> list[tuple[float, dict[str, str]]]:
    return [
        (one.value, one.attributes) for one in fold(session.records) if one.instrument.name == name
    ]


# -- what records measure ------------------------------------------------------------------------


def test_only_an_applied_compaction_has_tokens_before_and_after_and_each_a_duration():
    session = Session()
    session.add(compacted())
    session.add(compacted("skipped"))
    by = {"eventctx.compaction.trigger": "threshold", "eventctx.compaction.strategy": "sliding"}
    assert measured(session, "eventctx.compaction.estimated_tokens.before") == [(1000, by)]
    assert measured(session, "eventctx.compaction.estimated_tokens.after") == [(400, by)]
    assert [
        (value, by["eventctx.compaction.outcome"])
        for value, by in measured(session, "eventctx.compaction.duration")
    ] == [(0.5, "applied"), (0.5, "skipped")]


def test_how_long_an_imported_compaction_took_is_not_known():
    session = Session()
    session.add(msgspec.structs.replace(compacted(), trigger="imported", duration=0))
    assert measured(session, "eventctx.compaction.duration") == []
    sizes = measured(session, "eventctx.compaction.estimated_tokens.after")
    assert [value for value, _ in sizes] == [400]


def test_a_request_is_measured_against_its_budget():
    session = Session()
    session.add(
        ev.RequestPrepared(
            renderer=1,
            last_message=3,
            messages=4,
            tokens=400,
            digest="",
            budget=320,
            model="m",
            breaks=("compaction", "set"),
        )
    )
    model = {"gen_ai.request.model": "m"}
    assert measured(session, "eventctx.request.estimated_tokens") == [(400, model)]
    assert measured(session, "eventctx.request.budget.used") == [(1.25, model)]
    assert measured(session, "eventctx.request.breaks") == [
        (1, {"eventctx.request.break": "compaction"}),
        (1, {"eventctx.request.break": "set"}),
    ]


def test_the_first_request_reuses_nothing_and_one_without_a_break_all_of_the_one_before():
    session = Session()
    session.add(prepared())
    assert measured(session, "eventctx.request.prefix.reused") == []
    session.add(prepared())
    assert measured(session, "eventctx.request.prefix.reused") == [(1.0, {})]


def test_a_call_lasts_from_its_request_to_its_answer_and_says_how_it_failed():
    session = Session()
    session.add(ev.ProviderRequest(model="m1", provider="p"), span(1))
    session.add(ev.ProviderRequest(model="m2"), span(2))
    session.add(ev.ProviderResponse(model="m1-2026"), span(1))
    session.add(ev.ProviderError(error_type="RateLimited", message="secret"), span(2))
    chat = {"gen_ai.operation.name": "chat"}
    assert measured(session, "gen_ai.client.operation.duration") == [
        (2.0, chat | {"gen_ai.request.model": "m1", "gen_ai.provider.name": "p"}),
        (2.0, chat | {"gen_ai.request.model": "m2", "error.type": "RateLimited"}),
    ]


def test_a_call_is_measured_once_and_one_that_never_began_or_ended_not_at_all():
    session = Session()
    session.add(ev.ProviderResponse(), span(1))
    session.add(ev.ProviderRequest(), span(2))
    session.add(ev.ProviderRequest(), None)
    session.add(ev.ProviderResponse(), None)
    session.add(ev.ProviderRequest(), span(3))
    session.add(ev.ProviderResponse(), span(3))
    session.add(ev.ProviderError(error_type="Late"), span(3))
    assert [value for value, _ in measured(session, "gen_ai.client.operation.duration")] == [1.0]


def test_a_call_that_is_presumed_lost_is_measured_when_its_own_end_comes():
    session = Session()
    session.add(ev.ProviderRequest(), span(1))
    session.add(ev.ProviderError(error_type="ProcessEnded", status="lost"), span(1))
    assert measured(session, "gen_ai.client.operation.duration") == []
    session.add(ev.ProviderResponse(), span(1))
    assert [value for value, _ in measured(session, "gen_ai.client.operation.duration")] == [2.0]


def test_usage_is_measured_for_its_call_whether_before_or_after_the_answer():
    session = Session()
    for own, late in ((1, False), (2, True)):
        session.add(ev.ProviderRequest(model="m", provider="p"), span(own))
        if late:
            session.add(ev.ProviderResponse(), span(own))
        session.add(ev.UsageReported(prompt=80, output=own, cache_read=20), span(own))
    call = {"gen_ai.provider.name": "p", "gen_ai.request.model": "m"}
    chat = call | {"gen_ai.operation.name": "chat"}
    assert measured(session, "gen_ai.client.token.usage") == [
        (80, chat | {"gen_ai.token.type": "input"}),
        (1, chat | {"gen_ai.token.type": "output"}),
        (80, chat | {"gen_ai.token.type": "input"}),
        (2, chat | {"gen_ai.token.type": "output"}),
    ]
    assert measured(session, "eventctx.prompt.cached") == [(0.25, call)] * 2


def test_tokens_are_counted_and_measured_by_call_in_the_newest_names():
    session = Session()
    session.add(ev.ProviderRequest(model="m", provider="p"), span(1))
    session.add(ev.ProviderResponse(model="m-1"), span(1))
    usage = ev.UsageReported(prompt=80, output=7, cache_read=20, cache_write=30, reasoning=3)
    session.add(usage, span(1))
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "p",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-1",
    }
    by_modality = call | {"gen_ai.token.modality": "unknown"}
    for name, count in (
        ("input_tokens", 80),
        ("output_tokens", 7),
        ("cache_read.input_tokens", 20),
        ("cache_write.input_tokens", 30),
        ("reasoning.output_tokens", 3),
    ):
        found = measured(session, f"gen_ai.client.inference.usage.{name}")
        assert found == [(count, by_modality)]
    for name, count in (("input_tokens", 80), ("output_tokens", 7)):
        found = measured(session, f"gen_ai.client.inference.operation.{name}")
        assert found == [(count, call)]
    assert measured(session, "gen_ai.client.inference.duration") == [(1.0, call)]


def test_a_turn_and_its_tools_are_measured_with_the_name_of_their_agent():
    session = Session()
    session.add(ev.PromptSubmit(number=1, agent="coder"), span(1))
    session.add(ev.ToolPre(name="read", call_id="c"), span(2), span(1))
    session.add(ev.ToolPre(name="grep"), span(3), span(1))
    session.add(ev.ToolPost(name="read", call_id="c"), span(2), span(1))
    session.add(ev.ToolError(name="grep", error_type="OSError", message="a secret"), span(3))
    session.add(ev.PromptComplete(status="error", error="OSError: a secret"), span(1))
    session.add(ev.PromptSubmit(number=2), span(4), turn="t2")
    session.add(ev.PromptComplete(), span(4), turn="t2")
    tool = {"gen_ai.tool.type": "function", "gen_ai.agent.name": "coder"}
    assert measured(session, "gen_ai.execute_tool.duration") == [
        (2.0, tool | {"gen_ai.tool.name": "read"}),
        (2.0, tool | {"gen_ai.tool.name": "grep", "error.type": "OSError"}),
    ]
    turn = {"gen_ai.operation.name": "invoke_agent"}
    assert measured(session, "gen_ai.invoke_agent.duration") == [
        (5.0, turn | {"gen_ai.agent.name": "coder", "error.type": "OSError"}),
        (1.0, turn),
    ]


def test_usage_that_a_provider_left_out_or_a_format_does_not_hold_is_not_measured():
    session = Session()
    session.add(ev.UsageReported(prompt=0, output=0))
    session.add(ev.UsageReported(prompt=10, output=1, output_exact=False))
    session.add(ev.UsageReported(prompt=10, cache_read=11))
    assert [
        (value, by["gen_ai.token.type"])
        for value, by in measured(session, "gen_ai.client.token.usage")
    ] == [(10, "input"), (10, "input")]
    assert [value for value, _ in measured(session, "eventctx.prompt.cached")] == [0.0]


def test_unknown_types_and_broken_payloads_measure_nothing_and_hurt_nothing():
    session = Session()
    session.add(prepared())
    for kind in ("context:message_added", "context:post_compact", "usage:reported", "later:event"):
        session.raw(kind, b"junk", span(1))
    session.raw("context:post_compact", b"{}", version=9)
    session.add(ev.ProviderRequest(), span(1))
    session.raw("provider:response", b"[]", span(1))
    session.add(prepared())
    assert [one.instrument.name for one in fold(session.records)] == [
        "eventctx.request.estimated_tokens",
        "eventctx.request.estimated_tokens",
        "eventctx.request.prefix.reused",
    ]


@pytest.mark.parametrize("kind", ["context:request_prepared", "context:erased"])
def test_where_it_cannot_be_read_what_was_sent_the_next_request_has_none_before(kind: str):
    session = Session()
    session.add(prepared())
    session.raw(kind, b"junk")
    session.add(prepared())
    session.add(prepared())
    assert by_position(session.records, "eventctx.request.prefix.reused") == {3: 1.0}


def test_values_that_no_instrument_takes_are_left_out():
    session = Session()
    session.add(ev.RequestPrepared(renderer=1, last_message=0, messages=0, tokens=-5, digest=""))
    session.add(ev.UsageReported(prompt=-5, output=-1, cache_read=-9))
    wrong = msgspec.structs.replace(
        compacted(), strategy="s" * 200, tokens_before=-1, tokens_after=0, duration=-SECOND
    )
    session.add(wrong)
    found = list(fold(session.records))
    assert [(one.instrument.name, one.value) for one in found] == [
        ("eventctx.compactions", 1),
        ("eventctx.compaction.estimated_tokens.after", 0),
    ]
    assert found[0].attributes["eventctx.compaction.strategy"] == "_OTHER"


def test_a_record_at_position_0_begins_a_stream_whatever_was_folded_before():
    first, again = Session(), Session()
    first.add(ev.ProviderRequest(), span(1))
    again.add(ev.PromptSubmit(number=1), span(2))
    again.add(ev.ProviderResponse(), span(1))
    assert list(fold([*first.records, *again.records])) == []


def test_a_fold_remembers_a_bounded_number_of_calls():
    session, state = Session(), initial()
    for number in range(3 * MAX_CALLS):
        state = evolve(state, session.add(ev.ProviderRequest(), span(number + 1)))
    assert len(state.calls) == MAX_CALLS
    state = evolve(state, session.add(ev.ProviderResponse(), span(3 * MAX_CALLS)))
    assert [(one.instrument, one.value) for one in state.measured] == [
        (names.OPERATION_DURATION, 1.0),
        (names.INFERENCE_DURATION, 1.0),
    ]
    for number in range(3 * MAX_CALLS):
        state = evolve(state, session.add(ev.ToolPre(name="read"), span(number + 1)))
    assert len(state.open) == MAX_CALLS


# -- the sink ------------------------------------------------------------------------------------


OLDER = {"gen_ai.client.operation.duration", "gen_ai.client.token.usage"}


@pytest.mark.parametrize(
    ("chosen", "latest"),
    [
        ("", False),
        ("http", False),
        ("gen_ai_latest_experimental", True),
        ("http, gen_ai_latest_experimental ", True),
    ],
)
def test_who_opts_in_to_the_newest_conventions_gets_their_names_and_not_the_older_ones(
    monkeypatch: pytest.MonkeyPatch, chosen: str, latest: bool
):
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", chosen)
    out, session = Gathered(), Session()
    whole_turn(session)
    publish(session, MetricsSink(out.provider))
    assert out.points() == summed(fold(session.records), latest=latest)
    sent = set(out.metrics())
    assert OLDER & sent == (set() if latest else OLDER)
    assert any(name.startswith("gen_ai.client.inference.") for name in sent) == latest
    assert {"gen_ai.invoke_agent.duration", "gen_ai.execute_tool.duration"} <= sent


def test_parallel_sessions_do_not_mix():
    out = Gathered()
    sink = MetricsSink(out.provider)
    sessions = [Session(f"s{number}") for number in range(10)]
    for session in sessions:
        whole_turn(session)
    for row in zip(*[session.records for session in sessions], strict=True):
        for record in row:
            sink(record)
    assert out.points() == summed(one for each in sessions for one in fold(each.records))


def test_a_sink_holds_a_bounded_number_of_sessions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sinks, "MAX_SESSIONS", 3)
    out = Gathered()
    sink, first = MetricsSink(out.provider), Session("first")
    sink(first.add(prepared()))
    for number in range(10):
        sink(Session(f"s{number}").add(prepared()))
    assert len(sink._states) == 3
    sink(first.add(prepared()))
    assert ("eventctx.request.prefix.reused", frozenset()) not in out.points()
    assert out.points()["eventctx.request.estimated_tokens", frozenset()]["count"] == 12


def test_appends_are_measured_from_any_thread():
    out = Gathered()
    sink = MetricsSink(out.provider)
    threads = [threading.Thread(target=sink.appended, args=(0.002, 3)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    point = out.points()["eventctx.append.duration", frozenset()]
    assert (point["count"], point["max"], point["bounds"]) == (
        8,
        0.002,
        names.APPEND_DURATION.boundaries,
    )


def failing(record: object) -> None:
    raise ValueError("a bug")


def hooked() -> Hooks:
    hooks = Hooks()
    hooks.on("*", failing)
    return hooks


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
    assert out.points()["eventctx.hook.errors", FAILING] == {"sum": 5}
    ((dropped, point),) = [
        (by, point) for (name, by), point in out.points().items() if name == "eventctx.hook.drops"
    ]
    assert "slow" in dict(dropped)["eventctx.hook.handler"]
    assert point == {"sum": sum(hooks.stats().dropped.values())}
    assert 0 < point["sum"] < 5
    await hooks.close()
    sink.detach(hooks)
    assert out.points()["eventctx.hook.drops", dropped] == point


def test_sinks_of_one_provider_add_up_and_counts_stay_when_one_is_closed():
    out, one, other = Gathered(), hooked(), hooked()
    first, second = MetricsSink(out.provider), MetricsSink(out.provider)
    first.attach(one)
    second.attach(other)
    record = Session().add(ev.MessageAdded())
    one.publish(record)
    other.publish(record)
    assert out.points()["eventctx.hook.errors", FAILING] == {"sum": 2}
    first.close()
    first.close()
    one.publish(record)
    other.publish(record)
    assert out.points()["eventctx.hook.errors", FAILING] == {"sum": 3}
    first.attach(one)
    assert out.points()["eventctx.hook.errors", FAILING] == {"sum": 4}


class Refusing(otel.MeterProvider):
    """A provider that fails, as a host's own may."""

    requests = 0

    def get_meter(self, *args: object, **kwargs: object) -> otel.Meter:
        self.requests += 1
        raise RuntimeError("no meters today")


def test_a_provider_that_fails_is_told_of_once_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
):
    provider, session = Refusing(), Session()
    sink = MetricsSink(provider)
    with caplog.at_level(logging.INFO, "eventctx.hooks"):
        sink.resume([session.add(prepared())])
        sink.attach(Hooks())
        sink.appended(0.1, 1)
        sink(session.add(prepared()))
        sink.close()
    assert provider.requests == 1
    assert [one.message for one in caplog.records] == [
        "metrics: no meters today; further ones are logged at DEBUG"
    ]


def test_secrets_in_the_names_of_models_providers_and_errors_stay_out_unless_asked_for():
    key = "sk-ant-api03-" + "a1B2" * 12
    session = Session()
    session.add(ev.ProviderRequest(model=f"m?key={key}", provider="ann@example.org"), span(1))
    session.add(ev.ProviderError(error_type=key), span(1))
    for redactor, there in ((DEFAULT, False), (None, True)):
        gathered = Gathered()
        sink = MetricsSink(gathered.provider, redactor=redactor)
        for record in session.records:
            sink(record)
        output = repr(gathered.points())
        assert "gen_ai.client.operation.duration" in output
        assert (key in output, "ann@example.org" in output) == (there, there)


def test_a_closed_sink_has_forgotten_its_sessions_and_can_be_used_again():
    out, session = Gathered(), Session()
    sink = MetricsSink(out.provider)
    for record in (session.add(prepared()), session.add(prepared())):
        sink(record)
    sink.close()
    sink(session.add(prepared()))
    points = out.points()
    assert points["eventctx.request.estimated_tokens", frozenset()]["count"] == 3
    assert points["eventctx.request.prefix.reused", frozenset()]["count"] == 1
