"""A payload as flat scalars, for log lines and span events.

The rules are stable, so that queries written against them keep working: a scalar keeps its field's
name; a tuple of strings, which are codes, is joined by commas; any other list or mapping becomes
``{field}_count``, and is left out when empty; a plan becomes counts by disposition. No field that
could hold a message is among them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, Final

from eventctx.errors import DecodeError
from eventctx.log.codec import Unknown, decode_event
from eventctx.log.events import Event
from eventctx.log.plan import Plan
from eventctx.log.record import Record
from eventctx.text import clip

Scalar = str | int | float | bool

MAX_TEXT: Final = 1000
"""Longest text, in characters, in a log line or a span; errors may quote long texts."""

_CONSTANT: Final = 48
"""A payload of fewer bytes has no room for an id, so it is equal in many records."""

DISPOSITIONS: Final = ("kept", "shortened", "summarised", "dropped", "merged")


def read(record: Record) -> Event | Unknown:
    """Decode a record for observation: a payload that cannot be decoded gives ``Unknown``.

    It raises no error, since a trace of a damaged log is still of use; ``verify`` reports damage.
    """
    try:
        if len(record.payload) < _CONSTANT:
            return _decoded(record.type, record.version, record.payload)
        return decode_event(record)
    except DecodeError:
        return Unknown(record.type, record.version, record.payload)


@lru_cache(maxsize=256)
def _decoded(kind: str, version: int, payload: bytes) -> Event | Unknown:
    """Decode a short payload, such as that of an added message; most of these are equal."""
    return decode_event(
        Record("", 0, 0, b"", kind, version, 0, payload, (), None, None, None, None, b"")
    )


def clip_field(text: str) -> str:
    """Return ``text``, cut to ``MAX_TEXT`` characters with an ellipsis."""
    # This runs for every text of every line and span, and nearly all are short.
    return text if len(text) <= MAX_TEXT else clip(text, MAX_TEXT)


def as_it_is(_type: str, field: str) -> str:
    """A field's own name."""
    return field


def dispositions(plan: Plan) -> dict[str, int]:
    """Count a plan's message numbers by disposition; the result has all five, also zeros.

    It includes the numbers of messages that a ``set`` took out, if a run covers them.
    """
    counts = dict.fromkeys(DISPOSITIONS, 0)
    for run in plan.runs:
        counts[run.disposition] += run.last - run.first + 1
    return counts


def scalars(
    event: Event | Unknown,
    named: Callable[[str, str], str] = as_it_is,
    text: Callable[[str], str] | None = clip_field,
) -> dict[str, Scalar]:
    """The event's fields by the rules above, under the names that ``named(type, field)`` gives.

    Fields that are None, and lists and mappings that are empty, are left out. ``text`` is applied
    to every text; by default it cuts to ``MAX_TEXT`` characters. ``named`` is called once for every
    type of event and its results are kept, so it must be a pure function at the top of a module.
    """
    if isinstance(event, Unknown):
        kind_of = event.type
        return {named(kind_of, "unknown"): True, named(kind_of, "version"): event.version}
    names, values_of = _shape(type(event), named)
    flat: dict[str, Scalar] = {}
    for name, value in zip(names, values_of(event), strict=True):
        kind = type(value)
        if kind is int or kind is bool or kind is float:
            flat[name] = value
        elif value is None:
            continue
        elif kind is str:
            flat[name] = value if text is None else text(value)
        elif kind is Plan:
            flat |= {f"{name}_{key}": count for key, count in dispositions(value).items()}
            flat[f"{name}_insertions"] = len(value.insertions)
            flat[f"{name}_through"] = value.through
        elif not value:
            continue
        elif kind is tuple and all(type(item) is str for item in value):
            joined = ",".join(value)
            flat[name] = joined if text is None else text(joined)
        elif kind is tuple or kind is dict or kind is list:
            flat[f"{name}_count"] = len(value)
    return flat


@cache
def _shape(
    kind: type[Event], named: Callable[[str, str], str]
) -> tuple[tuple[str, ...], Callable[[Event], Any]]:
    """The names of an event's fields, and a function that reads all their values at once."""
    fields = kind.__struct_fields__
    names = tuple([named(str(kind.__struct_config__.tag), field) for field in fields])
    if len(fields) > 1:
        return names, attrgetter(*fields)
    return names, lambda event: [getattr(event, field) for field in fields]
