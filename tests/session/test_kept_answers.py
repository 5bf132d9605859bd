"""What is known of a call without a result, in the log and in its made-up result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eventctx.engine import Engine
from eventctx.importers.recording import spilled
from eventctx.importers.recording.spilled import SpilledView
from eventctx.messages.facts import decode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tokens import UNANSWERED_TOKENS
from eventctx.policies.planner import visible_of
from eventctx.policies.working_set import WorkingSet, keep_whole
from eventctx.projections.view import request_view
from eventctx.projections.view import snapshot as view_snapshot
from eventctx.projections.view.entries import (
    ANSWER_KEPT,
    CALL_ENDED,
    CALL_NOT_ENDED,
    RENDERER,
    SYNTHETIC_RESULT,
)
from eventctx.projections.view.layout import EMPTY, append, as_plain, build, with_end
from eventctx.projections.view.refs import KEPT_CHARACTERS, CallEnd, MessageRef
from eventctx.queries.requests import fold
from eventctx.queries.transfer import export_lines, import_drafts, read_drafts
from eventctx.queries.verification import ContentChecker, Findings
from eventctx.session.host_turns import HostReporter
from eventctx.stores.memory import MemoryStore
from eventctx.testing.requests import refusal
from tests.how_much import some
from tests.session.given import (
    ASK,
    GO_ON,
    calling,
    killed,
    of_ollama,
    opened,
    process,
    records_of,
    result,
    until_tools_run,
    view_of,
)
from tests.sessions import model, user
from tests.transcripts import DIALECTS, calls, human
from tests.transcripts import result as result_of

pytestmark = pytest.mark.slow


each_form = pytest.mark.parametrize(
    "row", [calling("a", "b"), of_ollama(calling("a", "b"))], ids=["openai", "ollama"]
)


@each_form
async def test_an_answer_is_kept_while_a_sibling_runs_and_is_shown(row: dict[str, Any]) -> None:
    store = await killed(answer="the text of a", calls=row)
    (post,) = await records_of(store, kind="tool:post")
    assert decode_facts(post.bodies[0].facts).results == ("a",)
    assert b"the text of a" not in post.payload
    shown = await view_of(store)
    assert refusal(shown) is None
    answers = [result("a", ANSWER_KEPT + "the text of a"), result("b", CALL_NOT_ENDED)]
    assert shown == [ASK, row, *answers, GO_ON]


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (lambda host: host.tool_ended("a"), CALL_ENDED),
        (
            lambda host: host.tool_failed("a", "OSError", "gone", answer="Error: gone"),
            ANSWER_KEPT + "Error: gone",
        ),
        (lambda host: host.tool_failed("a", "CancelledError", "", cancelled=True), CALL_NOT_ENDED),
    ],
    ids=["ended without an answer", "failed", "broken off, it may have done its work"],
)
async def test_what_is_shown_for_a_call_says_how_it_ended(end: Any, said: str) -> None:
    shown = await view_of(await killed(end=end))
    assert shown[2:4] == [result("a", said), result("b", CALL_NOT_ENDED)]


async def test_the_last_answer_is_not_kept_since_it_is_added_at_once() -> None:
    async with process(store := MemoryStore()) as engine:
        host = await until_tools_run(engine, "a", "b")
        await host.tool_ended("b", "of b")
        await host.tool_ended("a", "of a")
    posts = await records_of(store, kind="tool:post")
    assert [len(one.bodies) for one in posts] == [1, 0]


@each_form
async def test_an_answer_is_kept_while_a_sibling_has_yet_to_begin_and_is_shown(
    row: dict[str, Any],
) -> None:
    """A person may be asked first, and the process be killed meanwhile."""
    store = MemoryStore()
    async with process(store) as engine:
        host = await until_tools_run(engine, "a", calls=row)
        await host.tool_ended("a", "the text of a")
        await host.tool_began("read", "b", "b")
        await host.tool_ended("b", "the text of b")
        del host
    posts = await records_of(store, kind="tool:post")
    assert [len(one.bodies) for one in posts] == [1, 0]
    answers = [result("a", ANSWER_KEPT + "the text of a"), result("b", CALL_ENDED)]
    assert await view_of(store) == [ASK, row, *answers, GO_ON]


async def test_a_long_answer_is_whole_in_the_log_and_cut_in_the_view() -> None:
    store = MemoryStore()
    answer = "begin " + "x" * 600_000 + " end"
    await killed(store, answer=answer)
    (post,) = await records_of(store, kind="tool:post")
    assert answer.encode() in (post.bodies[0].data or b"")
    text = (await view_of(store))[2]["content"]
    assert text.startswith(ANSWER_KEPT + "begin ") and text.endswith(" end")
    assert "596010 characters of the answer left out" in text
    assert len(text) < KEPT_CHARACTERS + 300


async def test_a_result_that_comes_after_all_takes_the_place_of_the_kept_answer() -> None:
    store = await killed(answer="the text of a")
    async with process(store) as engine:
        ctx = await engine.session("s")
        await ctx.add_message(result("a", "given by the host"))
        shown = await ctx.get_messages_for_request()
    assert shown[2:] == [result("a", "given by the host"), result("b", CALL_NOT_ENDED)]


async def test_the_blocks_of_a_turn_keep_answers_by_the_same_rule() -> None:
    engine, ctx = await opened()
    async with ctx.turn() as turn, turn.iteration() as cycle:
        await ctx.add_message(calling("a", "b"))
        async with cycle.tool_call("read", "b") as slow:
            async with cycle.tool_call("read", "a") as quick:
                quick.answered("of a")
            slow.answered("of b")
        await ctx.add_messages([result("a", "of a"), result("b", "of b")])
        await ctx.add_message(calling("a", "b"))
        async with cycle.tool_call("read", "a") as first:
            first.answered("of a")
        async with cycle.tool_call("read", "b") as second:
            second.answered("of b")
    posts = await records_of(engine.store, kind="tool:post")
    kept = b'{"role":"tool","tool_call_id":"a","content":"of a"}'
    assert [[body.data for body in one.bodies] for one in posts] == [[kept], []] * 2


@each_form
async def test_erasing_the_call_takes_its_kept_answer_along(row: dict[str, Any]) -> None:
    store = await killed(answer="the secret text of a", calls=row)
    async with process(store) as engine:
        await engine.erase("s", [1], reason="on request")
        ctx = await engine.session("s")
        await ctx.add_message(GO_ON)
        shown = await ctx.get_messages_for_request()
        assert (await engine.verify("s")).ok
    assert not [one for one in await records_of(store) if b"secret" in str(one.bodies).encode()]
    assert shown[2] == result("a", ANSWER_KEPT + "[erased]")


async def test_export_and_import_carry_kept_answers() -> None:
    store, other = await killed(answer="the text of a"), MemoryStore()
    _, *lines = [line async for line in export_lines(store, await store.head("s"))]
    await import_drafts(other, "s", read_drafts(lines))
    assert (await view_of(other))[2] == result("a", ANSWER_KEPT + "the text of a")


async def test_what_is_learnt_of_a_call_after_the_model_went_on_changes_nothing() -> None:
    async with process(MemoryStore()) as engine:
        host = await until_tools_run(engine, "a", "b")
        ctx = await engine.session("s")
        await ctx.add_message(model("I go on without."))
        before = await ctx.get_messages_for_request()
        await host.tool_ended("a", "too late")
        assert await ctx.get_messages_for_request() == before
        assert (await engine.audit("s")).requests[-1].breaks == ()
    assert before[2:4] == [result("a", CALL_NOT_ENDED), result("b", CALL_NOT_ENDED)]


async def test_the_view_digest_tells_apart_what_a_made_up_result_says() -> None:
    digests = set()
    for fate in ("open", "ended", "kept"):
        ref = MessageRef(0, 0, 0, bytes(32), read_facts(calling("a")), 10)
        layout = append(EMPTY, ref)
        if fate != "open":
            end = CallEnd(True, 5, b"digest") if fate == "kept" else CallEnd(True)
            layout = with_end(layout, "a", end)
        digests.add(layout.measure()[0])
        digests.add(as_plain(layout, 0).measure()[0])
    assert len(digests) == 4


async def test_a_round_that_is_dropped_frees_the_tokens_of_its_kept_answers() -> None:
    store = await killed(answer="kept " * 600)
    async with process(store) as engine:
        ctx = await engine.session("s")
        await ctx.add_messages([model("I go on."), GO_ON])
    state: request_view.ViewState = await fold(store, "s", request_view)
    visible = visible_of(state)
    working = WorkingSet(visible, keep_whole(visible))
    (group,) = [one for one in visible.groups if one.pending]
    working.drop(group, "older")
    left = [ref for ref in state.layout.refs if not ref.facts.calls]
    assert working.total == build(left).tokens


async def test_a_set_that_keeps_the_call_keeps_what_is_known_of_it() -> None:
    store = await killed(answer="the text of a")
    async with process(store) as engine:
        ctx = await engine.session("s")
        await ctx.set_messages([user("Else."), calling("a", "b")])
        shown = await ctx.get_messages_for_request()
        assert shown[2] == result("a", f"{ANSWER_KEPT}the text of a")
        await ctx.set_messages([ASK])
        state = await fold(store, "s", request_view)
        assert state.layout.ends.known == {}


async def test_an_import_that_sets_entries_aside_knows_of_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spilled, "CHUNK", 2)
    store = await killed(answer="the text of a")
    async with process(store) as engine:
        await (await engine.session("s")).add_messages([model(str(n)) for n in range(8)])
    spill = SpilledView()
    plain = held = request_view.initial()
    for record in await records_of(store):
        plain = request_view.evolve(plain, record)
        held = spill.spill(request_view.evolve(held, record))
    assert held.layout.refs.is_backed
    assert held.layout.entries() == plain.layout.entries()
    spill.close()


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        ({"data": b'{"role":"tool","content":"edited"}'}, "body 0 was edited"),
        ({"facts": b""}, "the facts of body 0 are missing"),
    ],
)
async def test_verify_finds_an_edited_kept_answer(edit: dict[str, bytes], found: str) -> None:
    store = await killed(answer="the text of a")
    (post,) = await records_of(store, kind="tool:post")
    edited = msgspec.structs.replace(post.bodies[0], **edit)
    checker = ContentChecker(findings := Findings(), facts=True)
    checker.take(msgspec.structs.replace(post, bodies=(edited,)))
    assert [one.text for one in findings.problems] == [found]


FATES = st.sampled_from(("result", "kept", "ended", "failed", "cancelled", "open"))


@settings(max_examples=some(20, 80), deadline=None)
@given(
    dialect=st.sampled_from(DIALECTS),
    rounds=st.lists(st.tuples(st.lists(FATES, min_size=1, max_size=3), st.booleans()), max_size=4),
    budget=st.sampled_from([400, 2_000, 20_000]),
)
async def test_whatever_became_of_a_call_every_request_has_one_result_for_it(
    dialect: str, rounds: list[tuple[list[str], bool]], budget: int
) -> None:
    store = MemoryStore()
    for number, (fates, asks_between) in enumerate(rounds):
        async with process(store) as engine:  # each round is one process, killed after it
            ctx = await engine.session("s", max_tokens=budget, on_overflow="send_floor")
            host = ctx.following()
            await host.turn_began()
            await ctx.add_message(human(dialect, f"{number} " + "word " * 40))
            await host.iteration_began("p", "m")
            await ctx.get_messages_for_request()
            await host.request_prepared()
            ids = [f"c{place}" for place in range(len(fates))]  # the same in every round
            await ctx.add_messages(calls(dialect, ids, "Hm.", 20))
            for call in ids:
                await host.tool_began("read", call, call)
            for call, fate in zip(ids, fates, strict=True):
                await become(host, call, fate)
            if asks_between:
                assert refusal(await ctx.get_messages_for_request()) is None
            for call, fate in zip(ids, fates, strict=True):
                if fate == "result":
                    await ctx.add_message(result_of(dialect, call, "given"))
            assert refusal(await ctx.get_messages_for_request()) is None
            del host
    async with process(store) as engine:
        await engine.session("s")
        assert (await engine.verify("s")).ok
        await check_requests(engine, store, budget)


async def become(host: HostReporter, call: str, fate: str) -> None:
    if fate in ("result", "ended"):
        await host.tool_ended(call)
    elif fate == "kept":
        await host.tool_ended(call, "kept " * (30 if call == "c0" else 3_000))
    elif fate in ("failed", "cancelled"):
        await host.tool_failed(call, "E", "x", cancelled=fate == "cancelled")


async def check_requests(engine: Engine, store: MemoryStore, budget: int) -> None:
    before: list[dict[str, Any]] = []
    for row in (await engine.audit("s")).requests:
        view = await engine.request_view("s", position=row.position)
        assert view.verified
        assert row.floor_sent == (row.tokens > budget)
        assert row.breaks or view.messages[: len(before)] == before
        before = view.messages
    await check_growth(store)


async def check_growth(store: MemoryStore) -> None:
    """A layout that grows record by record equals one that is built at once."""
    state = request_view.initial()
    for record in await records_of(store):
        state = request_view.evolve(state, record)
        built = build(state.layout.refs, state.layout.insertions, state.layout.ends)
        assert built.measure() == state.layout.measure()
        assert built.entries() == state.layout.entries()


# -- renderer 1 ----------------------------------------------------------------------------------

CRASHED = Path(__file__).parents[1] / "golden" / "export-v1-crashed.jsonl"
"""A session of the release before, which crashed twice in a tool round, with thinking between."""


async def with_the_older_session() -> MemoryStore:
    store = MemoryStore()
    _, *lines = CRASHED.read_bytes().splitlines()
    await import_drafts(store, "s", read_drafts(lines))
    return store


async def test_requests_of_renderer_1_are_derived_with_their_digests_and_their_words() -> None:
    async with process(await with_the_older_session()) as engine:
        rows = (await engine.audit("s")).requests
        views = [await engine.request_view("s", position=row.position) for row in rows]
        assert all(view.verified for view in views)
        assert {view.prepared.renderer for view in views} == {1}
        said = [str(view.messages).count(SYNTHETIC_RESULT) for view in views]
        assert said == [0, 1, 1, 3]
        assert not [view for view in views if CALL_NOT_ENDED in str(view.messages)]
        assert (await engine.verify("s")).ok
        # What it showed stays, so that the next request only grows.
        ctx = await engine.session("s")
        async with ctx.turn():
            await ctx.add_message(GO_ON)
            new = await ctx.get_messages_for_request(model="claude-sonnet-4")
        assert new == [*views[-1].messages, GO_ON]
        after = (await engine.audit("s")).requests[-1]
        view = await engine.request_view("s", position=after.position)
        assert (view.prepared.renderer, view.verified, after.breaks) == (RENDERER, True, ())


async def test_a_call_that_no_request_of_renderer_1_showed_gets_the_words_of_today() -> None:
    store = await killed(await with_the_older_session(), answer="the text of a")
    state: request_view.ViewState = await fold(store, "s", request_view)
    made_up = [one for one in state.layout.entries() if one.kind == "synthetic"]
    said = [(one.call_id, one.end is not None) for one in made_up]
    assert said == [("b", False), ("d", False), ("e", False), ("a", True), ("b", True)]
    again = view_snapshot.load(view_snapshot.dump(state))
    assert again.layout.entries() == state.layout.entries()
    await check_growth(store)


def test_an_old_log_with_a_call_without_a_result_costs_no_look_at_all_entries_a_request() -> None:
    rows = [calling("a"), model("I go on.")]
    refs = [MessageRef(n, n, 0, bytes(32), read_facts(row), 10) for n, row in enumerate(rows)]
    plain = as_plain(build(refs), 1)
    assert [one.end for one in plain.entries() if one.kind == "synthetic"] == [None]
    unread: Any = object()
    assert as_plain(replace(plain, sealed=unread), 7).sealed is unread


async def test_a_kept_answer_is_counted_by_the_estimator_of_the_model() -> None:
    store = await killed(answer="seven words of it, and 12345 digits")
    state: request_view.ViewState = await fold(store, "s", request_view)
    for name in (None, "claude-opus-4-8", "gpt-5.5"):
        state = request_view.with_model(state, name)
        (entry,) = [one for one in state.layout.entries() if one.call_id == "a"]
        assert entry.end and entry.end.facts
        assert entry.tokens == UNANSWERED_TOKENS + state.estimator.tokens(entry.end.facts)
