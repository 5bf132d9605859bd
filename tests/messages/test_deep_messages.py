"""Deeply nested messages: the deepest works everywhere, a deeper one is refused by name."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import eventctx
from eventctx.adapters.kit.recordable import recordable
from eventctx.engine import Engine
from eventctx.errors import EventctxError, InvalidMessage
from eventctx.log.events import MessageAdded
from eventctx.log.record import make_body
from eventctx.messages.encoding import (
    MAX_DEPTH,
    MAX_READ_DEPTH,
    NotJson,
    decode_bodies,
    decode_body,
    encode_message,
)
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.orchestrators.providers.sdk_calling import read_arguments
from eventctx.queries.transfer import export_lines, import_drafts, read_drafts, read_header
from eventctx.session.context import Context
from eventctx.stores.memory import MemoryStore
from tests.sessions import append_event

DEEPER = (MAX_DEPTH + 1, 1_000, 100_000)
REFUSED = rf"at \$\..*: expected at most {MAX_DEPTH} levels, found deeper nesting"


def nested(levels: int, *, objects: bool = False) -> Any:
    value: Any = "leaf"
    for _ in range(levels):
        value = {"k": value} if objects else [value]
    return value


def messages(levels: int, *, objects: bool) -> list[dict[str, Any]]:
    """A call, its result, and a message of no known form, each of ``levels`` levels."""
    call = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
    call["input"] = {"a": nested(levels - 4, objects=objects)}
    result = {"type": "tool_result", "tool_use_id": "t", "content": ""}
    result["content"] = nested(levels - 3, objects=objects)
    return [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "user", "content": nested(levels - 1, objects=objects)},
    ]


async def exported(engine: Engine) -> list[bytes]:
    info = await engine.store.head("s")
    assert info is not None
    return [line async for line in export_lines(engine.store, info)]


async def called_below(frames: int, function: Callable[[], Awaitable[Any]]) -> Any:
    if frames:
        return await called_below(frames - 1, function)
    return await function()


@pytest.mark.parametrize("objects", [True, False])
@pytest.mark.parametrize("levels", DEEPER)
async def test_a_message_that_is_too_deep_is_refused_with_its_path(
    levels: int, objects: bool
) -> None:
    engine = Engine(MemoryStore())
    context = await engine.session("s")
    for message in messages(levels, objects=objects):
        with pytest.raises(InvalidMessage, match=REFUSED):
            await context.add_message(message)
        with pytest.raises(InvalidMessage, match=REFUSED):
            await context.set_messages([message])
    with pytest.raises(InvalidMessage, match=REFUSED):
        await context.get_messages_for_request(tools=[nested(levels, objects=True)])
    assert await engine.transcript("s") == []


class Model:
    """What an SDK gives in place of a dict."""

    def __init__(self, fields: Any) -> None:
        self.fields = fields

    def model_dump(self) -> Any:
        return self.fields


@pytest.mark.parametrize("levels", DEEPER)
async def test_an_object_of_an_sdk_that_is_too_deep_is_refused(levels: int) -> None:
    context = await Engine(MemoryStore()).session("s")
    for message in (
        Model({"role": "user", "content": nested(levels)}),
        {"role": "user", "content": [Model({"type": "text", "text": "t", "x": nested(levels)})]},
        {"role": "user", "content": [nested(levels), Model({})]},
    ):
        with pytest.raises(InvalidMessage):
            await context.add_message(message)


@pytest.mark.parametrize("frames", [0, 600])
@pytest.mark.parametrize("objects", [True, False])
async def test_the_deepest_message_works_everywhere_however_deep_the_callers_stack(
    tmp_path: Path, objects: bool, frames: int
) -> None:
    async with eventctx.open(tmp_path / "store.db") as engine:
        context = await engine.session("s", policy="workset", max_tokens=20_000)

        async def add(context: Context) -> None:
            for message in messages(MAX_DEPTH, objects=objects):
                await context.add_message(message)

        await called_below(frames, lambda: add(context))
        for number in range(30):
            await context.add_message({"role": "user", "content": f"{number} " + "word " * 400})
            await context.add_message({"role": "assistant", "content": "fine " * 400})
        for question in (
            lambda: context.get_messages_for_request(),
            lambda: engine.recall("leaf"),
            lambda: engine.transcript("s"),
            lambda: engine.audit("s"),
            lambda: engine.why("s", 1),
            lambda: engine.lost("s"),
        ):
            assert await called_below(frames, question)
        assert (await called_below(frames, lambda: engine.verify("s"))).ok
        header, *lines = await exported(engine)
    other = MemoryStore()
    assert await import_drafts(other, "s", read_drafts(lines)) == read_header(header).records
    assert await exported(Engine(other)) == [header, *lines]


@pytest.mark.parametrize("levels", [300, 1_100, 100_000])
async def test_json_in_a_text_may_be_nested_without_end(levels: int) -> None:
    engine = Engine(MemoryStore())
    context = await engine.session("s", policy="workset", max_tokens=20_000)
    deep = '{"k":' * levels + '"leaf"' + "}" * levels
    call = {"id": "o", "type": "function", "function": {"name": "f", "arguments": deep}}
    await context.add_message({"role": "user", "content": "do it"})
    await context.add_message({"role": "assistant", "content": None, "tool_calls": [call]})
    await context.add_message({"role": "tool", "tool_call_id": "o", "content": deep})
    for number in range(30):
        await context.add_message({"role": "user", "content": f"{number} " + "word " * 400})
        await context.add_message({"role": "assistant", "content": "fine " * 400})
    assert await context.get_messages_for_request()
    assert await engine.recall("leaf")
    assert await engine.lost("s")
    assert read_arguments(deep)[1] is not None


@pytest.mark.parametrize("levels", DEEPER)
async def test_what_a_model_or_a_host_sends_may_be_nested_without_end(levels: int) -> None:
    context = await Engine(MemoryStore()).session("s")
    await context.add_message({"role": "user", "content": "hello"})
    tool = context.recall_tool()
    for arguments in (nested(levels), {"query": nested(levels)}, {"message": nested(levels)}):
        assert "must be" in await tool(arguments) or "not an object" in await tool(arguments)
    assert read_arguments(nested(levels, objects=True))[1] is not None
    row = recordable({"role": "user", "content": nested(levels)})
    assert decode_body(encode_message(row)) == row


@pytest.mark.parametrize("levels", [MAX_READ_DEPTH + 1, 900, 100_000])
async def test_a_stored_body_that_is_too_deep_is_one_typed_error(
    tmp_path: Path, levels: int
) -> None:
    data = b'{"role":"user","content":' + b"[" * levels + b"]" * levels + b"}"
    for read in (decode_body, lambda body: decode_bodies([body])):
        with pytest.raises(NotJson, match=f"at most {MAX_READ_DEPTH} levels"):
            read(data)
    async with eventctx.open(tmp_path / "store.db") as engine:
        context = await engine.session("s")
        facts = encode_facts(read_facts({"role": "user", "content": "x"}))
        await append_event(engine.store, MessageAdded(), make_body(data, facts, os.urandom))
    async with eventctx.open(tmp_path / "store.db") as engine:
        context = await engine.session("s")
        assert not (await engine.verify("s")).ok
        assert await engine.recall("leaf") == []
        assert await exported(engine)
        for question in (
            lambda: context.get_messages_for_request(),
            lambda: engine.transcript("s"),
            lambda: engine.why("s", 0),
            lambda: engine.erase("s", [0]),
        ):
            with pytest.raises(EventctxError):
                await question()
        await context.add_message({"role": "user", "content": "more"})


def test_the_deepest_that_is_read_is_no_matter_of_the_message_around_it() -> None:
    deepest = b"[" * MAX_READ_DEPTH + b"]" * MAX_READ_DEPTH
    assert decode_bodies([deepest, b"{}"]) == [decode_body(deepest), {}]
    with pytest.raises(msgspec.DecodeError):
        decode_body(b"[" + deepest + b"]")
