"""A model's part in a long run: turns in which everything happens that a request can be spoiled by.

``Model`` answers a strict provider, whatever loop asks it; the loop says when a turn begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import Reply, ServerCall

WORDS: Final = "and so on and on " * 30
PAGE: Final = "words of a page " * 120

Says = Callable[[int], Iterator[Reply]]


class Kind(NamedTuple):
    """What the model says in a turn. ``needs_server_tools``: with tools of the provider.

    ``stops_after``: the run is interrupted after so many answers.
    """

    says: Says
    needs_server_tools: bool = False
    stops_after: int | None = None


def _call(number: int, name: str, **given: Any) -> ToolRequest:
    return ToolRequest(f"call_{number}_{name}", name, {"page": number, **given})


def _thought(number: int) -> str:
    return f"Thought {number}. " + "hm " * 40


def _loops(number: int) -> Iterator[Reply]:
    """Calls side by side of which one fails, words with a call, then three rounds more."""
    thinking = _thought(number)
    yield Reply(calls=[_call(number, "read"), _call(number, "fail")], thinking=thinking)
    yield Reply(f"Page {number}.", calls=[_call(number + 1, "read")], thinking=thinking)
    for later in range(2, 5):
        yield Reply(calls=[_call(number + later, "read")], thinking=f"{thinking} {later}")
    yield Reply(f"Answer {number}. {WORDS}", thinking=thinking)


def _thinks_once(number: int) -> Iterator[Reply]:
    """A model that does not think between tools, as the manual ones do without a beta."""
    yield Reply(calls=[_call(number, "read")], thinking=_thought(number))
    for later in range(1, 5):
        yield Reply(calls=[_call(number + later, "read")])
    yield Reply(f"Answer {number}. {WORDS}")


def _says_nothing(number: int) -> Iterator[Reply]:
    yield Reply(calls=[_call(number, "read")], thinking=_thought(number))
    yield Reply("")


def _only_thinks(number: int) -> Iterator[Reply]:
    yield Reply("", thinking=_thought(number))


def _repeats_an_id(number: int) -> Iterator[Reply]:
    again = ToolRequest("call_again", "read", {"page": number})
    yield Reply("Once more.", calls=[again], thinking=_thought(number))
    yield Reply(f"Answer {number}. {WORDS}")


def _searches(number: int) -> Iterator[Reply]:
    search = ServerCall("web_search", {"query": "pages"}, [], f"srvtoolu_{number}")
    yield Reply("I looked.", server_calls=[search], thinking=_thought(number))


def _searches_and_calls(number: int) -> Iterator[Reply]:
    search = ServerCall("web_search", {"query": "pages"}, [], f"srvtoolu_{number}")
    calls = [_call(number, "read")]
    yield Reply("I looked.", server_calls=[search], calls=calls, thinking=_thought(number))
    yield Reply(f"Answer {number}. {WORDS}", thinking=_thought(number))


def _pauses(number: int) -> Iterator[Reply]:
    opened = ServerCall("web_search", {"query": "pages"}, None, f"srvtoolu_{number}")
    yield Reply(server_calls=[opened], thinking=_thought(number))
    closed = ServerCall("web_search", None, [], f"srvtoolu_{number}")
    yield Reply(f"Found {number}. {WORDS}", server_calls=[closed])


KINDS: Final[dict[str, Kind]] = {
    "loops": Kind(_loops),
    "thinks once": Kind(_thinks_once),
    "says nothing": Kind(_says_nothing),
    "is interrupted in its calls": Kind(_loops, stops_after=1),
    "only thinks": Kind(_only_thinks),
    "repeats an id": Kind(_repeats_an_id),
    "is interrupted later": Kind(_loops, stops_after=3),
    "searches": Kind(_searches, needs_server_tools=True),
    "searches and calls": Kind(_searches_and_calls, needs_server_tools=True),
    "pauses": Kind(_pauses, needs_server_tools=True),
    "is interrupted while it pauses": Kind(_pauses, needs_server_tools=True, stops_after=1),
}


class Model:
    """Answers by the turn that was begun last. ``answers`` counts those of the turn."""

    def __init__(self) -> None:
        self.answers = 0
        self._turn: Iterator[Reply] = iter(())

    def begin(self, kind: Kind, number: int) -> None:
        self.answers = 0
        self._turn = kind.says(number * 10)

    def __call__(self, request: Any) -> Reply:
        self.answers += 1
        return next(self._turn, Reply("Done."))
