"""Google ADK's two session services over SQLite: the one of its own, and the one over SQLAlchemy.

Both keep SQLite's rollback journal, whose commit syncs the journal, the folder and the database.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from google.adk.events.event import Event
from google.adk.flows.llm_flows.contents import _get_contents
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from tests.benchmarks.peers.child import Message, memory_folder

PACKAGE = "google-adk"
WHAT = {
    "append": "append_event",
    "load": "get_session of a fresh service",
    "prepare": "_get_contents of the loaded session, which every model call makes",
}
_NAMES: Any = {"app_name": "bench", "user_id": "someone"}


async def opened(folder: Path, messages: list[Message], kind: str) -> GoogleADK:
    path = folder / "adk.db"
    with memory_folder() as memory:
        building = GoogleADK(memory / "adk.db", kind)
        await building.begin()
        for one in messages:
            async with building.append(one) as work:
                await work()
        await building.service.close()
        shutil.move(memory / "adk.db", path)
    made = GoogleADK(path, kind)
    await made.resume()
    return made


class GoogleADK:
    def __init__(self, path: Path, kind: str) -> None:
        self._path = path
        self._kind = kind
        self.service = self._served()
        self._session: Any = None

    def _served(self) -> Any:
        if self._kind == "sqlite":
            return SqliteSessionService(str(self._path))
        return DatabaseSessionService(f"sqlite+aiosqlite:///{self._path}")

    async def begin(self) -> None:
        self._session = await self.service.create_session(**_NAMES, session_id="one")

    async def resume(self) -> None:
        self._session = await self.service.get_session(**_NAMES, session_id="one")

    @asynccontextmanager
    async def append(self, message: Message) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        yield partial(self.service.append_event, self._session, _event(message))

    @asynccontextmanager
    async def load(self) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        fresh = self._served()
        yield partial(fresh.get_session, **_NAMES, session_id="one")
        await fresh.close()

    @asynccontextmanager
    async def prepare(self) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        async def work() -> None:
            _get_contents(None, self._session.events, "bench")

        yield work


def _event(message: Message) -> Event:
    if message["role"] == "tool":
        answer = types.FunctionResponse(
            id=message["tool_call_id"], name="read_file", response={"result": message["content"]}
        )
        parts = [types.Part(function_response=answer)]
    else:
        parts = [types.Part(text=message["content"])]
        parts += [
            types.Part(
                function_call=types.FunctionCall(
                    id=call["id"],
                    name=call["function"]["name"],
                    args={"arguments": call["function"]["arguments"]},
                )
            )
            for call in message.get("tool_calls", ())
        ]
    model = message["role"] == "assistant"
    content = types.Content(role="model" if model else "user", parts=parts)
    author = "bench" if message["role"] != "user" else "user"
    return Event(invocation_id="one", author=author, content=content)
