"""``docs/reference/traces.md`` and the spans agree: every attribute, event and limit, both ways.

Spans and metrics of the demonstration obey OpenTelemetry's GenAI conventions v0.1.0. Their rules
are written down here from the pages of that release: which attributes an operation has, how far
each is required, and of which type it is. What is ours, Google ADK's or older is named.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

import eventctx
from eventctx.cli.demo.play import Player
from eventctx.cli.demo.run import BUDGET, SAMPLE
from eventctx.cli.output import trace_outputs
from eventctx.hooks import delivery, tracer
from eventctx.hooks import trace as live
from eventctx.importers.detect import choose
from eventctx.importers.source.lines import read_lines
from eventctx.log import events as ev
from eventctx.log.plan import Insertion, Plan, Run
from eventctx.log.record import Record
from eventctx.log.wire import WireForm
from eventctx.projections import flat
from eventctx.projections.metrics.fold import Measurement
from eventctx.projections.metrics.fold import fold as measure
from eventctx.projections.metrics.names import sent_instruments
from eventctx.projections.trace import compaction, semconv, spans, steps, texts
from eventctx.projections.trace import fold as trace
from eventctx.projections.trace.spans import Span
from tests.hooks.given import Session, call_model, filled, recorded, span
from tests.policies.advisers import Scripted
from tests.session.given import opened
from tests.sessions import tool_round, user

TOOLS = [{"name": "read", "description": "Read a page.", "input_schema": {"type": "object"}}]
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "traces.md"
FAMILIES = {"invoke_agent": "turn", "execute_tool": "tool"}
FAMILIES |= {one: one for one in ("chat", "plan", "compact")}
OURS_OR_THEIRS = ("gen_ai.", "eventctx.", "verify.")
TYPES = {str: "string", int: "int", float: "double", bool: "boolean", tuple: "string[]"}
ROOT, COMPACTION, CALL, TOOL, PHASE, FAILED = (span(number) for number in range(1, 7))


def everything() -> list[Span]:
    """Spans of a session whose events have every field, whose turn ends badly as all in it does."""
    session = Session()

    def add(event: ev.Event, own: str, parent: str | None = ROOT, iteration: int | None = 1) -> int:
        return session.add(event, own, parent, iteration=iteration).position

    def crowd(own: str) -> None:
        for _ in range(spans.MAX_EVENTS + 1):
            add(ev.Pinned(numbers=(0,)), own)

    session.add(ev.PromptSubmit(number=1), ROOT, turn="inherited")
    session.add(ev.SessionFork(parent="mother", at=0), turn=None)
    session.add(ev.SessionLinked(session="mother", relation="parent", call_id="c"), turn=None)
    add(ev.PromptSubmit(number=1, agent="helper"), ROOT, None, None)
    prepared = add(REQUEST, ROOT)
    where: dict[str, Any] = {"server": "h", "port": 1}
    add(ev.ProviderRequest("m", "p", prepared, stream=True, max_tokens=9, **where), CALL)
    crowd(CALL)
    add(ev.UsageReported(prompt=9, output=2, output_exact=False), CALL)
    dropped = (ev.InputTransformation("thinking_dropped", "messages.1.content.0", "prefix"),)
    answer: dict[str, Any] = {"response_id": "r", "finish_reason": "stop", "transformed": dropped}
    add(ev.ProviderResponse(model="m-1", **answer), CALL)
    observed = add(OBSERVED, ROOT)
    add(ev.ProviderRequest(model="m", prepared=observed), span(8))
    add(ev.UsageReported(prompt=9, output=2), span(8))
    add(ev.ProviderResponse(model="m-1"), span(8))
    add(ev.ToolPre(name="read", call_id="c"), TOOL, CALL)
    crowd(TOOL)
    add(ev.ToolError(name="read", error_type="OSError", call_id="c"), TOOL, CALL)
    add(ev.ProviderRequest(model="m"), FAILED)
    add(ev.ProviderError(error_type="TimeoutError"), FAILED)
    add(ev.PlanStart(name="steps"), PHASE)
    crowd(PHASE)
    add(ev.PlanEnd(status="error", error="no"), PHASE)
    add(PRE_COMPACT, COMPACTION)
    crowd(COMPACTION)
    add(post_compact("applied"), COMPACTION)
    after = add(REQUEST, ROOT)
    add(ev.ProviderRequest(model="m", prepared=after), span(10))
    add(ev.UsageReported(prompt=9, cache_read=1, prepared=after), span(10))
    add(post_compact("failed"), span(7))
    add(replace(post_compact("applied"), trigger="imported", duration=5), span(9))
    crowd(ROOT)
    add(ev.PromptMeasured(duration=5), ROOT, None, None)
    add(ev.PromptComplete(status="error", error="ValueError"), ROOT, None, None)
    return list(trace.fold(session.records))


PREPARED: dict[str, Any] = {
    "renderer": 1,
    "last_message": 3,
    "messages": 4,
    "tokens": 400,
    "digest": "d" * 64,
    "plan": 0,
    "insertions": (Insertion(kind="memory", body=0),),
    "budget": 500,
    "model": "m",
    "breaks": ("compaction", "set"),
    "tools_digest": "e" * 64,
    "floor_sent": True,
    "reconstructed": True,
    "demands_absent": 2,
    "unbound": ((1, 1),),
}
BEGUN: dict[str, Any] = {
    "trigger": "manual",
    "strategy": "ladder",
    "strategy_version": 1,
    "tokens": 900,
    "messages": 9,
    "budget": 1000,
    "threshold": 920,
    "pins": (1, 2),
    "requested_by": "me",
    "settings": {"keep_recent": 4},
    "reason": "a new task",
    "background": True,
    "texts": 2,
    "texts_left_out": 1,
    "veto": "not now",
}
REQUEST, PRE_COMPACT = ev.RequestPrepared(**PREPARED), ev.PreCompact(**BEGUN)
WIRE = WireForm(rule="r", digest="f" * 64, tail=((1, 0),), messages=1, injected=2)
OBSERVED = replace(REQUEST, wire=WIRE)
SUMMARY = Insertion(kind="summary", body=0, demands=((0, 0), (4, 6)))


def post_compact(outcome: ev.Outcome) -> ev.PostCompact:
    runs = tuple(
        Run(at, at, disposition, "older")  # type: ignore[arg-type]
        for at, disposition in enumerate(flat.DISPOSITIONS)
    )
    plan = Plan(through=9, runs=runs, insertions=(SUMMARY,)) if outcome == "applied" else None
    error = None if outcome == "applied" else "PolicyFailed"
    more: dict[str, Any] = {"target": 500, "tokens_recorded": 1000, "fallback": "ladder"}
    sizes = (900, 400, 9, 4)
    return ev.PostCompact(
        outcome, "manual", "ladder", 1, *sizes, "by-kind-1", plan=plan, error=error, **more
    )


async def with_contents() -> list[Span]:
    """Spans of a live session that summarises, with the texts of its messages."""
    options: dict[str, Any] = {"policy": "summarize", "max_tokens": 2_000}
    summarizer = Scripted(*["They spoke of files."] * 99)
    system = {"role": "system", "content": "Be brief."}
    engine, ctx = await opened(system, summarizer=summarizer, **options)
    async with ctx.turn() as turn:
        for number in range(12):
            await ctx.add_message(user(f"{number} " + "word " * 250))
            async with turn.iteration() as cycle:
                await ctx.get_messages_for_request(tools=TOOLS)
                await call_model(cycle)
                asks, tells = tool_round(number, 4)
                await ctx.add_message(asks)
                async with cycle.tool_call("read", f"c{number}"):
                    pass
                await ctx.add_message(tells)
    await ctx.compact()
    return filled(await recorded(engine))


async def attributes_of_spans() -> dict[str, tuple[set[str], set[str]]]:
    """By attribute: the families of span that have it, and its types."""
    found: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for one in [*everything(), *await with_contents()]:
        for name, value in one.attributes.items():
            families, types = found[as_documented(name)]
            families.add(FAMILIES[str(one.attributes[semconv.OPERATION])])
            types.add(TYPES[type(value)])
    return found


def section(title: str) -> str:
    return PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def links_documented() -> dict[str, str]:
    return dict(
        re.findall(r"^\| `([^`]+)` \| (\S+) \| .+ \|$", section("Links"), flags=re.MULTILINE)
    )


def as_documented(name: str) -> str:
    name = re.sub(rf"({'|'.join(flat.DISPOSITIONS)})(?=\.\w+$)", "DISPOSITION", name)
    return re.sub(r"(?<=\.setting\.).+", "NAME", name)


def documented() -> dict[str, tuple[set[str], set[str]]]:
    """By attribute: the families of span under whose titles it stands, and its types."""
    found: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for part in section("Attributes").split("\n### ")[1:]:
        title, _, lines = part.partition("\n")
        rows = re.findall(r"^- `([^`]+)` (\S+?)(?:: .+)?$", lines, flags=re.MULTILINE)
        assert len(rows) == len({name for name, _ in rows}), "an attribute stands there twice"
        for name, kind in rows:
            families, types = found[name]
            families |= set(FAMILIES.values()) if title == "Every span" else {title.lower()}
            types.add(kind)
    return found


async def test_every_attribute_is_documented_with_its_type_and_spans_and_nothing_else_is() -> None:
    found, in_docs = await attributes_of_spans(), documented()
    assert in_docs.pop("eventctx.compaction.setting.NAME") == ({"compact"}, {"any"})
    assert found.pop("eventctx.compaction.setting.NAME")[0] == {"compact"}
    assert found == in_docs
    links = [link for one in everything() for link in one.links]
    told = {name: TYPES[type(value)] for one in links for name, value in one.attributes.items()}
    assert told == links_documented()


def test_every_name_in_the_code_and_field_and_event_that_makes_a_span_is_documented() -> None:
    in_docs = {*documented(), *links_documented()}
    for name, value in vars(semconv).items():
        if isinstance(value, str) and name.isupper() and value.startswith(OURS_OR_THEIRS):
            assert value in in_docs or value.endswith("."), name
    own_names = {"tokens": f"{semconv.REQUEST}estimated_tokens"}
    own_names["demands_absent"] = semconv.INSTRUCTIONS_ABSENT
    for field in ev.RequestPrepared.__struct_fields__:
        name = own_names.get(field, f"{semconv.REQUEST}{field}")
        assert name in in_docs or f"{name}_count" in in_docs, name
    for kind in trace._STEERING - {ev.Cleared, ev.SessionFork}:
        assert f"`{kind.__struct_config__.tag}`" in section("Spans"), kind


def test_the_limits_are_those_of_the_code() -> None:
    limit = r"^\| ([^|]+) \| ([^|]*\d[^|]*) \| [^|]+ \|$"
    rows = re.findall(limit, section("Limits"), flags=re.MULTILINE)
    assert {what: [int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", limit)]
            for what, limit in rows} == {
        "events of a span": [spans.MAX_EVENTS],
        "a text in an attribute, also an error's": [flat.MAX_TEXT],
        "runs of message numbers in an attribute": [compaction.MAX_RUNS],
        "a text in a content": [texts.MAX_PART],
        "a content": [texts.MAX_CONTENT],
        "open spans of a session": [steps.MAX_OPEN],
        "sessions that a `TraceSink` follows": [live.MAX_SESSIONS],
        "traces whose sampling is remembered": [tracer.MAX_TRACES],
        "spans in one batch of `eventctx trace`": [
            trace_outputs.BATCH, trace_outputs.BATCH_TEXT // 10**6,
        ],
        "bytes of one request, encoded": [
            (delivery.MOST_BYTES + 4096) >> 20, (2**22 - delivery.MOST_BYTES) >> 10,
        ],
    }  # fmt: skip


def test_the_revision_of_the_conventions_is_the_one_that_the_names_were_taken_from() -> None:
    text = PAGE.read_text(encoding="utf-8")
    (revision,) = re.findall(r"semantic-conventions-genai (v[\d.]+),", semconv.__doc__ or "")
    assert f"`{revision}`" in text
    assert f"`{semconv.SCHEMA_URL}`" in text


# -- OpenTelemetry's conventions -----------------------------------------------------------------

REQUIRED, IF_FAILED, IF_KNOWN, OPT_IN = "required", "if it failed", "if known", "opt-in"
Attribute = tuple[type, str]
Attributes = Mapping[str, Attribute]


def known(kind: type, *names: str, level: str = IF_KNOWN) -> Attributes:
    return {f"gen_ai.{name}": (kind, level) for name in names}


_ERROR: Final[Attributes] = {"error.type": (str, IF_FAILED)}
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
TOOL_CALL: Final[Attributes] = {
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
    "execute_tool": SpanRule(("internal",), "gen_ai.tool.name", TOOL_CALL),
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
_FAILING: Final = {**_CALL, "error.type": IF_FAILED}
_RUN: Final = {"gen_ai.agent.name": IF_KNOWN, "error.type": IF_FAILED}
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
        failed = level == IF_FAILED and span.status == "error"
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
