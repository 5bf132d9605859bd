"""Contents on spans: what the model was sent and answered, what tools received and returned."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

import eventctx
from eventctx.log import events as ev
from eventctx.log.codec import decode_event
from eventctx.log.record import Record
from eventctx.projections.trace import texts as trace_texts
from eventctx.projections.trace.fold import SessionTrace
from eventctx.projections.trace.fold import fold as plain_fold
from eventctx.projections.trace.semconv import CONTENT
from eventctx.projections.trace.spans import Span
from eventctx.projections.trace.texts import MARGIN, MAX_CONTENT, MAX_PART, genai_message
from eventctx.session.host_requests import ObservedRequest
from tests.hooks.given import call_model, filled, recorded
from tests.policies.advisers import Scripted
from tests.session.given import calling as openai_calls
from tests.session.given import killed, opened, process, records_of
from tests.session.given import result as openai_result
from tests.sessions import erase, model, user

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"


def calling(call: str, name: str = "read", **arguments: Any) -> dict[str, Any]:
    use = {"type": "tool_use", "id": call, "name": name, "input": arguments}
    return {"role": "assistant", "content": [use]}


def result(call: str, text: str) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": text}
    return {"role": "user", "content": [block]}


async def one_turn(*, usage: bool = True, **settings: Any) -> eventctx.Engine:
    engine, ctx = await opened({"role": "system", "content": "Be brief."}, **settings)
    async with ctx.turn("t", agent="helper") as turn:
        await ctx.add_message(user("What is in the files?"))
        for number in range(2):
            key = f"c{number}"
            async with turn.iteration() as cycle:
                await ctx.get_messages_for_request()
                async with cycle.provider_call("m") as call:
                    call.finished("tool_use")
                    if usage:
                        await call.usage(10, 5)
                await ctx.add_message(calling(key, path=f"f{number}"))
                async with cycle.tool_call("read", key):
                    pass
                await ctx.add_message(result(key, f"text {number}"))
        async with turn.iteration() as cycle:
            await ctx.get_messages_for_request()
            await call_model(cycle)
            await ctx.add_message(model("Two texts."))
    return engine


def told(span: Span, name: str) -> list[dict[str, Any]]:
    """What an attribute of a span holds, as JSON."""
    found: list[dict[str, Any]] = json.loads(str(span.attributes.get(name, "[]")))
    return found


def parts_of(span: Span, name: str) -> list[dict[str, Any]]:
    return [part for message in told(span, name) for part in message["parts"]]


def messages_of(span: Span, name: str) -> list[str]:
    """The text of each message in an attribute of a span."""
    return [
        "".join(str(part.get("content", part)) for part in message["parts"])
        for message in told(span, name)
    ]


def results_of(spans: list[Span]) -> dict[Any, Any]:
    """The result of each tool call, by its id."""
    calls = [one.attributes for one in spans if one.name.startswith("execute_tool")]
    return {one["gen_ai.tool.call.id"]: one.get(RESULT) for one in calls}


def dashed(text: str) -> str:
    """Redacts two words."""
    return text.replace("KEY", "-").replace("SECRET", "-")


@pytest.mark.parametrize("usage", [True, False])
async def test_every_span_carries_the_contents_that_belong_to_it(usage: bool) -> None:
    engine = await one_turn(usage=usage)
    sent = [(await engine.request_view("s", 1, number)).messages for number in (1, 2, 3)]
    spans = filled(await recorded(engine))
    chats = [span for span in spans if span.name == "chat m"]
    tools = [span for span in spans if span.name == "execute_tool read"]
    (turn,) = [span for span in spans if span.name == "invoke_agent helper"]
    for chat, messages in zip(chats, sent, strict=True):
        assert told(chat, INPUT) == [genai_message(one, str) for one in messages[1:]]
        system = told(chat, "gen_ai.system_instructions")
        assert system == [{"type": "text", "content": "Be brief."}]
    answers = [told(chat, OUTPUT) for chat in chats]
    assert [one[0]["parts"][0].get("id") for one in answers] == ["c0", "c1", None]
    assert answers[2][0]["parts"] == [{"type": "text", "content": "Two texts."}]
    assert [one[0]["finish_reason"] for one in answers] == ["tool_use", "tool_use", ""]
    for number, tool in enumerate(tools):
        assert told(tool, ARGUMENTS) == {"path": f"f{number}"}
        assert tool.attributes[RESULT] == f"text {number}"
    assert messages_of(turn, INPUT) == ["What is in the files?"]
    assert told(turn, OUTPUT) == answers[2]


async def test_contents_aside_the_spans_are_the_same_and_children_come_before_parents() -> None:
    engine = await one_turn(max_tokens=100, on_overflow="send_floor")
    records = await recorded(engine)
    spans = filled(records)
    assert spans[-1].name == "invoke_agent helper"

    def bare(spans: Iterable[Span]) -> dict[str, Any]:
        return {one.span_id: (one.name, one.end, without_contents(one.attributes)) for one in spans}

    def without_contents(attributes: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in attributes.items() if name not in CONTENT}

    assert bare(spans) == bare(plain_fold(records))
    # Records without bodies give spans without contents.
    without = [record async for record in (await one_turn()).records("s")]
    assert filled(without) == list(plain_fold(without))


async def test_parallel_tools_each_get_their_own_result_in_whatever_order_they_come() -> None:
    engine, ctx = await opened()
    async with ctx.turn("t") as turn, turn.iteration() as cycle:
        await ctx.add_messages([user("go"), openai_calls("c0", "c1", "c2")])
        blocks = [cycle.tool_call("f", f"c{n}") for n in range(3)]
        for block in blocks:
            await block.__aenter__()
        for block in reversed(blocks):
            await block.__aexit__(None, None, None)
        for n in (1, 2, 0):
            await ctx.add_message(openai_result(f"c{n}", f"r{n}"))
    spans = filled(await recorded(engine))
    assert results_of(spans) == {"c0": "r0", "c1": "r1", "c2": "r2"}


async def test_a_tool_without_a_result_and_a_call_without_an_answer_are_not_held_for_ever() -> None:
    engine, ctx = await opened()
    async with ctx.turn("t") as turn:
        async with turn.iteration() as cycle:
            await call_model(cycle)
            async with cycle.tool_call("f", "c"):
                pass
        async with turn.iteration() as cycle, cycle.provider_call("m"):
            pass
    records = await recorded(engine)
    spans = filled(records)
    assert [span.span_id for span in spans] == [span.span_id for span in plain_fold(records)]
    assert not any(OUTPUT in span.attributes or RESULT in span.attributes for span in spans)


@pytest.mark.slow
async def test_a_kept_answer_is_the_result_of_a_call_whose_own_was_never_added() -> None:
    store = await killed(answer="the text of a")
    async with process(store) as engine, (await engine.session("s")).turn("t2"):
        pass
    spans = filled(await records_of(store))
    assert results_of(spans) == {"a": "the text of a", "b": None}


async def compactions(engine: eventctx.Engine, clean: Any = str) -> list[Span]:
    spans = filled(await recorded(engine), clean)
    return [span for span in spans if span.attributes["gen_ai.operation.name"] == "compact"]


async def test_what_left_the_view_is_a_compactions_input_and_the_summary_its_output() -> None:
    summarizer = Scripted(*["They spoke of KEY files."] * 99)
    engine, ctx = await opened(policy="summarize", summarizer=summarizer, max_tokens=3_000)
    for number in range(72):
        await ctx.add_message(user(f"{number}. KEY " + "word " * 250))
        await ctx.get_messages_for_request()
    first, *others = await compactions(engine, dashed)
    event: Any = decode_event((await records_of(engine.store, kind="context:post_compact"))[0])
    gone = [run for run in event.plan.runs if run.disposition in ("dropped", "summarised")]
    numbers = [number for run in gone for number in range(run.first, run.last + 1)]
    assert numbers
    assert [text.split(".")[0] for text in messages_of(first, INPUT)] == [str(n) for n in numbers]
    (summary,) = messages_of(first, OUTPUT)
    assert "They spoke of - files." in summary
    # It stays at the next one, until a summary of summaries takes its place.
    assert [summary in messages_of(one, INPUT) for one in others].count(True) == 1
    assert summary not in messages_of(others[0], INPUT)
    assert not any(summary in messages_of(one, OUTPUT) for one in others)
    assert "KEY" not in str([first.attributes, others[0].attributes])


async def test_a_summary_is_a_compaction_part_where_it_is_made_and_where_it_is_sent() -> None:
    summarizer = Scripted("They spoke of files.")
    rows = [user(f"{number}. " + "word " * 250) for number in range(24)]
    engine, ctx = await opened(*rows, policy="summarize", summarizer=summarizer, max_tokens=3_000)
    await ctx.compact()
    async with ctx.turn() as turn, turn.iteration() as cycle:
        await ctx.get_messages_for_request()
        await call_model(cycle)
    spans = filled(await recorded(engine))
    compact = next(one for one in spans if one.name.startswith("compact"))
    chat = next(one for one in spans if one.name == "chat m")
    (made,) = parts_of(compact, OUTPUT)
    assert made["type"] == "compaction" and "They spoke of files." in made["content"]
    assert [one for one in parts_of(chat, INPUT) if one["type"] == "compaction"] == [made]


def test_a_providers_own_compaction_is_a_part_with_its_id_and_what_can_be_read() -> None:
    block = {"type": "compaction", "content": "KEY was said.", "encrypted_content": "c2VjcmV0"}
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VjcmV0"}
    shown = genai_message({"role": "assistant", "content": [block]}, dashed)
    assert shown["parts"] == [{"type": "compaction", "content": "- was said."}]
    assert genai_message(item, str)["parts"] == [{"type": "compaction", "id": "cmp_1"}]


DEFINITION = {"name": "read", "description": "Read KEY."}
FORMS: list[dict[str, Any]] = [
    *[DEFINITION, {"type": "function", "function": DEFINITION}],
    *[{"function_declarations": [DEFINITION]}, {"toolSpec": DEFINITION}],
]


@pytest.mark.parametrize("definition", FORMS)
async def test_a_tool_is_described_where_its_definition_was_sent(
    definition: dict[str, Any],
) -> None:
    engine, ctx = await opened(user("Read."))
    async with ctx.turn() as turn, turn.iteration() as cycle:
        await ctx.get_messages_for_request(tools=[definition])
        for name in ("read", "other"):
            async with cycle.tool_call(name, name):
                pass
    records = await recorded(engine)
    found = {one.name: one.attributes for one in filled(records, dashed)}
    described = "gen_ai.tool.description"
    assert found["execute_tool read"][described] == "Read -."
    assert described not in found["execute_tool other"]
    assert not any(described in one.attributes for one in plain_fold(records))


async def test_a_compaction_that_only_drops_has_no_output_and_a_skipped_one_nothing() -> None:
    engine, ctx = await opened(user("Begin."), policy="truncate", max_tokens=100_000)
    await ctx.compact()
    await ctx.add_messages([model(f"{number}.") for number in range(60)])
    await ctx.compact()
    skipped, dropped = await compactions(engine)
    assert skipped.attributes["eventctx.outcome"] == "skipped"
    assert not {INPUT, OUTPUT} & skipped.attributes.keys()
    assert messages_of(dropped, INPUT)[0] == "0."
    assert len(messages_of(dropped, INPUT)) == dropped.attributes["gen_ai.compaction.event_count"]
    assert OUTPUT not in dropped.attributes


def test_the_time_that_a_text_takes_does_not_grow_with_what_is_cut_away() -> None:
    looked_at: list[int] = []

    def clean(text: str) -> str:
        looked_at.append(len(text))
        return dashed(text)

    for start in range(MAX_PART - 8, MAX_PART + 1):
        text = "x" * start + "SECRET" + "y" * 1_000_000
        (part,) = genai_message(user(text), clean)["parts"]
        content = part["content"]
        assert re.search(r"S|SECRET", content) is None
        assert len(content) < MAX_PART + 40
        shown, rest = re.fullmatch(r"(.*)… \[([\d,]+) characters more\]", content).groups()
        assert len(text) - len(shown) - int(rest.replace(",", "")) == 0
    assert max(looked_at) == MAX_PART + MARGIN


@pytest.mark.slow
def test_an_argument_of_many_small_texts_is_cut_too_and_stays_json() -> None:
    looked_at: list[str] = []

    def clean(text: str) -> str:
        looked_at.append(text)
        return text

    for given in ({"files": ["name"] * 100_000}, {f"k{n}": [n] for n in range(100_000)}):
        (part,) = genai_message(calling("c", **given), clean)["parts"]
        assert len(part["arguments"]) < 3 * MAX_PART
        assert "more]" in str(json.loads(part["arguments"]))
    assert len(looked_at) < 2 * MAX_PART


async def test_a_result_is_not_that_of_an_older_call_of_the_same_id() -> None:
    engine, ctx = await opened()
    for number in range(2):
        async with ctx.turn(f"t{number}") as turn, turn.iteration() as cycle:
            await ctx.add_messages([user("go"), calling("c", "f", n=number)])
            async with cycle.tool_call("f", "c"):
                if number == 0:
                    await ctx.add_message(result("c", "r0"))
            if number == 1:
                await ctx.add_message(result("c", "r1"))
    tools = [one.attributes for one in filled(await recorded(engine)) if "execute" in one.name]
    found = [(one[ARGUMENTS], one[RESULT]) for one in tools]
    assert found == [('{"n":0}', "r0"), ('{"n":1}', "r1")]


async def test_what_was_erased_is_on_no_later_span_live_or_from_the_log() -> None:
    engine, ctx = await opened(user("the SECRET plan"), model("It is fine."))
    async with ctx.turn("t") as turn:
        await ctx.add_message(user("and the SECRET other"))
        async with turn.iteration() as cycle:
            await ctx.get_messages_for_request()
            await erase(ctx, ev.Erased(numbers=(0, 2), bodies=((1, 0), (4, 0))))
            await ctx.get_messages_for_request()
            await call_model(cycle)
    records = await recorded(engine)
    assert [records[at].type for at in (1, 4)] == ["context:message_added"] * 2
    again = [without_bodies(one) if one.position in (1, 4) else one for one in records]
    for stored in (records, again):
        chat, turn_span = filled(stored)
        assert "SECRET" not in repr((chat, turn_span))
        assert messages_of(chat, INPUT) == ["[erased]", "It is fine.", "[erased]"]


async def test_texts_that_no_view_shows_are_forgotten_some_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace_texts, "MAX_KEPT", 20_000)
    engine, ctx = await opened(max_tokens=2_000)
    async with ctx.turn("t") as turn:
        for number in range(150):
            await ctx.add_messages([user(f"{number} " + "y" * 600), model("ok")])
            if number % 10 == 9:
                async with turn.iteration() as cycle:
                    await ctx.get_messages_for_request()
                    await call_model(cycle)
    records = await recorded(engine)
    view = (await engine.request_view("s", 1)).messages
    state = SessionTrace.start(str)
    # As the sink begins: with a limit that was small from the first record on.
    assert state.content is not None
    few = trace_texts.Texts({}, {}, 0, 20_000)
    state = replace(state, content=replace(state.content, texts=few))
    largest, chats = 0, []
    for record in records:
        state = state.after(record)
        assert state.content is not None
        held = sum(len(data or b"") for data in state.content.texts.bodies.values())
        largest = max(largest, held)
        chats += [one for one in state.finished if one.name == "chat m"]
    assert largest < 25_000 < sum(len(one.bodies[0].data or b"") for one in records if one.bodies)
    assert len(told(chats[-1], INPUT)) == len(view)
    assert "left out of this span" not in str(chats[-1].attributes[INPUT])


async def test_a_long_request_keeps_its_newest_messages_and_says_how_many_it_left_out() -> None:
    engine, ctx = await opened(max_tokens=10_000_000)
    async with ctx.turn("t") as turn, turn.iteration() as cycle:
        await ctx.add_messages([user(f"{number} " + "y" * 16_000) for number in range(40)])
        await ctx.get_messages_for_request()
        await call_model(cycle)
    (chat,) = [span for span in filled(await recorded(engine)) if span.name == "chat m"]
    said, *shown = messages_of(chat, INPUT)
    left = 40 - len(shown)
    assert 0 < left < 40 and f"[{left} earlier messages" in said
    assert shown[0].startswith(f"{left} y") and shown[-1].startswith("39 y")


ODD = {"role": "assistant", "content": [{"type": ["odd"], "x": 1}]}
THINKS = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}
ASKS = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'}
ASKED = {"type": "tool_call", "name": "f", "id": "c", "arguments": '{"a":1}'}
DONE = {"type": "function_call_output", "call_id": "c", "output": "done"}
IMAGE = {"role": "user", "content": [{"type": "image", "source": {"data": "AAAA"}}]}


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        (user("hi"), [{"type": "text", "content": "hi"}]),
        (THINKS, [{"type": "reasoning", "content": "hm"}]),
        (ASKS, [ASKED]),
        (DONE, [{"type": "tool_call_response", "id": "c", "response": "done"}]),
        (openai_result("c", "42"), [{"type": "tool_call_response", "id": "c", "response": "42"}]),
        (IMAGE, [{"type": "blob", "modality": "image"}]),
        (ODD, [{"type": "unknown", "content": '{"type":["odd"],"x":1}'}]),
        ({"type": "reasoning", "encrypted_content": "gAAAA", "summary": []}, []),
        ({"role": "assistant", "content": 7}, [{"type": "unknown", "content": "7"}]),
    ],
)
def test_every_dialect_has_the_conventions_parts(
    message: dict[str, Any], parts: list[dict[str, Any]]
) -> None:
    assert genai_message(message, str)["parts"] == parts


READ = [{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}]


def definitions(span: Span) -> list[dict[str, Any]]:
    return told(span, "gen_ai.tool.definitions")


async def test_the_tools_of_a_request_are_on_its_call_in_the_conventions_form() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    anthropics = [{"name": "read", "description": "Reads.", "input_schema": schema}]
    function = {"name": "read", "description": "Reads.", "parameters": schema}
    openais = [{"type": "function", "function": function}, {"type": "web_search"}]
    engine, ctx = await opened(user("go"))
    async with ctx.turn("t") as turn:
        for tools in (anthropics, anthropics, openais, None):
            async with turn.iteration() as cycle:
                await ctx.get_messages_for_request(tools=tools)
                await call_model(cycle)
    records = await recorded(engine)
    calls = [span for span in filled(records) if span.name == "chat m"]
    read, search = {"type": "function", **function}, {"type": "web_search", "name": "web_search"}
    assert [definitions(span) for span in calls[:3]] == [[read], [read], [read, search]]
    assert "gen_ai.tool.definitions" not in calls[3].attributes
    assert not any("gen_ai.tool.definitions" in span.attributes for span in plain_fold(records))


async def test_tools_that_do_not_fit_are_left_out_and_the_others_are_whole() -> None:
    tools = [{"name": f"t{n}", "description": "x" * 10_000, "input_schema": {}} for n in range(40)]
    engine, ctx = await opened(user("go"), max_tokens=500_000)
    async with ctx.turn("t") as turn, turn.iteration() as cycle:
        await ctx.get_messages_for_request(tools=tools)
        await call_model(cycle)
    (call, _) = filled(await recorded(engine))
    assert [one["name"] for one in definitions(call)] == [f"t{n}" for n in range(26)]
    assert len(str(call.attributes["gen_ai.tool.definitions"])) <= MAX_CONTENT + 50


async def test_a_fork_shows_its_parents_tools_and_a_wiped_body_shows_none() -> None:
    engine, ctx = await opened(user("go"))
    await ctx.get_messages_for_request(tools=READ)
    await engine.fork("s", (await recorded(engine))[-1].position, "child")
    child = await engine.session("child")
    async with child.turn("t") as turn, turn.iteration() as cycle:
        await child.get_messages_for_request(tools=READ)
        await call_model(cycle)
    records = await recorded(engine, "child")
    (call, _) = filled(records)
    assert [one["name"] for one in definitions(call)] == ["read"]
    content = "context:request_content"
    (call, _) = filled([without_bodies(one) if one.type == content else one for one in records])
    assert "gen_ai.tool.definitions" not in call.attributes


def without_bodies(record: Record) -> Record:
    bodies = tuple([replace(body, data=None, erased=True) for body in record.bodies])
    return replace(record, bodies=bodies)


async def test_the_tools_of_a_request_that_was_seen_on_its_way_are_on_its_call() -> None:
    asked = user("go")
    engine, ctx = await opened()
    async with ctx.turn("t") as turn, turn.iteration() as cycle:
        await ctx.add_message(asked)
        sent = ObservedRequest("anthropic-messages-1", [asked], tools=READ, system="Be brief.")
        await ctx.observe_request(sent)
        await call_model(cycle)
    (call, _) = filled(await recorded(engine))
    assert [one["name"] for one in definitions(call)] == ["read"]


async def test_erased_definitions_of_tools_are_on_no_later_call() -> None:
    engine, ctx = await opened(user("go"))
    await ctx.get_messages_for_request(tools=READ)
    records = await recorded(engine)
    (kept,) = [one for one in records if one.type == "context:request_content"]
    state = SessionTrace.start(str)
    for record in records:
        state = state.after(record)
    assert state.content is not None
    tools = state.content.tools
    assert tools.described == {"read": "Reads."}
    wiped = ev.Erased(numbers=(), bodies=((kept.position, 0),))
    assert tools.without(wiped) == trace_texts.Tools()
    assert tools.without(ev.Erased(numbers=(), bodies=((0, 0),))) is tools
