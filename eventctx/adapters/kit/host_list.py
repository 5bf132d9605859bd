"""A host's list of messages compared with the transcript: new messages, and missing ones.

Pure functions. A host may give messages back in another form than it stored them, so they are
compared by an identity: two messages of one identity are the same message.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventctx.messages.encoding import digest_of
from eventctx.messages.overlap import match_in_order
from eventctx.messages.parts import Place, read_parts

Identity = Callable[[Mapping[str, Any]], Hashable]

_PASSING: Final = frozenset(("id", "status"))
"""Fields that APIs add to a message that they hold, and hosts take out or put in again."""


class HostList(NamedTuple):
    """The difference of a host's list from the transcript.

    ``new`` are its messages after the last one that the transcript has. ``whole``: it is the
    transcript followed by these, and nothing is left out, changed or put in between.
    """

    new: Sequence[Mapping[str, Any]]
    whole: bool


def held_against(
    transcript: Sequence[Mapping[str, Any]],
    messages: Sequence[Mapping[str, Any]],
    identity: Identity,
) -> HostList:
    """Compare a host's ``messages`` with the ``transcript``.

    The usual list, the transcript with a few more messages, costs one comparison a message. Calls
    without a result may be missing, alone or with all else of their message: hosts leave out those
    that an interrupted run left open.
    """
    head = _head(transcript, messages, identity)
    if head == len(transcript):
        return HostList(messages[head:], True)
    known_until = _end_without_open_calls(transcript, messages, head, identity)
    if known_until is not None:
        return HostList(messages[known_until:], True)
    return HostList(messages[_begin_of_new(transcript, messages, identity) :], False)


def results_as_here(
    transcript: Sequence[Mapping[str, Any]],
    messages: Sequence[Mapping[str, Any]],
    identity: Identity,
) -> Sequence[Mapping[str, Any]]:
    """A host's list with the results of parallel tools in the transcript's order.

    The log may have them in the order in which the tools ended, the host in that of their calls.
    """
    at = _head(transcript, messages, identity)
    found = list(messages)
    while at < min(len(transcript), len(found)):
        if transcript[at] != found[at] and not _same(transcript[at], found[at], identity):
            ours, theirs = _results(transcript, at), _results(found, at)
            places = {identity(one): place for place, one in enumerate(theirs)}
            order = [places.get(identity(one)) for one in ours]
            known = [place for place in order if place is not None]
            if not known or len(known) < len(order):
                return messages
            rest = [place for place in range(len(theirs)) if place not in known]
            found[at : at + len(theirs)] = [theirs[place] for place in [*known, *rest]]
            at += len(ours)
        else:
            at += 1
    return found


def _results(rows: Sequence[Mapping[str, Any]], start: int) -> Sequence[Mapping[str, Any]]:
    """The results of tools in a row."""
    end = start
    while end < len(rows) and rows[end].get("role") == "tool":
        end += 1
    return rows[start:end]


def _begin_of_new(
    transcript: Sequence[Mapping[str, Any]],
    messages: Sequence[Mapping[str, Any]],
    identity: Identity,
) -> int:
    """The place of the first new message in ``messages``, which lack some of the transcript.

    It is after the transcript's last message, where they have it. Without it, a host that shows no
    earlier turn goes on with words, though they may be those of an earlier turn: no request ends
    before an answer, or results, that came before it.
    """
    given = [identity(one) for one in messages]
    known = [identity(one) for one in transcript]
    if known[-1] in given:
        return len(given) - given[::-1].index(known[-1])
    found = match_in_order(known, given)
    last = max((at for at, place in enumerate(found) if place is not None), default=-1)
    if last == len(given) - 1 and not _is_asking(transcript[-1]):
        return last
    return last + 1


def _is_asking(message: Mapping[str, Any]) -> bool:
    parts = read_parts(dict(message))
    return message.get("role") == "user" and all(one.kind != "result" for one in parts)


def _head(
    transcript: Sequence[Mapping[str, Any]],
    messages: Sequence[Mapping[str, Any]],
    identity: Identity,
) -> int:
    """The number of equal messages at the beginning of both."""
    head, shorter = 0, min(len(transcript), len(messages))
    # A whole conversation is compared with the transcript for each call, and mostly is the same.
    if transcript[:shorter] == messages[:shorter]:
        return shorter
    while head < shorter and _same(transcript[head], messages[head], identity):
        head += 1
    return head


def _end_without_open_calls(
    transcript: Sequence[Mapping[str, Any]],
    messages: Sequence[Mapping[str, Any]],
    start: int,
    identity: Identity,
) -> int | None:
    """The end of the transcript in ``messages``, if they lack only calls without a result.

    Both are equal before ``start``. The calls of the round under way have no result yet, and the
    host has them, so a message that is in both is not taken for one that was left out. Where two
    calls are equal, either may be the one that is missing: all such places are followed.
    """
    while start and _same(transcript[start - 1], transcript[start], identity):
        start -= 1
    places = {start}
    calls = _open_calls(transcript[start:])
    for row, open_calls in zip(transcript[start:], calls, strict=True):
        forms = [row]
        if open_calls and (left := _without_blocks(row, open_calls)) is not None:
            forms.append(left)
        found = {
            place + 1
            for place in places
            if place < len(messages) and any(_same(one, messages[place], identity) for one in forms)
        }
        if open_calls and len(forms) == 1:
            found |= places
        if not found:
            return None
        places = found
    return max(places)


def _open_calls(rows: Sequence[Mapping[str, Any]]) -> list[list[Place]]:
    """For each message the places of its calls that no later message answers."""
    parts = [read_parts(dict(one)) for one in rows]
    ended = {call for each in parts for one in each if one.kind == "result" for call in one.ids}
    return [
        [one.place for one in each if one.kind == "call" and ended.isdisjoint(one.ids)]
        for each in parts
    ]


def _without_blocks(row: Mapping[str, Any], places: Sequence[Place]) -> Mapping[str, Any] | None:
    """The message without the blocks at, or around, ``places``; None if they are all of it."""
    if len(places) == len(read_parts(dict(row))):
        return None
    left = dict(row)
    for name in {str(place[0]) for place in places if place}:
        gone = {place[1] for place in places if place[0] == name and len(place) > 1}
        held = row[name] if isinstance(row[name], list) else []
        left[name] = [one for at, one in enumerate(held) if at not in gone]
        if not left[name]:
            del left[name]
    return left


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
