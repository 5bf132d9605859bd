"""Texts and numbers of SDKs' own classes are stored as what they are; all else is still refused."""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import Any

import pytest

import eventctx
from eventctx.errors import InvalidMessage
from eventctx.messages.encoding import encode_message, plain_message


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


class Surrogate(str):
    pass


async def test_subclasses_of_texts_and_numbers_are_stored_as_plain_ones() -> None:
    message: dict[str, Any] = {
        Accessor("role"): Speaker.USER,
        "content": [{"type": Kind.TEXT, "text": Accessor("héllo")}],
        "level": Level.HIGH,
        "after": Seconds(0.5),
    }
    stored = {"role": "user", "content": [{"type": "text", "text": "héllo"}], "level": 3}
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.add_message(message)
        (kept,) = await ctx.get_messages()
        assert kept == {**stored, "after": 0.5}
        assert [type(key) for key in kept] == [str] * 4
        assert await ctx.get_messages_for_request() == [kept]
    assert message["level"] is Level.HIGH, "a caller's message is not changed"


def test_a_message_of_plain_values_is_not_copied() -> None:
    message = {"role": "user", "content": ["x", 1, 2.5, None, True]}
    assert plain_message(message) is message


@pytest.mark.parametrize(
    "value",
    [
        Seconds("nan"),
        Surrogate("\ud800"),
        enum.IntEnum("Big", {"ONE": 2**70}).ONE,  # type: ignore[attr-defined]
        enum.Enum("Plain", {"ONE": "one"}).ONE,  # type: ignore[attr-defined]
        OrderedDict(a=1),
        type("Items", (list,), {})([1]),
        (1, 2),
        b"bytes",
        1j,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_hold_is_still_refused_with_its_path(value: object) -> None:
    with pytest.raises(InvalidMessage, match=r"\$\.content\[0\]"):
        encode_message({"role": Speaker.USER, "content": [value]})


def test_two_keys_that_are_one_text_are_refused() -> None:
    class Odd(str):
        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> bool:
            return self is other

    with pytest.raises(InvalidMessage, match="twice"):
        encode_message({"role": "user", Odd("x"): 1, Odd("x"): 2})
    with pytest.raises(InvalidMessage, match="string keys"):
        encode_message({"role": "user", Level.HIGH: 1})
