"""``docs/reference/traces.md`` and the spans agree: every attribute, event and limit, both ways."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from eventctx.cli.output import trace_outputs
from eventctx.hooks import delivery, tracer
from eventctx.hooks import trace as live
from eventctx.log import events as ev
from eventctx.log.plan import Insertion, Plan, Run
from eventctx.log.wire import WireForm
from eventctx.projections import flat
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


def test_every_attribute_of_a_link_is_documented_with_its_type() -> None:
    links = [link for one in everything() for link in one.links]
    found = {name: TYPES[type(value)] for one in links for name, value in one.attributes.items()}
    assert found == links_documented()


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


def test_every_name_that_the_code_spells_out_is_documented() -> None:
    in_docs = {*documented(), *links_documented()}
    for name, value in vars(semconv).items():
        if isinstance(value, str) and name.isupper() and value.startswith(OURS_OR_THEIRS):
            assert value in in_docs or value.endswith("."), name


def test_a_field_that_an_event_gains_is_documented_on_the_span_that_carries_it() -> None:
    in_docs = documented()
    own_names = {"tokens": f"{semconv.REQUEST}estimated_tokens"}
    own_names["demands_absent"] = semconv.INSTRUCTIONS_ABSENT
    for field in ev.RequestPrepared.__struct_fields__:
        name = own_names.get(field, f"{semconv.REQUEST}{field}")
        assert name in in_docs or f"{name}_count" in in_docs, name


def test_the_span_of_every_event_that_makes_one_is_documented() -> None:
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
