"""Bodies of recorded HTTP: text, base64 or bytes, packed or not, JSON or a stream of events."""

from __future__ import annotations

import zlib
from base64 import b64decode
from typing import Any, Final

from eventctx.importers.source.lines import MAX_BYTES, object_or_empty, text_or_none
from eventctx.importers.source.values import read_value

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
