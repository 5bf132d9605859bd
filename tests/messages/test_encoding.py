"""What a message may hold: how deep, of which classes, and in which canonical form."""

from __future__ import annotations

import enum
import json
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.adapters.kit.recordable import recordable
from eventctx.engine import Engine
from eventctx.errors import EventctxError, InvalidMessage
from eventctx.log.events import MessageAdded
from eventctx.log.record import make_body
from eventctx.messages import encoding
from eventctx.messages.encoding import canonical, decode_bodies, decode_body, encode_message
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.orchestrators.providers.sdk_calling import read_arguments
from eventctx.queries.transfer import import_drafts, read_drafts, read_header
from eventctx.session.context import Context
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.policies.given import one_session
from tests.sessions import append_event, exported, model, user

DEEPER = (encoding.MAX_DEPTH + 1, 1_000, 100_000)
REFUSED = rf"at \$\..*: expected at most {encoding.MAX_DEPTH} levels, found deeper nesting"


def nested(levels: int, value: Any = "leaf", *, objects: bool = False) -> Any:
    for _ in range(levels):
        value = {"k": value} if objects else [value]
    return value


def messages(levels: int, *, objects: bool) -> list[dict[str, Any]]:
    """A call, its result, and a message of no known form, each of ``levels`` levels."""
    deep = nested(levels - 4, objects=objects)
    call = {"type": "tool_use", "id": "t", "name": "n", "input": {"a": deep}}
    result = {"type": "tool_result", "tool_use_id": "t"}
    return [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{**result, "content": nested(1, deep, objects=objects)}]},
        {"role": "user", "content": nested(3, deep, objects=objects)},
    ]


async def filled_up(context: Context) -> None:
    """Thirty questions and answers, for which a budget of 20,000 tokens has no room."""
    for number in range(30):
        await context.add_message(user(f"{number} " + "word " * 400))
        await context.add_message(model("fine " * 400))


async def called_below(frames: int, function: Callable[[], Awaitable[Any]]) -> Any:
    if frames:
        return await called_below(frames - 1, function)
    return await function()


@pytest.mark.parametrize("levels", DEEPER)
async def test_a_message_that_is_too_deep_is_refused_with_its_path(levels: int) -> None:
    async with one_session() as (engine, context):
        for objects in (True, False):
            for message in messages(levels, objects=objects):
                with pytest.raises(InvalidMessage, match=REFUSED):
                    await context.add_message(message)
                with pytest.raises(InvalidMessage, match=REFUSED):
                    await context.set_messages([message])
        with pytest.raises(InvalidMessage, match=REFUSED):
            await context.get_messages_for_request(tools=[nested(levels, objects=True)])
        deep = nested(levels)
        of_sdk: Any
        for of_sdk in (
            Model(user(deep)),
            {"role": "user", "content": [Model({"type": "text", "text": "t", "x": deep})]},
            {"role": "user", "content": [deep, Model({})]},
        ):
            with pytest.raises(InvalidMessage):
                await context.add_message(of_sdk)
        assert await engine.transcript("s") == []


class Model:
    """What an SDK gives in place of a dict."""

    def __init__(self, fields: Any) -> None:
        self.fields = fields

    def model_dump(self) -> Any:
        return self.fields


@pytest.mark.parametrize("frames", [0, 600])
@pytest.mark.parametrize("objects", [True, False])
async def test_the_deepest_message_works_everywhere_however_deep_the_callers_stack(
    tmp_path: Path, objects: bool, frames: int
) -> None:
    async with eventctx.open(tmp_path / "store.db") as engine:
        context = await engine.session("s", policy="workset", max_tokens=20_000)
        deepest = messages(encoding.MAX_DEPTH, objects=objects)
        await called_below(frames, lambda: context.add_messages(deepest))
        await filled_up(context)
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


@pytest.mark.slow
@pytest.mark.parametrize("levels", [300, 1_100, 100_000])
async def test_json_in_a_text_may_be_nested_without_end(levels: int) -> None:
    deep = '{"k":' * levels + '"leaf"' + "}" * levels
    call = {"id": "o", "type": "function", "function": {"name": "f", "arguments": deep}}
    async with one_session(policy="workset", max_tokens=20_000) as (engine, context):
        asked = {"role": "assistant", "content": None, "tool_calls": [call]}
        answer = {"role": "tool", "tool_call_id": "o", "content": deep}
        await context.add_messages([user("do it"), asked, answer])
        await filled_up(context)
        assert await context.get_messages_for_request()
        assert await engine.recall("leaf")
        assert await engine.lost("s")
    assert read_arguments(deep)[1] is not None


@pytest.mark.parametrize("levels", DEEPER)
async def test_what_a_model_or_a_host_sends_may_be_nested_without_end(levels: int) -> None:
    deep = nested(levels)
    async with one_session() as (_, context):
        await context.add_message(user("hello"))
        tool = context.recall_tool()
        for arguments in (deep, {"query": deep}, {"message": deep}):
            assert "must be" in await tool(arguments) or "not an object" in await tool(arguments)
    assert read_arguments(nested(levels, objects=True))[1] is not None
    row = recordable(user(deep))
    assert decode_body(encode_message(row)) == row


@pytest.mark.parametrize("levels", [encoding.MAX_READ_DEPTH + 1, 900, 100_000])
async def test_a_stored_body_that_is_too_deep_is_a_typed_error(tmp_path: Path, levels: int) -> None:
    data = b'{"role":"user","content":' + b"[" * levels + b"]" * levels + b"}"
    for read in (decode_body, lambda body: decode_bodies([body])):
        with pytest.raises(encoding.NotJson, match=f"at most {encoding.MAX_READ_DEPTH} levels"):
            read(data)
    async with eventctx.open(tmp_path / "store.db") as engine:
        await engine.session("s")
        body = make_body(data, encode_facts(read_facts(user("x"))), os.urandom)
        await append_event(engine.store, MessageAdded(), body)
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
        await context.add_message(user("more"))


def test_the_deepest_that_is_read_is_no_matter_of_the_message_around_it() -> None:
    deepest = b"[" * encoding.MAX_READ_DEPTH + b"]" * encoding.MAX_READ_DEPTH
    assert decode_bodies([deepest, b"{}"]) == [decode_body(deepest), {}]
    with pytest.raises(msgspec.DecodeError):
        decode_body(b"[" + deepest + b"]")


# -- values of SDKs' own classes -------------------------------------------------------------------


class Speaker(str, enum.Enum):  # noqa: UP042 - the older form, which many SDKs still use
    USER = "user"


class Kind(enum.StrEnum):
    TEXT = "text"


class Level(enum.IntEnum):
    HIGH = 3


class Accessor(str):
    """As LangChain's ``TextAccessor``: a text whose ``str()`` and ``repr()`` say something else."""

    def __str__(self) -> str:
        return "another text"


class Seconds(float):
    def __repr__(self) -> str:
        return "0.5 s"


async def test_subclasses_of_texts_and_numbers_are_stored_as_plain_ones() -> None:
    message: dict[str, Any] = {
        Accessor("role"): Speaker.USER,
        "content": [{"type": Kind.TEXT, "text": Accessor("héllo")}],
        "level": Level.HIGH,
        "after": Seconds(0.5),
    }
    stored = {"role": "user", "content": [{"type": "text", "text": "héllo"}], "level": 3}
    async with one_session() as (_, ctx):
        await ctx.add_message(message)
        (kept,) = await ctx.get_messages()
        assert kept == {**stored, "after": 0.5}
        assert [type(key) for key in kept] == [str] * 4
        assert await ctx.get_messages_for_request() == [kept]
    assert message["level"] is Level.HIGH, "a caller's message is not changed"
    plain = {"role": "user", "content": ["x", 1, 2.5, None, True]}
    assert encoding.plain_message(plain) is plain


def test_what_json_cannot_hold_is_refused_with_its_path_and_so_are_keys_of_one_text() -> None:
    for value in [
        Seconds("nan"),
        type("Surrogate", (str,), {})("\ud800"),
        enum.IntEnum("Big", {"ONE": 2**70}).ONE,  # type: ignore[attr-defined]
        enum.Enum("Plain", {"ONE": "one"}).ONE,  # type: ignore[attr-defined]
        OrderedDict(a=1),
        type("Items", (list,), {})([1]),
        (1, 2),
        b"bytes",
        1j,
    ]:
        with pytest.raises(InvalidMessage, match=r"\$\.content\[0\]"):
            encode_message({"role": Speaker.USER, "content": [value]})

    class Odd(str):
        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> bool:
            return self is other

    with pytest.raises(InvalidMessage, match="twice"):
        encode_message({"role": "user", Odd("x"): 1, Odd("x"): 2})
    with pytest.raises(InvalidMessage, match="string keys"):
        encode_message({"role": "user", Level.HIGH: 1})


# -- the canonical form ----------------------------------------------------------------------------


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)

few = settings(max_examples=some(25, 300))


NUMBERS = (
    "0 1 1000.5 100000000000000000000 1e+21 1.5e+21 0.000001 1e-7 1.5e-7 -2.5 5e-324 "
    "1.7976931348623157e+308 123456789012345680000"
)


def test_numbers_and_keys_are_written_as_javascript_writes_them() -> None:
    for written in NUMBERS.split():
        assert canonical(float(written)) == written
    assert canonical(-0.0) == "0"
    # U+FF5E sorts before U+1F600 by code point, and after its surrogates.
    assert canonical({"\uff5e": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\uff5e":1}'


@few
@given(st.dictionaries(st.text(), VALUES), st.randoms())
def test_the_canonical_form_is_json_of_the_same_value_without_cache_marks_in_any_order_of_keys(
    value: dict[str, Any], random: Any
) -> None:
    assert json.loads(canonical(value)) == _unmarked(value)
    keys = list(value)
    random.shuffle(keys)
    assert encoding.digest_of({key: value[key] for key in keys}) == encoding.digest_of(value)


@few
@given(st.text(), st.dictionaries(st.sampled_from(["id", "model", "usage"]), VALUES))
def test_a_text_and_its_block_are_one_message_whatever_is_beside(
    words: str, beside: dict[str, Any]
) -> None:
    block = {"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}
    plain = {"role": "user", "content": words}
    assert encoding.message_digest(plain) == encoding.message_digest(
        {**beside, "role": "user", "content": [block]}
    )
    other = {"role": "user", "content": words + "."}
    assert encoding.message_digest(plain) != encoding.message_digest(other)


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(one) for key, one in value.items() if key != "cache_control"}
    return [_unmarked(one) for one in value] if isinstance(value, list) else value
