"""The copy of a WebSocket on which a program asks its model, as OpenAI's Responses API has it.

A message ``response.create`` is a request; the events after it, up to one that ends a response,
are its answer. Such a call is recorded as one of HTTP whose answer is streamed. All else on a
WebSocket is passed on and not read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import h11
import msgspec
from wsproto.connection import Connection, ConnectionType
from wsproto.events import TextMessage
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.utilities import ProtocolError

from eventctx.proxy.call_copy import MOST_KEPT, CallCopy, Headers, SeenCall

_ASKS: Final = "response.create"
_ENDS: Final = frozenset(
    ("response.completed", "response.failed", "response.incomplete", "response.cancelled", "error")
)
_STREAMED: Final = [(b"content-type", b"text/event-stream")]
_FAILED: Final = 400


class _Typed(msgspec.Struct):
    type: str = ""
    status: int = _FAILED


class WebSocketCopy:
    """Takes the bytes of both directions after the call ``asked``, which began it.

    ``seen`` gets each call. None of its methods raises.
    """

    def __init__(self, asked: CallCopy, seen: Callable[[SeenCall], None]) -> None:
        self.calls = 0
        self._headers: Headers = list(asked.request.headers)
        self._host = asked.host
        self._path = asked.path
        self._seen = seen
        switched, behind = asked.switched or (None, b"")
        packed = b"" if switched is None else _header(switched, b"sec-websocket-extensions")
        self._sent = _Messages(ConnectionType.SERVER, packed)
        self._answered = _Messages(ConnectionType.CLIENT, packed)
        self._request = b""
        self._events: list[bytes] = []
        self._began = 0
        self.take_answer(behind)

    def take_sent(self, piece: bytes) -> None:
        """Take what the program sent."""
        for message in self._sent.take(piece):
            if _typed(message).type == _ASKS:
                self.end()
                self._request, self._began = message, time.time_ns()

    def take_answer(self, piece: bytes) -> None:
        """Take what the server sent."""
        for message in self._answered.take(piece):
            if not self._request:
                continue
            self._events.append(b"data: %s\n\n" % message)
            typed = _typed(message)
            if typed.type in _ENDS:
                self.end(typed.status if typed.type == "error" else 200, whole=True)

    def end(self, status: int = 200, *, whole: bool = False) -> None:
        """End the call that is under way, if there is one."""
        if not self._request:
            return
        answered = b"".join(self._events)
        call = SeenCall(
            "POST",
            self._host,
            self._path,
            self._headers,
            self._request,
            status,
            _STREAMED,
            answered,
            self._began,
            time.time_ns(),
            whole,
        )
        self._request, self._events = b"", []
        self.calls += 1
        self._seen(call)


class _Messages:
    """The whole text messages of one direction; none after bytes that break the protocol."""

    def __init__(self, side: ConnectionType, packed: bytes) -> None:
        extensions: list[Extension] = []
        if packed:
            extension = PerMessageDeflate()
            extension.finalize(packed.decode("latin-1"))
            extensions.append(extension)
        self._connection: Connection | None = Connection(side, extensions)
        self._parts: list[str] = []
        self._kept = 0

    def take(self, piece: bytes) -> list[bytes]:
        """The messages that this piece ends."""
        found: list[bytes] = []
        if self._connection is None:
            return found
        try:
            self._connection.receive_data(piece)
            for event in self._connection.events():
                if not isinstance(event, TextMessage):
                    continue
                self._parts.append(event.data)
                self._kept += len(event.data)
                if self._kept > MOST_KEPT:
                    self._connection = None
                    return found
                if event.message_finished:
                    found.append("".join(self._parts).encode())
                    self._parts, self._kept = [], 0
        except (ProtocolError, ValueError):
            self._connection = None
        return found


def _typed(message: bytes) -> _Typed:
    with suppress(msgspec.MsgspecError, RecursionError):
        return msgspec.json.decode(message, type=_Typed)
    return _Typed()


def _header(answer: h11.InformationalResponse, name: bytes) -> bytes:
    return next((bytes(value) for key, value in answer.headers if key == name), b"")
