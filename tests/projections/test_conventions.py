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

_ERROR: Final[Attributes] = {"error.type": (str, FAILED)}
_SERVER: Final[Attributes] = {
    "server.address": (str, IF_KNOWN),
    "server.port": (int, IF_KNOWN),
}
_CONVERSATION: Final[Attributes] = {"gen_ai.conversation.id": (str, REQUIRED)}
"""Required where the instrumented library has one at hand, as every session of ours does."""
_MESSAGES: Final[Attributes] = {
    "gen_ai.input.messages": (str, OPT_IN),
    "gen_ai.output.messages": (str, OPT_IN),
}
_OPERATION: Final[Attributes] = {"gen_ai.operation.name": (str, REQUIRED)}
_AGENT: Final[Attributes] = {"gen_ai.agent.name": (str, IF_KNOWN)}
_USAGE: Final[Attributes] = {
    "gen_ai.usage.input_tokens": (int, IF_KNOWN),
    "gen_ai.usage.output_tokens": (int, IF_KNOWN),
}


class SpanRule(NamedTuple):
    """The rule of a span. ``named`` is the attribute that follows the operation in its name."""

    kinds: tuple[str, ...]
    named: str
    attributes: Attributes


SPANS: Final = {
    "chat": SpanRule(
        ("client", "internal"),
        "gen_ai.request.model",
        {
            **_OPERATION,
            **_ERROR,
            **_SERVER,
            **_CONVERSATION,
            **_MESSAGES,
            **_USAGE,
            "gen_ai.provider.name": (str, REQUIRED),
            "gen_ai.request.model": (str, IF_KNOWN),
            "gen_ai.request.stream": (bool, IF_KNOWN),
            "gen_ai.request.max_tokens": (int, IF_KNOWN),
            "gen_ai.response.model": (str, IF_KNOWN),
            "gen_ai.response.id": (str, IF_KNOWN),
            "gen_ai.response.finish_reasons": (tuple, IF_KNOWN),
            "gen_ai.conversation.compacted": (bool, IF_KNOWN),
            "gen_ai.usage.cache_read.input_tokens": (int, IF_KNOWN),
            "gen_ai.usage.cache_write.input_tokens": (int, IF_KNOWN),
            "gen_ai.usage.reasoning.output_tokens": (int, IF_KNOWN),
            "gen_ai.system_instructions": (str, OPT_IN),
            "gen_ai.tool.definitions": (str, OPT_IN),
        },
    ),
    "invoke_agent": SpanRule(
        ("internal",),
        "gen_ai.agent.name",
        {**_OPERATION, **_ERROR, **_CONVERSATION, **_AGENT, **_USAGE, **_MESSAGES},
    ),
    "execute_tool": SpanRule(
        ("internal",),
        "gen_ai.tool.name",
        {
            **_OPERATION,
            **_ERROR,
            **_CONVERSATION,
            **_AGENT,
            "gen_ai.tool.name": (str, REQUIRED),
            "gen_ai.tool.type": (str, IF_KNOWN),
            "gen_ai.tool.call.id": (str, IF_KNOWN),
            "gen_ai.tool.description": (str, IF_KNOWN),
            "gen_ai.tool.call.arguments": (str, OPT_IN),
            "gen_ai.tool.call.result": (str, OPT_IN),
        },
    ),
    "plan": SpanRule(
        ("internal",), "gen_ai.agent.name", {**_OPERATION, **_ERROR, **_CONVERSATION, **_AGENT}
    ),
}

OLDER: Final = {"gen_ai.usage.cache_creation.input_tokens"}
"""Sent next to its new name for what Jaeger and Phoenix read."""

PARTS: Final = {
    "text": {"content"},
    "reasoning": {"content"},
    "tool_call": {"name"},
    "tool_call_response": {"response"},
    "compaction": set[str](),
}
"""The fields that a part of each type must have."""


class MetricRule(NamedTuple):
    """The rule of an instrument: ``ends`` are the first and the last of its buckets' bounds."""

    kind: str
    unit: str
    attributes: Mapping[str, str]
    ends: tuple[float, float] | None = None


_CALL: Final = {
    "gen_ai.operation.name": REQUIRED,
    "gen_ai.provider.name": REQUIRED,
    "gen_ai.request.model": IF_KNOWN,
    "gen_ai.response.model": IF_KNOWN,
    "server.address": IF_KNOWN,
    "server.port": IF_KNOWN,
}
_USED: Final = MetricRule("counter", "{token}", {**_CALL, "gen_ai.token.modality": REQUIRED})
_PER_CALL: Final = MetricRule(
    "histogram", "{token}", {**_CALL, "error.type": FAILED}, (1, 67_108_864)
)

METRICS: Final = {
    "gen_ai.client.inference.duration": MetricRule(
        "histogram", "s", {**_CALL, "error.type": FAILED}, (0.01, 81.92)
    ),
    "gen_ai.client.inference.usage.input_tokens": _USED,
    "gen_ai.client.inference.usage.output_tokens": _USED,
    "gen_ai.client.inference.usage.cache_read.input_tokens": _USED,
    "gen_ai.client.inference.usage.cache_write.input_tokens": _USED,
    "gen_ai.client.inference.usage.reasoning.output_tokens": _USED,
    "gen_ai.client.inference.operation.input_tokens": _PER_CALL,
    "gen_ai.client.inference.operation.output_tokens": _PER_CALL,
    "gen_ai.invoke_agent.duration": MetricRule(
        "histogram",
        "s",
        {
            "gen_ai.operation.name": IF_KNOWN,
            "gen_ai.agent.name": IF_KNOWN,
            "error.type": FAILED,
        },
        (0.1, 409.6),
    ),
    "gen_ai.execute_tool.duration": MetricRule(
        "histogram",
        "s",
        {
            "gen_ai.tool.name": REQUIRED,
            "gen_ai.tool.type": IF_KNOWN,
            "gen_ai.agent.name": IF_KNOWN,
            "error.type": FAILED,
        },
        (0.01, 81.92),
    ),
}


# -- the check -----------------------------------------------------------------------------------


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


# -- the demonstration ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """All records of the shipped demonstration."""
    return asyncio.run(played())


async def played() -> list[Record]:
    async with eventctx.open() as engine:
        context = await engine.session(
            "demo", max_tokens=BUDGET, on_overflow="send_floor", thinking="strip"
        )
        items = choose(SAMPLE, None).parse(read_lines(SAMPLE), SAMPLE.name, lambda: True)
        player = Player(context, BUDGET, began=lambda *_: None, ended=lambda _: None)
        await player.play(items)
        return [record async for record in engine.records("demo", bodies=True)]


@pytest.mark.slow
async def test_every_span_of_the_demonstration_obeys_the_released_conventions(
    records: list[Record],
) -> None:
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
async def test_every_metric_of_the_demonstration_obeys_them_for_who_opted_in(
    records: list[Record],
) -> None:
    sent = sent_instruments(latest=True)
    found = [
        one
        for one in measure(records)
        if one.instrument in sent and one.instrument.name.startswith("gen_ai.")
    ]
    assert {one.instrument.name for one in found} >= {
        "gen_ai.client.inference.duration",
        "gen_ai.invoke_agent.duration",
        "gen_ai.execute_tool.duration",
    }
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
