"""A message in a step of ATIF, in such a way that it can be had back with every byte of its JSON.

ATIF has one text, one reasoning and a list of calls and results for a step; a message has blocks,
signatures, ids and keys of its own. A step therefore carries, in its ``extra`` under ``eventctx``,
the *shape* of each of its messages: the message with null in the place of every value that the step
itself holds, and a list ``from`` that says where these values are. So no text is in a file twice.

Invariant: a value is taken out of the shape only if ``restore`` gets it back exactly; all else
stays in the shape. An export and the importer of ATIF both use this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from eventctx.messages.encoding import decode_json
from eventctx.messages.parts import Place

FORMAT: Final = 1
"""Version of what is in ``extra`` under ``NAME``."""

NAME: Final = "eventctx"

VERSION: Final = "ATIF-v1.8"

PREVIOUS: Final = "previous"
"""First step of a source that is in the step before: a row of results that goes on in words."""

_compact: Final = msgspec.json.Encoder().encode


# -- values and their text -----------------------------------------------------------------------


def compact(value: Any) -> str:
    """JSON without spaces."""
    return _compact(value).decode()


_WRITERS: Final[dict[str, Callable[[Any], str]]] = {
    "json": compact,
    "json, spaced": lambda value: json.dumps(value, ensure_ascii=False),
    "json, spaced, ascii": json.dumps,
    "json, ascii": lambda value: json.dumps(value, separators=(",", ":")),
    "json, python": lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False),
}
"""The ways in which programs write the JSON of arguments."""

VALUE: Final = "value"
"""The way of a value whose JSON is the text in the step."""


def way_of(text: str, value: Any) -> str | None:
    """The way in which ``text`` is the JSON of ``value``; None where no known program writes so."""
    return next((way for way, write in _WRITERS.items() if write(value) == text), None)


# -- pieces --------------------------------------------------------------------------------------

Source = list[str | int]
"""The keys and indexes that lead from a step to a value."""

Piece = list[Any]
"""``[place, source]``, and then nothing, the first character and the one after the last of the
text there, or the way in which the value is written."""


def piece(place: Place, source: Source, *how: int | str) -> Piece:
    """The piece of the value at ``place`` of a message, which is at ``source`` in a step."""
    return [list(place), source, *how]


def take_out(message: dict[str, Any], pieces: list[Piece]) -> dict[str, Any]:
    """The shape of a message, which this changes."""
    for place, *_ in pieces:
        holder: Any = message
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = None
    return message


def restore(
    shape: dict[str, Any], pieces: list[Any], step: Mapping[str, Any], previous: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The message of a shape, which this fills.

    None where the step does not hold what its shape needs: somebody changed it after its export.
    """
    try:
        for place, source, *how in pieces:
            holder: Any = shape
            for key in place[:-1]:
                holder = holder[key]
            value: Any = step
            if source[:1] == [PREVIOUS]:
                value, source = previous, source[1:]
            for key in source:
                value = value[key]
            holder[place[-1]] = _read(value, how)
    except (LookupError, TypeError, ValueError):
        return None
    return shape


def _read(value: Any, how: list[Any]) -> Any:
    match how:
        case []:
            return value
        case [str(way)] if way == VALUE:
            return decode_json(value)
        case [str(way)]:
            return _WRITERS[way](value)
        case [int(start), int(stop)] if isinstance(value, str) and stop <= len(value):
            return value[start:stop]
        case _:
            raise ValueError(f"no text for {how}")
