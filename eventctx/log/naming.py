"""The names of messages, records and requests: written and read in one way everywhere.

- ``#6``: message number 6; ``#3–#9``: the messages 3 to 9, both included;
- ``#6.1``: the first demand of a person in message 6;
- ``@48``: the record at position 48;
- ``2.3``: the request of turn 2, iteration 3; the last one, where an iteration has several.

A request outside a turn, or without an iteration, is named by the position of its record: ``@48``.
Screens, errors and JSON write these forms; arguments take them besides the plain numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from eventctx.errors import InvalidSetting
from eventctx.log.arguments import shown
from eventctx.text import pattern

_NUMBER: Final = r"\d{1,18}"
_MESSAGE: Final = pattern(rf"#?({_NUMBER})", re.ASCII)
_MESSAGES: Final = pattern(rf"#?({_NUMBER})\s*[–-]\s*#?({_NUMBER})", re.ASCII)
_DEMAND: Final = pattern(rf"#?({_NUMBER})(?:\.({_NUMBER}))?", re.ASCII)
_POSITION: Final = pattern(rf"@?({_NUMBER})", re.ASCII)
_REQUEST: Final = pattern(rf"@({_NUMBER})|({_NUMBER})(?:\.({_NUMBER}))?", re.ASCII)


class RequestName(NamedTuple):
    """A request as a person names it: turn and iteration, the last of a turn, or a position.

    ``ordinal`` counts the session's own requests from 1, as the audit lists them. With none of the
    four it is the present view.
    """

    turn: int | None = None
    iteration: int | None = None
    position: int | None = None
    ordinal: int | None = None


def message_name(number: int) -> str:
    """``#6``."""
    return f"#{number}"


def demand_name(number: int, demand: int) -> str:
    """``#6.1``: demand ``demand`` (from 1) of a message."""
    return f"#{number}.{demand}"


def range_name(first: int, last: int) -> str:
    """``#3–#9``, both included; ``#3`` for a range of one message."""
    return message_name(first) if first == last else f"{message_name(first)}–{message_name(last)}"


def ranges_name(runs: Iterable[tuple[int, int]]) -> str:
    """Ranges of message numbers with commas between: ``#3–#9, #12``."""
    return ", ".join([range_name(first, last) for first, last in runs])


def position_name(position: int) -> str:
    """``@48``."""
    return f"@{position}"


def request_name(turn: int | None, iteration: int | None, position: int) -> str:
    """``2.3``, or ``@48`` for a request outside a turn or without an iteration."""
    if turn is None or iteration is None:
        return position_name(position)
    return f"{turn}.{iteration}"


def read_message(text: str) -> int:
    """The number of a message from ``#6`` or ``6``. Raises InvalidSetting for another text."""
    match = _MESSAGE.fullmatch(text.strip())
    if match is None:
        raise InvalidSetting(
            f"expected a message such as #6 or 6, found {shown(text)}; `transcript` lists them"
        )
    return int(match[1])


def read_demand(text: str) -> tuple[int, int]:
    """Message and demand from ``#6.2``, or ``6.2``; ``6`` is its first. Raises InvalidSetting."""
    match = _DEMAND.fullmatch(text.strip())
    if match is None:
        raise InvalidSetting(
            f"expected an instruction such as #6.1 or 6.1, found {shown(text)}; `instructions` "
            "lists them"
        )
    return int(match[1]), 1 if match[2] is None else int(match[2])


_MOST: Final = 100_000
"""Messages that a range may name."""


def read_messages(text: str) -> tuple[int, ...]:
    """The numbers of a message ``#6``, or of a range ``#3–#9`` (also ``3-9``), both included.

    Raises InvalidSetting for another text, and for a range that is empty or enormous.
    """
    match = _MESSAGES.fullmatch(text.strip())
    if match is None:
        return (read_message(text),)
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + _MOST:
        raise InvalidSetting(
            f"expected a range of 1 to {_MOST:,} messages such as #3–#9, found {shown(text)}; "
            "`transcript` lists them"
        )
    return tuple(range(first, last + 1))


def read_position(text: str) -> int:
    """The position of a record from ``@48`` or ``48``. Raises InvalidSetting for another text."""
    match = _POSITION.fullmatch(text.strip())
    if match is None:
        raise InvalidSetting(
            f"expected a position such as @48 or 48, found {shown(text)}; `log` lists them"
        )
    return int(match[1])


def read_request(text: str) -> RequestName:
    """A request from ``2.3``, ``2`` (the last of turn 2) or ``@48``.

    Raises InvalidSetting for another text.
    """
    match = _REQUEST.fullmatch(text.strip())
    if match is None:
        raise InvalidSetting(
            "expected a turn such as 3, turn and iteration such as 3.2, or a position such as "
            f"@48, found {shown(text)}; `audit` lists them"
        )
    position, turn, iteration = [None if found is None else int(found) for found in match.groups()]
    return RequestName(turn, iteration, position)


_NANOSECONDS: Final = 1_000_000_000


def iso(time: int) -> str:
    """UTC nanoseconds as RFC 3339 with all nine decimals."""
    seconds, rest = divmod(time, _NANOSECONDS)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest:09d}Z"


def iso_or(time: int, undated: int | None) -> str | None:
    """The time in ISO form; None if it equals ``undated``, the time of an import without times."""
    return None if time == undated else iso(time)
