"""A cycle of one request and one tool call on Amplifier's kernel, in processor time.

It is the cycle of a host with a command line: the events around a request and a tool call, the two
messages that they add, and ``get_messages()`` after the tool, since such a host saves the
transcript then. context-simple keeps nothing, so what the same appends take by themselves is not
counted for this module. All run in sessions of the same length, in turns.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from amplifier_core import ProviderInfo

import eventctx
from eventctx.log.record import Record
from eventctx.log.store import ANY, EventStore
from tests.amplifier import hosts
from tests.benchmarks.rows import Row, target
from tests.benchmarks.timing import Place, Samples
from tests.benchmarks.workload import as_draft

LENGTHS: Final = (20, 100)
WARM_UP, BLOCK = 2, 4
"""Cycles of a session that are not counted, and those that are: few, as each adds messages."""

APPENDS_OF_A_CYCLE: Final = 3
"""One for the request, and one for each message."""

SIMPLE, OURS, APPENDS = "context-simple", "context-eventctx", "appends"
SIMPLE_IS_HERE: Final = find_spec("amplifier_module_context_simple") is not None

_AFTER: Final = ("prompt:complete", "session:end")
"""What is recorded after the last cycle."""

Message = dict[str, Any]


async def measure(place: Place) -> list[Row]:
    return [await _case(place, length) for length in LENGTHS]


async def _case(place: Place, length: int) -> Row:
    path, samples = place.path("cycle.db"), Samples()
    async with eventctx.open(place.path("floor.db"), durability="full") as engine:
        for number in range(place.count(15, 3)):
            session = f"session-{number}"
            await _cycles(samples, OURS, session, length, {"store": str(path)})
            await _appends(samples, engine.store, session, await _records(path, session))
            await _cycles(samples, SIMPLE, session, length)
    ours, appends, simple = (samples.seconds(name) * 1e6 for name in (OURS, APPENDS, SIMPLE))
    of = "" if SIMPLE_IS_HERE else "; a list that estimates as context-simple does"
    note = f"whole {ours:,.0f} µs, of that its appends {appends:,.0f} µs{of}"
    return target(f"cycle {length}", ours - appends, simple, note)


async def _cycles(
    samples: Samples, name: str, session: str, length: int, config: Mapping[str, Any] | None = None
) -> None:
    """The warm-up, and the cycles that are counted, in a session of so many messages."""
    loop = _Cycles(Samples(), name)
    modules = {}
    if name == SIMPLE and not SIMPLE_IS_HERE:
        modules[name] = hosts.mounting("context", _LikeSimple())
    settings = {"durability": "full", **(config or {})}
    named: Any = {"loop": loop, "context": name, "config": settings, "session_id": session}
    async with hosts.session(_Provider(), modules=modules, **named) as host:
        await host.coordinator.get("context").set_messages(tool_rounds(length))
        await host.execute(str(WARM_UP))
        loop.samples = samples
        await host.execute(str(BLOCK))


async def _appends(
    samples: Samples, store: EventStore, stream: str, records: Sequence[Record]
) -> None:
    """The appends of the counted cycles by themselves: one for the request, one a message."""
    share = max(1, round(len(records) / (BLOCK * APPENDS_OF_A_CYCLE)))
    shares = [records[at : at + share] for at in range(0, len(records), share)]
    for first in range(0, BLOCK * APPENDS_OF_A_CYCLE, APPENDS_OF_A_CYCLE):
        cycle = shares[first : first + APPENDS_OF_A_CYCLE]
        drafts = [[as_draft(record) for record in one] for one in cycle]
        with samples.step(APPENDS):
            for one in drafts:
                await store.append(stream, one, ANY)


class _Provider:
    """A provider whose window holds everything."""

    name = "measured"

    def get_info(self) -> Any:
        defaults = {"context_window": 10_000_000, "max_output_tokens": 8_000}
        return ProviderInfo(id=self.name, display_name=self.name, defaults=defaults)


class _Cycles:
    """An orchestrator that runs as many cycles as the prompt says, in the order of Amplifier's."""

    def __init__(self, samples: Samples, name: str) -> None:
        self.samples = samples
        self._name = name

    async def execute(
        self, prompt: str, context: Any, providers: dict[str, Any], tools: Any, hooks: Any, **_: Any
    ) -> str:
        await hooks.emit("prompt:submit", {"prompt": prompt})
        await context.add_message({"role": "user", "content": prompt})
        provider = next(iter(providers.values()))
        for number in range(int(prompt)):
            answer, result = tool_round(f"measured-{time.monotonic_ns()}")
            (call,) = answer["tool_calls"]
            given, call_id = call["arguments"], call["id"]
            tool = {"tool_name": "read", "tool_input": given, "tool_call_id": call_id}
            done = {"result": {"success": True, "output": result["content"], "error": None}}
            model = {"provider": "measured", "model": "a-model"}
            usage = {"input": 100_000 + number, "output": 5}
            with self.samples.step(self._name):
                await hooks.emit("provider:request", {"provider": "measured", "iteration": number})
                rows = await context.get_messages_for_request(provider=provider)
                await hooks.emit("llm:request", {**model, "message_count": len(rows)})
                await hooks.emit("llm:response", {**model, "usage": usage, "status": "ok"})
                await context.add_message(answer)
                await hooks.emit("tool:pre", tool)
                await hooks.emit("tool:post", {**tool, **done})
                await context.get_messages()
                await context.add_message(result)
        await hooks.emit("orchestrator:complete", {"status": "success"})
        return ""


class _LikeSimple:
    """A list, with the estimates that context-simple makes by its documents.

    A request estimates every message (``len(str(message)) // 4``), and every message that is added
    makes it estimate all of them again. This one never compacts.
    """

    def __init__(self) -> None:
        self._messages: list[Message] = []

    async def add_message(self, message: Message) -> None:
        self._messages.append(message)
        self._estimate()

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: object = None
    ) -> list[Message]:
        self._estimate()
        return list(self._messages)

    async def get_messages(self) -> list[Message]:
        return list(self._messages)

    async def set_messages(self, messages: list[Message]) -> None:
        self._messages = list(messages)

    def _estimate(self) -> int:
        return sum([len(str(message)) // 4 for message in self._messages])


async def _records(path: Path, session: str) -> list[Record]:
    async with eventctx.open(path) as engine:
        records = [record async for record in engine.store.read(session)]
    prompt = max(one.position for one in records if one.type == "prompt:submit")
    return [one for one in records[prompt + 2 :] if one.type not in _AFTER]


def tool_rounds(count: int) -> list[Message]:
    """A question, a tool call, its result of 4 KB and an answer, as Amplifier's loops add them."""
    text = [{"type": "text", "text": "An answer. " * 15, "visibility": None}]
    made: list[Message] = []
    for number in range(count // 4):
        question = {"role": "user", "content": f"Question {number}. " * 10}
        made += [question, *tool_round(f"call-{number}"), {"role": "assistant", "content": text}]
    return made


def tool_round(call_id: str) -> tuple[Message, Message]:
    path = {"path": "src/" + "a" * 200}
    blocks = [
        {"type": "text", "text": "Let me look. " * 3, "visibility": None},
        {"type": "tool_call", "id": call_id, "name": "read", "input": path},
    ]
    calls = [{"id": call_id, "tool": "read", "arguments": path}]
    result = f"a line of {call_id}\n" * 200
    return (
        {"role": "assistant", "content": blocks, "tool_calls": calls},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    )
