"""Every item of the Responses API is kept as it is, and calls stay with their answers."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.messages.encoding import decode_body, encode_message
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import failed_results, read_parts
from eventctx.messages.recall_text import text_of
from eventctx.messages.shorten import MARKER_CHARACTERS, Limit, shorten
from eventctx.messages.tokens import BY_KIND
from eventctx.projections.trace.texts import genai_message
from eventctx.projections.view import layout as layouts
from eventctx.projections.view.entries import CALL_NOT_ENDED
from eventctx.projections.view.refs import MessageRef
from tests.how_much import some, tried
from tests.messages import response_item_types as types_
from tests.messages.response_item_types import Item, check_type
from tests.policies.given import one_session
from tests.sessions import with_frames

PAIRS = sorted(types_.pairs().items())
CALLS = [call for call, _ in PAIRS]
POLICIES = ("ladder", "simple", "truncate", "importance")
NO_OUTPUT = ("computer_call", "mcp_approval_request")
ASK: Item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]}
SAID: Item = {"role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}


def as_bytes(rows: list[Item]) -> list[bytes]:
    return [msgspec.json.encode(row) for row in rows]


async def sent_of(*rows: Item) -> list[Item]:
    """What a session of these rows, which all fit, sends of them."""
    async with one_session(max_tokens=100_000) as (_, ctx):
        await ctx.add_messages(rows)
        return await ctx.get_messages_for_request()


async def check_verified(engine: eventctx.Engine) -> None:
    for one in (await engine.audit("s")).requests:
        assert (await engine.request_view("s", position=one.position)).verified


def output(call_id: str, text: str) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


# -- every item ----------------------------------------------------------------------------------

EVERY = [*types_.items(whole=True), *types_.items(whole=False)]
UNKNOWN: list[Item] = [
    {"type": "hologram", "depth": 3, "text": "x" * 5_000},
    {"type": "hologram_call", "id": "h_1", "call_id": "c_1", "beam": {"on": True}},
    {"type": "hologram_call_output", "call_id": "c_9", "seen": None},
    {"type": "hologram_output"},
    {"id": "msg_1"},
    {"id": "msg_1", "type": None},
]


@pytest.mark.parametrize("item", [*EVERY, *UNKNOWN], ids=lambda one: str(one.get("type")))
async def test_every_item_is_kept_and_sent_as_it_came_if_it_waits_for_nothing(item: Item) -> None:
    async with one_session(max_tokens=100_000) as (engine, ctx):
        await ctx.add_messages([ASK, item])
        await ctx.set_messages([ASK, item, SAID, ASK])
        rows = as_bytes([ASK, item, SAID, ASK])
        assert as_bytes(await ctx.get_messages()) == rows
        assert encode_message(item) == msgspec.json.encode(item)
        sent = await ctx.get_messages_for_request()
        facts, known = read_facts(item), {one for pair in PAIRS for one in pair}
        waits = item.get("type") in known and (facts.calls or facts.results)
        assert waits or as_bytes(sent) == rows
        await check_verified(engine)
        assert (await engine.verify("s")).ok
    for part in read_parts(item):
        at: Any = item
        for step in part.place:
            at = at[step] if part.value is not None else None
        assert at == part.value
    assert json.dumps(genai_message(item, str))
    assert isinstance(text_of(item), str)


# -- pairs ---------------------------------------------------------------------------------------


def test_the_calls_that_a_client_answers_are_found_by_reflection() -> None:
    names = "function shell apply_patch local_shell custom_tool computer tool_search"
    assert {f"{name}_call" for name in names.split()} <= set(CALLS)


@pytest.mark.parametrize(("call", "answer"), PAIRS)
async def test_a_call_pairs_with_its_answer_and_a_row_between_moves(call: str, answer: str) -> None:
    first, second = types_.pair(call, answer, 1)
    assert read_facts(first).calls == read_facts(second).results == ("call_1",)
    note = {"role": "user", "content": "and this"}
    sent = await sent_of(ASK, first, note, second)
    assert as_bytes(sent) == as_bytes([ASK, first, second, note])
    assert await sent_of(ASK, second, ASK) == [ASK, ASK], "an answer without a call is in none"


@pytest.mark.parametrize(
    ("call", "answer", "policy"),
    [
        (*pair, policy)
        for place, pair in enumerate(PAIRS)
        for choice, policy in enumerate(POLICIES)
        if tried(place, 0, choice, choices=len(POLICIES))
    ],
)
async def test_pairs_and_groups_hold_under_compaction(call: str, answer: str, policy: str) -> None:
    async with eventctx.open() as engine:
        with_frames(engine.store)
        ctx = await engine.session("s", policy=policy, max_tokens=4_000, on_overflow="send_floor")
        for turn in range(12):
            a, b = types_.pair(call, answer, 2 * turn), types_.pair(call, answer, 2 * turn + 1)
            await ctx.add_messages([ASK, a[0], b[0], a[1], b[1], SAID])
            await check_pairs(await ctx.get_messages_for_request())
        audit = await engine.audit("s")
        assert audit.compactions
        for one in audit.requests:
            assert one.tokens <= 4_000 or one.floor_sent
            assert (await engine.request_view("s", position=one.position)).verified


async def check_pairs(sent: list[Item]) -> None:
    calls = [one for row in sent for one in read_facts(row).calls]
    results = [one for row in sent for one in read_facts(row).results]
    assert sorted(calls) == sorted(results) and len(set(calls)) == len(calls)
    numbers = [int(one.removeprefix("call_")) for one in calls]
    assert all(number ^ 1 in numbers for number in numbers), "a parallel group was torn apart"
    for row in sent:
        if "role" not in row:
            check_type(row)


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_without_an_answer_gets_one_of_its_type_or_is_left_out(call: str) -> None:
    first, second = types_.pair(call, dict(PAIRS)[call], 1)
    thought: Item = {"type": "reasoning", "id": "rs_1", "summary": []}
    async with one_session(max_tokens=100_000) as (engine, ctx):
        await ctx.add_messages([ASK, thought, first, ASK])
        sent = await ctx.get_messages_for_request()
        if call in NO_OUTPUT:
            assert sent == [ASK, ASK]
        else:
            assert sent[:3] == [ASK, thought, first] and len(sent) == 5
            assert sent[3]["type"] == second["type"]
            check_type(sent[3])
            assert read_facts(sent[3]).results == ("call_1",)
            assert CALL_NOT_ENDED in json.dumps(sent[3]) or sent[3]["status"] == "incomplete"
        await ctx.add_message(second)
        assert await ctx.get_messages_for_request() == [ASK, thought, first, second, ASK]
        await check_verified(engine)


async def test_unknown_items_with_one_call_id_stand_or_fall_together() -> None:
    async with one_session(policy="truncate", max_tokens=900) as (engine, ctx):
        for turn in range(8):
            call = {"type": "hologram_call", "call_id": f"c{turn}", "beam": "x" * 400}
            answer = {"type": "hologram_call_output", "call_id": f"c{turn}", "seen": "y" * 400}
            await ctx.add_messages([call, answer, ASK])
            kinds = [row.get("type") for row in await ctx.get_messages_for_request()]
            assert kinds.count("hologram_call") == kinds.count("hologram_call_output")
        assert (await engine.audit("s")).compactions


async def test_what_the_provider_keeps_is_no_open_call_and_an_id_used_twice_is_one() -> None:
    reference = {"type": "item_reference", "id": "fc_1"}
    answers = [output("call_1", "42"), output("call_2", "43")]
    rows = [ASK, reference, {"id": "fc_2"}, *answers, ASK]
    assert as_bytes(await sent_of(*rows)) == as_bytes(rows)
    own = {"call_id": None, "execution": "server"}
    search: Item = {"type": "tool_search_call", "id": "tsc", "arguments": {}, **own}
    found: Item = {"type": "tool_search_output", "id": "tso", "tools": [], **own}
    rows = [ASK, search, found, SAID]
    assert await sent_of(*rows) == rows
    call = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}
    sent = await sent_of(ASK, call, {"type": "reasoning", "id": "r", "summary": []}, call, ASK)
    assert [row.get("type") for row in sent].count("function_call_output") == 1


row_of_items = st.sampled_from(
    [
        *(ASK, SAID, {"type": "message", "role": "assistant", "content": []}),
        *({"type": "reasoning", "id": "rs", "summary": []}, {"type": "item_reference", "id": "x"}),
        *({"type": "hologram", "id": "y"}, {"role": "system", "content": "be brief"}),
        *({"role": "assistant", "content": "words"}, {"type": "hologram_call", "call_id": "h"}),
        {"type": "hologram_call_output", "call_id": "h"},
        *(one for pair in PAIRS for number in (1, 2) for one in types_.pair(*pair, number)),
    ]
)


@settings(max_examples=some(100, 400))
@given(rows=st.lists(row_of_items, max_size=14))
def test_a_view_that_grows_and_one_that_is_built_at_once_are_the_same(rows: list[Item]) -> None:
    refs = [MessageRef(n, n, 0, bytes([n]) * 32, read_facts(row), 10) for n, row in enumerate(rows)]
    grown = layouts.EMPTY
    for ref in refs:
        grown = layouts.append(grown, ref)
    built = layouts.build(refs)
    assert grown.entries() == built.entries()
    assert grown.measure() == built.measure()


# -- shortening and counting ---------------------------------------------------------------------


@pytest.mark.parametrize(("call", "answer"), PAIRS)
@pytest.mark.parametrize("characters", [0, 50, 1_000])
def test_a_shortened_item_has_its_type_and_is_short(
    call: str, answer: str, characters: int
) -> None:
    for item in types_.pair(call, answer, 1):
        facts = read_facts(item)
        copy = shorten(decode_body(encode_message(item)), 7, Limit(characters, characters))
        short = read_facts(copy)
        check_type(copy)
        assert (short.calls, short.results, short.kind) == (facts.calls, facts.results, facts.kind)
        assert short.prose == facts.prose
        assert short.outcome <= characters + MARKER_CHARACTERS
        assert short.arguments <= characters + 2 * MARKER_CHARACTERS


def cut(item: Item, **limits: int) -> Any:
    return shorten(decode_body(encode_message(item)), 1, Limit(**limits))


def test_long_commands_outputs_and_patches_are_cut_and_all_else_of_them_stays() -> None:
    commands = {"commands": [f"echo {'x' * 300}"] * 400, "timeout_ms": 5}
    call: Item = {"type": "shell_call", "call_id": "c", "action": commands}
    action = cut(call, arguments=500)["action"]
    assert len(action["commands"]) == 1 and action["timeout_ms"] == 5
    ended = {"type": "exit", "exit_code": 2}
    chunk = {"stdout": "out " * 500, "stderr": "", "outcome": ended}
    answer: Item = {"type": "shell_call_output", "call_id": "c", "output": [chunk]}
    (short,) = cut(answer, outcome=100)["output"]
    assert "characters left out of message 1" in short["stdout"] and short["outcome"] == ended
    assert failed_results(answer) == {"c"}
    operation = {"type": "update_file", "path": "src/a.py", "diff": "+line\n" * 900}
    patch: Item = {"type": "apply_patch_call", "call_id": "c", "operation": operation}
    left = cut(patch, arguments=100)["operation"]
    assert (left["type"], left["path"]) == ("update_file", "src/a.py") and len(left["diff"]) < 200


def test_a_screenshot_and_a_made_image_count_as_images_not_as_text() -> None:
    encoded = "A" * 1_000_000
    shot = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{encoded}"}
    seen = read_facts({"type": "computer_call_output", "call_id": "c", "output": shot})
    made = read_facts({"type": "image_generation_call", "id": "i", "result": encoded})
    for facts in (seen, made):
        assert [one.kind for one in facts.media] == ["image"]
        assert 0 < BY_KIND.tokens(facts) < 10_000
        assert facts.prose + facts.outcome + facts.arguments < 500


async def test_an_erased_item_keeps_its_type_and_its_pair() -> None:
    for call, answer in PAIRS:
        first, second = types_.pair(call, answer, 1)
        async with one_session() as (engine, ctx):
            await ctx.add_messages([ASK, first, second, ASK])
            await engine.erase("s", [1], reason="a secret")
            _, one, two, _ = await ctx.get_messages_for_request()
            assert (one["type"], two["type"]) == (call, answer)
            assert read_facts(one).calls == read_facts(two).results == ("call_1",)
