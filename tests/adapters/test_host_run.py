"""The driver of a host's runs: each step has one end, whatever ends it in the host."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from eventctx.adapters.kit import (
    GivenEngine,
    HostRun,
    HostSession,
    ToolAround,
    ToolEnd,
    tool_around,
)
from eventctx.log.codec import decode_known

ENDS = ("prompt:complete", "provider:response", "provider:error", "tool:post", "tool:error")


class Waits(Exception):
    """A tool's way to ask a person."""


class Host:
    """One session of an engine that runs in a thread of its own."""

    def __init__(self, store: Path) -> None:
        self.given = GivenEngine(str(store), "tests")
        self.run = HostRun(self.given, self._opened)
        self._session: HostSession | None = None

    async def _opened(self) -> HostSession:
        if self._session is None:
            self._session = HostSession(await self.given.engine.session("s"))
        return self._session

    def turn(self) -> Any:
        async def begin(session: HostSession) -> None:
            await session.turns.turn_began()
            await session.mirror([{"role": "user", "content": "Go."}])

        async def over(session: HostSession, status: Any) -> None:
            await session.turns.turn_ended(status)

        return self.run.turn(begin, over)

    def call(self) -> Any:
        async def decide(session: HostSession) -> list[Any]:
            await session.turns.iteration_began(model="m")
            return await session.prepare()

        async def answered(session: HostSession, text: str) -> None:
            await session.turns.model_answered()
            await session.add([{"role": "assistant", "content": text}])

        return self.run.call(decide, answered)

    def ends(self) -> list[tuple[str, str]]:
        """The ends in the log, each with its status."""

        async def found() -> list[tuple[str, str]]:
            return [
                (one.type, str(getattr(decode_known(one), "status", "ok")))
                async for one in self.given.engine.records("s")
                if one.type in ENDS
            ]

        return self.given.wait(found())


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "log.db")
    yield made
    made.given.close()


async def test_a_step_ends_with_the_result_that_it_was_given(host: Host) -> None:
    async with host.turn() as turn:
        async with host.call() as call:
            assert call.begun == [{"role": "user", "content": "Go."}]
            call.ends_with("Done.")
        async with host.run.tool("look", "c1") as tool:
            tool.ends_with(ToolEnd("seen"))
        async with host.run.tool("look", "c2") as tool:
            tool.ends_with(ToolEnd("no", failure="LookupError"))
        turn.ends_with("ok")
    types = [kind for kind, _ in host.ends()]
    assert types == ["provider:response", "tool:post", "tool:error", "prompt:complete"]


def test_a_host_without_a_loop_reports_by_plain_blocks(host: Host) -> None:
    with host.turn() as turn:
        with host.call() as call:
            call.ends_with("Done.")
        turn.ends_with("ok")
    assert host.ends() == [("provider:response", "ok"), ("prompt:complete", "ok")]


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("torn"), "error"), (asyncio.CancelledError(), "cancelled")]
)
async def test_a_step_that_an_exception_leaves_has_failed_or_was_cancelled(
    host: Host, error: BaseException, status: str
) -> None:
    with suppress(type(error)):
        async with host.turn(), host.call():
            raise error
    with suppress(type(error)):
        async with host.turn(), host.run.tool("look", "c1"):
            raise error
    assert [one for one in host.ends() if one[1] != "ok"] == [
        *[("provider:error", status), ("prompt:complete", status)],
        *[("tool:error", status), ("prompt:complete", status)],
    ]


async def test_a_tool_that_waits_for_a_person_has_not_failed(host: Host) -> None:
    async with host.turn() as turn:
        with suppress(Waits):
            async with host.run.tool("ask", "c1", waits=(Waits,)):
                raise Waits
        turn.ends_with("ok")
    assert host.ends()[0] == ("tool:error", "cancelled")


async def test_what_runs_in_the_block_of_a_tool_is_inside_that_call(host: Host) -> None:
    call = ToolAround("s", "c1", "s")
    async with host.turn() as turn:
        async with host.run.tool("look", "c1", call) as tool:
            assert tool_around() == call
            tool.ends_with(ToolEnd())
        assert tool_around() is None
        turn.ends_with("ok")
