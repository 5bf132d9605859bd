"""The work that is profiled, in a process of its own: adds, requests, and requests that compact.

Each step is a function of its own, since the profiler knows only functions: what lies above
``add_message_step`` in a stack belongs to an added message. What the steps take is measured here
too, by the clocks of the loop's thread and of the process; samples only say how that is shared out.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any, Final

import msgspec

import eventctx
from tests.benchmarks.workload import message

ADD, PLAIN, COMPACTING = "add_message_step", "request_step", "compacting_step"
STEPS: Final = (ADD, PLAIN, COMPACTING)

ROOMY: Final = 10**9
BUDGET: Final = 15_000
"""Tokens of the request that compacts: less than has come together by then."""

ROUND: Final = 4
"""Messages before a request."""

ROUNDS: Final = 12
"""Plain requests before one that compacts."""


class Spent(msgspec.Struct):
    """Seconds of processor time of a step in all, and how often it was done."""

    own: float = 0.0
    """In the step's own coroutines, between the points where they wait."""

    loop: float = 0.0
    """The rest of the event loop's thread: to sleep, to wake and to call back."""

    others: float = 0.0
    """Of all other threads: the store's."""

    count: int = 0

    def micro(self, seconds: float) -> float:
        """Microseconds of one step, of seconds of all."""
        return seconds / self.count * 1e6


class Timed:
    """Awaits a coroutine, and adds up the processor time that it takes while it runs."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._work.__await__()
        try:
            while True:
                began = time.thread_time()
                try:
                    waits_for = next(steps)
                finally:
                    self.seconds += time.thread_time() - began
                yield waits_for
        except StopIteration:
            return


class Worker:
    """One session on disk that grows, and is compacted every so often."""

    def __init__(self, context: eventctx.Context) -> None:
        self._context = context
        self._number = 0
        self.spent = {step: Spent() for step in STEPS}

    async def work(self, seconds: float) -> None:
        """Rounds of messages and requests for about so long, in whole cycles."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(ROUNDS):
                await self._round()
                await self._spend(PLAIN, self.request_step())
            await self._round()
            before = self._context._session.aggregate.view.compactions
            await self._spend(COMPACTING, self.compacting_step())
            if self._context._session.aggregate.view.compactions == before:
                raise RuntimeError("the request was to compact, and did not")

    async def _round(self) -> None:
        for _ in range(ROUND):
            made = message(self._number)
            self._number += 1
            await self._spend(ADD, self.add_message_step(made))

    async def _spend(self, step: str, work: Coroutine[Any, Any, Any]) -> None:
        spent, began = time.process_time(), time.thread_time()
        await (timed := Timed(work))
        thread, process = time.thread_time() - began, time.process_time() - spent
        total = self.spent[step]
        total.own += timed.seconds
        total.loop += thread - timed.seconds
        total.others += process - thread
        total.count += 1

    async def add_message_step(self, made: dict[str, object]) -> None:
        await self._context.add_message(made)

    async def request_step(self) -> None:
        await self._context.get_messages_for_request()

    async def compacting_step(self) -> None:
        await self._context.get_messages_for_request(BUDGET)


async def _run(folder: Path, seconds: float) -> None:
    async with eventctx.open(folder / "profiled.db") as engine:
        worker = Worker(await engine.session("profiled", max_tokens=ROOMY))
        await worker.work(min(seconds, 2.0))  # what a first time loads is not the work
        worker.spent = {step: Spent() for step in STEPS}
        await worker.work(seconds)
    (folder / "spent.json").write_bytes(msgspec.json.encode(worker.spent))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("seconds", type=float)
    given = parser.parse_args()
    asyncio.run(_run(given.folder, given.seconds))


if __name__ == "__main__":
    main()
