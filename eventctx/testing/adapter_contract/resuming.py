"""A session goes on in another engine, and in another process behind one that was killed."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eventctx.testing.adapter_contract.running import (
    HostTraits,
    answers,
    questions,
    read,
    reads,
    store_in,
)
from eventctx.testing.driving import AdapterDriver, ScriptedAgent


class ResumingContract(HostTraits):
    """A session goes on in another engine, and in another process behind one that was killed."""

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
