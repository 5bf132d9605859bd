"""Spans and metrics of the demonstration obey OpenTelemetry's GenAI conventions v0.1.0.

The rules are written down here from the pages of that release: which attributes an operation has,
how far each is required, and of which type it is. What is ours, Google ADK's or older is named.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

import eventctx
from eventctx.cli.demo.play import Player
from eventctx.cli.demo.run import BUDGET, SAMPLE
from eventctx.importers.detect import choose
from eventctx.importers.source.lines import read_lines
from eventctx.log.record import Record
from eventctx.projections.metrics.fold import Measurement
from eventctx.projections.metrics.fold import fold as measure
from eventctx.projections.metrics.names import sent_instruments
from eventctx.projections.trace.spans import Span
from tests.hooks.given import filled
from tests.projections.test_trace_reference import everything, with_contents

REQUIRED, FAILED, IF_KNOWN, OPT_IN = "required", "if it failed", "if known", "opt-in"
Attribute = tuple[type, str]
Attributes = Mapping[str, Attribute]


def known(kind: type, *names: str, level: str = IF_KNOWN) -> Attributes:
    return {f"gen_ai.{name}": (kind, level) for name in names}


_ERROR: Final[Attributes] = {"error.type": (str, FAILED)}
_SERVER: Final[Attributes] = {"server.address": (str, IF_KNOWN), "server.port": (int, IF_KNOWN)}
_CONVERSATION: Final = known(str, "conversation.id", level=REQUIRED)
"""Required where the instrumented library has one at hand, as every session of ours does."""
_MESSAGES: Final = known(str, "input.messages", "output.messages", level=OPT_IN)
_OPERATION: Final = known(str, "operation.name", level=REQUIRED)
_AGENT: Final = known(str, "agent.name")
_USAGE: Final = known(int, "usage.input_tokens", "usage.output_tokens")


class SpanRule(NamedTuple):
    """The rule of a span. ``named`` is the attribute that follows the operation in its name."""

    kinds: tuple[str, ...]
    named: str
    attributes: Attributes


CHAT: Final[Attributes] = {
    **_OPERATION,
    **_ERROR,
    **_SERVER,
    **_CONVERSATION,
    **_MESSAGES,
    **_USAGE,
    **known(str, "provider.name", level=REQUIRED),
    **known(str, "request.model", "response.model", "response.id"),
    **known(bool, "request.stream", "conversation.compacted"),
    **known(tuple, "response.finish_reasons"),
    **known(int, "request.max_tokens", "usage.reasoning.output_tokens"),
    **known(int, "usage.cache_read.input_tokens", "usage.cache_write.input_tokens"),
    **known(str, "system_instructions", "tool.definitions", level=OPT_IN),
}
TURN: Final = {**_OPERATION, **_ERROR, **_CONVERSATION, **_AGENT, **_USAGE, **_MESSAGES}
TOOL: Final[Attributes] = {
    **_OPERATION,
    **_ERROR,
    **_CONVERSATION,
    **_AGENT,
    **known(str, "tool.name", level=REQUIRED),
    **known(str, "tool.type", "tool.call.id", "tool.description"),
    **known(str, "tool.call.arguments", "tool.call.result", level=OPT_IN),
}
PLAN: Final = {**_OPERATION, **_ERROR, **_CONVERSATION, **_AGENT}
SPANS: Final = {
    "chat": SpanRule(("client", "internal"), "gen_ai.request.model", CHAT),
    "invoke_agent": SpanRule(("internal",), "gen_ai.agent.name", TURN),
    "execute_tool": SpanRule(("internal",), "gen_ai.tool.name", TOOL),
    "plan": SpanRule(("internal",), "gen_ai.agent.name", PLAN),
}

OLDER: Final = {"gen_ai.usage.cache_creation.input_tokens"}
"""Sent next to its new name for what Jaeger and Phoenix read."""

PARTS: Final = {
    "text": {"content"},
    "reasoning": {"content"},
    "compaction": set[str](),
    "tool_call": {"name"},
    "tool_call_response": {"response"},
}
"""The fields that a part of each type must have."""


class MetricRule(NamedTuple):
    """The rule of an instrument: ``ends`` are the first and the last of its buckets' bounds."""

    kind: str
    unit: str
    attributes: Mapping[str, str]
    ends: tuple[float, float] | None = None


_CALL: Final = {
    **dict.fromkeys(("gen_ai.operation.name", "gen_ai.provider.name"), REQUIRED),
    **dict.fromkeys(("gen_ai.request.model", "gen_ai.response.model"), IF_KNOWN),
    **dict.fromkeys(("server.address", "server.port"), IF_KNOWN),
}
_FAILING: Final = {**_CALL, "error.type": FAILED}
_RUN: Final = {"gen_ai.agent.name": IF_KNOWN, "error.type": FAILED}
_TURN: Final = {**_RUN, "gen_ai.operation.name": IF_KNOWN}
_TOOL: Final = {**_RUN, "gen_ai.tool.name": REQUIRED, "gen_ai.tool.type": IF_KNOWN}
_USED: Final = MetricRule("counter", "{token}", {**_CALL, "gen_ai.token.modality": REQUIRED})
_PER_CALL: Final = MetricRule("histogram", "{token}", _FAILING, (1, 67_108_864))
_INFERENCE: Final = "gen_ai.client.inference"
_COUNTED: Final = ("input", "output", "cache_read.input", "cache_write.input", "reasoning.output")

METRICS: Final = {
    f"{_INFERENCE}.duration": MetricRule("histogram", "s", _FAILING, (0.01, 81.92)),
    **{f"{_INFERENCE}.usage.{what}_tokens": _USED for what in _COUNTED},
    **{f"{_INFERENCE}.operation.{what}_tokens": _PER_CALL for what in ("input", "output")},
    "gen_ai.invoke_agent.duration": MetricRule("histogram", "s", _TURN, (0.1, 409.6)),
    "gen_ai.execute_tool.duration": MetricRule("histogram", "s", _TOOL, (0.01, 81.92)),
}


def broken_by(span: Span) -> list[str]:
    """How a span breaks its rule, in words."""
    said = span.attributes
    operation = str(said["gen_ai.operation.name"])
    if operation == "compact":  # no operation of the conventions: docs/reference/traces.md
        return []
    rule = SPANS[operation]
    subject = said.get(rule.named)
    expected = f"{operation} {subject}" if subject is not None else operation
    found = [] if span.kind in rule.kinds else [f"kind {span.kind}"]
    if span.name not in (expected, f"chat {said.get('gen_ai.response.model')}"):
        found.append(f"name {span.name}, not {expected}")
    for name, (_, level) in rule.attributes.items():
        failed = level == FAILED and span.status == "error"
        if name not in said and (level == REQUIRED or failed):
            found.append(f"{name} is missing")
    for name, value in said.items():
        if not name.startswith(("gen_ai.", "server.", "error.")) or name in OLDER:
            continue
        if name not in rule.attributes:
            found.append(f"{name} is none of a {operation}")
        elif type(value) is not rule.attributes[name][0]:
            found.append(f"{name} is a {type(value).__name__}")
    if said.get("gen_ai.conversation.compacted") is False or said.get("error.type") == "":
        found.append("an attribute says what its absence says")
    return found + [f"part {part}" for part in broken_parts(span)]


def broken_parts(span: Span) -> Iterable[dict[str, Any]]:
    for name in _MESSAGES:
        for message in json.loads(str(span.attributes.get(name, "[]"))):
            for part in message["parts"]:
                if part["type"] in PARTS and not PARTS[part["type"]] <= part.keys():
                    yield part


def broken_metric(one: Measurement) -> list[str]:
    """How a measurement breaks the rule of its instrument."""
    instrument, rule = one.instrument, METRICS.get(one.instrument.name)
    if rule is None:
        return [f"{instrument.name} is none of the conventions"]
    found = []
    if (instrument.kind, instrument.unit) != (rule.kind, rule.unit):
        found.append(f"{instrument.name} is a {instrument.kind} of {instrument.unit}")
    if rule.ends is not None and (instrument.boundaries[0], instrument.boundaries[-1]) != rule.ends:
        found.append(f"{instrument.name} has other buckets")
    extra = one.attributes.keys() - rule.attributes.keys()
    missing = {name for name, level in rule.attributes.items() if level == REQUIRED}
    missing -= one.attributes.keys()
    return found + [f"{instrument.name} by {name}" for name in extra | missing]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """All records of the shipped demonstration."""
    return asyncio.run(played())


async def played() -> list[Record]:
    options: dict[str, Any] = {"on_overflow": "send_floor", "thinking": "strip"}
    async with eventctx.open() as engine:
        context = await engine.session("demo", max_tokens=BUDGET, **options)
        items = choose(SAMPLE, None).parse(read_lines(SAMPLE), SAMPLE.name, lambda: True)
        player = Player(context, BUDGET, began=lambda *_: None, ended=lambda _: None)
        await player.play(items)
        return [record async for record in engine.records("demo", bodies=True)]


@pytest.mark.slow
async def test_every_span_of_the_demonstration_obeys_the_conventions(records: list[Record]) -> None:
    spans = filled(records)
    assert len(spans) > 150
    assert {span.name: broken for span in spans if (broken := broken_by(span))} == {}


async def test_spans_with_every_attribute_obey_them_too() -> None:
    spans = [one for one in everything() if one.attributes["eventctx.outcome"] != "unfinished"]
    known = [one for one in spans if one.attributes.get("gen_ai.provider.name")]
    assert [broken for one in known if (broken := broken_by(one))] == []
    others = [one for one in [*spans, *await with_contents()] if one not in known]
    assert {why for one in others for why in broken_by(one)} == {"gen_ai.provider.name is missing"}


@pytest.mark.slow
async def test_every_metric_of_the_demonstration_obeys_them_too(records: list[Record]) -> None:
    sent = [one for one in sent_instruments(latest=True) if one.name.startswith("gen_ai.")]
    found = [one for one in measure(records) if one.instrument in sent]
    durations = {name for name in METRICS if name.endswith("duration")}
    assert {one.instrument.name for one in found} >= durations
    assert {why for one in found for why in broken_metric(one)} == set()


def test_every_instrument_under_their_name_is_one_of_theirs() -> None:
    ours = [one for one in sent_instruments(latest=True) if one.name.startswith("gen_ai.")]
    assert {one.name for one in ours} == METRICS.keys()
    for one in ours:
        every = Measurement(one, 1, dict.fromkeys(one.attributes, "x"))
        assert broken_metric(every) == []


def test_the_check_finds_what_breaks_a_rule() -> None:
    chat = next(one for one in everything() if one.attributes.get("gen_ai.provider.name"))
    said = {name: value for name, value in chat.attributes.items() if "provider" not in name}
    wrong = replace(chat, kind="server", attributes=said | {"gen_ai.tool.name": 1})  # type: ignore[arg-type]
    assert broken_by(wrong) == [
        "kind server",
        "gen_ai.provider.name is missing",
        "gen_ai.tool.name is none of a chat",
    ]
