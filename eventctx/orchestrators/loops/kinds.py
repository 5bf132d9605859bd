"""The orchestrators that answer in one piece.

The basic one has one prompt, one model call, one answer. The events orchestrator has a tool loop
with an optional plan; every step is an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eventctx.errors import InvalidSetting
from eventctx.log.events import Status
from eventctx.log.turn_recorder import status_of
from eventctx.orchestrators.loops.model_call import ModelCaller
from eventctx.orchestrators.loops.recording import ids_of
from eventctx.orchestrators.loops.rounds import take_rounds
from eventctx.orchestrators.loops.run import Orchestrator, TurnRun
from eventctx.orchestrators.protocol import Finish
from eventctx.session.turns import Iteration, Turn


class BasicOrchestrator(Orchestrator):
    """Asks once and adds the answer. No tool runs: with ``tools`` "ignore" the model may call none.

    ``settings`` are those of ``OrchestratorSettings``; unknown ones give a warning. Raises
    InvalidSetting.
    """

    NAME = "loop-basic"

    def check_tools(self, names: Sequence[str]) -> None:
        """Raise InvalidSetting for any tools, unless they are to be ignored."""
        if names and self.settings.tools != "ignore":
            raise InvalidSetting(
                f"tools: expected none, found {', '.join(sorted(names))}: the basic orchestrator "
                "runs no tools; use the streaming or the events orchestrator, or set "
                "tools: ignore"
            )

    async def _take_turn(self, run: TurnRun, turn: Turn) -> Finish:
        run.check_stop()
        async with turn.iteration() as cycle:
            run.iterations = 1
            await run.add_answer(await ModelCaller(run, cycle).answer())
        return "answered"


PLAN: Final = (
    "Before you act, write a short plan of the steps that answer the request. "
    "Call no tools yet; you will be asked to carry the plan out."
)
CARRY_OUT: Final = "Now carry out the plan, and change it where what you find asks for it."


class EventsOrchestrator(Orchestrator):
    """Asks, runs the tools that the model calls, and asks again until the model calls none.

    ``settings`` are those of ``OrchestratorSettings``; unknown ones give a warning. Raises
    InvalidSetting.
    """

    NAME = "loop-events"

    async def _take_turn(self, run: TurnRun, turn: Turn) -> Finish:
        planned = 0
        if run.settings.planning:
            run.check_stop()
            async with turn.iteration() as cycle:
                await _plan(run, cycle)
            planned = 1
        return await take_rounds(run, turn, first=1 + planned)


async def _plan(run: TurnRun, cycle: Iteration) -> None:
    """Ask for a plan. The instructions are messages, so the log holds what the model was sent."""
    run.iterations = 1
    async with cycle.plan() as phase:
        ids = ids_of(phase.scope)
        status: Status = "ok"
        plan: str | None = None
        try:
            await run.host.tell("plan:start", ids, {})
            await run.remind(PLAN)
            await run.add_answer(await ModelCaller(run, phase).answer())
            await run.remind(CARRY_OUT)
            plan = run.text
        except BaseException as error:
            status = status_of(type(error))
            raise
        finally:
            more = {"status": status, "plan": plan}
            await run.host.tell_end("plan:end", ids, more, broken_off=status == "cancelled")
