"""A host of a few lines, an adapter for it, and the driver of both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eventctx.adapters.kit import HostSession, call_failed, tool_failed, turn_failed
from eventctx.engine import Engine
from eventctx.log.usage import Usage
from eventctx.testing import Reply, ScriptedAgent
from tests.adapters.drivers.base import Driver, calls_of

Row = dict[str, Any]


class Seams:
    """What the host calls: an adapter takes the place of this one."""

    async def turn_begins(self, messages: Sequence[Row]) -> None: ...
    async def before_call(self, messages: list[Row], sends: list[Row]) -> list[Row]:
        return sends

    async def model_failed(self, error: BaseException) -> None: ...
    async def model_answered(self, messages: Sequence[Row], usage: Usage | None) -> None: ...
    async def tool_begins(self, call_id: str, name: str) -> None: ...
    async def tool_ended(self, call_id: str, error: BaseException | None) -> None: ...
    async def turn_ended(self, messages: Sequence[Row]) -> None: ...
    async def turn_failed(self, error: BaseException) -> None: ...


class Host:
    """An agent that keeps a list of messages in a file, and calls a model until it has a text."""

    def __init__(self, file: Path, agent: ScriptedAgent) -> None:
        self.seams = Seams()
        self.echoes = False
        self.received: list[list[Row]] = []
        self._file = file
        self._script = list(agent.script)
        self._tools = {one.__name__: one for one in agent.tools}
        self._agent = agent
        self.messages: list[Row] = json.loads(file.read_text()) if file.exists() else []

    async def ask(self, text: str) -> str:
        self._keep({"role": "user", "content": text})
        await self.seams.turn_begins(self.messages)
        try:
            return await self._loop()
        except BaseException as error:
            await self.seams.turn_failed(error)
            raise

    async def _loop(self) -> str:
        while True:
            reply = await self._call()
            self._keep(message_of(reply))
            await self.seams.model_answered(self.messages, reply.usage)
            if not reply.calls:
                if self.echoes:
                    self._keep({"role": "user", "content": f"The answer was: {reply.text}"})
                await self.seams.turn_ended(self.messages)
                return reply.text
            results = await asyncio.gather(*map(self._run, reply.calls))
            self._keep(*results)

    def _keep(self, *messages: Row) -> None:
        self.messages.extend(messages)
        self._file.write_text(json.dumps(self.messages))

    async def _call(self) -> Reply:
        keep = self._agent.keep_last
        sends = self.messages if keep is None else self.messages[-keep:]
        for attempt in range(self._agent.retries + 1):
            request = await self.seams.before_call(self.messages, list(sends))
            system = {"role": "system", "content": self._agent.instructions}
            self.received.append([system, *request])
            step = self._script.pop(0)
            if isinstance(step, Reply):
                return step
            await self.seams.model_failed(step)
            if attempt == self._agent.retries:
                raise step
        raise AssertionError

    async def _run(self, call: Any) -> Row:
        await self.seams.tool_begins(call.id, call.name)
        try:
            content = await self._tools[call.name](**call.arguments)
        except BaseException as error:
            await self.seams.tool_ended(call.id, error)
            raise
        await self.seams.tool_ended(call.id, None)
        return {"role": "tool", "tool_call_id": call.id, "content": content}


def message_of(reply: Reply) -> Row:
    calls = [
        {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": given}}
        for one in calls_of(reply)
        for given in [json.dumps(one.arguments)]
    ]
    message: Row = {"role": "assistant", "content": reply.text or None}
    return message | {"tool_calls": calls} if calls else message


class Adapter(Seams):
    """Records a host's turns in a session, and decides what each call is sent."""

    def __init__(self, session: HostSession, instructions: str) -> None:
        self.session, self.turns = session, session.turns
        self.instructions = instructions

    async def turn_begins(self, messages: Sequence[Row]) -> None:
        await self.turns.turn_began(agent="plain")
        await self.session.mirror(messages)

    async def before_call(self, messages: list[Row], sends: list[Row]) -> list[Row]:
        await self.session.mirror(messages, with_request=True)
        await self.turns.iteration_began(model="scripted")
        rows = await self.session.prepare(instructions=self.instructions)
        if sends == messages:
            return rows
        await self.session.sent(rows, sends)
        return sends

    async def model_failed(self, error: BaseException) -> None:
        await call_failed(self.turns, error)

    async def model_answered(self, messages: Sequence[Row], usage: Usage | None) -> None:
        await self.turns.model_known(usage=usage)
        await self.turns.model_answered()
        await self.session.mirror(messages)

    async def tool_begins(self, call_id: str, name: str) -> None:
        await self.turns.tool_began(name, call_id, call_id)

    async def tool_ended(self, call_id: str, error: BaseException | None) -> None:
        if error is None:
            await self.turns.tool_ended(call_id)
        else:
            await tool_failed(self.turns, call_id, error)

    async def turn_ended(self, messages: Sequence[Row]) -> None:
        await self.session.mirror(messages)
        await self.turns.turn_ended()

    async def turn_failed(self, error: BaseException) -> None:
        await turn_failed(self.turns, error)


class PlainDriver(Driver):
    adapter: Callable[[HostSession, str], Seams] = Adapter

    def __init__(self, engine: Engine, folder: Path, agent: ScriptedAgent) -> None:
        self._engine, self._agent = engine, agent
        self._host = Host(folder / "messages.json", agent)
        self._opened = False

    async def ask(self, text: str, *, stream: bool = False) -> str:
        if not self._opened:
            context = await self._engine.session(self._agent.session, **self._agent.settings)
            make = type(self).adapter
            self._host.seams = make(HostSession(context), self._agent.instructions)
            self._opened = True
        return await self._host.ask(text)

    def received(self) -> list[list[Any]]:
        return self._host.received
