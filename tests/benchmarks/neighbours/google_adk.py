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

from tests.benchmarks.neighbours.child import Message, Neighbour, memory_folder

PACKAGE = "google-adk"
WHAT = {
    "append": "append_event",
    "load": "get_session of a fresh service",
    "prepare": "_get_contents of the loaded session, which every model call makes",
}
_SESSION: Any = {"app_name": "bench", "user_id": "someone", "session_id": "one"}


async def opened(folder: Path, messages: list[Message]) -> Neighbour:
    path = folder / "adk.db"
    with memory_folder() as memory:
        service = SqliteSessionService(str(memory / "adk.db"))
        session = await service.create_session(**_SESSION)
        for one in messages:
            await service.append_event(session, _event(one))
        await service.close()
        shutil.move(memory / "adk.db", path)
    service = SqliteSessionService(str(path))
    found = await service.get_session(**_SESSION)
    assert found is not None
    return Neighbour(
        item=_event,
        append=lambda item: service.append_event(found, item),
        fresh=lambda: SqliteSessionService(str(path)),
        load=lambda fresh: fresh.get_session(**_SESSION),
        prepare=lambda: _get_contents(None, found.events, "bench"),
    )


def _event(message: Message) -> Event:
    if message["role"] == "tool":
        named = {"id": message["tool_call_id"], "name": "read_file"}
        answer = types.FunctionResponse(**named, response={"result": message["content"]})
        parts = [types.Part(function_response=answer)]
    else:
        parts = [types.Part(text=message["content"])]
        for call in message.get("tool_calls", ()):
            name, given = call["function"]["name"], {"arguments": call["function"]["arguments"]}
            made = types.FunctionCall(id=call["id"], name=name, args=given)
            parts.append(types.Part(function_call=made))
    model = message["role"] == "assistant"
    content = types.Content(role="model" if model else "user", parts=parts)
    author = "bench" if message["role"] != "user" else "user"
    return Event(invocation_id="one", author=author, content=content)
