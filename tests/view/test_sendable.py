"""The rows of a view as a provider takes them: each rule on a request that breaks it alone."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.errors import EventctxError
from eventctx.projections.view import request_view
from eventctx.projections.view.entries import OPENING, RENDERER
from eventctx.projections.view.sendable.rows import Row
from eventctx.projections.view.sendable.sending import RULES, WORDS, make_sendable, sendable
from eventctx.testing.strict_provider import violations
from eventctx.testing.strict_provider.rule import Api
from tests.how_much import some
from tests.session.given import opened
from tests.view.sdk_messages import chat_rows, claude_rows, response_rows

ASK = {"role": "user", "content": "Look."}
MORE = {"role": "user", "content": "Well?"}


def said(*content: dict[str, Any]) -> Row:
    return {"role": "assistant", "content": list(content)}


def came(*content: dict[str, Any]) -> Row:
    return {"role": "user", "content": list(content)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": "read", "input": {}}


def result(call: str, content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def png(width: int, height: int) -> dict[str, Any]:
    """An image block of this size; its pixels are never read."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    made = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk
    data = base64.b64encode(made + struct.pack(">I", zlib.crc32(chunk))).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"type": "image", "source": source}


def item(kind: str, **fields: Any) -> Row:
    return {"type": kind, **fields}


def function_call(call: str, **fields: Any) -> Row:
    return item("function_call", call_id=call, name="read", arguments="{}", **fields)


def output(call: str) -> Row:
    return item("function_call_output", call_id=call, output="ok")


def listed(*calls: str) -> list[dict[str, Any]]:
    function = {"name": "read", "arguments": "{}"}
    return [{"id": call, "type": "function", "function": function} for call in calls]


def calling(*calls: str) -> Row:
    return {"role": "assistant", "content": None, "tool_calls": listed(*calls)}


def told(call: str, content: str = "ok") -> Row:
    return {"role": "tool", "tool_call_id": call, "content": content}


BLANK: Row = {"role": "user", "content": " "}
EMPTY: Row = {"role": "assistant", "content": None}
REASONED = item("reasoning", id="rs_1", summary=[], encrypted_content="x")
TWO_FORMS = {**said(use("c")), "tool_calls": listed("c")}
TWO_CALLS = [*[function_call("c", id="fc_1"), output("c")], function_call("d", id="fc_1")]
SMALL = png(10, 10)
MANY_BYTES = SMALL["source"]["data"] + "A" * (7 << 20)  # more than an image may have
HEAVY = {**SMALL, "source": {**SMALL["source"], "data": MANY_BYTES}}

REFUSED: list[tuple[str, Api, list[Row]]] = [
    ("blank_text", "anthropic", [ASK, said(text(""), use("c")), came(result("c"))]),
    ("blank_text", "anthropic", [ASK, said(text(" \n"), text("Yes.")), MORE]),
    ("blank_text", "anthropic", [ASK, said(use("c")), came(result("c", [text("")]))]),
    ("blank_text", "openai-chat", [ASK, {"role": "assistant", "content": "x", "tool_calls": []}]),
    (
        *("call_in_two_forms", "openai-chat"),
        [ASK, {**TWO_FORMS, "content": [text("x"), use("c")]}, told("c")],
    ),
    ("call_in_two_forms", "anthropic", [ASK, TWO_FORMS, came(result("c"))]),
    ("call_without_id", "openai-chat", [ASK, calling("", "", "c"), told(""), told("c")]),
    ("server_tool_unpaired", "anthropic", [ASK, said(text("x"), SEARCH), MORE]),
    ("server_tool_unpaired", "anthropic", [ASK, said(FOUND, text("x")), MORE]),
    ("server_tool_unpaired", "anthropic", [ASK, said(SEARCH), MORE, said(FOUND, text("x")), MORE]),
    ("thinking_last", "anthropic", [ASK, said(text("x"), THOUGHT), MORE]),
    ("thinking_last", "anthropic", [ASK, said(text("x")), said(THOUGHT), MORE]),
    ("call_id_used_twice", "anthropic", [ASK, *[said(use("c")), came(result("c"))] * 2, MORE]),
    (
        *("call_id_used_twice", "anthropic"),
        [ASK, said(use("c"), use("c")), came(result("c"), result("c"))],
    ),
    ("call_id_used_twice", "anthropic", [ASK, said(use("c")), came(result("c"), result("c"))]),
    ("call_id_used_twice", "anthropic", [ASK, said(use("f.c:0")), came(result("f.c:0"))]),
    ("results_first", "anthropic", [ASK, said(use("c")), came(text("cold"), result("c"))]),
    (
        *("results_first", "anthropic"),
        [ASK, said(use("a"), use("b")), came(result("a"), text("cold")), came(result("b"))],
    ),
    ("reasoning_alone", "openai-responses", [ASK, REASONED, MORE]),
    ("item_id_used_twice", "openai-responses", [ASK, *TWO_CALLS, output("d")]),
    ("image_over_limit", "anthropic", [came(*[SMALL] * 20, png(2_001, 10))]),
    ("image_over_limit", "anthropic", [came(png(8_001, 10), text("x"))]),
    ("image_over_limit", "anthropic", [came(*[SMALL] * 101)]),
    ("image_over_limit", "anthropic", [came(HEAVY, text("x"))]),
    ("empty_row", "anthropic", [ASK, said(), MORE]),
    ("empty_row", "anthropic", [ASK, EMPTY, MORE]),
    ("empty_row", "anthropic", [BLANK, said(text("x")), MORE]),
    ("empty_row", "openai-chat", [ASK, EMPTY, MORE]),
]


def sent(rows: list[Row], *, without: str = "") -> list[Row]:
    made, _ = make_sendable(rows, [rule for rule in RULES if rule.name != without])
    return [row for row in made if row is not None]


def asked(api: Api, rows: list[Row]) -> dict[str, Any]:
    return {"input" if api == "openai-responses" else "messages": rows}


def refused_without(rule: str) -> list[str]:
    """The rules of providers by which its requests are refused without this rule of a view."""
    broken = [
        one.rule
        for name, api, rows in REFUSED
        if name == rule
        for one in violations(api, asked(api, sent(rows, without=rule)))
    ]
    return list(dict.fromkeys(broken))


@pytest.mark.parametrize(("rule", "api", "rows"), REFUSED)
def test_a_refused_row_is_made_acceptable_by_its_rule(rule: str, api: Api, rows: list[Row]) -> None:
    before = [dict(row) for row in rows]
    assert violations(api, asked(api, rows))
    assert violations(api, asked(api, sent(rows))) == ()
    assert violations(api, asked(api, sent(rows, without=rule))), "the rule makes no difference"
    assert rows == before, "the given rows are never changed"
    assert rule in {change.rule for change in make_sendable(rows)[1]}


def test_every_rule_has_a_request_that_breaks_it_and_a_sentence() -> None:
    assert {rule for rule, _, _ in REFUSED} == {rule.name for rule in RULES} == set(WORDS)


SEARCHING = [ASK, said(SEARCH, use("c")), came(result("c"))]
REFUSAL = {**EMPTY, "refusal": "No."}
ACCEPTED: list[tuple[Api, list[Row]]] = [
    ("anthropic", [ASK, said(THOUGHT, text("x"), use("c")), came(result("c"), text("and"))]),
    ("anthropic", [ASK, said(SEARCH), said(FOUND, text("x")), MORE]),
    ("anthropic", [ASK, said(text("x"), SEARCH)]),
    ("anthropic", SEARCHING),
    ("anthropic", [*SEARCHING, said(FOUND, text("x")), MORE]),
    ("anthropic", [ASK, said(use("c")), came({"type": "tool_result", "tool_use_id": "c"})]),
    ("openai-chat", [ASK, calling("a", "b"), told("a", ""), told("b"), REFUSAL, MORE]),
    ("openai-responses", [ASK, REASONED, function_call("c", id="fc_1"), output("c")]),
]


@pytest.mark.parametrize(("api", "rows"), ACCEPTED)
def test_a_request_that_is_accepted_stays_as_it_is(api: Api, rows: list[Row]) -> None:
    assert violations(api, asked(api, rows)) == ()
    made, changes = make_sendable(rows)
    assert changes == ()
    assert all(one is row for one, row in zip(made, rows, strict=True))


def test_a_second_use_of_an_id_gets_another_one_on_both_sides() -> None:
    rows = [ASK, *[said(use("c")), came(result("c"))] * 2]
    made = sent(rows)
    assert made[:3] == rows[:3]
    assert made[3]["content"][0]["id"] == made[4]["content"][0]["tool_use_id"] == "c_2"
    # Two results of role function with an id stay one result.
    block = {"type": "tool_result", "tool_call_id": "c", "output": "found"}
    row = {"role": "function", "tool_call_id": "c", "content": [block]}
    rows = [ASK, said({"type": "tool_call", "id": "c", "name": "f", "input": {}}), row]
    assert sent(rows) == rows


def test_too_many_images_leave_in_batches_so_that_the_prefix_stays() -> None:
    rows = [came(png(10, 10)) for _ in range(101)]
    first = sent(rows)
    later = sent([*rows, *[came(png(10, 10)) for _ in range(24)]])
    assert later[: len(first)] == first
    assert sum(row["content"][0]["type"] == "image" for row in later) == 100


def test_an_erased_reasoning_takes_the_ids_of_its_answer_along() -> None:
    rows = [ASK, {"role": "assistant", "content": "[erased]"}, function_call("c", id="fc_1")]
    assert "id" not in sent([*rows, output("c")])[2]


def test_a_row_that_is_left_out_leaves_the_providers_own_summary_at_the_beginning() -> None:
    summary = said({"type": "compaction", "content": "All of it.", "signature": "s"})
    assert sent([summary, ASK, said(THOUGHT), MORE]) == [summary, ASK, MORE]
    assert sent([BLANK, summary, MORE]) == [summary, MORE]


async def test_a_request_of_renderer_3_is_derived_as_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = said({"type": "compaction", "content": "All of it.", "signature": "s"})
    opening = {"role": "user", "content": OPENING}
    engine, ctx = await opened(summary, ASK, said(), MORE)
    monkeypatch.setattr(request_view, "RENDERER", 3)
    await ctx.get_messages_for_request()
    monkeypatch.undo()
    await ctx.get_messages_for_request()
    rows = (await engine.audit("s")).requests
    old, new = [(await engine.request_view("s", position=row.position)) for row in rows]
    assert (old.prepared.renderer, old.messages) == (3, [opening, ASK, MORE])
    assert (new.prepared.renderer, new.messages) == (RENDERER, [summary, ASK, MORE])
    assert old.verified and new.verified


async def test_view_and_why_name_the_rule_and_the_log_keeps_the_row_as_it_came() -> None:
    empty = {"role": "assistant", "content": []}
    engine, ctx = await opened(ASK, empty, MORE)
    assert await ctx.get_messages_for_request() == [ASK, MORE]
    (request,) = (await engine.audit("s")).requests
    view = await engine.request_view("s", position=request.position)
    assert (view.messages, view.derived, view.verified) == ([ASK, MORE], [ASK, None, MORE], True)
    assert [(one.place, one.rule) for one in view.changes] == [(1, "empty_row")]
    assert [one.message for one in await engine.transcript("s")] == [ASK, empty, MORE]
    gone, more = await engine.why("s", 1), await engine.why("s", 2)
    assert [one.rule for one in gone.changes] == ["empty_row"]
    assert (gone.left_out, more.changes, more.left_out) == (True, (), False)


async def test_why_finds_a_use_of_an_id_far_before_the_message() -> None:
    used = [said(use("c")), came(result("c"))]
    engine, ctx = await opened(ASK, *used, *[ASK] * 60, *used)
    await ctx.get_messages_for_request()
    again = await engine.why("s", 64)
    assert [one.rule for one in again.changes] == ["call_id_used_twice"]


@pytest.mark.parametrize("odd", [["a", 2], {"x": 1}, 5, None])
def test_an_id_that_is_no_text_ends_no_view_and_is_nobody_elses(odd: Any) -> None:
    blocks = [ASK, said(use(odd), use(odd)), came(result(odd), result(odd)), MORE]
    both = {**said(use(odd)), "tool_calls": [{"id": odd, "tool": "read", "arguments": {}}, 7]}
    assert sent(blocks) == blocks
    assert sent([ASK, both, MORE]) == [ASK, both, MORE]


def read_by_name(text: str) -> Row:
    return {"role": "tool", "tool_name": "read", "content": text}


def without_ids(*tools: str, **more: Any) -> Row:
    calls = [{"function": {"name": one, "arguments": "{}", **more}} for one in tools]
    return {"role": "assistant", "content": None, "tool_calls": calls}


async def test_calls_without_ids_keep_the_results_of_their_tools() -> None:
    answers = [{"role": "tool", "name": one, "content": f"of {one}"} for one in ("write", "read")]
    again = [without_ids("read"), {"role": "tool", "name": "read", "content": "of more"}]
    made = await view_of([ASK, without_ids("read", "write"), *answers, *again])
    assert violations("openai-chat", asked("openai-chat", made)) == ()
    calls = [one for row in made for one in row.get("tool_calls", ())]
    names = {one["id"]: one["function"]["name"] for one in calls}
    results = [row for row in made if row["role"] == "tool"]
    found = [(names[row["tool_call_id"]], row["content"]) for row in results]
    assert found == [("write", "of write"), ("read", "of read"), ("read", "of more")]


@pytest.mark.parametrize("erased", [False, True])
async def test_each_of_several_calls_with_an_empty_id_keeps_its_result(erased: bool) -> None:
    calls = without_ids("read", "read")
    calls["tool_calls"] = [{"id": "", **one} for one in calls["tool_calls"]]
    made = await view_of([ASK, calls, told("", "of a"), told("", "of b"), MORE], erased=erased)
    assert violations("openai-chat", asked("openai-chat", made)) == ()
    one, other = [one["id"] for one in made[1]["tool_calls"]]
    if not erased:
        assert made[2:4] == [told(one, "of a"), told(other, "of b")]


async def test_calls_of_ollamas_form_stay_without_ids_and_get_results_of_its_form() -> None:
    calls = without_ids("read", "write", arguments={"path": "a"})
    made = await view_of([ASK, calls, read_by_name("ok"), MORE])
    assert (made[3]["role"], made[3]["tool_name"]) == ("tool", "write")
    assert [*made[:3], *made[4:]] == [ASK, calls, read_by_name("ok"), MORE]


READS = without_ids("read", "read", "write", arguments={"path": "a"})
WITH_IDS = {
    **READS,
    "tool_calls": [{"id": f"call_{n}", **one} for n, one in enumerate(READS["tool_calls"])],
}
"""As Ollama answers since release 0.12.10; its page of the API shows results without ids."""

WRITTEN = {"role": "tool", "tool_name": "write", "content": "written"}

each_form = pytest.mark.parametrize("calls", [READS, WITH_IDS], ids=["no ids", "ids"])

FIRST, SECOND = read_by_name("first"), read_by_name("second")
WAIT: Row = {"role": "user", "content": "Wait."}


@each_form
async def test_each_of_several_calls_keeps_its_result_by_name(calls: Row) -> None:
    rows = [ASK, calls, FIRST, WRITTEN, SECOND]
    assert await view_of([*rows, MORE]) == [*rows, MORE]
    assert await view_of([ASK, calls, FIRST, WAIT, WRITTEN, SECOND, MORE]) == [*rows, WAIT, MORE]
    # One that comes late takes the place of the one that was made up.
    early = [ASK, calls, WRITTEN, FIRST]
    later = [MORE, said(text("Then without.")), MORE]
    assert await view_of([*early, *later, SECOND]) == [*early, SECOND, *later]


@each_form
async def test_results_without_a_name_answer_the_calls_in_their_order(calls: Row) -> None:
    answers = [{"role": "tool", "content": text} for text in ("first", "second", "third", "more")]
    made = await view_of([ASK, calls, *answers, MORE])
    assert made == [ASK, calls, *answers[:3], MORE]
    made = await view_of([ASK, calls, *answers[:2], MORE])
    assert made[:4] == [ASK, calls, *answers[:2]]
    of_third = calls["tool_calls"][2].get("id") or "write"
    assert of_third in (made[4].get("tool_call_id"), made[4].get("tool_name"))
    assert made[5:] == [MORE]


async def test_results_with_the_ids_of_ollamas_calls_keep_their_places_once() -> None:
    answers = [{**read_by_name("x"), "tool_call_id": f"call_{n}"} for n in (2, 0, 1)]
    assert await view_of([ASK, WITH_IDS, *answers, MORE]) == [ASK, WITH_IDS, *answers, MORE]
    # What was answered by name is not answered again by its id.
    one = {**WITH_IDS, "tool_calls": WITH_IDS["tool_calls"][:1]}
    rows = [ASK, one, FIRST, said(text("Read.")), MORE]
    assert await view_of([*rows, told("call_0", "again")]) == rows


@each_form
async def test_of_several_calls_of_a_tool_only_one_without_a_result_gets_one(calls: Row) -> None:
    made = await view_of([ASK, calls, WRITTEN, read_by_name("first"), MORE])
    assert made[:4] == [ASK, calls, WRITTEN, read_by_name("first")]
    own = calls["tool_calls"][1].get("id")
    assert made[4]["role"] == "tool"
    named = made[4].get("tool_name"), made[4].get("tool_call_id")
    assert named == ((None, own) if own else ("read", None))
    assert "No result was recorded" in made[4]["content"]
    assert made[5:] == [MORE]


async def test_of_many_calls_of_a_tool_the_last_ones_wait() -> None:
    calls = without_ids(*["read"] * 12, arguments={})
    calls["tool_calls"] = [{"id": f"c{n}", **one} for n, one in enumerate(calls["tool_calls"])]
    made = await view_of([ASK, calls, *map(read_by_name, "abcdefghij"), MORE])
    assert [row.get("tool_call_id") for row in made[-3:-1]] == ["c10", "c11"]


@each_form
async def test_erased_calls_of_ollamas_form_keep_their_number_ids_and_results(calls: Row) -> None:
    rows = [ASK, calls, WRITTEN, *map(read_by_name, ("first", "second"))]
    made = await view_of(rows, erased=True)
    ids = [one.get("id") for one in calls["tool_calls"]]
    assert [one.get("id") for one in made[1]["tool_calls"]] == ids
    assert [one["tool_name"] for one in made[2:]] == ["write", "read", "read"]
    nameless = await view_of([ASK, calls, *[{"role": "tool", "content": "x"}] * 3], erased=True)
    assert nameless == [ASK, made[1], *[{"role": "tool", "content": "[erased]"}] * 3]


async def test_erased_calls_of_openais_form_keep_it_where_some_have_ids() -> None:
    functions = [{"type": "function", "function": {"name": one, "arguments": "{}"}} for one in "rw"]
    calls = {**READS, "tool_calls": [{"id": "call_0", **functions[0]}, functions[1]]}
    results = [{"role": "tool", **own, "content": "x"} for own in ({"tool_call_id": "call_0"}, {})]
    made = await view_of([ASK, calls, *results], erased=True)
    assert [one["function"]["arguments"] for one in made[1]["tool_calls"]] == ["{}", "{}"]
    assert [one["id"] for one in made[1]["tool_calls"]] == [one["tool_call_id"] for one in made[2:]]


async def view_of(rows: list[Row], *, erased: bool = False) -> list[Row]:
    """The view of rows, whose second may be erased."""
    engine, ctx = await opened(*rows)
    if erased:
        await engine.erase("s", [1], reason="asked")
    return await ctx.get_messages_for_request()


def test_a_hosts_own_forms_stay_as_the_host_made_them() -> None:
    calls = [{"name": "read", "args": {}, "id": "c", "type": "tool_call"}]
    of_langchain = {**said(use("c")), "type": "ai", "tool_calls": calls}
    assert sent([ASK, of_langchain, told("c")]) == [ASK, of_langchain, told("c")]
    words = [{"type": "output_text", "text": "x", "annotations": []}]
    of_agents = item("message", id="__fake_id__", role="assistant", content=words)
    assert sent([ASK, of_agents, MORE, of_agents]) == [ASK, of_agents, MORE, of_agents]


# -- whatever a log holds ------------------------------------------------------------------------

examples = settings(
    max_examples=some(6, 2_000), deadline=None, suppress_health_check=list(HealthCheck)
)
POLICIES: Final = ("workset", "simple", "ladder", "truncate", "token-budget")
ROWS: Final[dict[Api, Any]] = {
    "anthropic": claude_rows(),
    "openai-chat": chat_rows(),
    "openai-responses": response_rows(),
}

LEFT_TO_THE_CALLER: Final = {
    # A request that ends with an answer asks for more of it.
    "anthropic/no-prefill",
    "anthropic/prefill-without-space",
    # Made by the strategies, where only the fields that a type needs are drawn.
    "openai-responses/known-parts",
    "openai-responses/no-extra-fields",
    "openai-responses/required-fields",
    "openai-chat/no-extra-fields",
    "openai-chat/required-fields",
}


def broken(api: Api, rows: list[dict[str, Any]]) -> list[Any]:
    if not rows:
        return []  # nothing was said yet but a result of no call
    request = {"input" if api == "openai-responses" else "messages": rows}
    return [one for one in violations(api, request) if one.rule not in LEFT_TO_THE_CALLER]


class Story:
    """A session that is written, forked, restored, erased and asked for its view, at any place."""

    def __init__(self, api: Api, rows: list[dict[str, Any]], draw: st.DrawFn, policy: str) -> None:
        places = st.integers(0, len(rows) - 1)
        self._api = api
        self._rows = rows
        self._asked = draw(st.sets(places)) | {len(rows) - 1}
        self._forked, self._erased, self._restored, self._compacted = draw(
            st.tuples(places, st.none() | places, st.none() | places, st.none() | places)
        )
        self._options: dict[str, Any] = {
            "max_tokens": draw(st.sampled_from([600, 3_000, 50_000])),
            "policy": policy,
            "on_overflow": "send_floor",
        }

    async def play(self) -> None:
        async with eventctx.open() as engine:
            session = "s"
            ctx = await engine.session(session, **self._options)
            for number, row in enumerate(self._rows):
                receipt = await ctx.add_message(row)
                if number == self._forked:
                    await engine.fork("s", receipt.position, "forked")
                    session = "forked"
                    ctx = await engine.session(session, **self._options)
                if number == self._erased:
                    await engine.erase(session, [number])
                    ctx = await engine.session(session, **self._options)
                if number == self._compacted:
                    await ctx.compact(force=True)
                if number == self._restored:
                    # A result of no call, or an erased message, cannot come back.
                    with suppress(EventctxError):
                        await ctx.restore(number // 2)
                if number in self._asked:
                    view = await ctx.get_messages_for_request()
                    found = broken(self._api, view)
                    assert not found, f"{found}\n{json.dumps(view, indent=1)}"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("api", ROWS)
@examples
@given(data=st.data())
async def test_a_view_of_any_rows_is_accepted(api: Api, policy: str, data: st.DataObject) -> None:
    await Story(api, data.draw(ROWS[api]), data.draw, policy).play()


@pytest.mark.parametrize("api", ROWS)
@examples
@given(data=st.data())
def test_rows_that_were_made_sendable_are_not_changed_again(api: Api, data: st.DataObject) -> None:
    once = sendable(data.draw(ROWS[api]))
    again, changes = make_sendable(once)
    assert changes == ()
    assert again == once
