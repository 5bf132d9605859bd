"""Views that a session lends to its sinks: equal measurements, and no second fold."""

from __future__ import annotations

from typing import Any

import eventctx
from eventctx.hooks.metrics import MetricsSink
from eventctx.projections.metrics.fold import evolve, fold, initial, with_view
from eventctx.projections.view import request_view
from eventctx.projections.view.state import ViewState
from tests.hooks.measured import OPERATIONAL, Gathered, summed

MODELS = ("claude-sonnet-4", "gpt-5", None)


class Borrower:
    """A sink that keeps the views it was lent, by their positions."""

    def __init__(self) -> None:
        self.views: dict[int, ViewState] = {}

    def __call__(self, record: Any) -> None: ...

    def lend(self, session_id: str, view: ViewState) -> None:
        self.views[view.position] = view


async def played(ctx: eventctx.Context) -> None:
    """Requests of two families of models, in one append with their call or not; compactions."""
    for number in range(12):
        async with ctx.turn(f"turn-{number}") as turn, turn.iteration() as cycle:
            await ctx.add_message({"role": "user", "content": f"go {number} " + "word " * 90})
            model = MODELS[number % 3]
            call = cycle.provider_call(MODELS[number % 2])
            if number % 4 < 2:
                await ctx.get_messages_for_request(model=model, call=call)
            else:
                await ctx.get_messages_for_request(model=model)
            async with call:
                await call.usage(100, 20)
            await ctx.add_message({"role": "assistant", "content": "done"})
            if number == 7:
                await ctx.clear()


async def test_measurements_by_lent_views_are_those_of_the_log() -> None:
    gathered, borrower = Gathered(), Borrower()
    async with eventctx.open(sinks=[MetricsSink(gathered.provider), borrower]) as engine:
        await played(await engine.session("s", max_tokens=800))
        records = [record async for record in engine.records("s")]
    expected = summed(fold(records))
    assert {key[0] for key in expected} >= {
        "eventctx.request.prefix.reused",
        "eventctx.compactions",
    }
    points = gathered.points()
    assert {key: one for key, one in points.items() if key[0] not in OPERATIONAL} == expected
    view = request_view.initial()
    folded = {}
    for record in records:
        view = request_view.evolve(view, record)
        folded[record.position] = view.layout.entries()
    assert borrower.views
    for position, lent in borrower.views.items():
        assert lent.layout.entries() == folded[position]


async def test_a_lent_view_is_used_for_its_own_request_alone() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", max_tokens=8_000)
        await ctx.add_message({"role": "user", "content": "one"})
        await ctx.get_messages_for_request()
        await ctx.add_message({"role": "assistant", "content": "two"})
        await ctx.get_messages_for_request()
        records = [record async for record in engine.records("s")]
    view = request_view.initial()
    for record in records:
        view = request_view.evolve(view, record)
    state = with_view(evolve(initial(), records[0]), view)
    for record in records[1:-1]:
        state = evolve(state, record)
    assert state.view is not view
    state = evolve(with_view(state, view), records[-1])
    assert state.view is view
