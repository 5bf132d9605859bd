"""``lost`` and ``instructions`` say the same of every demand, whatever took its message out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.engine import Engine
from eventctx.importers.load import import_file
from eventctx.log.plan import Disposition, Insertion, InsertionKind, Run
from eventctx.messages.encoding import decode_body
from eventctx.messages.overlap import normal
from eventctx.messages.recall_text import text_of_summary
from eventctx.stores.memory import MemoryStore
from tests.faults.counts import FULL
from tests.how_much import some
from tests.queries.instructions.given import compact
from tests.queries.lost.given import Row, call, model, result, user
from tests.test_recorded_sessions import SESSIONS

DEMANDS = (
    "Never touch the migrations of the shop.",
    "Please keep the old names in models.py.",
    "请始终用中文回答。",
    "Schreibe niemals in den Ordner build.",
    "Use tabs, not spaces!",
)
SAME = {"whole": "verbatim", "shortened": "verbatim", "summary": "in", "gone": "not"}
HELD = {"in_summary": "in", "in_index": "in", "shortened": "not", "absent": "not"}

LONG = ("claude-code/spotter", "codex/", "mini-swe-agent/", "pi/", "openhands/openagentsafety")
"""Recorded sessions of more than 200 messages, whose questions take a second each."""

SENTENCE = st.sampled_from(DEMANDS)
RETOLD = st.one_of(
    SENTENCE,
    SENTENCE.map(lambda one: f'| #3: "{one.upper()}"'),
    SENTENCE.map(lambda one: one.replace(" ", "\n", 1)),
    SENTENCE.map(lambda one: f"The person said: {one[: len(one) // 2]}"),
    SENTENCE.map(lambda one: " ".join(reversed(one.split()))),
    SENTENCE.map(lambda one: f"re{one[:-1]}s"),
)
TEXT = st.lists(RETOLD, max_size=4).map("\n".join)
SAID = st.one_of(TEXT.map(user), TEXT.map(model), st.tuples(TEXT, st.booleans()))
FATE = st.sampled_from(["kept", "dropped", "shortened", "summarised"])


def rows_of(said: list[Row | tuple[str, bool]]) -> list[Row]:
    """Messages; a text that comes with a result is one message with it, as in Claude Code."""
    rows: list[Row] = [user("Clean up the shop.")]
    for place, one in enumerate(said):
        if isinstance(one, dict):
            rows.append(one)
            continue
        answer = result(place, "ok")
        answer["content"].append({"type": "text", "text": one[0] or "go on"})
        rows += [call(place, "Bash", {"command": "ls"}), answer]
    return rows


async def check_agreement(engine: Engine, session: str = "s", **about: int) -> None:
    """Both say the same of each demand that holds, and its words are where they say they are."""
    told = await engine.instructions(session, **about)
    lost = await engine.lost(session, **about)
    states = {normal(one.text): one.state for one in lost.items if one.kind == "instruction"}
    for one in told.instructions:
        if one.stands is None:
            continue
        assert HELD.get(one.stands, one.stands) == SAME[states[normal(one.text)]], one
        if one.stands in ("in_summary", "in_index"):
            assert one.where is not None
            assert normal(one.text).strip(".! ") in await text_at(engine, session, one.where), one


async def text_at(engine: Engine, session: str, name: str) -> str:
    """The text of a message (``#4``), or all texts of a record (``@48``)."""
    at = int(name[1:])
    if name.startswith("#"):
        found = [(await engine.why(session, at)).message]
    else:
        (record,) = [one async for one in engine.store.read(session, start=at, stop=at)]
        found = [decode_body(body.data) for body in record.bodies if body.data is not None]
    return normal("\n".join([text_of_summary(one) for one in found if one is not None]))


async def play(
    said: list[Row | tuple[str, bool]],
    fates: list[Disposition],
    summaries: list[tuple[InsertionKind, str]],
    own: str | None,
) -> Engine:
    """A session whose compactions are made by hand: each message has a fate in each of them."""
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    for row in rows_of(said):
        await ctx.add_message(row)
    await check_agreement(engine)
    for kind, text in summaries:
        if own is not None:
            # A host that summarises by itself.
            await ctx.set_messages([user("so far"), model(own), *(await ctx.get_messages())[1:]])
        count = (await ctx.add_message(user("go on"))).number
        runs, cut = [], {}
        for number in range(count):
            fate = fates[number % len(fates)]
            runs.append(Run(number, number, fate, "older"))
            if fate == "shortened":
                cut[number] = user(DEMANDS[number % len(DEMANDS)])
        await compact(engine, *runs, shortened=cut, insertion=Insertion(kind, 0), text=text)
        await check_agreement(engine)
    return engine


SUMMARISED = st.tuples(st.sampled_from(["summary", "notice", "memory"]), TEXT)
PLAYED = st.tuples(
    st.lists(SAID, min_size=1, max_size=8),
    st.lists(FATE, min_size=1, max_size=7),
    st.lists(SUMMARISED, max_size=2),
    st.none() | TEXT,
)


@settings(max_examples=some(30, 100), deadline=None)
@given(PLAYED)
def test_both_agree_on_every_demand_of_any_session(played: tuple[Any, ...]) -> None:
    asyncio.run(play(*played))


@pytest.mark.parametrize("name", [one for one in SESSIONS if FULL or not one.startswith(LONG)])
async def test_both_agree_on_a_recorded_session(name: str, recorded_sessions: Path) -> None:
    engine = Engine(MemoryStore())
    for imported in await import_file(engine.store, recorded_sessions / name, complete=True):
        if not imported.session:
            continue
        session = imported.session
        await check_agreement(engine, session)
        said = [one.text for one in (await engine.instructions(session)).instructions]
        words = [" ".join(reversed(one.split())) if at % 2 else one for at, one in enumerate(said)]
        state = await engine.transcript(session)
        runs = Run(0, len(state) - 1, "summarised", "older")
        summary = {"insertion": Insertion("summary", 0), "text": "\n".join(words)}
        await compact(engine, runs, **summary, stream=session)
        await check_agreement(engine, session)
