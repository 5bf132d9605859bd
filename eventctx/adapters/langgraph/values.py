"""Values of channels as JSON, in which a message is a reference to its event.

A ``Box`` is one value, taken at the moment of the call. A message in it, at any depth, stands in a
table: by the number of its event, or whole where the log has no such event. What is no JSON is a
blob of LangGraph's serializer, next to the JSON: texts in it stay readable for an erasure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde import types as serde_types
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.types import Send

from eventctx.adapters.kit.recordable import recordable
from eventctx.adapters.langgraph.rows import NOT_SENT, Row, fields_of
from eventctx.errors import InvalidMessage
from eventctx.messages.encoding import encode_plain, plain_message
from eventctx.messages.overlap import LEAST_WHOLE

Blob = tuple[str, bytes]
Runs = list[tuple[int, int]]

MAX_DEPTH: Final = 48
"""Depth of a value's JSON; what is nested deeper is a blob."""

_CLASSES: Final[dict[str, type[BaseMessage]]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
}
TYPES: Final = frozenset(("human", "ai", "system", "tool"))
"""Types of messages that are events in the log; others stay in their channel's value."""

_DeltaSnapshot: Final[Any] = getattr(serde_types, "_DeltaSnapshot", None)
_BLOB, _MESSAGES, _MESSAGE, _TUPLE, _SEND, _DELTA = "$o", "$ms", "$m", "$t", "$s", "$d"
_NATIVE: Final = "$n"


class Box(NamedTuple):
    """A value as JSON, with the messages and blobs that its JSON names by their places.

    ``says``: it has a text that an erasure looks for.
    """

    json: Any
    messages: tuple[Piece, ...] = ()
    blobs: tuple[Blob, ...] = ()
    says: bool = False

    @property
    def print(self) -> bytes:
        """A digest of the value, by which an equal one is recognised."""
        found = blake2b(msgspec.json.encode(self.json), digest_size=16)
        for piece in self.messages:
            found.update(piece.said + piece.rest_print)
        for kind, data in self.blobs:
            found.update(kind.encode() + data)
        return found.digest()


class Piece(NamedTuple):
    """A message: its row, the digest of that, and the rest that no row has.

    One that is known by its object has the ``number`` of its event, and no row.
    """

    message: BaseMessage
    row: Row
    said: bytes
    rest: Box | None = None
    rest_print: bytes = b""
    number: int | None = None

    @property
    def addable(self) -> bool:
        """Whether the message may be an event: it has an id, and removes no other one."""
        return bool(self.message.id) and not isinstance(self.message, RemoveMessage)


SHORT: Final = 64
"""Characters of a text of metadata that is a name or an id."""


def is_short(value: Any, most: int = SHORT) -> bool:
    """Whether a value is plain, and no text in it is longer than that. Keys are names."""
    kind = type(value)
    if kind is str:
        return len(value) <= most and value.isascii()
    if value is None or kind is bool or kind is float:
        return True
    if kind is int:
        return bool(-(2**63) <= value < 2**63)
    if kind is dict:
        short = all(type(key) is str and len(key) <= SHORT for key in value)
        return short and all(is_short(one, most) for one in value.values())
    return kind is list and all(is_short(one, most) for one in value)


def said_in(data: bytes) -> bytes:
    """The digest of a row by its stored bytes."""
    return blake2b(data, digest_size=16).digest()


class Boxer:
    """Makes boxes. ``known`` gives the piece of a message that was seen before, or None."""

    def __init__(
        self, serde: SerializerProtocol, known: Callable[[BaseMessage], Piece | None]
    ) -> None:
        self._serde = serde
        self._known = known

    def box(self, value: Any) -> Box:
        """The box of a value."""
        messages: list[Piece] = []
        blobs: list[Blob] = []
        json = self._json(value, messages, blobs, 0)
        return Box(
            json, tuple(messages), tuple(blobs), bool(blobs) or not is_short(json, LEAST_WHOLE - 1)
        )

    def piece(self, message: BaseMessage) -> Piece:
        """The piece of a message, which is in full either in its row, or in its rest, too."""
        return self._known(message) or self.made(message)

    def made(self, message: BaseMessage) -> Piece:
        """The piece of a message, whether or not it is known."""
        fields = fields_of(message)
        try:
            row = plain_message(fields)
            exact = type(message) is _CLASSES.get(message.type)
        except InvalidMessage:
            row, exact = recordable(fields), False
        rest = self._rest(message) if exact else Box({_NATIVE: 0}, (), (self._leaf(message),))
        print_ = b"" if rest is None else rest.print
        return Piece(message, row, said_in(encode_plain(row)), rest, print_)

    def _rest(self, message: BaseMessage) -> Box | None:
        found: dict[str, Any] = {}
        for name in sorted(NOT_SENT):
            value = message.__dict__.get(name)
            if value or (value is not None and name == "artifact"):
                found[name] = value
        return self.box(found) if found else None

    def _leaf(self, value: Any) -> Blob:
        return self._serde.dumps_typed(value)

    def _json(self, value: Any, messages: list[Piece], blobs: list[Blob], depth: int) -> Any:
        if depth < MAX_DEPTH:
            kind = type(value)
            if _is_leaf(value, kind):
                return value
            if kind is list and value and all(isinstance(one, BaseMessage) for one in value):
                first = len(messages)
                messages += [self.piece(one) for one in value]
                return {_MESSAGES: [first, len(value)]}
            if kind is list:
                return [self._json(one, messages, blobs, depth + 1) for one in value]
            if kind is dict and all(type(key) is str and key[:1] != "$" for key in value):
                return {
                    key: self._json(one, messages, blobs, depth + 1) for key, one in value.items()
                }
            marked = self._marked(value, kind, messages, blobs, depth)
            if marked is not None:
                return marked
        blobs.append(self._leaf(value))
        return {_BLOB: len(blobs) - 1}

    def _marked(
        self, value: Any, kind: type, messages: list[Piece], blobs: list[Blob], depth: int
    ) -> Any:
        if isinstance(value, BaseMessage):
            messages.append(self.piece(value))
            return {_MESSAGE: len(messages) - 1}
        if kind is tuple:
            return {_TUPLE: [self._json(one, messages, blobs, depth + 1) for one in value]}
        if kind is _DeltaSnapshot:
            return {_DELTA: self._json(value.value, messages, blobs, depth + 1)}
        if kind is Send and getattr(value, "timeout", None) is None:
            return {_SEND: [value.node, self._json(value.arg, messages, blobs, depth + 1)]}
        return None


def _is_leaf(value: Any, kind: type) -> bool:
    if value is None or kind is bool:
        return True
    if kind is int:
        return bool(-(2**63) <= value < 2**63)
    if kind is float:
        return math.isfinite(value)
    if kind is str:
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which no JSON has
            return False
        return True
    return False


class Unboxer:
    """Makes values of stored boxes. ``message`` gives a fresh message by its event's number."""

    def __init__(self, serde: SerializerProtocol, message: Callable[[int], BaseMessage]) -> None:
        self._serde = serde
        self._message = message

    def value(self, stored: Mapping[str, Any], blobs: Sequence[Blob]) -> Any:
        """The value of a box, as ``PartWriter.stored`` wrote it."""
        own = blobs[stored.get("o", 0) :]
        return self._value(stored["j"], self._table(stored.get("m", ()), blobs), own)

    def _table(self, table: Sequence[Any], blobs: Sequence[Blob]) -> list[BaseMessage]:
        found: list[BaseMessage] = []
        for entry in table:
            if isinstance(entry, list):
                found += [self._message(number) for number in range(entry[0], entry[1] + 1)]
            else:
                rest = self.value(entry["x"], blobs) if "x" in entry else {}
                found.append(self.built(entry["r"], rest))
        return found

    def built(self, row: Row, rest: Mapping[str, Any]) -> BaseMessage:
        """The message of a row and its rest."""
        if _NATIVE in rest:
            native: BaseMessage = rest[_NATIVE]
            return native
        fields = {name: value for name, value in row.items() if name != "role"}
        return _CLASSES[row["type"]](**fields, **rest)

    def _value(self, json: Any, messages: Sequence[BaseMessage], blobs: Sequence[Blob]) -> Any:
        if isinstance(json, list):
            return [self._value(one, messages, blobs) for one in json]
        if not isinstance(json, dict):
            return json
        if len(json) == 1:
            ((key, inner),) = json.items()
            if key in (_NATIVE, _BLOB):
                made = self._serde.loads_typed(blobs[inner])
                return {_NATIVE: made} if key == _NATIVE else made
            if key == _MESSAGES:
                return list(messages[inner[0] : inner[0] + inner[1]])
            if key == _MESSAGE:
                return messages[inner]
            if key == _TUPLE:
                return tuple([self._value(one, messages, blobs) for one in inner])
            if key == _DELTA:
                return _DeltaSnapshot(self._value(inner, messages, blobs))
            if key == _SEND:
                return Send(inner[0], self._value(inner[1], messages, blobs))
        return {key: self._value(one, messages, blobs) for key, one in json.items()}


def numbers_in(stored: Mapping[str, Any]) -> list[int]:
    """The numbers of the messages that a stored box refers to."""
    runs = [one for one in stored.get("m", ()) if isinstance(one, list)]
    return [number for first, last in runs for number in range(first, last + 1)]


# -- runs of message numbers ---------------------------------------------------------------------


def add_run(runs: Runs, number: int) -> None:
    """Add a number to the end of runs, in place."""
    if runs and runs[-1][1] == number - 1:
        runs[-1] = (runs[-1][0], number)
    else:
        runs.append((number, number))


def first_of(runs: Runs, count: int) -> Runs:
    """The runs of the first ``count`` numbers."""
    found: Runs = []
    for first, last in runs:
        if count <= 0:
            break
        found.append((first, min(last, first + count - 1)))
        count -= last - first + 1
    return found


def numbers_of(runs: Runs) -> list[int]:
    """The numbers that runs name, in their order."""
    return [number for first, last in runs for number in range(first, last + 1)]
