"""Contents on spans: what the model was sent and answered, what tools received and returned."""

from __future__ import annotations

import json
import re
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
from eventctx.projections.trace.spans import Span
from eventctx.projections.trace.texts import MARGIN, MAX_CONTENT, MAX_PART, genai_message
from eventctx.session.host_requests import ObservedRequest
from eventctx.stores.memory import MemoryStore
from tests.hooks.given import call_model, filled, recorded
from tests.policies.given import one_session
from tests.session.given import killed, process, records_of
from tests.sessions import erase

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"


async def tool_round(ctx: Any, cycle: Any, number: int, *, usage: bool = True) -> None:
    await ctx.get_messages_for_request()
    async with cycle.provider_call("m") as call:
        call.finished("tool_use")
        if usage:
            await call.usage(10, 5)
    key = f"c{number}"
    use = {"type": "tool_use", "id": key, "name": "read", "input": {"path": f"f{number}"}}
    await ctx.add_message({"role": "assistant", "content": [use]})
    async with cycle.tool_call("read", key):
        pass
    result = {"type": "tool_result", "tool_use_id": key, "content": f"text {number}"}
    await ctx.add_message({"role": "user", "content": [result]})


async def one_turn(engine: eventctx.Engine, *, usage: bool = True, **settings: Any) -> None:
    ctx = await engine.session("s", **settings)
    await ctx.add_message({"role": "system", "content": "Be brief."})
    async with ctx.turn("t", agent="helper") as turn:
        await ctx.add_message({"role": "user", "content": "What is in the files?"})
        for number in range(2):
            async with turn.iteration() as cycle:
                await tool_round(ctx, cycle, number, usage=usage)
        async with turn.iteration() as cycle:
            await ctx.get_messages_for_request()
            await call_model(cycle)
            await ctx.add_message({"role": "assistant", "content": "Two texts."})


@pytest.mark.parametrize("usage", [True, False])
async def test_every_span_carries_the_contents_that_belong_to_it(usage: bool) -> None:
    async with eventctx.open() as engine:
        await one_turn(engine, usage=usage)
        records = await recorded(engine)
        sent = [(await engine.request_view("s", 1, number)).messages for number in (1, 2, 3)]
    spans = filled(records)
    chats = [span for span in spans if span.name == "chat m"]
    tools = [span for span in spans if span.name == "execute_tool read"]
    (turn,) = [span for span in spans if span.name == "invoke_agent helper"]
    for chat, messages in zip(chats, sent, strict=True):
        shown = json.loads(str(chat.attributes[INPUT]))
        assert shown == [genai_message(one, str) for one in messages[1:]]
        system = json.loads(str(chat.attributes["gen_ai.system_instructions"]))
        assert system == [{"type": "text", "content": "Be brief."}]
    answers = [json.loads(str(chat.attributes[OUTPUT])) for chat in chats]
    assert [one[0]["parts"][0].get("id") for one in answers] == ["c0", "c1", None]
    assert answers[2][0]["parts"] == [{"type": "text", "content": "Two texts."}]
    assert [one[0]["finish_reason"] for one in answers] == ["tool_use", "tool_use", ""]
    for number, tool in enumerate(tools):
        assert json.loads(str(tool.attributes[ARGUMENTS])) == {"path": f"f{number}"}
        assert tool.attributes[RESULT] == f"text {number}"
    inputs, outputs = (json.loads(str(turn.attributes[name])) for name in (INPUT, OUTPUT))
    assert [one["parts"][0]["content"] for one in inputs] == ["What is in the files?"]
    assert outputs == answers[2]


async def test_contents_aside_the_spans_are_the_same_and_children_come_before_parents() -> None:
    async with eventctx.open() as engine:
        await one_turn(engine, max_tokens=100, on_overflow="send_floor")
        records = await recorded(engine)
    spans = filled(records)
    assert spans[-1].name == "invoke_agent helper"

    def bare(span: Span) -> dict[str, Any]:
        from eventctx.projections.trace.semconv import CONTENT

        kept = {name: value for name, value in span.attributes.items() if name not in CONTENT}
        return {"span": span.span_id, "name": span.name, "end": span.end, "attributes": kept}

    expected = {span.span_id: bare(span) for span in plain_fold(records)}
    assert {span.span_id: bare(span) for span in spans} == expected


async def test_parallel_tools_each_get_their_own_result_in_whatever_order_they_come() -> None:
    async with one_session() as (engine, ctx):
        async with ctx.turn("t") as turn, turn.iteration() as cycle:
            await ctx.add_message({"role": "user", "content": "go"})
            calls = [
                {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                for n in range(3)
            ]
            await ctx.add_message({"role": "assistant", "content": None, "tool_calls": calls})
            blocks = [cycle.tool_call("f", f"c{n}") for n in range(3)]
            for block in blocks:
                await block.__aenter__()
            for block in reversed(blocks):
                await block.__aexit__(None, None, None)
            for n in (1, 2, 0):
                row = {"role": "tool", "tool_call_id": f"c{n}", "content": f"r{n}"}
                await ctx.add_message(row)
        spans = filled(await recorded(engine))
    found = {
        span.attributes["gen_ai.tool.call.id"]: span.attributes[RESULT]
        for span in spans
        if span.name == "execute_tool f"
    }
    assert found == {"c0": "r0", "c1": "r1", "c2": "r2"}


async def test_a_tool_without_a_result_and_a_call_without_an_answer_are_not_held_for_ever() -> None:
    async with one_session() as (engine, ctx):
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
    store = MemoryStore()
    await killed(store, answer="the text of a")
    async with process(store) as engine, (await engine.session("s")).turn("t2"):
        pass
    records = await records_of(store)
    tools = {
        span.attributes["gen_ai.tool.call.id"]: span.attributes.get(RESULT)
        for span in filled(records)
        if span.name.startswith("execute_tool")
    }
    assert tools == {"a": "the text of a", "b": None}


def messages_of(span: Span, name: str) -> list[str]:
    """The text of each message in an attribute of a span."""
    return [
        "".join(str(part.get("content", part)) for part in message["parts"])
        for message in json.loads(str(span.attributes.get(name, "[]")))
    ]


async def compactions(engine: eventctx.Engine, clean: Any = str) -> list[Span]:
    spans = filled(await recorded(engine), clean)
    return [span for span in spans if span.attributes["gen_ai.operation.name"] == "compact"]


async def test_what_left_the_view_is_a_compactions_input_and_the_summary_its_output() -> None:
    async def summarize(*args: Any, **kwargs: Any) -> str:
        return "They spoke of KEY files."

    async with one_session(policy="summarize", summarizer=summarize, max_tokens=3_000) as (
        engine,
        ctx,
    ):
        for number in range(72):
            words = {"role": "user", "content": f"{number}. KEY " + "word " * 250}
            await ctx.add_message(words)
            await ctx.get_messages_for_request()
        first, *others = await compactions(engine, lambda text: text.replace("KEY", "-"))
        events = [record async for record in engine.records("s") if "post_compact" in record.type]
    numbers = [
        number
        for run in decode_event(events[0]).plan.runs
        if run.disposition in ("dropped", "summarised")
        for number in range(run.first, run.last + 1)
    ]
    assert numbers
    assert [text.split(".")[0] for text in messages_of(first, INPUT)] == [str(n) for n in numbers]
    (summary,) = messages_of(first, OUTPUT)
    assert "They spoke of - files." in summary
    # It stays at the next one, until a summary of summaries takes its place.
    assert [summary in messages_of(one, INPUT) for one in others].count(True) == 1
    assert summary not in messages_of(others[0], INPUT)
    assert not any(summary in messages_of(one, OUTPUT) for one in others)
    assert "KEY" not in str([first.attributes, others[0].attributes])


def parts_of(span: Span, name: str) -> list[dict[str, Any]]:
    messages = json.loads(str(span.attributes.get(name, "[]")))
    return [part for message in messages for part in message["parts"]]


async def test_a_summary_is_a_compaction_part_where_it_is_made_and_where_it_is_sent() -> None:
    async def summarize(*args: Any, **kwargs: Any) -> str:
        return "They spoke of files."

    async with one_session(policy="summarize", summarizer=summarize, max_tokens=3_000) as (
        engine,
        ctx,
    ):
        for number in range(24):
            await ctx.add_message({"role": "user", "content": f"{number}. " + "word " * 250})
        await ctx.compact()
        async with ctx.turn() as turn, turn.iteration() as cycle:
            await ctx.get_messages_for_request()
            await call_model(cycle)
        spans = filled(await recorded(engine))
    compact = next(one for one in spans if one.name.startswith("compact"))
    chat = next(one for one in spans if one.name == "chat m")
    (made,) = parts_of(compact, OUTPUT)
    assert made["type"] == "compaction"
    assert "They spoke of files." in made["content"]
    assert [one for one in parts_of(chat, INPUT) if one["type"] == "compaction"] == [made]


def test_a_providers_own_compaction_is_a_part_with_its_id_and_what_can_be_read() -> None:
    block = {"type": "compaction", "content": "KEY was said.", "encrypted_content": "c2VjcmV0"}
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VjcmV0"}
    shown = genai_message(
        {"role": "assistant", "content": [block]}, lambda text: text.replace("KEY", "-")
    )
    assert shown["parts"] == [{"type": "compaction", "content": "- was said."}]
    assert genai_message(item, str)["parts"] == [{"type": "compaction", "id": "cmp_1"}]


@pytest.mark.parametrize(
    "definitions",
    [
        [{"name": "read", "description": "Read KEY."}],
        [{"type": "function", "function": {"name": "read", "description": "Read KEY."}}],
        [{"function_declarations": [{"name": "read", "description": "Read KEY."}]}],
        [{"toolSpec": {"name": "read", "description": "Read KEY."}}],
    ],
)
async def test_a_tool_has_its_description_where_the_request_was_sent_with_its_definition(
    definitions: Any,
) -> None:
    async with one_session() as (engine, ctx):
        await ctx.add_message({"role": "user", "content": "Read."})
        async with ctx.turn() as turn, turn.iteration() as cycle:
            await ctx.get_messages_for_request(tools=definitions)
            async with cycle.tool_call("read", "c"):
                pass
            async with cycle.tool_call("other", "d"):
                pass
        records = await recorded(engine)
    found = {one.name: one for one in filled(records, lambda text: text.replace("KEY", "-"))}
    described = "gen_ai.tool.description"
    assert found["execute_tool read"].attributes[described] == "Read -."
    assert described not in found["execute_tool other"].attributes
    assert not any(described in one.attributes for one in plain_fold(records))


async def test_a_compaction_that_only_drops_has_no_output_and_a_skipped_one_nothing() -> None:
    async with one_session(policy="truncate", max_tokens=100_000) as (engine, ctx):
        await ctx.add_message({"role": "user", "content": "Begin."})
        await ctx.compact()
        for number in range(60):
            await ctx.add_message({"role": "assistant", "content": f"{number}."})
        await ctx.compact()
        skipped, dropped = await compactions(engine)
    assert skipped.attributes["eventctx.outcome"] == "skipped"
    assert not {INPUT, OUTPUT} & skipped.attributes.keys()
    assert messages_of(dropped, INPUT)[0] == "0."
    assert len(messages_of(dropped, INPUT)) == dropped.attributes["gen_ai.compaction.event_count"]
    assert OUTPUT not in dropped.attributes


async def test_every_text_passes_through_what_redacts_it_before_it_is_cut() -> None:
    async with one_session() as (engine, ctx):
        async with ctx.turn("t"):
            await ctx.add_message({"role": "user", "content": "x" * (MAX_PART - 3) + "SECRET"})
        (turn,) = filled(await recorded(engine), lambda text: text.replace("SECRET", "-"))
    text = str(turn.attributes[INPUT])
    assert "SEC" not in text
    assert json.loads(text)[0]["parts"][0]["content"] == "x" * (MAX_PART - 3) + "-"


def test_the_time_that_a_text_takes_does_not_grow_with_what_is_cut_away() -> None:
    looked_at: list[int] = []

    def clean(text: str) -> str:
        looked_at.append(len(text))
        return text.replace("SECRET", "-")

    for start in range(MAX_PART - 8, MAX_PART + 1):
        text = "x" * start + "SECRET" + "y" * 1_000_000
        (part,) = genai_message({"role": "user", "content": text}, clean)["parts"]
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
        call = {"type": "tool_use", "id": "c", "name": "f", "input": given}
        (part,) = genai_message({"role": "assistant", "content": [call]}, clean)["parts"]
        assert len(part["arguments"]) < 3 * MAX_PART
        assert "more]" in str(json.loads(part["arguments"]))
    assert len(looked_at) < 2 * MAX_PART


async def test_a_result_is_not_that_of_an_older_call_of_the_same_id() -> None:
    async with one_session() as (engine, ctx):
        for number in range(2):
            async with ctx.turn(f"t{number}") as turn, turn.iteration() as cycle:
                await ctx.add_message({"role": "user", "content": "go"})
                use = {"type": "tool_use", "id": "c", "name": "f", "input": {"n": number}}
                await ctx.add_message({"role": "assistant", "content": [use]})
                async with cycle.tool_call("f", "c"):
                    if number == 0:
                        await ctx.add_message(result(number))
                if number == 1:
                    await ctx.add_message(result(number))
        tools = [one for one in filled(await recorded(engine)) if "execute" in one.name]
    assert [one.attributes[ARGUMENTS] for one in tools] == ['{"n":0}', '{"n":1}']
    assert [one.attributes[RESULT] for one in tools] == ["r0", "r1"]


def result(number: int) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "c", "content": f"r{number}"}
    return {"role": "user", "content": [block]}


async def test_what_was_erased_is_on_no_later_span_live_or_from_the_log() -> None:
    async with one_session() as (engine, ctx):
        await ctx.add_message({"role": "user", "content": "the SECRET plan"})
        await ctx.add_message({"role": "assistant", "content": "It is fine."})
        async with ctx.turn("t") as turn:
            await ctx.add_message({"role": "user", "content": "and the SECRET other"})
            async with turn.iteration() as cycle:
                await ctx.get_messages_for_request()
                await erase(ctx, ev.Erased(numbers=(0, 2), bodies=((1, 0), (4, 0))))
                await ctx.get_messages_for_request()
                await call_model(cycle)
        records = await recorded(engine)
    assert [records[at].type for at in (1, 4)] == ["context:message_added"] * 2
    again = [
        replace(
            record,
            bodies=tuple([replace(body, data=None, erased=True) for body in record.bodies])
            if record.position in (1, 4)
            else record.bodies,
        )
        for record in records
    ]
    for stored in (records, again):
        chat, turn_span = filled(stored)
        assert "SECRET" not in repr((chat, turn_span))
        texts = [one["parts"][0]["content"] for one in json.loads(str(chat.attributes[INPUT]))]
        assert texts == ["[erased]", "It is fine.", "[erased]"]


async def test_texts_that_no_view_shows_are_forgotten_when_much_has_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace_texts, "MAX_KEPT", 20_000)
    async with one_session(max_tokens=2_000) as (engine, ctx):
        async with ctx.turn("t") as turn:
            for number in range(150):
                await ctx.add_message({"role": "user", "content": f"{number} " + "y" * 600})
                await ctx.add_message({"role": "assistant", "content": "ok"})
                if number % 10 == 9:
                    async with turn.iteration() as cycle:
                        await ctx.get_messages_for_request()
                        await call_model(cycle)
        records = await recorded(engine)
        view = (await engine.request_view("s", 1)).messages
    state = SessionTrace.start(str)
    # As the sink begins: with a limit that was small from the first record on.
    assert state.content is not None
    state = replace(
        state, content=replace(state.content, texts=trace_texts.Texts({}, {}, 0, 20_000))
    )
    largest, chats = 0, []
    for record in records:
        state = state.after(record)
        assert state.content is not None
        largest = max(
            largest, sum(len(data or b"") for data in state.content.texts.bodies.values())
        )
        chats += [one for one in state.finished if one.name == "chat m"]
    assert largest < 25_000 < sum(len(one.bodies[0].data or b"") for one in records if one.bodies)
    assert len(json.loads(str(chats[-1].attributes[INPUT]))) == len(view)
    assert "left out of this span" not in str(chats[-1].attributes[INPUT])


async def test_a_long_request_keeps_its_newest_messages_and_says_how_many_it_left_out() -> None:
    async with one_session(max_tokens=10_000_000) as (engine, ctx):
        async with ctx.turn("t") as turn, turn.iteration() as cycle:
            for number in range(40):
                await ctx.add_message({"role": "user", "content": f"{number} " + "y" * 16_000})
            await ctx.get_messages_for_request()
            await call_model(cycle)
        spans = filled(await recorded(engine))
    (chat,) = [span for span in spans if span.name == "chat m"]
    shown = json.loads(str(chat.attributes[INPUT]))
    left = 40 - (len(shown) - 1)
    assert 0 < left < 40
    assert f"[{left} earlier messages" in shown[0]["parts"][0]["content"]
    assert shown[1]["parts"][0]["content"].startswith(f"{left} y")
    assert shown[-1]["parts"][0]["content"].startswith("39 y")


async def test_records_without_bodies_give_spans_without_contents() -> None:
    async with eventctx.open() as engine:
        await one_turn(engine)
        records = [record async for record in engine.records("s")]
    assert filled(records) == list(plain_fold(records))


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ({"role": "user", "content": "hi"}, [{"type": "text", "content": "hi"}]),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
            [{"type": "reasoning", "content": "hm"}],
        ),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'},
            [{"type": "tool_call", "name": "f", "id": "c", "arguments": '{"a":1}'}],
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "done"},
            [{"type": "tool_call_response", "id": "c", "response": "done"}],
        ),
        (
            {"role": "tool", "tool_call_id": "c", "content": "42"},
            [{"type": "tool_call_response", "id": "c", "response": "42"}],
        ),
        (
            {"role": "user", "content": [{"type": "image", "source": {"data": "AAAA"}}]},
            [{"type": "blob", "modality": "image"}],
        ),
        (
            {"role": "assistant", "content": [{"type": ["odd"], "x": 1}]},
            [{"type": "unknown", "content": '{"type":["odd"],"x":1}'}],
        ),
        ({"type": "reasoning", "encrypted_content": "gAAAA", "summary": []}, []),
        ({"role": "assistant", "content": 7}, [{"type": "unknown", "content": "7"}]),
    ],
)
def test_a_message_of_any_dialect_has_the_conventions_parts(
    message: dict[str, Any], parts: list[dict[str, Any]]
) -> None:
    assert genai_message(message, str)["parts"] == parts


def definitions(span: Span) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(str(span.attributes["gen_ai.tool.definitions"]))
    return found


async def test_the_tools_of_a_request_are_on_its_call_in_the_conventions_form() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    anthropics = [{"name": "read", "description": "Reads.", "input_schema": schema}]
    function = {"name": "read", "description": "Reads.", "parameters": schema}
    openais = [{"type": "function", "function": function}, {"type": "web_search"}]
    async with one_session() as (engine, ctx):
        async with ctx.turn("t") as turn:
            await ctx.add_message({"role": "user", "content": "go"})
            for tools in (anthropics, anthropics, openais, None):
                async with turn.iteration() as cycle:
                    await ctx.get_messages_for_request(tools=tools)
                    await call_model(cycle)
        records = await recorded(engine)
    calls = [span for span in filled(records) if span.name == "chat m"]
    read = {"type": "function", **function}
    assert [definitions(span) for span in calls[:3]] == [
        [read], [read], [read, {"type": "web_search", "name": "web_search"}],
    ]  # fmt: skip
    assert "gen_ai.tool.definitions" not in calls[3].attributes
    assert not any("gen_ai.tool.definitions" in span.attributes for span in plain_fold(records))


async def test_tools_that_do_not_fit_are_left_out_and_the_others_are_whole() -> None:
    tools = [{"name": f"t{n}", "description": "x" * 10_000, "input_schema": {}} for n in range(40)]
    async with one_session(max_tokens=500_000) as (engine, ctx):
        async with ctx.turn("t") as turn, turn.iteration() as cycle:
            await ctx.add_message({"role": "user", "content": "go"})
            await ctx.get_messages_for_request(tools=tools)
            await call_model(cycle)
        (call, _) = filled(await recorded(engine))
    assert [one["name"] for one in definitions(call)] == [f"t{n}" for n in range(26)]
    assert len(str(call.attributes["gen_ai.tool.definitions"])) <= MAX_CONTENT + 50


async def test_a_fork_shows_its_parents_tools_and_a_wiped_body_shows_none() -> None:
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    async with one_session() as (engine, ctx):
        await ctx.add_message({"role": "user", "content": "go"})
        await ctx.get_messages_for_request(tools=tools)
        await engine.fork("s", (await recorded(engine))[-1].position, "child")
        child = await engine.session("child")
        async with child.turn("t") as turn, turn.iteration() as cycle:
            await child.get_messages_for_request(tools=tools)
            await call_model(cycle)
        records = await recorded(engine, "child")
    (call, _) = filled(records)
    assert [one["name"] for one in definitions(call)] == ["read"]
    wiped = [
        without_bodies(one) if one.type == "context:request_content" else one for one in records
    ]
    (call, _) = filled(wiped)
    assert "gen_ai.tool.definitions" not in call.attributes


def without_bodies(record: Record) -> Record:
    bodies = tuple([replace(body, data=None, erased=True) for body in record.bodies])
    return replace(record, bodies=bodies)


async def test_the_tools_of_a_request_that_was_seen_on_its_way_are_on_its_call() -> None:
    asked = {"role": "user", "content": "go"}
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    async with one_session() as (engine, ctx):
        async with ctx.turn("t") as turn, turn.iteration() as cycle:
            await ctx.add_message(asked)
            sent = ObservedRequest("anthropic-messages-1", [asked], tools=tools, system="Be brief.")
            await ctx.observe_request(sent)
            await call_model(cycle)
        (call, _) = filled(await recorded(engine))
    assert [one["name"] for one in definitions(call)] == ["read"]


async def test_erased_definitions_of_tools_are_on_no_later_call() -> None:
    tools = [{"name": "read", "description": "Reads.", "input_schema": {}}]
    state = SessionTrace.start(str)
    async with one_session() as (engine, ctx):
        await ctx.add_message({"role": "user", "content": "go"})
        await ctx.get_messages_for_request(tools=tools)
        records = await recorded(engine)
    (kept,) = [one for one in records if one.type == "context:request_content"]
    for record in records:
        state = state.after(record)
    assert state.content is not None
    tools_now = state.content.tools
    assert tools_now.described == {"read": "Reads."}
    assert (
        tools_now.without(ev.Erased(numbers=(), bodies=((kept.position, 0),)))
        == trace_texts.Tools()
    )
    assert tools_now.without(ev.Erased(numbers=(), bodies=((0, 0),))) is tools_now
