"""Which messages of a transcript a sent message carries, and what the client injected.

A client sends more than the transcript holds: reminders before a person's words, a note after a
tool's result. It joins several messages in one, too. So texts are compared, not messages: a text of
the transcript is *carried* where it is whole in a text of the sent message, and for a tool's
result in the result of the same call. All else in the sent texts was *injected*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from eventctx.messages.parts import Place, parts_of_result, read_parts

_BLOCKS: Final = ("image", "document", "other")


class TextSpan(NamedTuple):
    """Characters ``start`` to ``end`` of the text at ``place`` of a message."""

    place: Place
    start: int
    end: int


class Carried(NamedTuple):
    """The indexes of the messages that are carried, in order, and what was injected."""

    messages: tuple[int, ...]
    injected: tuple[TextSpan, ...]


class _Text(NamedTuple):
    """A text of a message, and the calls that it answers (none: it is no result)."""

    answers: tuple[str, ...]
    place: Place
    text: str


def find_carried(sent: dict[str, Any], messages: Sequence[dict[str, Any]]) -> Carried:
    """Find ``messages``, which are in transcript order, in the sent one. Every text is found once.

    A text is found where it is the whole of a sent text, or else some whole lines of it. A message
    is carried, too, where a result of it answers the same calls, or an image of it is sent.
    """
    waiting = [
        (index, one)
        for index, message in enumerate(messages)
        for one in _texts(message)
        if one.text
    ]
    found = _without_texts(sent, messages)
    injected: list[TextSpan] = []
    rest: list[_Text] = []
    for one in _texts(sent):
        same = (
            place
            for place, (_, piece) in enumerate(waiting)
            if (piece.answers, piece.text) == (one.answers, one.text)
        )
        place = next(same, None)
        if place is None:
            rest.append(one)
        else:
            found.add(waiting.pop(place)[0])
    for one in rest:
        found |= _inside(one, waiting, injected)
    return Carried(tuple(sorted(found)), tuple(sorted(injected, key=_in_order)))


def _without_texts(sent: dict[str, Any], messages: Sequence[dict[str, Any]]) -> set[int]:
    """The messages that are carried by their results or images, whatever texts are in them."""
    answered: set[str] = set()
    blocks: list[Any] = []
    for part in read_parts(sent):
        answered.update(part.ids if part.kind == "result" else ())
        if part.kind in _BLOCKS:
            blocks.append(_as_block(part.value))
    found: set[int] = set()
    for index, message in enumerate(messages):
        for part in read_parts(message):
            if part.kind == "result" and part.ids and answered.issuperset(part.ids):
                found.add(index)
            elif part.kind in _BLOCKS and (block := _as_block(part.value)) in blocks:
                blocks.remove(block)
                found.add(index)
    return found


def _as_block(value: Any) -> Any:
    """A block without the cache mark that a client puts on the last one it sends."""
    if isinstance(value, dict) and "cache_control" in value:
        return {key: inner for key, inner in value.items() if key != "cache_control"}
    return value


def _inside(one: _Text, waiting: list[tuple[int, _Text]], injected: list[TextSpan]) -> set[int]:
    """The messages whose texts are lines of ``one``; all other lines of it go to ``injected``."""
    found: set[int] = set()
    end = 0
    while (nearest := _nearest(one, end, waiting)) is not None:
        start, place = nearest
        index, piece = waiting.pop(place)
        found.add(index)
        if start > end:
            injected.append(TextSpan(one.place, end, start))
        end = start + len(piece.text)
    if end < len(one.text):
        injected.append(TextSpan(one.place, end, len(one.text)))
    return found


def _in_order(span: TextSpan) -> tuple[tuple[tuple[int, str], ...], int]:
    steps = [(step, "") if isinstance(step, int) else (-1, step) for step in span.place]
    return tuple(steps), span.start


def _nearest(one: _Text, end: int, waiting: list[tuple[int, _Text]]) -> tuple[int, int] | None:
    """The start in ``one``, from ``end`` on, of the first of the waiting texts, and its place."""
    best: tuple[int, int] | None = None
    for place, (_, piece) in enumerate(waiting):
        if piece.answers == one.answers:
            start = _lines_at(piece.text, one.text, end)
            if start is not None and (best is None or start < best[0]):
                best = (start, place)
    return best


def _lines_at(piece: str, text: str, end: int) -> int | None:
    """The place of ``piece``, as whole lines, in ``text`` from ``end`` on.

    The word "ok" of a person is in many reminders; a line of its own it is in few.
    """
    if len(piece) == len(text):
        return 0 if end == 0 and piece == text else None
    # One search, since a short piece may be found anywhere in a long text.
    if end == 0 and text.startswith(piece + "\n"):
        return 0
    start = text.find("\n" + piece + "\n", max(0, end - 1))
    if start >= 0:
        return start + 1
    last = len(text) - len(piece)
    return last if last >= end and text.endswith("\n" + piece) else None


def _texts(message: dict[str, Any]) -> Iterator[_Text]:
    for part in read_parts(message):
        if part.kind == "text" and isinstance(part.value, str):
            yield _Text((), part.place, part.value)
        elif part.kind == "result":
            for inner in parts_of_result(part):
                if inner.kind == "text" and isinstance(inner.value, str):
                    yield _Text(part.ids, inner.place, inner.value)
