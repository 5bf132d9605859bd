"""Neighbours that keep conversations, each in a process of its own, which is told what to do next.

A process imports its neighbour and nothing of this library, so any interpreter that has the
neighbour runs it, whatever else that neighbour asks for. A line of its input is a step and how
often to take it; a line of its output has the seconds that each took.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sqlite3
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from inspect import isawaitable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

Message = dict[str, Any]

MOST_SECONDS = 1.0
"""No further step is begun after this long in one turn: some take a second each."""


class Neighbour(NamedTuple):
    """A session of so many messages on the disk, and the three things that are measured.

    What is timed gets what was made ready for it: a message as ``item`` makes it, or a ``fresh``
    object that has not seen the session. The process ends without closing that one. An append is
    durable when it ends. ``what`` says what appending, loading and preparing call.
    """

    package: str
    what: tuple[str, str, str]
    item: Callable[[Message], Any]
    append: Callable[[Any], Any]
    fresh: Callable[[], Any]
    load: Callable[[Any], Any]
    prepare: Callable[[], Any]


# -- this library ----------------------------------------------------------------------------------


async def ours(folder: Path, messages: list[Message]) -> Neighbour:
    import eventctx
    from tests.benchmarks.workload import draft

    path, roomy = folder / "ours.db", 10**9
    # It stays open, as a host's does; the process ends without closing it.
    engine = await eventctx.open(path)
    context = await engine.session("one", max_tokens=roomy)
    for first in range(0, len(messages), 500):
        batch = [draft(one) for one in messages[first : first + 500]]
        await engine.store.append("one", batch, first)
    await context.get_messages_for_request()

    async def load(fresh: eventctx.Engine) -> None:
        await (await fresh.session("one", max_tokens=roomy)).get_messages()

    fresh = "session() and get_messages() in a fresh engine"
    return Neighbour(
        "eventctx",
        ("ctx.add_message", fresh, "get_messages_for_request(), all in view, recorded durably"),
        item=lambda message: message,
        append=context.add_message,
        fresh=lambda: eventctx.open(path),
        load=load,
        prepare=context.get_messages_for_request,
    )


# -- openai-agents ---------------------------------------------------------------------------------


async def openai_agents(folder: Path, messages: list[Message]) -> Neighbour:
    """Its SQLiteSession, which configures its database itself: WAL."""
    from agents import SQLiteSession
    from agents.run_internal.session_persistence import prepare_input_with_session

    path = folder / "openai-agents.db"
    session = SQLiteSession("one", path)
    items: list[Any] = [item for one in messages for item in _items(one)]
    for first in range(0, len(items), 500):
        await session.add_items(items[first : first + 500])
    prepares = "prepare_input_with_session, which every run calls"
    return Neighbour(
        "openai-agents",
        ("add_items of one item", "get_items in a fresh session object", prepares),
        item=lambda message: _items(message)[:1],
        append=session.add_items,
        fresh=lambda: SQLiteSession("one", path),
        load=lambda fresh: fresh.get_items(),
        prepare=lambda: prepare_input_with_session("Go on.", session, None),
    )


def _items(made: Message) -> list[Any]:
    """The message as items of the Responses API, which is what this session holds."""
    if made["role"] == "tool":
        call = made["tool_call_id"]
        return [{"type": "function_call_output", "call_id": call, "output": made["content"]}]
    items: list[Message] = [{"role": made["role"], "content": made["content"]}]
    items += [
        {"type": "function_call", "call_id": call["id"], **call["function"]}
        for call in made.get("tool_calls", ())
    ]
    return items


# -- langgraph -------------------------------------------------------------------------------------


async def langgraph(folder: Path, messages: list[Message]) -> Neighbour:
    """langgraph-checkpoint-sqlite, with the messages as the one channel of the state.

    An append is one ``put`` of the whole state, as at the end of a step of a running graph; the
    ``get`` before it, which an append from outside of a graph needs, is left out.
    """
    from langchain_core.messages import convert_to_messages, convert_to_openai_messages
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.sqlite import SqliteSaver

    def connected() -> SqliteSaver:
        connection = sqlite3.connect(folder / "langgraph.db", check_same_thread=False)
        connection.execute("PRAGMA synchronous=FULL")
        return SqliteSaver(connection)

    thread: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
    saver, config, step = connected(), thread, 0
    state: list[Any] = []

    def put(more: list[Any]) -> None:
        nonlocal config, step
        state.extend(more)
        step += 1
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": state}
        checkpoint["channel_versions"] = {"messages": step}
        facts: Any = {"source": "loop", "step": step, "parents": {}}
        config = saver.put(config, checkpoint, facts, {"messages": step})

    put(convert_to_messages(messages))
    appends, prepares = "put of the state with one message more", "convert_to_openai_messages of it"
    return Neighbour(
        "langgraph-checkpoint-sqlite",
        (appends, "get_tuple over a fresh connection", prepares),
        item=lambda message: convert_to_messages([message]),
        append=put,
        fresh=connected,
        load=lambda fresh: fresh.get_tuple(thread),
        prepare=lambda: convert_to_openai_messages(state),
    )


# -- Google ADK ------------------------------------------------------------------------------------


async def google_adk(folder: Path, messages: list[Message]) -> Neighbour:
    """Its session service over SQLite.

    It keeps SQLite's rollback journal, whose commit syncs the journal, the folder and the database.
    """
    from google.adk.flows.llm_flows.contents import _get_contents
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    path, named = folder / "adk.db", {"app_name": "bench", "user_id": "me", "session_id": "one"}
    with memory_folder() as memory:
        service = SqliteSessionService(str(memory / "adk.db"))
        session = await service.create_session(**named)
        for one in messages:
            await service.append_event(session, _event(one))
        await service.close()
        shutil.move(memory / "adk.db", path)
    service = SqliteSessionService(str(path))
    found = await service.get_session(**named)
    prepares = "_get_contents of the loaded session, which every model call makes"
    return Neighbour(
        "google-adk",
        ("append_event", "get_session of a fresh service", prepares),
        item=_event,
        append=lambda item: service.append_event(found, item),
        fresh=lambda: SqliteSessionService(str(path)),
        load=lambda fresh: fresh.get_session(**named),
        prepare=lambda: _get_contents(None, found.events, "bench"),
    )


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory where there is one: 10,000 synced appends take minutes on some disks."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def _event(message: Message) -> Any:
    from google.adk.events.event import Event
    from google.genai import types

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
    role = {"assistant": "model"}.get(message["role"], "user")
    content = types.Content(role=role, parts=parts)
    author = "bench" if message["role"] != "user" else "user"
    return Event(invocation_id="one", author=author, content=content)


# -- a neighbour's process -------------------------------------------------------------------------


OPENED: dict[str, Callable[[Path, list[Message]], Awaitable[Neighbour]]] = {
    opened.__name__: opened for opened in (ours, openai_agents, langgraph, google_adk)
}


async def serve(name: str, folder: Path, length: int) -> None:
    """Build the session, say so, and take steps until the input ends."""
    # What a library prints must not get between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(found: dict[str, Any]) -> None:
        print(json.dumps(found), file=out, flush=True)

    messages: list[Message] = json.loads((folder / "messages.json").read_text())
    try:
        neighbour = await OPENED[name](folder, messages[:length])
    except ImportError as error:
        answer({"missing": str(error)})
        return
    coming = iter(messages[length:])
    what = dict(zip(("append", "load", "prepare"), neighbour.what, strict=True))
    answer({"version": version(neighbour.package), "what": what})
    while line := await asyncio.to_thread(sys.stdin.readline):
        step, count = line.split()
        took: dict[str, list[float]] = {"wall": [], "processor": []}
        until = time.perf_counter() + MOST_SECONDS
        while len(took["wall"]) < int(count) and time.perf_counter() < until:
            given: tuple[Any, ...] = ()
            if step == "append":
                given = (neighbour.item(next(coming)),)
            elif step == "load":
                given = (await _ended(neighbour.fresh()),)
            spent, began = time.process_time(), time.perf_counter()
            await _ended(getattr(neighbour, step)(*given))
            took["wall"].append(time.perf_counter() - began)
            took["processor"].append(time.process_time() - spent)
        answer(took)


async def _ended(made: Any) -> Any:
    """What a call of a neighbour gave, with async or without."""
    return await made if isawaitable(made) else made


if __name__ == "__main__":
    # Neighbours tell of things that have nothing to do with what is measured.
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
