"""A cycle of one request and one tool call on Amplifier's kernel, in processor time.

It is the cycle of a host with a command line: the events around a request and a tool call, the two
messages that they add, and ``get_messages()`` after the tool, since such a host saves the
transcript then. A list, a list that appends the same records, context-simple and this module run
the same cycles in sessions of the same length, in turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import cycle
from pathlib import Path
from statistics import mean, median
from typing import Any, Final, NamedTuple

import apsw
import msgspec

import eventctx
from eventctx.log.record import Record
from eventctx.log.store import ANY, EventStore
from tests.amplifier import hosts
from tests.benchmarks import peer_context_simple
from tests.benchmarks.hosting import ListContext, Message, WindowProvider, tool_rounds
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing, of_processor
from tests.benchmarks.timing import Samples, now
from tests.benchmarks.workload import as_draft

FIGURE = "cycle"

LENGTHS: Final = (20, 100, 1_000)

WARM_UP, BLOCK = 2, 4
"""Cycles of a session that are not counted, and those that are: few, as each adds messages."""

WINDOW: Final = 10_000_000
"""Tokens of a window that holds everything."""

BEYOND: Final = 500.0
"""Microseconds that a cycle may take besides a list that appends, and what it returns."""

PER_KB: Final = 4.0
"""Microseconds for each KB of messages that are returned: rows are decoded for the caller."""

TRANSACTIONS: Final = 3
"""Transactions of a cycle: one for the request, and one for each message."""

LIST, APPENDING = "context-list", "context-list-that-appends"
SIMPLE, OURS = peer_context_simple.MODULE, "context-eventctx"

REQUEST, TRANSCRIPT = "get_messages_for_request()", "get_messages()"
CYCLE = "cycle"

_BEHIND: Final = ("prompt:complete", "session:end")
"""What is recorded behind the last cycle."""


async def measure(place: Place) -> list[Row]:
    try:
        import_module("amplifier_core")
    except ImportError as error:
        return [missing(FIGURE, "a cycle on the kernel", str(error))]
    rows: list[Row] = []
    for length in LENGTHS:
        rows += await _case(place, length)
    return rows


class Tally:
    """What the cycles of one module took: processor time, time on the wall, KB, transactions."""

    def __init__(self) -> None:
        self.processor = Samples()
        self.wall = Samples()
        self.kilobytes: dict[str, list[float]] = {REQUEST: [], TRANSCRIPT: []}
        self.transactions: list[int] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count a block, in all threads of the process."""
        began, spent = now(), time.process_time()
        yield
        self.processor.add(name, time.process_time() - spent)
        self.wall.add(name, now() - began)

    def returned(self, step: str, messages: list[Message]) -> None:
        """Note what a step returned."""
        self.kilobytes[step].append(len(msgspec.json.encode(messages)) / 1024)


class Commits:
    """Counts the transactions of every connection that is opened inside of its block."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Commits:
        apsw.connection_hooks.append(self._opened)
        return self

    def __exit__(self, *_: object) -> None:
        apsw.connection_hooks.remove(self._opened)

    def _opened(self, connection: apsw.Connection) -> None:
        connection.set_commit_hook(self._committed)

    def _committed(self) -> bool:
        self.count += 1
        return False


class _Cycles:
    """An orchestrator that runs as many cycles as the prompt says, in the order of Amplifier's."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self.tally = Tally()

    async def execute(
        self, prompt: str, context: Any, providers: dict[str, Any], tools: Any, hooks: Any, **_: Any
    ) -> str:
        await hooks.emit("prompt:submit", {"prompt": prompt})
        await context.add_message({"role": "user", "content": prompt})
        provider = next(iter(providers.values()))
        for number in range(int(prompt)):
            before = self._commits.count
            await self._cycle(number, context, provider, hooks)
            self.tally.transactions.append(self._commits.count - before)
        await hooks.emit("orchestrator:complete", {"status": "success"})
        return ""

    async def _cycle(self, number: int, context: Any, provider: Any, hooks: Any) -> None:
        answer, result, tool = tool_round()
        model = {"provider": "measured", "model": "a-model"}
        usage = {"input": 100_000 + number, "output": 5}
        done = {"result": {"success": True, "output": result["content"], "error": None}}
        step = self.tally.step
        with step(CYCLE):
            with step("provider:request"):
                await hooks.emit("provider:request", {"provider": "measured", "iteration": number})
            with step(REQUEST):
                rows = await context.get_messages_for_request(provider=provider)
            with step("llm:request"):
                await hooks.emit("llm:request", {**model, "message_count": len(rows)})
            with step("llm:response"):
                await hooks.emit("llm:response", {**model, "usage": usage, "status": "ok"})
            with step("add the answer"):
                await context.add_message(answer)
            with step("tool:pre"):
                await hooks.emit("tool:pre", tool)
            with step("tool:post"):
                await hooks.emit("tool:post", {**tool, **done})
            with step(TRANSCRIPT):
                transcript = await context.get_messages()
            with step("add the result"):
                await context.add_message(result)
        self.tally.returned(REQUEST, rows)
        self.tally.returned(TRANSCRIPT, transcript)


def tool_round() -> tuple[Message, Message, Message]:
    """An answer that calls a tool, the tool's result, and the payload of its events."""
    _, answer, result, _ = tool_rounds(4)
    (call,) = answer["tool_calls"]
    call_id = f"measured-{time.monotonic_ns()}"
    text, block = answer["content"]
    answer = {**answer, "content": [text, {**block, "id": call_id}]}
    answer["tool_calls"] = [{**call, "id": call_id}]
    tool = {"tool_name": "read", "tool_input": call["arguments"], "tool_call_id": call_id}
    return answer, {**result, "tool_call_id": call_id}, tool


async def _case(place: Place, length: int) -> list[Row]:
    path = place.path("cycle.db")
    config = {"store": str(path), "durability": "full"}
    tallies = {module: Tally() for module in (OURS, LIST, APPENDING, SIMPLE)}
    with Commits() as commits:
        async with eventctx.open(place.path("floor.db"), durability="full") as engine:
            for number in range(place.count(15, 3)):
                session = f"session-{number}"
                measured = _Measured(session, length, commits, tallies)
                await measured.run(OURS, config)
                appending = _Appending(engine.store, session, await _records(path, session))
                await measured.run(LIST, module=ListContext())
                await measured.run(APPENDING, module=appending)
                await measured.run(SIMPLE, module=peer_context_simple.substitute())
    return [of_processor(row) if row.unit else row for row in _rows(length, tallies)]


class _Measured(NamedTuple):
    """A session of so many messages, once with each module."""

    session: str
    length: int
    commits: Commits
    tallies: Mapping[str, Tally]

    async def run(
        self, name: str, config: Mapping[str, Any] | None = None, module: Any = None
    ) -> None:
        """The warm-up, and the cycles that are counted; ``module`` is mounted if there is one."""
        loop = _Cycles(self.commits)
        async with hosts.session(
            WindowProvider(WINDOW),
            loop=loop,
            context=name,
            config=config or {},
            modules={} if module is None else {name: hosts.mounting("context", module)},
            session_id=self.session,
        ) as host:
            await host.coordinator.get("context").set_messages(tool_rounds(self.length))
            await host.execute(str(WARM_UP))
            loop.tally = self.tallies[name]
            await host.execute(str(BLOCK))


class _Appending(ListContext):
    """A list whose requests and added messages each wait for one append to a store."""

    def __init__(self, store: EventStore, stream: str, records: Sequence[Record]) -> None:
        super().__init__()
        self._store = store
        self._stream = stream
        share = max(1, round(len(records) / (BLOCK * TRANSACTIONS)))
        self._shares = cycle([records[at : at + share] for at in range(0, len(records), share)])

    async def add_message(self, message: Message) -> None:
        await super().add_message(message)
        await self._append()

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        await self._append()
        return await super().get_messages_for_request(token_budget, provider)

    async def _append(self) -> None:
        drafts = [as_draft(record) for record in next(self._shares)]
        await self._store.append(self._stream, drafts, ANY)


async def _records(path: Path, session: str) -> list[Record]:
    """What the counted cycles of a session recorded."""
    async with eventctx.open(path) as engine:
        records = [record async for record in engine.store.read(session)]
    prompt = max(one.position for one in records if one.type == "prompt:submit")
    return [one for one in records[prompt + 2 :] if one.type not in _BEHIND]


def _rows(length: int, tallies: Mapping[str, Tally]) -> Iterator[Row]:
    ours = tallies[OURS]
    whole, kernel, appending, simple = (
        tallies[name].processor.micro(CYCLE) for name in (OURS, LIST, APPENDING, SIMPLE)
    )
    size = {step: mean(found) for step, found in ours.kilobytes.items()}
    returned = sum(size.values())
    of = f"{length:,} messages"
    transcript = ours.processor.micro(TRANSCRIPT)
    yield Row(
        figure=FIGURE,
        name=of,
        value=whole,
        unit="µs",
        against=f"a list that appends {appending:,.0f} + {BEYOND:.0f} + {PER_KB:g} × "
        f"{returned:,.0f} KB",
        floor=appending + BEYOND + PER_KB * returned,
        limit=1.0,
        note=f"{ours.wall.milli(CYCLE):.3g} ms on the wall; a list alone {kernel:,.0f} µs",
    )
    yield Row(
        figure=FIGURE,
        name=f"{of}: without its appends",
        value=whole - (appending - kernel),
        unit="µs",
        against=f"{peer_context_simple.LABEL}, which keeps nothing",
        floor=simple,
        limit=1.0,
    )
    yield Row(
        figure=FIGURE,
        name=f"{of}: of that, {TRANSCRIPT}",
        value=transcript / size[TRANSCRIPT],
        unit="µs/KB",
        limit=PER_KB,
        note=f"{transcript:,.0f} µs",
    )
    yield Row(
        figure=FIGURE,
        name=f"{of}: transactions",
        value=median(ours.transactions),
        limit=TRANSACTIONS,
        note=f"mean {mean(ours.transactions):.3g}",
    )
    yield from _steps(of, ours, tallies[APPENDING])


def _steps(of: str, ours: Tally, floor: Tally) -> Iterator[Row]:
    """What the steps of a cycle take more than with a list that appends, without a target."""
    for step in ours.processor.by_name:
        if step not in (CYCLE, TRANSCRIPT):
            more = ours.processor.micro(step) - floor.processor.micro(step)
            yield Row(figure=FIGURE, name=f"{of}: of that, {step}", value=more, unit="µs")
