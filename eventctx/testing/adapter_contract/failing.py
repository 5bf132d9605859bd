"""A session goes on after calls, runs and processes that failed, were repeated or interrupted."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing.adapter_contract.running import (
    HOW,
    DriverRun,
    HostTraits,
    answers,
    questions,
    read,
    reads,
    store_in,
)
from eventctx.testing.driving import SESSION, AdapterDriver, ScriptedAgent
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
            asking = await asked_until(begun, run, "wait.")
            await run.check_transcript("wait.", "until-interrupted.")
            await interrupt(asking)
            assert await run.driver.ask("goes-on?") == "yes."
            await run.check_received()
            await run.check_transcript("wait.", "goes-on?", "yes.")
            await run.check_counts({"prompt:submit": 2, "prompt:complete": 2})
            await run.check_counts({"tool:pre": 1, "tool:post": 0, "tool:error": 1})
            await run.check_ends({"tool:error": "cancelled", "prompt:complete": "cancelled"})

    @pytest.mark.parametrize("resumed", [False, True], ids=["same engine", "another engine"])
    async def test_rounds_of_parallel_tools_after_a_run_that_was_interrupted_in_a_tool(
        self, tmp_path: Path, resumed: bool
    ) -> None:
        begun = asyncio.Event()

        async def look(place: str) -> str:
            """Look somewhere; nobody returns from afar."""
            if place == "afar.":
                begun.set()
                await asyncio.Event().wait()
            return SEEN[place]

        rounds = [looks("near.", "afar."), looks("up.", "down."), Reply("a-bird."), looks("in.")]
        script = [*rounds, looks("left.", "right."), Reply("a-door.")]
        first = ScriptedAgent(script[:1] if resumed else script, [look])
        store = store_in(tmp_path)
        async with self.run_of(tmp_path, first, store) as run:
            await interrupt(await asked_until(begun, run, "search."))
            if not resumed:
                await self._check_rounds(run)
                await run.check_counts({"prompt:submit": 3, "prompt:complete": 3})
        if resumed:
            async with self.run_of(tmp_path, ScriptedAgent(script[1:], [look]), store) as run:
                await self._check_rounds(run)

    async def _check_rounds(self, run: DriverRun) -> None:
        assert await run.driver.ask("above-and-below?") == "a-bird."
        assert await run.driver.ask("and-here?") == "a-door."
        await run.check_received()
        above = ("up.", "down.", SEEN["up."], SEEN["down."], "a-bird.")
        here = ("in.", SEEN["in."], "left.", "right.", SEEN["left."], SEEN["right."], "a-door.")
        await run.check_transcript("search.", "above-and-below?", *above, "and-here?", *here)
        assert (await run.engine.verify(SESSION)).ok


SEEN: Final = {
    "near.": "grass",
    "up.": "clouds",
    "down.": "stones",
    "in.": "a-room",
    "left.": "a-wall",
    "right.": "a-frame",
}
"""A place's view; no text of it is within another."""


def looks(*places: str) -> Reply:
    """An answer that looks at places, all at once."""
    return Reply(
        calls=[ToolRequest(f"call_{place[:-1]}", "look", {"place": place}) for place in places]
    )


async def asked_until(begun: asyncio.Event, run: DriverRun, text: str) -> asyncio.Future[str]:
    """A turn that has come to its tool, which has set ``begun``."""
    asking = asyncio.ensure_future(run.driver.ask(text))
    beginning = asyncio.ensure_future(begun.wait())
    await asyncio.wait((asking, beginning), return_when=asyncio.FIRST_COMPLETED)
    if not begun.is_set():
        beginning.cancel()
        raise AssertionError(
            f"the agent answered {await asking!r} without calling its tool: the driver gives the "
            "host agent.tools, and the model the calls of each Reply"
        )
    return asking


async def interrupt(asking: asyncio.Future[str]) -> None:
    """Cancel a turn."""
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


class ResumingContract(HostTraits):
    """A session goes on in another engine, and in another process after one that was killed."""

    pytestmark = pytest.mark.asyncio

    async def test_another_engine_goes_on_where_one_ended(self, tmp_path: Path) -> None:
        talk, store = questions(3), store_in(tmp_path)
        for turn, (question, answer) in enumerate(talk):
            agent = ScriptedAgent([reads(turn), *answers(answer)], [read])
            async with self.run_of(tmp_path, agent, store) as run:
                assert await run.driver.ask(question) == answer
                await run.check_received()
                seen = str(run.driver.received()[-1])
        assert all(question in seen for question, _ in talk)
        async with self.run_of(tmp_path, ScriptedAgent(answers("d.")), store) as run:
            await run.driver.ask("question-d.")
            await run.check_received()
            await run.check_transcript(*itertools.chain(*talk), "question-d.")
            await run.check_counts({"context:messages_set": 0})

    async def test_an_answer_outlives_the_process_that_is_killed_in_its_tool(
        self, tmp_path: Path
    ) -> None:
        await asyncio.to_thread(kill_in_a_tool, self.driver, tmp_path)
        agent = ScriptedAgent([reads(1), *answers("somebody.", "yes.")], [read])
        async with self.run_of(tmp_path, agent, store_in(tmp_path)) as run:
            await run.check_transcript("wait-then.", "until-killed.")
            assert await run.driver.ask("even-now?") == "somebody."
            assert await run.driver.ask("really?") == "yes."
            await run.check_received()
            await run.check_transcript("wait-then.", "until-killed.", "even-now?", "page-1: ")
            await run.check_counts({"prompt:submit": 3, "prompt:complete": 3})
            begun, returned, failed = await run.count("tool:pre", "tool:post", "tool:error")
            assert begun == returned + failed, "a tool that was killed has no end"


def kill_in_a_tool(driver: type[AdapterDriver], folder: Path) -> None:
    """Run an agent in a process of its own, and kill it while its tool runs."""
    command = [sys.executable, "-m", "eventctx.testing.adapter_contract.killed"]
    child = subprocess.Popen(  # noqa: S603 - the arguments are ours
        [*command, driver.__module__, driver.__qualname__, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        try:
            assert child.stdout is not None
            printed = child.stdout.readline()
        finally:
            child.kill()
    assert printed == "in the tool\n", (
        f"another process, which imports {driver.__qualname__} from {driver.__module__}, did not "
        f"reach its tool; it printed {printed!r}, and on standard error why"
    )
