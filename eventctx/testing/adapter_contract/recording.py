"""What is recorded beside the messages: turns, calls, usage and tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventctx.log.usage import Usage
from eventctx.testing.adapter_contract.running import HOW, HostTraits, read, reads
from eventctx.testing.driving import SESSION, ScriptedAgent
from eventctx.testing.script import Reply


class RecordingContract(HostTraits):
    """What is recorded beside the messages: turns, calls, usage and tools."""

    pytestmark = pytest.mark.asyncio

    @HOW
    async def test_a_run_is_a_turn_with_its_calls_usage_and_tools(
        self, tmp_path: Path, stream: bool
    ) -> None:
        self.can_stream(stream)
        last = Reply("read-both.", usage=Usage(prompt=310, output=12))
        agent = ScriptedAgent([reads(1, 2), last], [read])
        async with self.run_of(tmp_path, agent) as run:
            await run.driver.ask("read-two.", stream=stream)
            await run.check_counts({"prompt:submit": 1, "prompt:complete": 1})
            await run.check_counts({"provider:request": 2, "provider:response": 2})
            await run.check_counts({"tool:pre": 2, "tool:post": 2, "tool:error": 0})
            records = await run.records()
            assert records[-1].type == "prompt:complete"
            await run.check_counts({"context:request_prepared": 2})
            reported = (await run.engine.audit(SESSION)).requests[-1].reported
            assert reported == 310, (
                f"expected a reported prompt of 310 tokens, found {reported}: give "
                "HostSession.turns.model_known(usage=…) the Usage of the answer, before its "
                "model_answered(); the driver's model answers with Reply.usage"
            )
            turns = {one.turn_id for one in records if one.type.startswith(("provider:", "tool:"))}
            tools = [one for one in records if one.type.startswith("tool:")]
            assert len(turns) == 1
            assert len({one.span_id for one in tools}) == 2
            assert len({one.parent_span_id for one in tools}) == 1

    async def test_every_turn_has_requests_of_its_own(self, tmp_path: Path) -> None:
        agent = ScriptedAgent([Reply("a."), reads(1), Reply("b.")], [read])
        async with self.run_of(tmp_path, agent) as run:
            await run.driver.ask("first.")
            await run.driver.ask("second.")
            prepared = [
                one for one in await run.records() if one.type == "context:request_prepared"
            ]
            await run.check_counts({"prompt:submit": 2, "context:request_prepared": 3})
            first, second, third = [one.turn_id for one in prepared]
            assert None not in (first, second, third), (
                "a request is in no turn: turn_began() comes before prepare(), and a run ends its "
                "own turn alone, once. A stream that the host left in its middle raises "
                "GeneratorExit later: report its end before you yield its last piece"
            )
            assert first != second == third
