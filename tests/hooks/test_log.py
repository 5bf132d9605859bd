from __future__ import annotations

import io
import json
import logging

import pytest
import structlog
from structlog.testing import CapturingLogger, capture_logs

from eventctx import events as ev
from eventctx.errors import InvalidSetting
from eventctx.hooks.log import LogSink, configure_logging, level_of, line, lines
from eventctx.hooks.registry import Hooks
from eventctx.identity import derive_trace_id
from tests.hooks.given import (
    HOST_SPAN,
    HOST_TRACE,
    PRE,
    SECOND,
    START,
    Session,
    body,
    compacted,
    prepared,
    span,
    whole_turn,
)

IDS = ("session_id", "turn_id", "span_id", "parent_span_id", "iteration")


@pytest.fixture(autouse=True)
def _structlog_as_it_was():
    yield
    structlog.reset_defaults()


def live(session: Session) -> list[dict]:
    hooks = Hooks()
    hooks.on("*", LogSink())
    with capture_logs() as captured:
        for record in session.records:
            hooks.publish(record)
    assert not hooks.stats().errors
    return captured


def test_every_line_carries_the_records_five_ids_position_and_trace():
    session = Session()
    whole_turn(session)
    captured = live(session)
    assert len(captured) == len(session.records)
    for entry, record in zip(captured, session.records, strict=True):
        assert [entry[name] for name in IDS] == [getattr(record, name) for name in IDS]
        assert entry["position"] == record.position
        assert entry["event"] == record.type
        assert entry["trace_id"] == derive_trace_id("s1", "t1")


def test_live_lines_equal_those_made_from_the_log():
    session = Session()
    session.add(ev.PromptSubmit(number=1, trace_id=HOST_TRACE), span(1), HOST_SPAN)
    session.add(ev.MessageAdded(), span(1), bodies=(body(),))
    session.add(PRE, span(2), turn=None)
    session.add(ev.ProviderRequest(), span(3), span(2), turn=None)
    session.add(ev.ToolPre(name="read"), span(4), span(3), turn=None)
    session.raw("later:event", b'{"x":1}')
    whole_turn(session, "t2")
    captured = live(session)
    levels = [entry.pop("log_level") for entry in captured]
    assert captured == list(lines(session.records))
    assert levels == [level_of(fields) for fields in lines(session.records)]
    assert {entry["trace_id"] for entry in captured[:2]} == {HOST_TRACE}
    assert {entry["trace_id"] for entry in captured[2:5]} == {derive_trace_id("s1", span(2))}


def test_a_plan_is_counts_a_body_is_a_size_and_no_content_leaves():
    session = Session()
    fields = line(session.add(compacted(), span(1), bodies=(body("secret"), body("text"))))
    assert fields["plan_dropped"] == 6
    assert fields["plan_kept"] == 4
    assert fields["plan_insertions"] == 0
    assert (fields["bodies"], fields["body_bytes"]) == (2, 10)
    assert "secret" not in json.dumps(fields)
    assert all(isinstance(value, str | int | float | None) for value in fields.values())


def test_lists_become_counts_and_codes_are_joined():
    session = Session()
    request = ev.RequestPrepared(
        renderer=1, last_message=0, messages=1, tokens=1, digest="d", breaks=("compaction", "set")
    )
    assert line(session.add(request))["breaks"] == "compaction,set"
    assert line(session.add(ev.Pinned(numbers=(1, 2, 3))))["numbers_count"] == 3
    started = line(session.add(ev.SessionStart(library="0", settings={"key": "value"})))
    assert started["settings_count"] == 1
    assert "settings" not in started


def test_names_that_logging_claims_are_prefixed():
    session = Session()
    fields = line(session.add(ev.ToolError(name="read", error_type="OSError", message="gone")))
    assert (fields["tool_name"], fields["tool_message"]) == ("read", "gone")
    assert not {"name", "message", "msg", "args"} & set(fields)


def test_long_texts_are_cut():
    fields = line(Session().add(ev.ProviderError(error_type="E", message="x" * 100_000)))
    assert len(fields["provider_message"]) == 1000


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (ev.PromptSubmit(number=1), "info"),
        (ev.PromptComplete(), "info"),
        (ev.PromptComplete(status="error"), "warning"),
        (PRE, "info"),
        (compacted("applied"), "info"),
        (compacted("skipped"), "info"),
        (compacted("cancelled"), "info"),
        (compacted("failed"), "warning"),
        (ev.ToolError(name="x", error_type="E"), "warning"),
        (ev.ProviderError(error_type="E"), "warning"),
        (ev.MessageAdded(), "debug"),
        (prepared(), "debug"),
    ],
)
def test_levels(event: ev.Event, level: str):
    assert level_of(line(Session().add(event))) == level


def test_the_time_is_the_records_own_to_the_nanosecond():
    session = Session()
    record = session.add(ev.MessageAdded())
    assert record.time == START
    assert line(record)["time"] == "2026-09-21T14:13:20.000000000Z"
    assert line(session.add(ev.MessageAdded()))["time"].endswith(":21.000000000Z")
    assert SECOND == 10**9


def test_unknown_types_and_broken_payloads_are_tolerated():
    session = Session()
    session.raw("later:event", b"not json")
    session.raw("tool:pre", b"{}")
    session.raw("tool:pre", b'{"event":"tool:pre","name":"x"}', version=99)
    captured = live(session)
    assert [entry["unknown"] for entry in captured] == [True, True, True]


def test_a_logger_that_drops_debug_gets_only_what_it_would_keep():
    out = CapturingLogger()
    logger = structlog.wrap_logger(
        out, [], wrapper_class=structlog.make_filtering_bound_logger(logging.INFO)
    )
    session, sink = Session(), LogSink(logger)
    whole_turn(session)
    for record in session.records:
        sink(record)
    assert len(out.calls) == 5


def test_an_ambient_trace_is_known_even_when_only_warnings_are_kept():
    out = CapturingLogger()
    logger = structlog.wrap_logger(
        out,
        [lambda _logger, _name, fields: ((), fields)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )
    session, sink = Session(), LogSink(logger)
    session.add(ev.PromptSubmit(number=1, trace_id=HOST_TRACE), span(1))
    session.add(ev.ToolPre(name="x"), span(2), span(1))
    session.add(ev.ToolError(name="x", error_type="E"), span(2), span(1))
    for record in session.records:
        sink(record)
    (call,) = out.calls
    assert call.kwargs["trace_id"] == HOST_TRACE


def test_configured_json_is_one_object_a_line_with_our_ids():
    out = io.BytesIO()
    configure_logging(json=True, level="info", file=out)
    session, sink = Session(), LogSink()
    for record in whole_turn(session):
        sink(record)
    written = [json.loads(text) for text in out.getvalue().splitlines()]
    assert [one["event"] for one in written] == [
        "prompt:submit",
        "context:pre_compact",
        "context:post_compact",
        "tool:error",
        "prompt:complete",
    ]
    assert written[3]["level"] == "warning"
    assert {one["trace_id"] for one in written} == {derive_trace_id("s1", "t1")}


def test_configured_text_is_for_people():
    out = io.BytesIO()
    configure_logging(json=False, level="debug", file=out)
    LogSink()(Session().add(ev.MessageAdded(), span(1)))
    assert b"context:message_added" in out.getvalue()


def test_an_unknown_level_is_refused():
    with pytest.raises(InvalidSetting, match="loud"):
        configure_logging(json=True, level="loud")


def test_a_sink_configures_nothing():
    LogSink()
    assert not structlog.is_configured()
