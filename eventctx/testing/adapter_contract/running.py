"""One run of a driver on an engine, and what the log says of it afterwards."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from eventctx.engine import Engine, open_engine
from eventctx.log.record import Record
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing.driving import SESSION, AdapterDriver, ScriptedAgent
from eventctx.testing.requests import check_request
from eventctx.testing.script import Reply

SMALL = {"max_tokens": 4_000, "reserve_tokens": 0}
"""Settings of a session that has to compact when a few pages were read."""

HOW = pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])

Retries = Literal["calls", "one call", "none"]


class HostTraits:
    """What a subclass says of its host."""

    driver: ClassVar[type[AdapterDriver]]
    streams: ClassVar[bool] = True
    """Whether a run can be streamed."""
    trims: ClassVar[bool] = True
    """Whether the host can send less than its conversation."""
    retries: ClassVar[Retries] = "calls"
    """Whether each attempt of the host to call the model is a call, or all of them are one."""

    def can_stream(self, stream: bool) -> None:
        """Skip the test of a stream if the host has none."""
        if stream and not self.streams:
            pytest.skip("the host does not stream")


class DriverRun:
    """A driver at work, and the log that it leaves."""

    def __init__(self, engine: Engine, driver: AdapterDriver) -> None:
        self.engine = engine
        self.driver = driver

    async def records(self) -> list[Record]:
        """All records of the session."""
        return [one async for one in self.engine.records(SESSION)]

    async def count(self, *types: str) -> list[int]:
        """The number of records of each type."""
        made = [one.type for one in await self.records()]
        return [made.count(one) for one in types]

    async def views(self) -> list[list[Any]]:
        """The verified view of every request, as the model is shown it."""
        found = []
        for one in await self.records():
            if one.type == "context:request_prepared":
                view = await self.engine.request_view(SESSION, position=one.position)
                assert view.verified, f"the view of the request at {one.position} is not verified"
                check_request(view.messages, f"the request at {one.position}")
                found.append([self.driver.shown(row) for row in view.messages])
        return found

    async def check_received(self) -> None:
        """Check that each request of this driver was the view that the log derives for it."""
        received, views = self.driver.received(), await self.views()
        assert received, "the model received nothing"
        assert views[-len(received) :] == received

    async def check_transcript(self, *texts: str) -> None:
        """Check that the log holds each text once, and all in this order."""
        rows = [message.message for message in await self.engine.transcript(SESSION)]
        said = json.dumps(rows, ensure_ascii=False, default=str)
        assert {text: said.count(text) for text in texts} == dict.fromkeys(texts, 1)
        assert sorted(texts, key=said.index) == list(texts)


@asynccontextmanager
async def running(
    driver: type[AdapterDriver], folder: Path, agent: ScriptedAgent, store: str = "memory://"
) -> AsyncIterator[DriverRun]:
    """A driver on an engine of its own; both are closed behind the block."""
    async with open_engine(store) as engine:
        made = driver(engine, folder, agent)
        try:
            yield DriverRun(engine, made)
        finally:
            await made.close()


def store_in(folder: Path) -> str:
    """The store of a test whose subject is the disk."""
    return str(folder / "adapter.db")


# -- what the agents do --------------------------------------------------------------------------


async def read(page: int) -> str:
    """Read a page."""
    return f"page-{page}: " + "x" * 1_500


def reads(*pages: int) -> Reply:
    """An answer that reads pages, all at once."""
    return Reply(calls=[ToolRequest(f"call_{page}", "read", {"page": page}) for page in pages])


def answers(*texts: str) -> list[Reply]:
    """Answers of one text each."""
    return [Reply(text) for text in texts]


def questions(number: int) -> Sequence[tuple[str, str]]:
    """Questions, and the answers to them; no text of them is within another."""
    return [(f"question-{place}.", f"answer-{place}.") for place in range(number)]
