"""The inputs of a request: names and numbers are the only inputs, never a path."""

from __future__ import annotations

import re
from typing import Final, get_args
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import Request

from eventctx.comparison.contenders import policies_alone
from eventctx.errors import InvalidSetting
from eventctx.log.ids import check_session_id
from eventctx.log.naming import RequestName
from eventctx.log.store import Address
from eventctx.search.found import MessageFilter, Role, read_moment

MOST_BODIES: Final = 64
MOST_QUERY: Final = 1_000
"""Characters of a search."""

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_POSITION: Final = re.compile(r"-1|[0-9]{1,18}")
_ADDRESS: Final = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})")


def session_of(request: Request) -> str:
    """The session that the path names, decoded once. Raises InvalidSessionId."""
    coded = str(request.path_params["name"])
    try:
        return check_session_id(unquote_to_bytes(coded).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidSetting("session: expected a name in UTF-8") from error


def number_of(request: Request, name: str) -> int | None:
    """A number from 0; None if it is not given. Raises InvalidSetting."""
    given = request.query_params.get(name)
    if given is None:
        return None
    if not _NUMBER.fullmatch(given):
        raise InvalidSetting(f"{name}: expected a number from 0, found {given[:40]!r}")
    return int(given)


def needed(request: Request, name: str) -> int:
    """A number from 0 that must be given. Raises InvalidSetting."""
    found = number_of(request, name)
    if found is None:
        raise InvalidSetting(f"{name}: expected a number from 0, found none")
    return found


def after_of(request: Request) -> int:
    """The position after which a stream or a document goes on: -1 for all.

    A browser that connects again names the last event that it got, which is newer than the address.
    """
    given = request.headers.get("last-event-id") or request.query_params.get("after") or "-1"
    if not _POSITION.fullmatch(given):
        raise InvalidSetting(f"after: expected a position or -1, found {given[:40]!r}")
    return int(given)


def request_of(request: Request) -> RequestName:
    """The request that ``turn``, ``iteration`` and ``position`` name. Raises InvalidSetting."""
    turn, iteration, position = (
        number_of(request, name) for name in ("turn", "iteration", "position")
    )
    if position is not None and (turn is not None or iteration is not None):
        raise InvalidSetting("expected either a position, or a turn with or without an iteration")
    if iteration is not None and turn is None:
        raise InvalidSetting("iteration: it counts within a turn, and none is given")
    return RequestName(turn, iteration, position)


def addresses_of(request: Request) -> list[Address]:
    """The bodies that are asked for, ``POSITION.INDEX`` each. Raises InvalidSetting."""
    given = request.query_params.get("at", "")
    parts = given.split(",", MOST_BODIES)
    matches = [_ADDRESS.fullmatch(part) for part in parts]
    found = [Address(int(one[1]), int(one[2])) for one in matches if one is not None]
    if len(found) != len(parts) or len(parts) > MOST_BODIES:
        raise InvalidSetting(
            f"at: expected 1 to {MOST_BODIES} addresses POSITION.INDEX with commas between, found "
            f"{given[:80]!r}"
        )
    return found


def parts_wanted(request: Request) -> bool:
    """Whether each message comes with its parts."""
    return request.query_params.get("parts") == "1"


def query_of(request: Request) -> str:
    """The text to search for; empty where a filter alone chooses. Raises InvalidSetting."""
    given = request.query_params.get("q", "")
    is_needed = not filter_of(request).asks
    if (is_needed and not given.strip()) or len(given) > MOST_QUERY:
        raise InvalidSetting(f"q: expected 1 to {MOST_QUERY:,} characters, found {len(given):,}")
    return given


def filter_of(request: Request) -> MessageFilter:
    """What messages must be, besides their words. Raises InvalidSetting."""
    given = request.query_params
    since, until = given.get("since"), given.get("until")
    try:
        role = None if "role" not in given else msgspec.convert(given["role"], Role)
    except msgspec.ValidationError as error:
        raise InvalidSetting(
            f"role: expected one of {', '.join(get_args(Role))}, found {given['role'][:40]!r}"
        ) from error
    return MessageFilter(
        role,
        given.get("tool"),
        given.get("errors") == "1",
        None if since is None else read_moment(since),
        None if until is None else read_moment(until, is_end=True),
    )


def policies_of(request: Request) -> list[str]:
    """The policies to play, by their names alone: a setting could name a function to import.

    Raises InvalidSetting.
    """
    known = policies_alone()
    given = request.query_params.get("policies", "").split(",")
    if not set(given) <= set(known):
        raise InvalidSetting(
            f"policies: expected some of {', '.join(known)}, found {', '.join(given)[:80]!r}"
        )
    return given
