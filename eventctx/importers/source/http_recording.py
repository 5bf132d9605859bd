"""Recorded HTTP as test libraries keep it: VCR's cassettes, in YAML or JSON.

A cassette has a list of exchanges under ``interactions`` (VCR.py) or ``http_interactions`` (VCR for
Ruby). Only the exchange is read here; ``formats/cassettes`` knows what it says.
"""

from __future__ import annotations

from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from eventctx.importers.source.document import take_bytes
from eventctx.importers.source.http_bodies import body_of, header
from eventctx.importers.source.items import FileLine
from eventctx.importers.source.lines import (
    nanoseconds,
    object_or_empty,
    text_or_none,
    too_large,
)
from eventctx.importers.source.values import read_value
from eventctx.importers.source.yaml_document import read_yaml

LISTS: Final = ("interactions", "http_interactions")
_SECRET: Final = frozenset(
    (
        *("authorization", "proxy-authorization", "cookie", "set-cookie"),
        *("x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token"),
    )
)
_LEFT_OUT: Final = "[left out]"
_BODIES: Final = ("body", "parsed_body")


class Exchange(NamedTuple):
    """A request and its response. ``number`` counts the file's exchanges from 1.

    ``sent`` and ``answered`` are the bodies: a JSON value, a text, or None. ``rest`` is what was
    recorded beside the bodies, without credentials. ``time`` is when the response came, ``began``
    when the request was sent.
    """

    number: int
    method: str
    host: str
    path: str
    sent: object
    status: int
    answered: object
    time: int | None
    rest: dict[str, Any]
    began: int | None = None


def begins_cassette(lines: Iterable[FileLine]) -> bool:
    """Whether the first lines may be those of a cassette in YAML."""
    starts = tuple(f"{key}:".encode() for key in LISTS)
    return any(line.data.startswith(starts) for line in lines)


def read_cassette(lines: Iterable[FileLine], name: str) -> object:
    """The file's value. Raises MalformedTranscript, and UnknownFormat where PyYAML is missing."""
    taken, whole, _ = take_bytes(lines)
    if not whole:
        raise too_large(name, "a document")
    data = b"\n".join([line.data for line in taken])
    if data.lstrip().startswith((b"{", b"[")):
        try:
            return read_value(data)[0]
        except ValueError:
            pass  # YAML may begin so, too
    return read_yaml(data, name)


def exchanges_of(value: object) -> list[Exchange]:
    """The exchanges of a cassette; none where the value is none."""
    tape = object_or_empty(value)
    rows: list[Any] = next((tape[key] for key in LISTS if isinstance(tape.get(key), list)), [])
    found = [(n, row) for n, row in enumerate(rows, 1) if _is_exchange(row)]
    return [_exchange(number, row) for number, row in found]


def _is_exchange(row: object) -> bool:
    both = object_or_empty(row)
    return all(isinstance(both.get(key), dict) for key in ("request", "response"))


def _exchange(number: int, row: dict[str, Any]) -> Exchange:
    request, response = row["request"], row["response"]
    place = _place(text_or_none(request.get("uri", request.get("url"))) or "")
    status = response.get("status", response.get("status_code"))
    code = status.get("code") if isinstance(status, dict) else status
    rest = {
        **{key: value for key, value in row.items() if key not in ("request", "response")},
        "request": _without_bodies(request),
        "response": _without_bodies(response),
    }
    return Exchange(
        number,
        (text_or_none(request.get("method")) or "GET").upper(),
        *place,
        body_of(request),
        code if isinstance(code, int) else 200,
        body_of(response),
        _time(row, response),
        rest,
    )


def _place(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.path.rstrip("/")
    except ValueError:
        return "", url


def _time(row: dict[str, Any], response: dict[str, Any]) -> int | None:
    for text in (text_or_none(row.get("recorded_at")), header(response, "date")):
        if text is None:
            continue
        time = nanoseconds(text)
        if time is not None:
            return time
        try:
            return nanoseconds(parsedate_to_datetime(text).isoformat())
        except ValueError:
            continue
    return None


def _without_bodies(message: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in message.items() if key not in _BODIES}
    if isinstance(kept.get("headers"), dict):
        kept["headers"] = {
            key: _LEFT_OUT if key.lower() in _SECRET else value
            for key, value in kept["headers"].items()
        }
    return kept
