"""Sessions in memory, what they became, and a process that is killed while two tools run."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.log.codec import encode_event
from eventctx.log.events import Event
from eventctx.log.ids import RecordIds
from eventctx.log.integrity import Signer
from eventctx.log.record import Draft, Record
from eventctx.log.store import STREAM_EXISTS
from eventctx.projections.view import request_view
from eventctx.projections.view import snapshot as view_snapshot
from eventctx.queries.requests import fold
from eventctx.session.context import Context
from eventctx.session.host_turns import HostReporter
from eventctx.stores.memory import MemoryStore

ASK = {"role": "user", "content": "Read both."}
GO_ON = {"role": "user", "content": "Go on."}


async def opened(
    *rows: dict[str, Any], store: MemoryStore | None = None, **options: Any
) -> tuple[Engine, Context]:
    """A session ``s`` with these rows, of an engine of its own."""
    engine = Engine(store or MemoryStore())
    ctx = await engine.session("s", **options)
    await ctx.add_messages(rows)
    return engine, ctx


async def two_processes(*rows: dict[str, Any]) -> tuple[Engine, Context, Context]:
    """The same session of two engines, and the first of them."""
    engine, ctx = await opened(*rows)
    return engine, ctx, await Engine(engine.store).session("s")


async def prove(engine: Engine, session: str = "s") -> None:
    """The log verifies, and every request can be derived from it again."""
    assert (await engine.verify(session)).ok
    for row in (await engine.audit(session)).requests:
        assert (await engine.request_view(session, position=row.position)).verified


def signing_key() -> Signer:
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    forms = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    plain = (forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    return eventctx.signer(ed25519.Ed25519PrivateKey.generate().private_bytes(*plain))


def texts(rows: Sequence[dict[str, Any]]) -> list[Any]:
    return [row["content"] for row in rows]


async def in_threads(works: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run each in a thread and an event loop of its own; threads change as often as can be."""
    failures: list[BaseException] = []

    def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
    finally:
        sys.setswitchinterval(before)
    assert failures == []


def calling(*ids: str) -> dict[str, Any]:
    calls = [
        {"id": one, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for one in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def of_ollama(row: dict[str, Any]) -> dict[str, Any]:
    """The same calls in the form of Ollama's API."""
    calls = [
        {"id": one["id"], "function": {"name": one["function"]["name"], "arguments": {}}}
        for one in row["tool_calls"]
    ]
    return {**row, "tool_calls": calls}


def result(call: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": text}


async def until_tools_run(
    engine: Engine, *ids: str, session: str = "s", calls: dict[str, Any] | None = None
) -> HostReporter:
    """A host's turn up to the moment when these run of two tools, a and b, that ``calls`` asks for.

    The key of each is its id.
    """
    ctx = await engine.session(session)
    host = ctx.following()
    await host.turn_began("t1")
    await ctx.add_message(ASK)
    await host.iteration_began("p", "m")
    await ctx.get_messages_for_request()
    await host.request_prepared()
    await host.model_answered()
    await ctx.add_message(calls or calling("a", "b"))
    for call_id in ids:
        await host.tool_began("read", call_id, call_id)
    return host


async def killed(
    store: MemoryStore | None = None,
    *,
    answer: str | None = None,
    end: Callable[[HostReporter], Awaitable[None]] | None = None,
    session: str = "s",
    calls: dict[str, Any] | None = None,
) -> MemoryStore:
    """The store of a process that is killed while b runs, after a has ended with ``answer``."""
    engine = Engine(store or MemoryStore())
    host = await until_tools_run(engine, "a", "b", session=session, calls=calls)
    await (end(host) if end else host.tool_ended("a", answer))
    await engine.close_session(session)
    del host
    gc.collect()  # what nobody holds any more belongs to no living turn
    return engine.store


@asynccontextmanager
async def process(store: MemoryStore, session: str = "s") -> AsyncIterator[Engine]:
    """A process with this session open; another engine of it may have the same store."""
    engine = Engine(store)
    yield engine
    await engine.close_session(session)


async def records_of(
    store: MemoryStore, session: str = "s", kind: str | None = None
) -> list[Record]:
    found = [record async for record in store.read(session)]
    return [record for record in found if kind in (None, record.type)]


async def appended(store: MemoryStore, event: Event, ids: RecordIds, session: str = "s") -> None:
    """Append an event as another process would."""
    last = (await records_of(store, session))[-1]
    name, version, payload = encode_event(event)
    draft = Draft(os.urandom(16), name, version, last.time, payload, (), *ids)
    await store.append(session, [draft], STREAM_EXISTS)


async def view_of(store: MemoryStore, *, session: str = "s") -> list[dict[str, Any]]:
    """The request of the next turn, which must be the same from the log and from a snapshot."""
    async with process(store, session) as engine:
        ctx = await engine.session(session)
        async with ctx.turn("t2"):
            await ctx.add_message(GO_ON)
            shown: list[dict[str, Any]] = await ctx.get_messages_for_request()
        await engine.close_session(session)
        position = (await engine.audit(session)).requests[-1].position
        view = await engine.request_view(session, position=position)
        assert view.verified and view.messages == shown
        assert (await engine.verify(session)).ok
    state: request_view.ViewState = await fold(store, session, request_view)
    again = view_snapshot.load(view_snapshot.dump(state))
    assert again.layout.entries() == state.layout.entries()
    assert (again.layout.measure(), again.spans) == (state.layout.measure(), state.spans)
    return shown
