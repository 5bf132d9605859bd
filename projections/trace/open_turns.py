"""Keeps turns that are still open from being sent.

A backend keeps what it was sent. A turn that is sent while it is open, and again when it is done,
has two spans of the same id there, and Jaeger shows both. So a turn's spans wait for the turn's own
span, which comes last, and a turn without an end is left out. That is the last turn of a session; a
turn behind which another has begun was left by a crash, and nothing will end it any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.spans import Span

Turn = tuple[object, object]


def without_open_turns(unfinished: Iterable[Span]) -> list[Span]:
    """The spans that no record has ended, without turns and without what is open inside them."""
    return [
        span
        for span in unfinished
        if span.attributes.get(conv.OUTCOME) != "unfinished" or conv.TURN_ID not in span.attributes
    ]


class OpenTurns:
    """Holds spans back. They must come session by session, in the order of ``queries.spans``."""

    def __init__(self) -> None:
        self.left_out = 0
        """Turns that were left out."""
        self._held: dict[Turn, list[Span]] = {}
        self._session: object = None
        self._latest = -1

    def ready(self, spans: Iterable[Span]) -> list[Span]:
        """The spans that may be sent now, of these and of those that were held back."""
        out: list[Span] = []
        for span in spans:
            self._enter(span.attributes[conv.CONVERSATION_ID])
            turn = (self._session, span.attributes.get(conv.TURN_ID))
            if turn[1] is None:
                out.append(span)
            elif span.attributes.get(conv.OPERATION) != conv.INVOKE_AGENT:
                self._held.setdefault(turn, []).append(span)
            elif self._is_open(span):
                self.left_out += 1
                self._held.pop(turn, None)
            else:
                out += [*self._held.pop(turn, ()), span]
        return out

    def rest(self) -> list[Span]:
        """The spans whose turn's own span never came, as in a fork, or had come before them."""
        rest = [span for spans in self._held.values() for span in spans]
        self._held.clear()
        return rest

    def _enter(self, session: object) -> None:
        if session != self._session:
            self._session, self._latest = session, -1

    def _is_open(self, turn: Span) -> bool:
        began = turn.attributes[conv.EVENT_SEQ]
        assert isinstance(began, int)  # noqa: S101 - a position
        newest, self._latest = began > self._latest, max(began, self._latest)
        return newest and turn.attributes.get(conv.OUTCOME) == "unfinished"
