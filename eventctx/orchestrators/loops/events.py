"""The events orchestrator: a tool loop with planning, and every step an event."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from eventctx.log.events import Status
from eventctx.log.outcomes import status_of
from eventctx.orchestrators.loops.model_call import ModelCaller
from eventctx.orchestrators.loops.recording import ids_of
from eventctx.orchestrators.loops.run import TurnRun, run_turn
from eventctx.orchestrators.loops.settings import settings_from
from eventctx.orchestrators.loops.tool_calls import Calls
from eventctx.orchestrators.protocol import ContextManager, Finish, Response
from eventctx.session.turns import Iteration, Turn

PLAN: Final = (
    "Before you act, write a short plan of the steps that answer the request. "
    "Call no tools yet; you will be asked to carry the plan out."
)
CARRY_OUT: Final = "Now carry out the plan, and change it where what you find asks for it."
LIMIT: Final = (
    "You have used all the steps of this turn. Answer now without calling tools: "
    "say what is done and what is left."
)


class EventsOrchestrator:
    """Asks, runs the tools that the model calls, and asks again until it calls none.

    ``settings`` are those of ``OrchestratorSettings``; of unknown ones it warns. Raises
    InvalidSetting.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = settings_from(settings)

    async def execute(
        self,
        prompt: str,
        context: ContextManager,
        providers: Any,
        tools: Any = None,
        hooks: Any = None,
        *,
        turn_id: str | None = None,
        coordinator: Any = None,
    ) -> Response:
        """Run a turn to its end.

        ``turn_id`` is the host's, else a random one. ``coordinator`` is Amplifier's, which
        carries out what hooks ask for and may ask to stop. Raises ProviderFailed, TurnError when
        the turn takes too long, InvalidSetting, and what the context raises.
        """
        run = TurnRun("loop-events", self.settings, context, providers, tools, hooks, coordinator)
        return await run_turn(run, prompt, turn_id, _loop)


async def _loop(run: TurnRun, turn: Turn) -> Finish:
    limit, planned = run.settings.max_iterations, 0
    if run.settings.planning:
        run.check_stop()
        async with turn.iteration() as cycle:
            await _plan(run, cycle)
        planned = 1
    for number in count(1 + planned):
        run.check_stop()
        async with turn.iteration() as cycle:
            run.iterations = number
            if limit is not None and number > limit:
                await run.remind(LIMIT)
                answer = await ModelCaller(run, cycle).answer()
                await run.add_answer(answer)
                return "iteration_limit"
            answer = await ModelCaller(run, cycle, offers_tools=True).answer()
            await Calls(run, cycle, answer).carried_out()
            if not answer.calls:
                return "answered"
    raise AssertionError("a count does not end")


async def _plan(run: TurnRun, cycle: Iteration) -> None:
    """Ask for a plan. The instructions are messages: the log has what the model was sent."""
    run.iterations = 1
    async with cycle.plan() as phase:
        ids = ids_of(phase.scope)
        await run.host.tell("plan:start", ids, {})
        status: Status = "ok"
        plan: str | None = None
        try:
            await run.remind(PLAN)
            answer = await ModelCaller(run, phase).answer()
            await run.add_answer(answer)
            await run.remind(CARRY_OUT)
            plan = run.text
        except BaseException as error:
            status = status_of(type(error))
            raise
        finally:
            more = {"status": status, "plan": plan}
            await run.host.tell_end("plan:end", ids, more, broken_off=status == "cancelled")
