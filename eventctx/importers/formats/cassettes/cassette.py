"""Recorded HTTP of provider SDKs (VCR's cassettes): every request to a model is a call.

Requests to Anthropic's messages, OpenAI's chat completions and the Responses API are read, of any
host that speaks them. Requests that continue each other are one session (``conversation.py``); a
file with several conversations becomes several sessions, named by the file and, from the second
one, a number. Other requests are kept as raw parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from eventctx.errors import MalformedTranscript
from eventctx.importers.formats.cassettes.conversation import (
    COMPACT,
    MESSAGES,
    CassetteRequest,
    RecordedConversation,
    RecordedConversations,
)
from eventctx.importers.formats.provider_answers import joined_answer
from eventctx.importers.source.document import envelope, stem
from eventctx.importers.source.http_recording import (
    LISTS,
    Exchange,
    events_of,
    exchanges_of,
    is_stream,
    read_cassette,
)
from eventctx.importers.source.items import Ended, FileLine, Item, Parser, Raw, never
from eventctx.importers.source.lines import object_or_empty, read_lines
from eventctx.importers.source.values import encode

_PATHS: Final = (MESSAGES, "/chat/completions", "/responses", COMPACT)
_HOSTS: Final = {"api.anthropic.com": "anthropic", "api.openai.com": "openai"}


def is_cassette(value: object) -> bool:
    """Whether a document is a cassette with a request to a model."""
    return any(model_request(one) is not None for one in exchanges_of(value))


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of the first session of a file."""
    return iter(_sessions(lines, name)[0])


def others(path: Path) -> list[Parser]:
    """A parser for each further session of a file."""
    return [_parser_of(items) for items in _sessions(read_lines(path), path.name)[1:]]


def _parser_of(items: list[Item]) -> Parser:
    return lambda lines, name, ended: iter(items)


def _sessions(lines: Iterable[FileLine], name: str) -> list[list[Item]]:
    """The items of every session, in the order in which they begin in the file."""
    value = read_cassette(lines, name)
    exchanges = exchanges_of(value)
    conversations = RecordedConversations()

    def begin(number: int, request: CassetteRequest) -> RecordedConversation:
        known = conversations.known_at(request)
        return RecordedConversation(_name(stem(name), number), request, known)

    before: list[Item] = []
    last: RecordedConversation | None = None
    for exchange in exchanges:
        request = model_request(exchange)
        if request is None:
            (before if last is None else last.items).append(_raw_of(exchange))
            continue
        last = conversations.take(request, begin)
    if not conversations.all:
        raise MalformedTranscript(
            f"{name}: expected recorded requests to {', '.join(_PATHS)}, found "
            f"{len(exchanges)} requests and none of these; name another format with --format"
        )
    found: list[list[Item]] = [
        [conversation.opening, *conversation.items] for conversation in conversations.all
    ]
    rest = envelope(object_or_empty(value), *LISTS)
    found[0] = [conversations.all[0].opening, *before, *conversations.all[0].items, rest]
    return found


def model_request(exchange: Exchange) -> CassetteRequest | None:
    """The request to a model that an exchange is; None for any other request."""
    sent = exchange.sent
    path = next((path for path in _PATHS if exchange.path.endswith(path)), None)
    if exchange.method != "POST" or path is None or not isinstance(sent, dict):
        return None
    if not isinstance(sent.get("messages", sent.get("input")), list | str):
        has_state = any(key in sent for key in ("previous_response_id", "conversation", "prompt"))
        if not (has_state and path == "/responses"):
            return None
    answered = exchange.answered
    if is_stream(answered):
        answered = joined_answer(events_of(str(answered)))
    provider = _HOSTS.get(exchange.host) or exchange.host or None
    return CassetteRequest(exchange, path, sent, object_or_empty(answered), provider)


def _raw_of(exchange: Exchange) -> Raw:
    """A request that is none to a model, as it was recorded."""
    whole: dict[str, Any] = {
        **exchange.rest,
        "sent": exchange.sent,
        "answered": exchange.answered,
    }
    return Raw(exchange.number, f"{exchange.method} request", encode(whole))


def _name(name: str, number: int) -> str:
    return f"{name}-{number + 1}" if number else name
