"""The basic orchestrator: one prompt, one model call, one answer."""

from __future__ import annotations

from collections.abc import Sequence

from eventctx.errors import InvalidSetting
from eventctx.orchestrators.loops.model_call import ModelCaller
from eventctx.orchestrators.loops.run import Orchestrator, TurnRun
from eventctx.orchestrators.protocol import Finish
from eventctx.session.turns import Turn


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
