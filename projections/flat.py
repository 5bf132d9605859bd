"""A payload as flat scalars, for log lines and span events.

The rules are stable, so queries written against them go on working: a scalar keeps its field's
name; a tuple of strings, which are codes, is joined by commas; any other list or mapping becomes
``{field}_count``; a plan becomes counts by disposition. Nothing that could hold a message does.
"""

from __future__ import annotations

from typing import Final

from eventctx.codec import Unknown, decode_event
from eventctx.errors import DecodeError
from eventctx.events import Event
from eventctx.plan import Plan
from eventctx.record import Record

Scalar = str | int | float | bool

MAX_TEXT: Final = 1000
"""Longest text, in characters, that leaves in a log line or a span; errors can quote a lot."""

DISPOSITIONS: Final = ("kept", "shortened", "summarised", "dropped", "merged")


def read(record: Record) -> Event | Unknown:
    """Decode a record for observation: what cannot be decoded is ``Unknown``, never an error.

    Whether a log is sound is for ``verify`` to say; a trace of a damaged log is still of use.
    """
    try:
        return decode_event(record)
    except DecodeError:
        return Unknown(record.type, record.version, record.payload)


def capped(text: str) -> str:
    """Return ``text``, cut to ``MAX_TEXT`` characters with an ellipsis."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def dispositions(plan: Plan) -> dict[str, int]:
    """Count a plan's message numbers by disposition; all five are there, zeros too.

    Numbers of messages that a ``set`` took out count along where a run covers them.
    """
    counts = dict.fromkeys(DISPOSITIONS, 0)
    for run in plan.runs:
        counts[run.disposition] += run.last - run.first + 1
    return counts


def scalars(event: Event | Unknown) -> dict[str, Scalar]:
    """The event's fields by the rules above; fields that are None are left out."""
    if isinstance(event, Unknown):
        return {"unknown": True, "version": event.version}
    flat: dict[str, Scalar] = {}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        kind = type(value)
        if value is None:
            continue
        if kind is str:
            flat[name] = value if len(value) <= MAX_TEXT else capped(value)
        elif kind is int or kind is bool or kind is float:
            flat[name] = value
        elif kind is Plan:
            flat |= {f"plan_{key}": count for key, count in dispositions(value).items()}
            flat["plan_insertions"] = len(value.insertions)
            flat["plan_through"] = value.through
        elif kind is tuple and value and all(type(item) is str for item in value):
            flat[name] = capped(",".join(value))
        elif kind is tuple or kind is dict or kind is list:
            flat[f"{name}_count"] = len(value)
    return flat
