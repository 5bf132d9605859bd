"""The basic orchestrator: one prompt, one model call, one answer."""

from __future__ import annotations

from typing import Any

from eventctx.orchestrators.loops.model_call import ModelCaller
from eventctx.orchestrators.loops.run import TurnRun, run_turn
from eventctx.orchestrators.loops.settings import settings_from
from eventctx.orchestrators.protocol import ContextManager, Finish, Response
from eventctx.session.turns import Turn


class BasicOrchestrator:
    """Asks once and adds the answer. The model is offered no tools.

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
        """Run a turn to its end. Arguments and errors are those of ``EventsOrchestrator``."""
        run = TurnRun("loop-basic", self.settings, context, providers, tools, hooks, coordinator)
        return await run_turn(run, prompt, turn_id, _once)


async def _once(run: TurnRun, turn: Turn) -> Finish:
    run.check_stop()
    async with turn.iteration() as cycle:
        run.iterations = 1
        answer = await ModelCaller(run, cycle).answer()
        await run.add_answer(answer)
    return "answered"
