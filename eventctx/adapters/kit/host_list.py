"""A host's list of messages held against the transcript: what is new in it, and what it leaves out.

Pure functions. A host may give messages back in another form than it stored them, so they are
compared by an identity: two messages of one identity are the same message.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventctx.messages.canonical import digest_of
from eventctx.messages.ordered_diff import match_in_order
from eventctx.messages.parts import read_parts

Identity = Callable[[Mapping[str, Any]], Hashable]

_PASSING: Final = frozenset(("id", "status"))
"""Fields that APIs add to a message that they hold, and hosts take out or put in again."""


class HostList(NamedTuple):
    """What a host's list is beside the transcript.

    ``new`` are its messages behind the last one that the transcript has. ``whole``: it is the
    transcript with these behind it, and nothing is left out, changed or put in between.
    """

    new: Sequence[Mapping[str, Any]]
    whole: bool


def held_against(
    transcript: Sequence[Mapping[str, Any]],
    messages: Sequence[Mapping[str, Any]],
    identity: Identity,
) -> HostList:
    """Hold a host's ``messages`` against the ``transcript``.

    The usual list, the transcript with a few more messages, costs one comparison a message. Calls
    without a result may be missing: hosts leave out those that a crash left behind.
    """
    head = _head(transcript, messages, identity)
    if head == len(transcript):
        return HostList(messages[head:], True)
    closed = [*transcript[:head], *_without_open_calls(transcript, head)]
    if _head(closed, messages, identity) == len(closed):
        return HostList(messages[len(closed) :], True)
    known = [identity(one) for one in transcript[head:]]
    found = match_in_order(known, [identity(one) for one in messages[head:]])
    last = max((at for at, place in enumerate(found) if place is not None), default=-1)
    return HostList(messages[head + last + 1 :], False)


def _head(
    transcript: Sequence[Mapping[str, Any]],
    messages: Sequence[Mapping[str, Any]],
    identity: Identity,
) -> int:
    """How many messages both begin with."""
    head, shorter = 0, min(len(transcript), len(messages))
    # A whole conversation is held against the transcript with each call, and mostly is the same.
    if transcript[:shorter] == messages[:shorter]:
        return shorter
    while head < shorter and _same(transcript[head], messages[head], identity):
        head += 1
    return head


def _without_open_calls(
    transcript: Sequence[Mapping[str, Any]], start: int
) -> Iterator[Mapping[str, Any]]:
    """The messages from ``start`` on, without those that only call tools and have no result."""
    parts = [read_parts(dict(one)) for one in transcript[start:]]
    ended = {call for each in parts for one in each if one.kind == "result" for call in one.ids}
    for message, each in zip(transcript[start:], parts, strict=True):
        if not each or not all(one.kind == "call" and ended.isdisjoint(one.ids) for one in each):
            yield message


def _same(one: Mapping[str, Any], other: Mapping[str, Any], identity: Identity) -> bool:
    return one is other or one == other or identity(one) == identity(other)


def plain_identity(message: Mapping[str, Any]) -> Hashable:
    """The identity of a message by what it says: without its own id, a status, and fields of None.

    ``{"role": …, "content": "text"}`` and the form with one text block are the same message.
    """
    passing = _PASSING if message.get("type") != "item_reference" else ()
    return digest_of(
        {
            name: _plain_content(value) if name == "content" else value
            for name, value in message.items()
            if value is not None and name not in passing and (name, value) != ("type", "message")
        }
    )


def _plain_content(content: Any) -> Any:
    """A list of one text as the text: hosts and APIs write the same message in both ways."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], Mapping):
        text = content[0].get("text")
        if isinstance(text, str) and str(content[0].get("type", "")).endswith("text"):
            return text
    return content
