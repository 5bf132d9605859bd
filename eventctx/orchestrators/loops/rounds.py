"""The rounds of a turn: ask, run the tools that the model calls, ask again until it calls none.

An answer that paused is asked to go on.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import Final

from eventctx.orchestrators.loops.model_call import ModelCaller, Outlet
from eventctx.orchestrators.loops.run import TurnRun
from eventctx.orchestrators.loops.tool_calls import ToolCalls
from eventctx.orchestrators.protocol import Answer, Finish
from eventctx.session.turns import Iteration, Turn

LIMIT: Final = (
    "You have used all the steps of this turn. Answer now without calling tools: "
    "say what is done and what is left."
)

PAUSED: Final = "pause_turn"
"""The end of an answer of Claude's that waits for a tool of its provider: it goes on when asked."""


async def take_rounds(
    run: TurnRun, turn: Turn, *, first: int = 1, outlet: Outlet | None = None
) -> Finish:
    """Take rounds until an answer calls no tool, or until ``max_iterations``.

    ``first`` is the number of the first one. ``outlet`` gets the pieces of each answer.
    """
    limit = run.settings.max_iterations
    for number in count(first):
        run.check_stop()
        async with turn.iteration() as cycle:
            run.iterations = number
            if limit is not None and number > limit:
                await run.remind(LIMIT)
                await run.add_answer(await _answer(run, cycle, outlet, may_call=False))
                return "iteration_limit"
            answer = await _answer(run, cycle, outlet, may_call=True)
            await ToolCalls(run, cycle, answer).carry_out()
            if not answer.calls and answer.finish_reason != PAUSED:
                return "answered"
    raise AssertionError("a count does not end")


async def _answer(
    run: TurnRun, cycle: Iteration, outlet: Outlet | None, *, may_call: bool
) -> Answer:
    """An answer. What was shown of one that did not come to its end is added as a message."""
    if outlet is not None:
        outlet.next_answer()
    try:
        return await ModelCaller(run, cycle, may_call=may_call, outlet=outlet).answer()
    except BaseException:
        if outlet is not None and outlet.shown:
            run.text = outlet.shown
            # An error while this message is added must not hide how the call ended.
            with suppress(Exception):
                await run.add({"role": "assistant", "content": run.text})
        raise
