"""Calls that fail and are repeated, and runs that fail or are interrupted: the session goes on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing.adapter_contract.running import HOW, HostTraits, answers, read, reads
from eventctx.testing.driving import ScriptedAgent
from eventctx.testing.script import Reply


class FailingContract(HostTraits):
    """Calls that fail and are repeated, and runs that fail or are interrupted: they go on."""

    pytestmark = pytest.mark.asyncio

    @HOW
    async def test_a_call_that_failed_and_was_repeated(self, tmp_path: Path, stream: bool) -> None:
        self.can_stream(stream)
        if self.retries == "none":
            pytest.skip("the host repeats no calls")
        script: list[Reply | Exception] = [
            reads(1),
            ConnectionError("unplugged"),
            *answers("somebody.", "always."),
        ]
        agent = ScriptedAgent(script, [read], retries=1)
        async with self.run_of(tmp_path, agent) as run:
            try:
                answer = await run.driver.ask("anybody?", stream=stream)
            except Exception as error:
                raise AssertionError(
                    "the driver's agent has retries=1, and its host did not repeat the call that "
                    'failed: have it do so, or set retries = "none"'
                ) from error
            assert answer == "somebody."
            assert await run.driver.ask("even-now?") == "always."
            received, views = run.driver.received(), await run.views()
            first, failed, repeated, last = received
            assert failed == repeated
            each = self.retries == "calls"
            await run.check_counts(
                {"provider:request": 4 if each else 3, "provider:error": 1 if each else 0}
            )
            assert views == (received if each else [first, repeated, last])
            await run.check_transcript("anybody?", "page-1: ", "somebody.", "even-now?")

    @HOW
    async def test_a_run_whose_call_failed(self, tmp_path: Path, stream: bool) -> None:
        self.can_stream(stream)
        script: list[Reply | Exception] = [
            reads(1),
            ConnectionError("unplugged"),
            *answers("somebody."),
        ]
        agent = ScriptedAgent(script, [read])
        async with self.run_of(tmp_path, agent) as run:
            with pytest.raises(Exception, match="unplugged"):
                await run.driver.ask("read-one.", stream=stream)
            assert await run.driver.ask("even-now?", stream=stream) == "somebody."
            await run.check_received()
            await run.check_counts({"prompt:submit": 2, "prompt:complete": 2})
            await run.check_counts(
                {"provider:request": 3, "provider:response": 2, "provider:error": 1}
            )
            if "calls" not in self.untold:
                failed = [one for one in await run.records() if one.type == "provider:error"]
                assert b"unplugged" in failed[0].payload, (
                    f"expected the words of the error, 'unplugged', found {failed[0].payload!r}: "
                    "call_failed() gets the exception of the call. A host that hides it: "
                    'untold = {"calls"}'
                )
                await run.check_ends({"provider:error": "error", "prompt:complete": "error"})

    async def test_a_tool_that_failed(self, tmp_path: Path) -> None:
        async def tear(page: int) -> str:
            """Tear a page."""
            raise ValueError("page-is-torn.")

        call = ToolRequest("call_t", "tear", {"page": 1})
        agent = ScriptedAgent([Reply(calls=[call]), *answers("sorry.", "yes.")], [tear])
        async with self.run_of(tmp_path, agent) as run:
            ended = "error"
            with suppress(Exception):  # some hosts raise it, others tell the model
                await run.driver.ask("tear-one.")
                ended = "ok"
            assert await run.driver.ask("goes-on?") in ("sorry.", "yes.")
            await run.check_received()
            begun, returned, failed = await run.count("tool:pre", "tool:post", "tool:error")
            assert begun == returned + failed == 1, (
                f"expected one tool call and its end, found {begun} began, {returned} returned, "
                f"{failed} failed: tool_ended() or tool_failed(), with the key of tool_began()"
            )
            said = [one.payload for one in await run.records()]
            told = "page-is-torn." in str([await run.transcript(), said])
            assert told or "tools" in self.untold, (
                "nothing in the log says why the tool failed: tool_failed() gets its exception. A "
                'host that hides it: untold = {"tools"}'
            )
            if "tools" not in self.untold:
                await run.check_ends({"tool:error": "error"}, error_type="ValueError")
                await run.check_ends({"prompt:complete": ended})

    async def test_a_run_that_was_interrupted_in_a_tool(self, tmp_path: Path) -> None:
        begun = asyncio.Event()

        async def wait(reason: str) -> str:
            """Wait for ever."""
            begun.set()
            await asyncio.Event().wait()
            return "never"

        call = ToolRequest("call_w", "wait", {"reason": "until-interrupted."})
        agent = ScriptedAgent([Reply(calls=[call]), *answers("yes.")], [wait])
        async with self.run_of(tmp_path, agent) as run:
            asking = asyncio.ensure_future(run.driver.ask("wait."))
            beginning = asyncio.ensure_future(begun.wait())
            await asyncio.wait((asking, beginning), return_when=asyncio.FIRST_COMPLETED)
            if not begun.is_set():
                raise AssertionError(
                    f"the agent answered {await asking!r} without calling its tool `wait`: the "
                    "driver gives the host agent.tools, and the model the calls of each Reply"
                )
            await run.check_transcript("wait.", "until-interrupted.")
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert await run.driver.ask("goes-on?") == "yes."
            await run.check_received()
            await run.check_transcript("wait.", "goes-on?", "yes.")
            await run.check_counts({"prompt:submit": 2, "prompt:complete": 2})
            await run.check_counts({"tool:pre": 1, "tool:post": 0, "tool:error": 1})
            await run.check_ends({"tool:error": "cancelled", "prompt:complete": "cancelled"})
