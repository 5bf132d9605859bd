"""What the root of a trace tells, so that a list of search results can be told apart."""

from __future__ import annotations

from typing import Any

import msgspec

import eventctx
from eventctx.hooks.redact import DEFAULT
from eventctx.log import events as ev
from eventctx.log.record import Body, make_body
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.projections.trace.fold import SessionTrace, fold
from eventctx.projections.trace.identity import MAX_TITLE
from eventctx.projections.trace.spans import Span
from tests.hooks.given import PRE, Session, call_model, compacted, filled, recorded, span

TITLE = "eventctx.session.title"
KEY = "sk-ant-api03-" + "a1B2" * 12


async def roots(engine: eventctx.Engine, session: str = "s", clean: Any = str) -> list[Span]:
    state, found = SessionTrace.start(clean), list[Span]()
    async for record in engine.records(session, bodies=True):
        state = state.after(record)
        found = [] if record.type == "session:fork" else [*found, *state.finished]
    return [one for one in found if one.parent_span_id is None]


async def turns_of(ctx: eventctx.Context, *texts: str) -> None:
    for text in texts:
        async with ctx.turn():
            await ctx.add_message({"role": "user", "content": text})


# -- compactions ---------------------------------------------------------------------------------


def test_a_turn_counts_its_applied_compactions_and_the_tokens_that_they_saved() -> None:
    session = Session()
    session.add(ev.PromptSubmit(number=1), span(1))
    for number, outcome in enumerate(("applied", "skipped", "applied", "failed"), 2):
        session.add(PRE, span(number), span(1))
        session.add(compacted(outcome), span(number), span(1))
    session.add(ev.PromptComplete(), span(1))
    session.add(PRE, span(8), turn=None)
    session.add(compacted("applied"), span(8), turn=None)
    found = {one.span_id: one.attributes for one in fold(session.records)}
    event = compacted("applied")
    saved = event.tokens_before - event.tokens_after
    assert saved > 0
    assert found[span(1)]["eventctx.turn.plans"] == 2
    assert found[span(1)]["eventctx.turn.estimated_tokens.saved"] == 2 * saved
    assert "eventctx.turn.plans" not in found[span(8)]


# -- titles --------------------------------------------------------------------------------------


async def test_the_title_is_the_beginning_of_the_first_words_of_a_person() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.add_message({"role": "system", "content": "Be brief."})
        await turns_of(ctx, "Fix the\n  clock " + "now " * 50, "And the bell")
        first, second = await roots(engine)
        records = [record async for record in engine.records("s")]
    title = first.attributes[TITLE]
    assert isinstance(title, str)
    assert title.startswith("Fix the clock now now ")
    assert (len(title), title[-1]) == (MAX_TITLE, "…")
    assert second.attributes[TITLE] == title
    assert all(TITLE not in one.attributes for one in fold(records)), "contents are off"


async def test_only_roots_have_it_also_that_of_a_compaction_outside_of_a_turn() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=2_000)
        async with ctx.turn() as turn, turn.iteration() as cycle:
            for number in range(8):
                await ctx.add_message({"role": "user", "content": f"Task {number} " + "x " * 400})
            await ctx.get_messages_for_request()
            await call_model(cycle)
        await ctx.compact(budget=600)
        found = filled(await recorded(engine))
    titled = {one.name for one in found if TITLE in one.attributes}
    assert titled == {"invoke_agent", "compact workset"}
    assert all((TITLE in one.attributes) == (one.parent_span_id is None) for one in found)


async def test_a_secret_in_it_is_redacted_before_it_is_cut() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await turns_of(ctx, "x" * (MAX_TITLE - 10) + f" {KEY}")
        (turn,) = await roots(engine, clean=DEFAULT.text)
    assert KEY[:12] not in str(turn.attributes[TITLE])


async def test_once_erased_it_is_gone_live_and_from_the_log_and_no_other_takes_its_place() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await turns_of(ctx, "My name is Ann", "Go on")
        assert [one.attributes[TITLE] for one in await roots(engine)] == ["My name is Ann"] * 2
        seen = SessionTrace.start(str)
        async for record in engine.records("s", bodies=True):
            seen = seen.after(record)
        await engine.erase("s", [0])
        await turns_of(ctx, "And then")
        later = [one async for one in engine.records("s", bodies=True)][seen_records(seen) :]
        live = list[Span]()
        for record in later:
            seen = seen.after(record)
            live += seen.finished
        assert [TITLE in one.attributes for one in live] == [False]
        assert all(TITLE not in one.attributes for one in await roots(engine))


def seen_records(state: SessionTrace) -> int:
    assert state.content is not None
    return state.content.view.position + 1


async def test_a_harness_gives_no_title_and_a_fork_has_its_parents() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.add_message({"role": "user", "content": "<system-reminder>x</system-reminder>"})
        await turns_of(ctx, "Fix the clock")
        head = (await engine.store.head("s")).head  # type: ignore[union-attr]
        await engine.fork("s", head, "child")
        await turns_of(await engine.session("child"), "Fix the bell")
        (own,) = await roots(engine, "child")
    assert own.attributes[TITLE] == "Fix the clock"


def test_what_a_harness_said_by_its_record_gives_no_title_in_a_list_either() -> None:
    session = Session()
    texts = ("from the harness", "Fix the clock")
    bodies = tuple([body({"role": "user", "content": text}) for text in texts])
    session.add(ev.PromptSubmit(number=1), span(1))
    session.add(ev.MessageAdded(origin="harness"), bodies=bodies[:1])
    session.add(ev.MessagesSet(order=((0, 2),), harness=(0,)), bodies=bodies)
    session.add(ev.PromptComplete(), span(1))
    (turn,) = filled(session.records)
    assert turn.attributes[TITLE] == "Fix the clock"


def body(message: dict[str, Any]) -> Body:
    data = msgspec.json.encode(message)
    return make_body(data, encode_facts(read_facts(message)), bytes)
