"""The basic orchestrator: one prompt, one model call, one answer."""

from __future__ import annotations

from eventctx.orchestrators.loops.model_call import ModelCaller
from eventctx.orchestrators.loops.run import Orchestrator, TurnRun
from eventctx.orchestrators.protocol import Finish
from eventctx.session.turns import Turn


class BasicOrchestrator(Orchestrator):
    """Asks once and adds the answer. The model is offered no tools.

    ``settings`` are those of ``OrchestratorSettings``; unknown ones give a warning. Raises
    InvalidSetting.
    """

    NAME = "loop-basic"

    async def _take_turn(self, run: TurnRun, turn: Turn) -> Finish:
        run.check_stop()
        async with turn.iteration() as cycle:
            run.iterations = 1
            await run.add_answer(await ModelCaller(run, cycle).answer())
        return "answered"
