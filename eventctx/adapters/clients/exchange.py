"""A call of a model API as bytes: the request read from its body, and the answer from its own.

Pure functions. Anthropic's messages, OpenAI's chat completions and the Responses API are known, at
any host that speaks them; Anthropic's also in the forms of Amazon Bedrock and of Google Vertex AI,
which name the model in the path.
"""

from __future__ import annotations

import re
import struct
import zlib
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec

from eventctx.adapters.clients.transport import OwnRequest
from eventctx.importers.recorded_calls import (
    answers,
    cache_marks,
    events_of,
    finish_of,
    is_stream,
    joined_answer,
    object_or_empty,
    plain_form,
    without_marks,
)
from eventctx.log.turn_recorder import CallSettings, read_settings
from eventctx.log.wire import APIS, CacheMark
from eventctx.messages.encoding import decode_json, digest_of
from eventctx.messages.native_compaction import ON_DEMAND, compacts_on_demand
from eventctx.session.host_requests import ObservedRequest
from eventctx.session.sdk_objects import api_form

Row = dict[str, Any]

_PATHS: Final = {
    "anthropic-messages-1": re.compile(
        r"/messages/?$"
        r"|/models/(?!count-tokens)(?P<vertex>[^/]+):(raw|streamRaw)Predict$"
        r"|/model/(?P<bedrock>.+)/invoke(-with-response-stream)?$"
    ),
    "openai-chat-1": re.compile(r"/chat/completions/?$"),
    "openai-responses-1": re.compile(r"/responses/?$"),
}
_UNFINISHED: Final = ("queued", "in_progress", "failed", "cancelled")
"""States of a response that is no answer, or not yet."""

_MARK: Final = b'"cache_control"'
_STATE: Final = ("previous_response_id", "conversation")


class ReadRequest(NamedTuple):
    """A request to a model. ``sent`` are its parts, ``fields`` the JSON of all its fields.

    ``partial``: the provider keeps the rest of the conversation, and the messages go on with that.
    ``background``: the answer may be asked for later. ``streamed``: it comes as a stream.
    """

    sent: ObservedRequest
    fields: dict[str, msgspec.Raw]
    messages: list[msgspec.Raw]
    partial: bool
    background: bool
    streamed: bool

    @property
    def rows(self) -> list[Row]:
        """The messages, without cache marks."""
        return cast("list[Row]", self.sent.messages)

    @property
    def instructions(self) -> str | None:
        """The system prompt as one text, where it is no message."""
        system = self.sent.system
        if isinstance(system, list):
            return "\n\n".join([object_or_empty(one).get("text", "") for one in system])
        return system if isinstance(system, str) else None

    def settings(self, url: str) -> CallSettings:
        """The settings of the call that asks ``url``."""
        given = self.sent.parameters
        most = next((given[name] for name in _MOST_TOKENS if name in given), None)
        managed = given.get("context_management")
        return read_settings(stream=self.streamed, max_tokens=most, url=url, managed=managed)


_MOST_TOKENS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")

_HOSTS: Final = {
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "amazonaws.com": "aws.bedrock",
    "x.ai": "x_ai",
    "deepseek.com": "deepseek",
    "groq.com": "groq",
    "mistral.ai": "mistral_ai",
    "perplexity.ai": "perplexity",
    "moonshot.ai": "moonshot_ai",
    "openrouter.ai": "openrouter",
}
"""Providers that speak another one's API, by the end of their host's name."""


def provider_of(rule: str, url: str, server: str | None) -> str:
    """The provider that a request by ``rule`` asks at ``url``, whose host is ``server``.

    An unknown host is taken for the provider whose API it speaks, as the conventions have it.
    """
    place = _PATHS["anthropic-messages-1"].search(url.partition("?")[0])
    if place is not None and place["bedrock"]:
        return "aws.bedrock"
    if place is not None and place["vertex"]:
        return "gcp.vertex_ai"
    host = f".{server or ''}"
    known = [name for end, name in _HOSTS.items() if host.endswith((f".{end}", f"-{end}"))]
    return known[0] if known else rule.partition("-")[0]


def asked(path: str, content: bytes, before: ReadRequest | None = None) -> ReadRequest | None:
    """The request to a model in a body that is sent to ``path``; None for any other request.

    Messages that are at the same place in the request ``before`` are its rows: a conversation is
    sent again with each call, and is read once.
    """
    found = next(((rule, at) for rule, form in _PATHS.items() if (at := form.search(path))), None)
    if found is None:
        return None
    rule, place = found
    api = APIS[rule]
    try:
        fields = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        messages = _messages(fields.get(api.messages))
        body = {
            name: decode_json(bytes(raw)) for name, raw in fields.items() if name != api.messages
        }
        rows = _rows(messages, before)
    except (msgspec.DecodeError, RecursionError):
        return None
    marks: tuple[CacheMark, ...] = ()
    if _MARK in content:  # most bodies have none, and to look everywhere takes a while
        marks = tuple(_marks(body, api.messages, messages))
        body = without_marks(body)
        rows = [
            without_marks(row) if _MARK in bytes(raw) else row
            for raw, row in zip(messages, rows, strict=True)
        ]
    model = body.get("model") or next(filter(None, place.groupdict().values()), None)
    sent = ObservedRequest(
        rule,
        rows,
        body.get(api.system),
        body.get("tools"),
        {key: value for key, value in body.items() if key not in (api.system, "tools")},
        marks,
        model if isinstance(model, str) else None,
    )
    background = body.get("background") is True
    streamed = body.get("stream") is True or path.endswith("-with-response-stream")
    return ReadRequest(sent, fields, messages, _goes_on_from_there(body), background, streamed)


def _goes_on_from_there(body: Row) -> bool:
    """Whether the provider keeps the messages before those in the body."""
    thread = object_or_empty(body.get("thread"))
    return thread.get("type") == "continue" or any(body.get(key) is not None for key in _STATE)


def _messages(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    """The JSON of each message; the Responses API takes a text for one. Raises DecodeError."""
    given = bytes(raw or b"")
    if not given.startswith(b'"'):
        return msgspec.json.decode(given, type=list[msgspec.Raw])
    return [msgspec.Raw(b'{"role":"user","content":' + given + b"}")]


def _marks(body: Row, field: str, messages: Sequence[msgspec.Raw]) -> Iterator[CacheMark]:
    yield from cache_marks(body)
    for at, raw in enumerate(messages):
        if _MARK in bytes(raw):
            yield from cache_marks(decode_json(bytes(raw)), (field, at))


def _rows(messages: Sequence[msgspec.Raw], before: ReadRequest | None) -> list[Row]:
    """Raises DecodeError for a message that is no object."""
    known = [] if before is None else before.messages
    same = 0
    while same < min(len(known), len(messages)) and known[same] == messages[same]:
        same += 1
    earlier = [] if before is None else before.rows[:same]
    return [*earlier, *map(_row, messages[same:])]


def _row(message: msgspec.Raw) -> Row:
    found = decode_json(bytes(message))
    if not isinstance(found, dict):
        raise msgspec.DecodeError(f"expected an object, found a {type(found).__name__}")
    return found


def with_rows(request: ReadRequest, rows: Sequence[Row]) -> bytes | None:
    """The body with other messages; None where they are those that it has.

    A message that stays whole keeps its cache marks.
    """
    if rows == request.rows:
        return None
    field = APIS[request.sent.rule].messages
    marked = _marked_rows(request, field)
    chosen = [marked.get(digest_of(row), row) for row in rows] if marked else rows
    return msgspec.json.encode({**request.fields, field: chosen})


def _marked_rows(request: ReadRequest, field: str) -> dict[bytes, msgspec.Raw]:
    """The messages that were sent with a cache mark, by what they say without it."""
    places = {
        mark.path[1]
        for mark in request.sent.cache_control
        if len(mark.path) > 1 and mark.path[0] == field
    }
    return {
        digest_of(request.rows[at]): request.messages[at] for at in places if isinstance(at, int)
    }


_NOT_SUMMARISED: Final = ("stream", "context_management")
_OF_COMPACT: Final = ("model", "instructions", "prompt_cache_key", "service_tier")


def compaction_request(
    request: ReadRequest, url: str, rows: Sequence[Row], instructions: str | None
) -> OwnRequest | None:
    """A request for the API's own summary of ``rows``, like one that asks ``url``.

    None where the API writes none, or has no such model. OpenAI's takes no ``instructions`` for it.
    """
    path = url.partition("?")[0].rstrip("/")
    if request.sent.rule == "openai-responses-1":
        body: Row = {key: request.fields[key] for key in _OF_COMPACT if key in request.fields}
        return OwnRequest(msgspec.json.encode({**body, "input": rows}), "/compact")
    if not path.endswith("/messages") or not compacts_on_demand(request.sent.model):
        return None
    body = {key: raw for key, raw in request.fields.items() if key not in _NOT_SUMMARISED}
    asked = {"type": "summarize", **({"instructions": instructions} if instructions else {})}
    content = msgspec.json.encode({**body, "messages": rows, "compaction": asked})
    return OwnRequest(content, beta=ON_DEMAND)


class Answered(NamedTuple):
    """An answer: its body, put together where it was streamed, and the messages in it.

    ``finish`` is why it ended, in the provider's word; None where it has not ended. ``error`` is
    the provider's, also one in the middle of a stream. ``cut``: there may be more of the body.
    """

    body: dict[str, Any]
    rows: list[Row]
    finish: str | None
    error: Row
    cut: bool


def answered(content: bytes) -> Answered:
    """Read an answer; one that is no answer of these APIs has no messages."""
    events = events_of_aws(content)
    text = "" if events else content.decode(errors="replace")
    if not events and is_stream(text):
        events = events_of(text)
    body, cut = joined_answer(events), True
    if text and not is_stream(text):
        try:
            body, cut = object_or_empty(decode_json(content)), False
        except msgspec.DecodeError:
            body = {}
    error = next(filter(None, map(_error_in, [*events, body])), {})
    status = finish_of(body)
    finish = None if error or status in _UNFINISHED else status
    rows = [api_form(one) for one in answers(body)]
    return Answered(body, rows, finish, error, cut or status in _UNFINISHED)


def _error_in(event: Row) -> Row:
    """The error that an event or a body tells of; the Responses API's event is one itself."""
    error = event.get("error")
    if isinstance(error, str):
        return {"message": error}
    if error is None and event.get("type") == "error":
        return {name: value for name, value in event.items() if name != "type"}
    return object_or_empty(error)


def identity(row: Any) -> bytes:
    """The identity of a message, as an API answered it or as its client sends it back."""
    return digest_of(plain_form(dict(row)))


class Identities:
    """``identity`` of rows that stay the same objects; each is computed once.

    ``next_request`` forgets those that neither the last request nor this one asked for.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[Any, bytes]] = {}
        self._now: dict[int, tuple[Any, bytes]] = {}

    def next_request(self) -> None:
        """Begin another request."""
        self._last, self._now = self._now, {}

    def __call__(self, row: Any) -> bytes:
        """The identity of a row."""
        known = self._now.get(id(row)) or self._last.get(id(row))
        if known is None or known[0] is not row:
            known = row, identity(row)
        self._now[id(row)] = known
        return known[1]


_PRELUDE: Final = struct.Struct(">III")
_CHECKSUM: Final = 4


# -- streams of Amazon Bedrock --------------------------------------------------------------------


def events_of_aws(content: bytes) -> list[dict[str, Any]]:
    """The events in the binary frames of a body, as far as it came; none of another body.

    A frame is its length, the length of its headers and the checksum of both, each of four bytes;
    then the headers, the payload, and a checksum of all. A payload is JSON whose ``bytes`` are the
    event.
    """
    found = []
    at = 0
    while len(content) - at >= _PRELUDE.size:
        length, headers, checksum = _PRELUDE.unpack_from(content, at)
        begin, end = at + _PRELUDE.size + headers, at + length - _CHECKSUM
        broken = zlib.crc32(content[at : at + 8]) != checksum or end < begin
        if broken or end > len(content):
            break
        event = _event(content[begin:end])
        if event is not None:
            found.append(event)
        at += length
    return found


def _event(payload: bytes) -> dict[str, Any] | None:
    try:
        frame = decode_json(payload)
        event = decode_json(b64decode(frame["bytes"]))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None
    return event if isinstance(event, dict) else None
