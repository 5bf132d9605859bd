"""Log lines: what they say and never say, by which logger, level and format; a log that fails."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import encode
from structlog.testing import CapturingLogger, capture_logs

import eventctx
from eventctx.errors import InvalidSetting
from eventctx.hooks import log as log_lines
from eventctx.hooks.log import MAX_CONTENT, LogSink, configure_logging, level_of, line, lines
from eventctx.hooks.redact import DEFAULT, Redactor
from eventctx.hooks.trace import TraceSink
from eventctx.log import events as ev
from eventctx.log.events import CATALOGUE
from eventctx.log.ids import derive_trace_id
from eventctx.log.record import Body
from eventctx.projections.trace.fold import fold as fold_spans
from tests.hooks.given import (
    HOST_SPAN,
    HOST_TRACE,
    PRE,
    SECOND,
    START,
    E,
    Session,
    body,
    call_model,
    compacted,
    prepared,
    publish,
    recorded,
    span,
    whole_turn,
)
from tests.how_much import some
from tests.sessions import user

IDS = ("session_id", "turn_id", "span_id", "parent_span_id", "iteration")


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def live(session: Session, **options: Any) -> list[dict[str, Any]]:
    with capture_logs() as captured:
        publish(session, LogSink(**options))
    for entry in captured:
        del entry["log_level"]
    return captured


def test_every_line_carries_the_records_five_ids_position_trace_and_time_to_the_nanosecond():
    session = Session()
    whole_turn(session)
    for entry, record in zip(live(session), session.records, strict=True):
        assert [entry[name] for name in IDS] == [getattr(record, name) for name in IDS]
        assert (entry["position"], entry["event"]) == (record.position, record.type)
        assert entry["trace_id"] == derive_trace_id("s1", "t1")
    session = Session()
    assert line(session.add(ev.MessageAdded()))["time"] == "2026-09-21T14:13:20.000000000Z"
    later = session.add(ev.MessageAdded(), at=START + SECOND + 7)
    assert line(later)["time"].endswith(":21.000000007Z")


def test_a_plan_is_counts_and_a_body_a_size_and_no_erased_or_packed_content_leaves():
    fields = line(Session().add(compacted(), span(1), bodies=(body("secret"), body("text"))))
    counts = {"plan_dropped": 6, "plan_kept": 4, "plan_insertions": 0, "bodies": 2}
    assert (counts | {"body_bytes": 10}).items() <= fields.items()
    assert "secret" not in json.dumps(fields)
    assert all(isinstance(value, str | int | float | None) for value in fields.values())
    session = Session()
    erased = Body(bytes(32), b"", None, None, True)
    assert "content" not in line(session.add(ev.MessageAdded(), bodies=(erased,)), content=True)
    packed = ev.ImportRaw(source="x", lines=(1, 2), kinds={}, imported_at=0, encoding="zlib")
    fields = line(session.add(packed, bodies=(body("zz"),)), content=True)
    assert (fields["body_bytes"], "content" in fields) == (2, False)


def test_levels():
    for level, events in [
        ("info", [E.SUBMIT, E.DONE, PRE, *map(compacted, ("applied", "skipped", "cancelled"))]),
        ("warning", [ev.PromptComplete(status="error"), ev.PromptComplete(status="lost")]),
        ("warning", [compacted("failed"), ev.ToolError(name="x", error_type="E")]),
        ("warning", [ev.ProviderError(error_type="E")]),
        ("debug", [ev.MessageAdded(), prepared()]),
    ]:
        assert {level_of(line(Session().add(event))) for event in events} == {level}


def test_unknown_types_and_broken_payloads_are_tolerated():
    session = Session()
    session.raw("later:event", b"not json")
    session.raw("tool:pre", b"{}")
    session.raw("tool:pre", b'{"event":"tool:pre","name":"x"}', version=99)
    captured = live(session)
    assert [entry["unknown"] for entry in captured] == [True, True, True]


def test_a_line_names_the_trace_of_a_span_and_none_where_no_span_has_one():
    session, added = Session(), ev.MessageAdded()
    session.tell((ev.SessionStart(library="l"),), (added,), (prepared(), 9), turn=None)
    session.add(PRE, span(2), HOST_SPAN, turn=None)
    usage, pinned = ev.UsageReported(prompt=1, output=1), ev.Pinned(numbers=(1,))
    rows = [(one, 3, 2) for one in (E.ASK, added, E.ANSWER, usage)]
    session.tell(*rows, (pinned, 8, 2), turn=None)
    session.add(compacted(), span(2), HOST_SPAN, turn=None)
    session.tell((compacted(),), (ev.Unpinned(numbers=(1,)), 7, 6), turn=None)
    session.tell((E.SUBMIT, 4), (added,), (E.DONE, 4)).tell((ev.SessionEnd(),), turn=None)
    named = [entry["trace_id"] for entry in live(session)]
    assert named == [entry["trace_id"] for entry in lines(session.records)]
    at_session = [at for at, trace_id in enumerate(named) if trace_id is None]
    assert at_session == [0, 1, 2, 11, 15]
    assert set(named) - {None} == {one.trace_id for one in fold_spans(session.records)}
    assert len(set(named[3:10])) == 1
    session = Session()
    start = session.add(ev.SessionStart(library="l"), turn=None)
    assert line(start)["trace_id"] is None
    assert line(start, HOST_TRACE)["trace_id"] == HOST_TRACE
    assert line(session.add(ev.Pinned(numbers=(1,))))["trace_id"] == derive_trace_id("s1", "t1")


def test_an_ambient_trace_is_known_even_when_only_warnings_are_kept():
    out = CapturingLogger()
    kind = structlog.make_filtering_bound_logger(logging.WARNING)
    logger = structlog.wrap_logger(out, [lambda *args: ((), args[2])], wrapper_class=kind)
    session = Session().tell((ev.PromptSubmit(number=1, trace_id=HOST_TRACE), 1), (E.USE, 2, 1))
    publish(session.tell((ev.ToolError(name="x", error_type="E"), 2, 1)), LogSink(logger))
    (call,) = out.calls
    assert call.kwargs["trace_id"] == HOST_TRACE


def test_configured_json_is_one_object_a_line_with_our_ids():
    out, session = io.BytesIO(), Session()
    configure_logging(json=True, level="info", file=out)
    whole_turn(session)
    publish(session, LogSink())
    written = [json.loads(text) for text in out.getvalue().splitlines()]
    assert [one["event"] for one in written] == [
        *("prompt:submit", "context:pre_compact", "context:post_compact"),
        *("tool:error", "prompt:complete"),
    ]
    assert [one["level"] for one in written] == ["info"] * 3 + ["warning", "info"]
    assert {one["trace_id"] for one in written} == {derive_trace_id("s1", "t1")}


# -- redaction and contents ----------------------------------------------------------------------

KEY = "sk-" + "aB3dE6gH9jK2" * 4


def telling() -> Session:
    session = Session().tell((ev.PromptSubmit(number=1, agent="ann@example.org"), 1))
    added = body(f'{{"role":"user","content":"use {KEY}"}}')
    session.add(ev.MessageAdded(), span(1), bodies=(added,))
    message = f"GET https://bob:hunter2@example.org failed with {KEY}"
    failed = ev.ToolError(name="run", error_type="OSError", message=message)
    return session.tell((ev.ToolPre(name=f"run {KEY}"), 2, 1), (failed, 2, 1))


def test_secrets_leave_in_no_line_by_default_and_contents_only_where_asked_for():
    entries = live(telling())
    assert KEY not in repr(entries)
    assert "hunter2" not in repr(entries)
    assert entries[0]["agent"] == "[redacted:email]"
    assert entries[2]["tool_name"] == "run [redacted:api-key]"
    assert entries[3]["tool_message"] == (
        "GET https://bob:[redacted:password]@example.org failed with [redacted:api-key]"
    )
    entries = live(telling(), redactor=None)
    assert (entries[0]["agent"], entries[2]["tool_name"]) == ("ann@example.org", f"run {KEY}")
    assert "content" not in entries[1]
    session = telling()
    assert not any("content" in fields for fields in lines(session.records))
    entries = live(session, content=True)
    assert ["content" in entry for entry in entries] == [False, True, False, False]
    assert entries[1]["content"] == '{"role":"user","content":"use [redacted:api-key]"}'
    assert entries[1]["body_bytes"] == len(session.records[1].bodies[0].data or b"")
    assert KEY in live(session, content=True, redactor=None)[1]["content"]


@pytest.mark.parametrize("redactor", [DEFAULT, None])
def test_a_line_of_a_megabyte_is_cut_and_keeps_the_size(redactor: Redactor | None):
    long, session = "é" * 1_000_000, Session()
    added = session.add(ev.MessageAdded(), bodies=(body(long), body(long)))
    fields = line(added, content=True, redactor=redactor)
    assert (len(fields["content"]), fields["content"][-2:]) == (MAX_CONTENT, "é…")
    assert fields["body_bytes"] == 4_000_000
    error = session.add(ev.ToolError(name=long, error_type=long, message=long))
    found = line(error, redactor=redactor)
    assert {len(found[name]) for name in ("tool_name", "error_type", "tool_message")} == {1000}
    assert len(repr(line(session.raw("later:event", long.encode())))) < 1_000


@settings(max_examples=some(20, 60))
@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=1200)), max_size=5))
def test_any_texts_make_a_line_that_is_short_flat_and_the_same_again(texts: list):
    session = Session()
    for name, message in texts:
        try:
            record = session.add(ev.ToolError(name=name, error_type="E", message=message))
        except UnicodeEncodeError:
            continue
        fields = line(record)
        assert all(len(value) <= 1000 for value in fields.values() if isinstance(value, str))
        assert fields == line(record)


# -- other loggers -------------------------------------------------------------------------------


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.texts.append(self.format(record))


@pytest.fixture
def standard():
    logger, handler = logging.Logger("a.host", logging.DEBUG), Kept()
    logger.addHandler(handler)
    return logger, handler


def test_a_logger_of_the_standard_library_gets_message_and_fields_with_an_adapters(standard):
    logger, handler = standard
    session = telling()
    publish(session, LogSink(logger))
    assert [one.levelname for one in handler.records] == ["INFO", "DEBUG", "DEBUG", "WARNING"]
    for sent, fields in zip(handler.records, lines(session.records), strict=True):
        assert {name: getattr(sent, name) for name in fields} == fields
    shown = "prompt:submit session_id=s1 position=0 number=1 agent=[redacted:email]"
    assert handler.texts[0] == shown
    assert KEY not in repr(handler.texts)
    logger, handler = standard
    adapter = logging.LoggerAdapter(logging.LoggerAdapter(logger, {"inner": 1}), {"app": "x"})
    LogSink(adapter)(Session().add(ev.PromptSubmit(number=1)))
    *_, sent = handler.records
    assert (sent.app, sent.inner, sent.session_id, sent.number) == ("x", 1, "s1", 1)


INJECTED = "x\nINFO forged\r\n\tline \x1b[31mred \x9b2J \u2028 \u202e \u200b \x7f \U000e0041"
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200b\u202e\U000e0041]")


def test_no_field_of_a_standard_logger_holds_a_line_end_or_an_escape_sequence(standard):
    """Whatever somebody writes who wants a line of their own."""
    logger, handler = standard
    failed = ev.ToolError(name=INJECTED, error_type="E", message=INJECTED)
    session = Session().tell((E.SUBMIT, 1))
    session.add(failed, span(2), span(1), bodies=(body(INJECTED),))
    session.raw("later:event", json.dumps({INJECTED: [INJECTED]}).encode())
    publish(session, LogSink(logger, content=True))
    texts = [*handler.texts, *_texts([vars(sent) for sent in handler.records])]
    assert any("forged" in text for text in texts)
    assert [text for text in texts if CONTROLS.search(text)] == []


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def test_no_field_of_any_event_is_one_that_logging_has_itself():
    own = {*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName"}
    for row in CATALOGUE.values():
        fields = {field.name for field in msgspec.structs.fields(row.payload)}
        assert not (fields & own) - log_lines._TAKEN, row.name


class CountingRedactor(Redactor):
    lines = 0

    def fields(self, fields: Any, *, limit: int | None = None) -> dict[str, Any]:
        type(self).lines += 1
        return super().fields(fields, limit=limit)


def test_a_level_that_is_switched_off_costs_no_line(standard):
    logger, handler = standard
    logger.setLevel(logging.WARNING)
    render, kind = [structlog.stdlib.render_to_log_kwargs], structlog.stdlib.BoundLogger
    session, counting = Session(), CountingRedactor()
    whole_turn(session)
    for out in (logger, structlog.wrap_logger(logger, render, wrapper_class=kind)):
        publish(session, LogSink(out, redactor=counting))
    assert [one.event for one in handler.records if hasattr(one, "event")] == ["tool:error"]
    assert counting.lines == 2


@pytest.mark.parametrize(
    "kind", [structlog.BoundLogger, structlog.stdlib.BoundLogger, structlog.stdlib.AsyncBoundLogger]
)
async def test_a_logger_that_cannot_say_its_level_gets_every_line(kind: Any):
    plain = structlog.PrintLogger(file := io.StringIO())
    render, session = [structlog.processors.LogfmtRenderer()], Session()
    whole_turn(session)
    publish(session, LogSink(structlog.wrap_logger(plain, render, wrapper_class=kind)))
    assert len(file.getvalue().splitlines()) == len(session.records)


def test_the_hosts_processors_and_wrapper_are_used_and_nothing_is_configured():
    LogSink()
    assert not structlog.is_configured()
    out, session = CapturingLogger(), Session()
    render = structlog.processors.KeyValueRenderer()
    structlog.configure(
        processors=[lambda _logger, _method, fields: {**fields, "host": "h1"}, render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: out,
    )
    before = structlog.get_config()
    whole_turn(session)
    publish(session, LogSink())
    assert structlog.get_config() == before
    assert ["host='h1'" in call.args[0] for call in out.calls] == [True] * 5


def test_a_record_of_a_turn_that_was_forked_in_is_in_the_trace_of_its_span_not_in_the_hosts():
    parent = Session("parent").tell((ev.PromptSubmit(number=1, trace_id=HOST_TRACE), 1))
    child = Session("child", at=1).tell((ev.SessionFork(parent="parent", at=0),), turn=None)
    child.tell((compacted("failed", error="left open"), 2, 1))
    records = [*parent.records, *child.records]
    (traced,) = fold_spans(records)
    first, *_, last = lines(records)
    assert last["trace_id"] == live(child)[-1]["trace_id"] == traced.trace_id
    assert first["trace_id"] == HOST_TRACE


# -- levels and formats by environment, and a log that fails ---------------------------------------


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


async def a_turn() -> None:
    name = "a-session-with-a-name-that-goes-on-and-on-" + "x" * 120
    async with eventctx.open(sinks=[LogSink()]) as engine:
        ctx = await engine.session(name, max_tokens=3_000)
        async with ctx.turn() as turn, turn.iteration() as cycle:
            for number in range(9):
                await ctx.add_message(user(f"{number} " + "word " * 300))
            await ctx.get_messages_for_request()
            await call_model(cycle, "a-model-" + "y" * 90)


async def printed(monkeypatch: pytest.MonkeyPatch, chosen: str, **options: Any) -> list[str]:
    monkeypatch.setenv("EVENTCTX_LOG", chosen)
    out = io.BytesIO()
    configure_logging(file=out, **options)
    await a_turn()
    return out.getvalue().decode().splitlines()


async def test_the_environment_chooses_level_and_format_but_what_the_program_says_goes_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert all(json.loads(text)["level"] == "info" for text in await printed(monkeypatch, "json"))
    debug = [json.loads(text) for text in await printed(monkeypatch, "debug,json")]
    assert {"debug", "info"} <= {one["level"] for one in debug}
    assert len(debug[-1]["span_id"]) == 16
    assert "context:message_added" in str(await printed(monkeypatch, "Console, DEBUG"))
    assert await printed(monkeypatch, "error") == []
    for chosen in ("debug,console", "loud"):
        assert await printed(monkeypatch, chosen, json=True, level="error") == []
    with pytest.raises(InvalidSetting, match=r"EVENTCTX_LOG: expected debug, .*console.*'loud'"):
        configure_logging(file=io.BytesIO())


async def test_a_record_is_one_console_line_with_short_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [_COLOURS.sub("", text) for text in await printed(monkeypatch, "debug,console")]
    assert len(lines) > 12
    assert max(map(len, lines)) < 160
    assert not any(re.search(r"\b[0-9a-f]{16,}\b", text) for text in lines)
    assert all(re.search(r"span_id=[0-9a-f]{8}\b", text) for text in lines if "provider" in text)


SINK = "eventctx.hooks.log.LogSink"


def refuses(*_: Any, **__: Any) -> None:
    raise ConnectionResetError("the collector is gone")


def refusing(kind: str) -> Any:
    if kind == "structlog":
        out = SimpleNamespace(debug=refuses, info=refuses, warning=refuses)
        return structlog.wrap_logger(out, [structlog.processors.KeyValueRenderer()])
    logger, handler = logging.Logger("a.host", logging.DEBUG), logging.Handler()
    handler.emit = refuses  # type: ignore[method-assign]
    logger.addHandler(handler)
    return logger


@pytest.mark.parametrize("kind", ["structlog", "standard"])
async def test_a_logger_that_raises_is_counted_once_a_record_and_others_hear(kind: str) -> None:
    heard: list[int] = []
    async with eventctx.open() as engine:
        engine.on("*", LogSink(refusing(kind)))
        engine.on("*", lambda record: heard.append(record.position))
        engine.on("*", TraceSink())
        ctx = await engine.session("s")
        async with ctx.turn() as turn, turn.iteration() as cycle:
            await ctx.add_message(user("go"))
            await call_model(cycle)
        await ctx.close()
        positions = [record.position for record in await recorded(engine)]
        assert heard == positions
        assert engine.hooks.stats().errors == {"eventctx.hooks.log.LogSink": len(positions)}
        assert (await engine.verify("s")).problems == ()


def written(file: io.BytesIO) -> list[str]:
    return [json.loads(text)["event"] for text in file.getvalue().splitlines()]


@pytest.mark.parametrize("cached", [True, False])
def test_a_reconfiguration_may_change_the_level_and_the_processors(cached: bool) -> None:
    file, louder = io.BytesIO(), io.BytesIO()
    structlog.configure(
        processors=[structlog.processors.JSONRenderer(lambda fields, **_: encode(fields))],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.BytesLoggerFactory(file=file),
        cache_logger_on_first_use=cached,
    )
    session, sink = Session(), LogSink()
    whole_turn(session)
    publish(session, sink)
    configure_logging(json=True, level="warning", file=louder)
    publish(session, sink)
    assert len(session.records) == len(written(file))
    assert written(louder) == ["tool:error"]
