"""Files of a session's trace, as Jaeger's and as OTLP JSON, and what the root of a trace tells."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource

import eventctx
from eventctx.hooks.otlp import readable
from eventctx.hooks.redact import DEFAULT
from eventctx.log import events as ev
from eventctx.projections.trace.files import jaeger_file, jaeger_span, otlp_line
from eventctx.projections.trace.fold import SessionTrace, fold
from eventctx.projections.trace.identity import MAX_TITLE
from eventctx.projections.trace.spans import Span, SpanEvent
from eventctx.version import __version__
from tests.hooks.given import (
    PRE,
    START,
    Session,
    call_model,
    compacted,
    filled,
    recorded,
    span,
    whole_turn,
)
from tests.session.given import opened
from tests.sessions import body_of, user

RESOURCE = {"service.name": "eventctx", "host.id": "eventctx"}
TraceId = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
SpanId = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Base of what Jaeger's interface reads; anything else in the file is an error."""


class Tag(Strict, tag_field="type"):
    key: Annotated[str, Meta(min_length=1)]


class Text(Tag, tag="string"):
    value: str


class Flag(Tag, tag="bool"):
    value: bool


class Whole(Tag, tag="int64"):
    value: (
        Annotated[int, Meta(ge=-(2**53) + 1, lt=2**53)] | Annotated[str, Meta(pattern="^-?[0-9]+$")]
    )


class Real(Tag, tag="float64"):
    value: float


AnyTag = Text | Flag | Whole | Real


class Reference(Strict):
    ref_type: Annotated[str, Meta(pattern="^(CHILD_OF|FOLLOWS_FROM)$")]
    trace_id: TraceId = msgspec.field(name="traceID")
    span_id: SpanId = msgspec.field(name="spanID")


class Log(Strict):
    timestamp: Annotated[int, Meta(gt=0)]
    fields: list[AnyTag]


class JaegerSpan(Strict):
    operation_name: Annotated[str, Meta(min_length=1)]
    references: list[Reference]
    start_time: Annotated[int, Meta(gt=0)]
    duration: Annotated[int, Meta(ge=0)]
    tags: list[AnyTag]
    logs: list[Log]
    warnings: None
    trace_id: TraceId = msgspec.field(name="traceID")
    span_id: SpanId = msgspec.field(name="spanID")
    process_id: str = msgspec.field(name="processID")


class Process(Strict):
    service_name: Annotated[str, Meta(min_length=1)]
    tags: list[AnyTag]


class Trace(Strict):
    spans: Annotated[list[JaegerSpan], Meta(min_length=1)]
    processes: dict[str, Process]
    warnings: None
    trace_id: TraceId = msgspec.field(name="traceID")


class JaegerFile(Strict):
    data: list[Trace]
    total: int
    limit: int
    offset: int
    errors: None


def everything() -> list[Span]:
    """Turns with a compaction, parallel tools, an error, a cancellation, and an end that lacks."""
    session = Session()
    whole_turn(session)
    whole_turn(session, "t2", 0x200)
    cancelled = ev.ToolError(name="slow", error_type="CancelledError", status="cancelled")
    session.add(ev.PromptSubmit(number=3), span(0x300), turn="t3")
    for event, own, parent in (
        *[(ev.ProviderRequest(), 0x302, 0x300), (ev.ProviderResponse(), 0x302, 0x300)],
        *[(ev.ToolPre(name="quick"), 0x303, 0x302), (ev.ToolPost(name="quick"), 0x303, 0x302)],
        *[(ev.ToolPre(name="slow"), 0x301, 0x300), (cancelled, 0x301, 0x300)],
    ):
        session.add(event, span(own), span(parent), turn="t3")
    return list(fold(session.records))


def as_jaeger(spans: Iterable[Span]) -> bytes:
    traces: dict[str, list[bytes]] = {}
    for one in spans:
        traces.setdefault(one.trace_id, []).append(jaeger_span(one, "1.0"))
    return b"".join(jaeger_file(traces, RESOURCE))


def read(data: bytes) -> JaegerFile:
    return msgspec.json.decode(data, type=JaegerFile)


def test_jaegers_interface_can_read_every_span_of_a_jaeger_file() -> None:
    assert read(b"".join(jaeger_file({}, RESOURCE))).data == []
    spans = everything()
    file = read(as_jaeger(spans))
    assert len(file.data) == 3
    found = {one.span_id: one for trace in file.data for one in trace.spans}
    assert len(found) == len(spans)
    for trace in file.data:
        for one in trace.spans:
            assert one.trace_id == trace.trace_id
            assert {reference.span_id for reference in one.references} <= found.keys()
            assert trace.processes[one.process_id].service_name == "eventctx"
    for span_ in spans:
        one = found[span_.span_id]
        start, end = span_.start // 1000, span_.end // 1000
        told = (one.operation_name, one.start_time, one.duration)
        assert told == (span_.name, start, end - start)
        tags = {tag.key: tag.value for tag in one.tags}
        for name, value in span_.attributes.items():
            tag = json.dumps(value, separators=(",", ":")) if isinstance(value, tuple) else value
            assert tags[name] == tag
        assert tags["span.kind"] == span_.kind
        assert [(one.ref_type, one.trace_id, one.span_id) for one in one.references] == [
            *([("CHILD_OF", span_.trace_id, span_.parent_span_id)] if span_.parent_span_id else []),
            *[("FOLLOWS_FROM", link.trace_id, link.span_id) for link in span_.links],
        ]
        assert ("error" in tags) == (span_.status == "error")
        assert [log.fields[0].value for log in one.logs] == [event.name for event in span_.events]


def _hex(value: Any) -> Any:
    if isinstance(value, list):
        return [_hex(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {
        key: base64.b64decode(item).hex() if key in ids else _hex(item)
        for key, item in value.items()
    }


def ours(spans: list[Span]) -> Any:
    return json.loads(otlp_line(spans, RESOURCE, __version__))


def test_an_otlp_line_says_what_opentelemetrys_own_encoder_says() -> None:
    spans = everything()
    # What OpenTelemetry's own encoder makes of them, by the JSON mapping of OTLP.
    request = encode_spans([readable(one, Resource(RESOURCE)) for one in spans])
    expected = _hex(MessageToDict(request, use_integers_for_enums=True))
    (scope,) = expected["resourceSpans"][0]["scopeSpans"]
    for one in scope["spans"]:
        if one["status"] == {}:
            del one["status"]
    assert ours(spans) == expected
    assert {len(one.links) for one in spans} == {0, 1}


_VALUES = st.one_of(
    st.text(max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.text(max_size=5), max_size=3).map(tuple),
)


@given(st.dictionaries(st.text(min_size=1, max_size=10), _VALUES, max_size=6), st.text(max_size=20))
def test_any_attribute_survives_both_files(attributes: dict[str, Any], text: str) -> None:
    events = (SpanEvent("e", START, attributes),)
    ids, times = ("a" * 32, "b" * 16, None), (START, START + 5)
    one = Span(f"n{text}", "client", *ids, *times, "error", text, attributes, events)
    (sent,) = ours([one])["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert {pair["key"]: _value(pair["value"]) for pair in sent["attributes"]} == attributes
    assert sent["status"]["message"] == text
    (trace,) = read(as_jaeger([one])).data
    tags = {tag.key: tag.value for tag in trace.spans[0].logs[0].fields[1:]}
    assert {name: _told(value) for name, value in attributes.items()} == tags


def _value(attribute: dict[str, Any]) -> Any:
    ((kind, value),) = attribute.items()
    if kind == "intValue":
        return int(value)
    if kind == "doubleValue":
        return float(value)
    if kind == "arrayValue":
        return tuple(item["stringValue"] for item in value["values"])
    return value


def _told(value: Any) -> Any:
    if isinstance(value, tuple):
        return msgspec.json.encode(value).decode()
    if type(value) is int and not -(2**53) < value < 2**53:
        return str(value)
    return value


TITLE = "eventctx.session.title"
KEY = "sk-ant-api03-" + "a1B2" * 12


async def roots(engine: eventctx.Engine, session: str = "s", clean: Any = str) -> list[Span]:
    state, found = SessionTrace.start(clean), list[Span]()
    async for record in engine.records(session, bodies=True):
        state = state.after(record)
        found = [] if record.type == "session:fork" else [*found, *state.finished]
    return [one for one in found if one.parent_span_id is None]


async def turns_of(ctx: eventctx.Context, *texts: str) -> None:
    for text in texts:
        async with ctx.turn():
            await ctx.add_message(user(text))


def test_a_turn_counts_its_applied_compactions_and_the_tokens_that_they_saved() -> None:
    session = Session()
    session.add(ev.PromptSubmit(number=1), span(1))
    for number, outcome in enumerate(("applied", "skipped", "applied", "failed"), 2):
        session.add(PRE, span(number), span(1))
        session.add(compacted(outcome), span(number), span(1))
    session.add(ev.PromptComplete(), span(1))
    session.add(PRE, span(8), turn=None)
    session.add(compacted("applied"), span(8), turn=None)
    found = {one.span_id: one.attributes for one in fold(session.records)}
    saved = compacted("applied").tokens_before - compacted("applied").tokens_after
    assert saved > 0
    of_turn = found[span(1)]
    assert of_turn["eventctx.turn.plans"] == 2
    assert of_turn["eventctx.turn.estimated_tokens.saved"] == 2 * saved
    assert "eventctx.turn.plans" not in found[span(8)]


async def test_the_title_of_roots_is_the_beginning_of_the_first_words_of_a_person() -> None:
    engine, ctx = await opened({"role": "system", "content": "Be brief."}, max_tokens=2_000)
    async with ctx.turn() as turn, turn.iteration() as cycle:
        await ctx.add_message(user("Fix the\n  clock " + "now " * 50))
        await ctx.add_messages([user(f"Task {number} " + "x " * 400) for number in range(8)])
        await ctx.get_messages_for_request()
        await call_model(cycle)
    await ctx.compact(budget=600)
    records = await recorded(engine)
    titled = [one for one in filled(records) if TITLE in one.attributes]
    titles = {one.name: str(one.attributes[TITLE]) for one in titled}
    assert titles.keys() == {"invoke_agent", "compact workset"}
    (title,) = set(titles.values())
    assert title.startswith("Fix the clock now now ")
    assert (len(title), title[-1]) == (MAX_TITLE, "…")
    for one in filled(records):
        assert (TITLE in one.attributes) == (one.parent_span_id is None)
    assert all(TITLE not in one.attributes for one in fold(records)), "contents are off"


async def test_a_secret_in_it_is_redacted_before_it_is_cut() -> None:
    engine, ctx = await opened()
    await turns_of(ctx, "x" * (MAX_TITLE - 10) + f" {KEY}")
    (turn,) = await roots(engine, clean=DEFAULT.text)
    assert KEY[:12] not in str(turn.attributes[TITLE])


async def test_once_erased_it_is_gone_live_and_from_the_log_and_no_other_takes_its_place() -> None:
    engine, ctx = await opened()
    await turns_of(ctx, "My name is Ann", "Go on")
    assert [one.attributes[TITLE] for one in await roots(engine)] == ["My name is Ann"] * 2
    seen, known = SessionTrace.start(str), await recorded(engine)
    for record in known:
        seen = seen.after(record)
    await engine.erase("s", [0])
    await turns_of(ctx, "And then")
    live = list[Span]()
    for record in (await recorded(engine))[len(known) :]:
        seen = seen.after(record)
        live += seen.finished
    assert [TITLE in one.attributes for one in live] == [False]
    assert all(TITLE not in one.attributes for one in await roots(engine))


async def test_a_harness_gives_no_title_and_a_fork_has_its_parents() -> None:
    engine, ctx = await opened(user("<system-reminder>x</system-reminder>"))
    await turns_of(ctx, "Fix the clock")
    await engine.fork("s", (await recorded(engine))[-1].position, "child")
    await turns_of(await engine.session("child"), "Fix the bell")
    (own,) = await roots(engine, "child")
    assert own.attributes[TITLE] == "Fix the clock"


def test_what_a_harness_said_by_its_record_gives_no_title_in_a_list_either() -> None:
    session = Session()
    bodies = tuple([body_of(user(text), bytes) for text in ("from the harness", "Fix the clock")])
    session.add(ev.PromptSubmit(number=1), span(1))
    session.add(ev.MessageAdded(origin="harness"), bodies=bodies[:1])
    session.add(ev.MessagesSet(order=((0, 2),), harness=(0,)), bodies=bodies)
    session.add(ev.PromptComplete(), span(1))
    (turn,) = filled(session.records)
    assert turn.attributes[TITLE] == "Fix the clock"
