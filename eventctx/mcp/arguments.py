"""The arguments of the tools, their JSON schemas, and their reading."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.log.naming import read_message
from eventctx.queries.lost.answers import ItemKind

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]

_Session = Annotated[
    str | None,
    msgspec.Meta(
        description="A session's id or the beginning of one. Default: this conversation, or where "
        "the server cannot know it, the one last active in this project directory."
    ),
]
_Skip = Annotated[Count, msgspec.Meta(description="Rows to pass over, to read on. Default 0.")]
_Turn = Annotated[
    Count | None, msgspec.Meta(description="In the last request of this turn. Default: now.")
]


class RecallCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``recall``: a search, or one message."""

    session: _Session = None
    query: Annotated[
        str | None,
        msgspec.Meta(description='Words to look for; "a phrase" and begin* are understood.'),
    ] = None
    message: Annotated[
        int | str | None,
        msgspec.Meta(description="Instead of a search: the number of a message to read whole."),
    ] = None
    start: Annotated[
        Count, msgspec.Meta(description="With `message`: the character of its text to begin at.")
    ] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="At most so many messages.")] = 10


class LostCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of ``lost``: which view, and which items of it."""

    session: _Session = None
    compaction: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | None,
        msgspec.Meta(description="After this compaction, counted from 1. Default: now."),
    ] = None
    turn: _Turn = None
    kind: Annotated[ItemKind | None, msgspec.Meta(description="Only items of this kind.")] = None
    state: Annotated[
        Literal["gone", "summary", "shortened", "whole"] | None,
        msgspec.Meta(description="Only items in this state. Default: all but whole ones."),
    ] = None
    skip: _Skip = 0


class WhyCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of ``why``: a message, and the view that is meant."""

    message: Annotated[int | str, msgspec.Meta(description="The message's number.")]
    session: _Session = None
    turn: _Turn = None


class ViewCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of ``view``: a request, and the part of it to show."""

    session: _Session = None
    turn: Annotated[
        Count | None,
        msgspec.Meta(description="The last request of this turn. Default: the last of all."),
    ] = None
    skip: _Skip = 0
    characters: Annotated[
        int, msgspec.Meta(ge=20, le=4_000, description="Most characters of one text.")
    ] = 300


_PATH: Final = re.compile(r"`\$\.(\w+)`")

A = TypeVar("A", RecallCall, LostCall, WhyCall, ViewCall)


def schema_of(arguments: type[Any]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments, which refers to no other."""
    (found,) = msgspec.json.schema(arguments)["$defs"].values()
    return {key: part for key, part in found.items() if key not in ("title", "description")}


def read(given: object, arguments: type[A]) -> A:
    """The arguments of a call. Raises InvalidSetting that names what is wrong with them."""
    try:
        return msgspec.convert({} if given is None else given, arguments, strict=False)
    except msgspec.ValidationError as error:
        names = ", ".join(f"`{one}`" for one in arguments.__struct_fields__)
        choices = _choices(arguments, str(error))
        raise InvalidSetting(f"arguments: {error}{choices}; expected some of {names}") from error


def _choices(arguments: type[Any], problem: str) -> str:
    """The words of the argument that a problem is about; "" where it is none of a few words."""
    path = _PATH.search(problem)
    if path is None:
        return ""
    given = schema_of(arguments)["properties"].get(path[1], {})
    words = [word for one in given.get("anyOf", ()) for word in one.get("enum", ())]
    return f" ({', '.join(words)})" if words else ""


def number_of(message: int | str) -> int:
    """The number of a message, given as ``12``, ``"12"`` or ``"#12"``. Raises InvalidSetting."""
    return read_message(str(message))
