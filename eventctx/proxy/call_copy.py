"""The copy of one call that the relay passes on: what HTTP/1.1 says in its bytes."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

import h11

from eventctx.proxy.dialing import MOST_HEAD

MOST_KEPT: Final = 64 * 2**20
"""Bytes of a body beyond which a call is passed on and not recorded."""

_SWITCHING: Final = 101

Headers = list[tuple[bytes, bytes]]


class SeenCall(NamedTuple):
    """A request and its answer as they were on the wire.

    Times are UTC nanoseconds. ``whole``: the answer came to its end.
    """

    method: str
    host: str
    path: str
    headers: Headers
    sent: bytes
    status: int
    answer_headers: Headers
    answered: bytes
    began: int
    ended: int
    whole: bool


class CallCopy:
    """The copy of a call that is under way. None of its methods raises for what it is given."""

    def __init__(self, request: h11.Request, host: str, path: str, began: int) -> None:
        self.request = request
        self.host = host
        self.path = path
        self._began = began
        self._sent: list[bytes] = []
        self._answered: list[bytes] = []
        self._kept = 0
        self._answer: h11.Response | None = None
        self._parser: h11.Connection | None = _answers_to(request)
        self.answer_ended = self.reusable = False
        self.blind = self._parser is None
        """Whether the rest can only be passed on, as it is not understood."""
        self.switched: tuple[h11.InformationalResponse, bytes] | None = None
        """The answer that changes the protocol, and the bytes after it."""

    def take_sent(self, parser: h11.Connection) -> bool:
        """Take what the program's parser has read; whether the request is complete."""
        while True:
            try:
                event = parser.next_event()
            except h11.RemoteProtocolError:
                self.blind = True
                return False
            if isinstance(event, h11.Data):
                self._keep(self._sent, bytes(event.data))
                continue
            return isinstance(event, h11.EndOfMessage)

    def take_answer(self, piece: bytes) -> None:
        """Take a piece of the answer; an empty one is its end."""
        if self._parser is None:
            return
        try:
            self._parser.receive_data(piece)
            while True:
                event = self._parser.next_event()
                if isinstance(event, h11.InformationalResponse):
                    self.blind = event.status_code == _SWITCHING
                    if self.blind:
                        self.switched = event, self._parser.trailing_data[0]
                        return
                elif isinstance(event, h11.Response):
                    self._answer = event
                elif isinstance(event, h11.Data):
                    self._keep(self._answered, bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    self.answer_ended = True
                    self.reusable = (
                        self._parser.their_state is h11.DONE
                        and self._parser.our_state is h11.DONE
                        and not any(
                            name == b"connection" and b"close" in value.lower()
                            for name, value in self.request.headers
                        )
                    )
                    return
                else:
                    return
        except h11.ProtocolError:
            # An end in the middle of an answer is understood: what came is the call's.
            self.blind, self._parser = bool(piece), None

    def _keep(self, pieces: list[bytes], piece: bytes) -> None:
        self._kept += len(piece)
        if self._kept <= MOST_KEPT:
            pieces.append(piece)

    def seen(self) -> SeenCall | None:
        """The call, as far as it came; None for one that is not recorded."""
        if self._answer is None or self.blind or self._kept > MOST_KEPT:
            return None
        return SeenCall(
            self.request.method.decode("latin-1"),
            self.host,
            self.path,
            list(self.request.headers),
            b"".join(self._sent),
            self._answer.status_code,
            list(self._answer.headers),
            b"".join(self._answered),
            self._began,
            time.time_ns(),
            self.answer_ended,
        )


def _answers_to(request: h11.Request) -> h11.Connection | None:
    """A parser of the answer to a request; None for a method that h11 cannot follow."""
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD)
    upgrade = [one for one in request.headers if one[0] in (b"upgrade", b"connection")]
    try:
        # The body is of no matter to the parser of the answer.
        asked = h11.Request(
            method=request.method, target=request.target, headers=[(b"host", b"."), *upgrade]
        )
        parser.send(asked)
        parser.send(h11.EndOfMessage())
    except h11.ProtocolError:
        return None
    return parser
