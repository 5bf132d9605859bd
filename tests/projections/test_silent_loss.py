"""What no record tells of: prompts that are smaller than the log says were sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import eventctx
from eventctx.hooks.log import level_of, line
from eventctx.importers.load import import_file
from eventctx.log.codec import decode_known
from eventctx.log.record import Record
from eventctx.projections.presence import describe_loss
from eventctx.projections.silent_loss import LEARNT, ReportedRequest, ShownMessages, suspect
from eventctx.projections.timeline.document import document
from eventctx.projections.timeline.fold import TimelineState, evolve, initial
from eventctx.projections.timeline.losses import suspected_losses
from eventctx.projections.view.series import Series
from eventctx.queries.key_frames import timeline_at
from eventctx.stores.memory import MemoryStore
from tests.calls import calls_of_functions
from tests.how_much import some
from tests.session.given import opened, records_of
from tests.sessions import USER, tool_round

NOTHING = ShownMessages((), {})
MINUTE = 60 * 10**9


def reported(position: int, expected: int, prompt: int, **other: Any) -> ReportedRequest:
    fields = {"time": position * MINUTE, "turn": 1, "turn_from": 0, "cached": 0}
    fields |= {"model": "claude-opus-4-5", "breaks": frozenset(), "reports": LEARNT}
    return ReportedRequest(position=position, expected=expected, prompt=prompt, **(fields | other))


def suspected(now: ReportedRequest) -> Any:
    """What is suspected behind ``FIRST``."""
    return suspect(FIRST, now, lambda: NOTHING)


FIRST = reported(1, 40_000, 40_000, cached=38_000, tools="some")


@given(drop=st.integers(2_000, 39_000), growth=st.integers(0, 15_000))
def test_a_prompt_that_is_2000_tokens_too_small_is_noticed_at_once(drop: int, growth: int) -> None:
    expected = 40_000 + growth
    found = suspected(reported(2, expected, expected - drop))
    assert found and (found.kind, found.tokens) == ("prompt", drop)


@given(error=st.floats(-0.05, 0.05), growth=st.integers(0, 30_000))
def test_an_estimate_that_errs_by_a_twentieth_of_growth_is_no_loss(
    error: float, growth: int
) -> None:
    expected = 40_000 + growth
    now = reported(2, expected, round(expected - growth * error), cached=39_000)
    assert suspected(now) is None


@pytest.mark.parametrize("kind", ["compaction", "set", "clear", "restore", "erase"])
def test_what_the_log_itself_tells_is_not_suspected(kind: str) -> None:
    assert suspected(reported(2, 41_000, 9_000, breaks=frozenset((kind,)))) is None


LEFT_OUT, ALL = 20_000, 41_000


@pytest.mark.parametrize(
    ("prompt", "other", "kind", "cause"),
    [
        (LEFT_OUT, {"cached": 38_000, "model": "gpt-5"}, "prompt", "model"),
        (LEFT_OUT, {"cached": 38_000, "tools": "others"}, "prompt", "tools"),
        (
            LEFT_OUT,
            {"cached": 38_000, "tools": "others", "tools_counted": True},
            "prompt",
            "unknown",
        ),
        (LEFT_OUT, {"cached": 38_000, "tools": None}, "prompt", "unknown"),
        (LEFT_OUT, {"cached": 38_000, "time": FIRST.time + 61 * MINUTE}, "prompt", "resumed"),
        (LEFT_OUT, {"cached": 10_000}, "prompt", "edited"),
        (LEFT_OUT, {"cached": 38_000}, "prompt", "unknown"),
        # A cache that served less is told apart.
        (ALL, {"tools": "others", "tools_counted": True}, "cache", "tools"),
        (ALL, {"time": FIRST.time + MINUTE}, "cache", "unknown"),
        (ALL, {"time": FIRST.time + 6 * MINUTE}, "cache", "expired"),
    ],
)
def test_a_likely_cause_is_named(prompt: int, other: dict[str, Any], kind: str, cause: str) -> None:
    found = suspected(reported(2, 41_000, prompt, **other))
    assert found and (found.kind, found.cause) == (kind, cause)
    if kind == "cache":
        assert found.tokens == 38_000
        assert "cache served" in describe_loss(found, "2.1")


TOOLS = [{"name": f"tool_{number}", "description": "x" * 4_000} for number in range(9)]


async def filled(drop: int, tools_left: int = 9, heard: Any = None) -> eventctx.Engine:
    """A live session of six requests whose provider counts ``drop`` fewer tokens in the fifth.

    From that one on its host sends the first ``tools_left`` tools.
    """
    engine = eventctx.Engine(MemoryStore())
    if heard:
        engine.on("*", heard)
    ctx = await engine.session("s", max_tokens=200_000)
    await ctx.add_message(USER)
    async with ctx.turn("go") as turn:
        for number in range(6):
            async with turn.iteration() as iteration:
                tools = TOOLS if number < 4 else TOOLS[:tools_left]
                await ctx.get_messages_for_request(model="claude-opus-4-5", tools=tools)
                async with iteration.provider_call("claude-opus-4-5", "anthropic") as call:
                    tokens = (await engine.audit("s")).requests[-1].tokens
                    prompt = tokens + (20_000 if number == 0 else 0)
                    await call.usage(prompt - (drop if number == 4 else 0), 10)
                await ctx.add_messages(tool_round(number, size=9_000))
    await engine.hooks.drain()
    return engine


async def test_a_live_session_records_what_it_suspects_as_an_event_and_in_its_log_line() -> None:
    records: list[Record] = []
    engine = await filled(4_000, heard=records.append)
    audit = await engine.audit("s")
    (event,) = [one for one in records if one.type == "context:loss_suspected"]
    (loss,) = audit.losses
    written = line(event)
    assert (written["tokens"], written["kind"]) == (loss.tokens, "prompt")
    assert level_of(written) == "warning"
    assert loss.position == audit.requests[4].position
    assert 3_500 < loss.tokens < 4_500
    assert loss.messages, "results that were probably dropped are named"
    assert (await engine.lost("s")).suspected == (loss,)
    # The page is told of all losses with every document.
    state = await timeline_at(engine.store, "s")
    (told,) = document(state, "s")["losses"]
    found = (told["position"], told["kind"], told["tokens"])
    assert found == (loss.position, "prompt", loss.tokens)
    assert told["words"].startswith("1.5: the provider counted ~")
    before = initial()
    for record in (await records_of(engine.store))[: loss.position + 1]:
        before = evolve(before, record)
    assert document(before, "s")["losses"] == []
    assert document(state, "s", since=before)["losses"] == [told]


async def test_tools_that_a_host_left_out_are_the_likely_cause() -> None:
    engine = await filled(8_000, tools_left=1)
    (loss,) = (await engine.audit("s")).losses
    (event,) = await records_of(engine.store, kind="context:loss_suspected")
    assert loss.cause == decode_known(event).cause == "tools"


@pytest.mark.slow
async def test_the_work_of_finding_losses_grows_with_the_session_and_not_with_its_square() -> None:
    engine = await filled_with_losses(requests=480)
    half, whole = initial(), initial()
    for record in await records_of(engine.store):
        whole = evolve(whole, record)
        half = whole if len(whole.audit.requests) == 240 else half
    few, many = calls_to_find(half), calls_to_find(whole)
    assert few > 1_000
    assert many < 2.5 * few


async def filled_with_losses(requests: int) -> eventctx.Engine:
    """A session whose provider drops old results at every request, and that compacts at times."""
    system = {"role": "system", "content": "be good"}
    engine, ctx = await opened(system, USER, max_tokens=200_000)
    async with ctx.turn("go") as turn:
        for number in range(requests):
            async with turn.iteration() as iteration:
                await ctx.get_messages_for_request(model="claude-opus-4-5")
                async with iteration.provider_call("claude-opus-4-5", "anthropic") as call:
                    await call.usage(40_000, 10)
                await ctx.add_messages(tool_round(number, size=9_000))
            if number % 40 == 39:
                await ctx.compact()
    return engine


def calls_to_find(state: TimelineState) -> int:
    """The calls that it takes to find the losses of a session: one at nearly every request."""
    assert len(suspected_losses(state)) > 0.9 * len(state.audit.requests)
    return calls_of_functions(lambda: suspected_losses(state))


@pytest.mark.slow
async def test_recorded_sessions_raise_no_alarm_and_planted_drops_do(
    recorded_sessions: Path,
) -> None:
    planted = noticed = 0
    for path in sorted(recorded_sessions.rglob("*.*")):  # noqa: ASYNC240 - a few names
        store = MemoryStore()
        try:
            done = await import_file(store, path)
        except eventctx.errors.TranscriptError:
            continue
        for session in [one.session for one in done if one.session is not None]:
            state = await timeline_at(store, session)
            assert [loss for loss in suspected_losses(state) if loss.kind == "prompt"] == []
            hits = plant(state, 2_000)
            planted, noticed = planted + len(hits), noticed + sum(hits)
    assert planted > some(100, 500)
    assert noticed >= 0.99 * planted


def plant(state: TimelineState, drop: int) -> list[bool]:
    """Whether a request is suspected where its reported prompt alone is smaller by ``drop``.

    Tried with each request, or in an ordinary run with some of a long session.
    """
    reports = list(state.audit.sizes.reports)
    compacted = {row.position for row in state.audit.requests if "compaction" in row.breaks}
    found = []
    for place in range(1, len(reports), some(1 + len(reports) // 20, 1)):
        position, prompt = reports[place]
        if position in compacted or prompt <= drop:
            continue
        planted = [*reports[:place], (position, prompt - drop), *reports[place + 1 :]]
        sizes = replace(state.audit.sizes, reports=Series(planted))
        changed = replace(state, audit=replace(state.audit, sizes=sizes))
        suspicions = [(loss.position, loss.kind) for loss in suspected_losses(changed)]
        found.append((position, "prompt") in suspicions)
    return found
