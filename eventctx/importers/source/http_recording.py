"""Recorded HTTP as test libraries keep it: VCR's cassettes, in YAML or JSON.

A cassette has a list of exchanges under ``interactions`` (VCR.py) or ``http_interactions`` (VCR for
Ruby). Only the exchange is read here; ``formats/cassettes`` knows what it says. PyYAML
is an extra, and reads safe values only.
"""

from __future__ import annotations

import zlib
from base64 import b64decode
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from eventctx.errors import MalformedTranscript, UnknownFormat
from eventctx.importers.source.document import take_bytes
from eventctx.importers.source.items import FileLine
from eventctx.importers.source.lines import (
    MAX_BYTES,
    nanoseconds,
    object_or_empty,
    text_or_none,
    too_large,
)
from eventctx.importers.source.values import MAX_DEPTH, json_values, read_value

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
    recorded with the bodies, without credentials. ``time`` is when the response came, ``began``
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


_MOST_NODES = 5_000_000
"""Values of a document with each alias written out: reading more takes gigabytes."""


def read_yaml(data: bytes, name: str) -> Any:
    """The value of a document, as JSON could hold it; dates stay the texts that they are.

    Raises UnknownFormat where PyYAML is missing, and MalformedTranscript for text that is no YAML,
    that is nested too deeply, or that repeats itself by aliases until it is too large.
    """
    try:
        import yaml
    except ImportError as error:
        raise UnknownFormat(
            f"{name}: expected PyYAML to read a YAML file, found that it is not installed; "
            "pip install 'eventctx[cassettes]'"
        ) from error
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc, valid-type]
        """Leaves dates alone, which no JSON body can have held."""

    Loader.yaml_implicit_resolvers = {
        start: [(tag, rule) for tag, rule in rules if not tag.endswith(":timestamp")]
        for start, rules in base.yaml_implicit_resolvers.items()
    }
    try:
        _check_depth(yaml.parse(data, Loader=base), name)
        value = yaml.load(data, Loader=Loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())[:200]
        raise MalformedTranscript(
            f"{name}: expected one whole YAML document of at most {MAX_DEPTH} levels, found "
            f"{problem}; if a program is still writing it, import it when that is done"
        ) from error
    _check_size(value, name)
    return json_values(value)


def _check_depth(events: Any, name: str) -> None:
    # The loaders descend by recursion, in C before PyYAML 6.0.4 without a limit: a deep file would
    # end the process.
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if depth > MAX_DEPTH:
            raise MalformedTranscript(
                f"{name}: expected values of at most {MAX_DEPTH} levels, found deeper ones; "
                "import the file without them"
            )


def _check_size(value: Any, name: str) -> None:
    """Refuse a value that is too large without its aliases, or that holds itself."""
    sizes: dict[int, int | None] = {}

    def size(one: Any) -> int:
        if not isinstance(one, dict | list | set | tuple):
            return 1
        known = sizes.get(id(one), 0)
        if known is None:
            raise MalformedTranscript(
                f"{name}: expected a document, found a part that holds itself"
            )
        if known:
            return known
        sizes[id(one)] = None
        inner = [*one.values()] if isinstance(one, dict) else [*one]
        total = sizes[id(one)] = 1 + sum(map(size, inner))
        return total

    if size(value) > _MOST_NODES:
        raise MalformedTranscript(
            f"{name}: expected a document of at most {_MOST_NODES:,} values, found more: its "
            "aliases repeat them; write it without aliases"
        )


_GZIP: Final = b"\x1f\x8b"


def body_of(message: dict[str, Any]) -> object:
    """The body of a recorded request or response: a JSON value, else text; None without one.

    ``parsed_body`` is a value already. ``body`` is a text or bytes, or an object with them under
    ``string`` or ``base64_string``.
    """
    if message.get("parsed_body") is not None:
        return message["parsed_body"]
    body = message.get("body")
    if isinstance(body, dict):
        packed = text_or_none(body.get("base64_string"))
        text = body.get("string")
        if packed is None and body.get("encoding") == "base64":
            packed = text_or_none(text)
        body = _from_base64(packed) if packed is not None else text
    return _value(body)


def is_stream(body: object) -> bool:
    """Whether a body is a stream of server-sent events."""
    return isinstance(body, str) and body.lstrip().startswith(("event:", "data:", ":", "id:"))


def events_of(body: str) -> list[dict[str, Any]]:
    """The JSON objects of a stream's events, in order; an event's name is its ``type`` if it has
    none."""
    found: list[dict[str, Any]] = []
    for block in body.replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        name, data = "", []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                data.append(value)
        try:
            value, _ = read_value("\n".join(data).encode())
        except ValueError:
            continue  # [DONE], or a stream that was cut
        if isinstance(value, dict):
            found.append(value if "type" in value or not name else {**value, "type": name})
    return found


def header(message: dict[str, Any], name: str) -> str | None:
    """A header's first value. Recorders write one value or a list of them."""
    for key, value in object_or_empty(message.get("headers")).items():
        if key.lower() == name:
            first = value[0] if isinstance(value, list) and value else value
            return text_or_none(first)
    return None


def _value(body: object) -> object:
    data = body.encode(errors="surrogatepass") if isinstance(body, str) else body
    if not isinstance(data, bytes) or not data:
        return body if isinstance(body, dict | list) else None
    data = _unpacked(data)
    try:
        return read_value(data)[0]
    except ValueError:
        return data.decode(errors="replace")


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=False)
    except ValueError:
        return text.encode(errors="replace")


def _unpacked(data: bytes) -> bytes:
    """The data without gzip. What does not unpack, or to too much, stays as it is."""
    if not data.startswith(_GZIP):
        return data
    try:
        unpacked = zlib.decompressobj(wbits=31).decompress(data, MAX_BYTES)
    except zlib.error:
        return data
    return unpacked if len(unpacked) < MAX_BYTES else data
