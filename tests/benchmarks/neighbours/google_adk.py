"""Google ADK's session service over SQLite.

It keeps SQLite's rollback journal, whose commit syncs the journal, the folder and the database.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from google.adk.events.event import Event
from google.adk.flows.llm_flows.contents import _get_contents
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from tests.benchmarks.neighbours.child import Message, memory_folder

PACKAGE = "google-adk"
WHAT = {
    "append": "append_event",
    "load": "get_session of a fresh service",
    "prepare": "_get_contents of the loaded session, which every model call makes",
}
_NAMES: Any = {"app_name": "bench", "user_id": "someone"}


async def opened(folder: Path, messages: list[Message]) -> GoogleADK:
    path = folder / "adk.db"
    with memory_folder() as memory:
        service = SqliteSessionService(str(memory / "adk.db"))
        session = await service.create_session(**_NAMES, session_id="one")
        for one in messages:
            await service.append_event(session, _event(one))
        await service.close()
        shutil.move(memory / "adk.db", path)
    service = SqliteSessionService(str(path))
    return GoogleADK(path, service, await service.get_session(**_NAMES, session_id="one"))


class GoogleADK:
    def __init__(self, path: Path, service: SqliteSessionService, session: Any) -> None:
        self._path = path
        self._service = service
        self._session = session

    def item(self, message: Message) -> Event:
        return _event(message)

    async def append(self, item: Event) -> None:
        await self._service.append_event(self._session, item)

    async def fresh(self) -> SqliteSessionService:
        return SqliteSessionService(str(self._path))

    async def load(self, fresh: SqliteSessionService) -> None:
        await fresh.get_session(**_NAMES, session_id="one")

    async def prepare(self) -> None:
        _get_contents(None, self._session.events, "bench")


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
