"""What is recorded beside the messages: turns, calls, usage and tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventctx.log.usage import Usage
from eventctx.testing.adapter_contract.running import HOW, HostTraits, read, reads, running
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
        async with running(self.driver, tmp_path, agent) as run:
            await run.driver.ask("read-two.", stream=stream)
            assert await run.count("prompt:submit", "prompt:complete") == [1, 1]
            assert await run.count("provider:request", "provider:response") == [2, 2]
            assert await run.count("tool:pre", "tool:post", "tool:error") == [2, 2, 0]
            records = await run.records()
            assert records[-1].type == "prompt:complete"
            assert (await run.engine.audit(SESSION)).requests[-1].reported == 310
            turns = {one.turn_id for one in records if one.type.startswith(("provider:", "tool:"))}
            tools = [one for one in records if one.type.startswith("tool:")]
            assert len(turns) == 1
            assert len({one.span_id for one in tools}) == 2
            assert len({one.parent_span_id for one in tools}) == 1

    async def test_every_turn_has_requests_of_its_own(self, tmp_path: Path) -> None:
        agent = ScriptedAgent([Reply("a."), reads(1), Reply("b.")], [read])
        async with running(self.driver, tmp_path, agent) as run:
            await run.driver.ask("first.")
            await run.driver.ask("second.")
            prepared = [
                one for one in await run.records() if one.type == "context:request_prepared"
            ]
            first, second, third = [one.turn_id for one in prepared]
            assert None not in (first, second)
            assert first != second == third
