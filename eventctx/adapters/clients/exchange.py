"""A call of a model API as bytes: the request read from its body, and the answer from its own.

Pure functions. Anthropic's messages, OpenAI's chat completions and the Responses API are known, at
any host that speaks them; Anthropic's also in the forms of Amazon Bedrock and of Google Vertex AI,
which name the model in the path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.adapters.clients.aws_events import events_of_aws
from eventctx.importers.formats.cassettes.rows import plain_form
from eventctx.importers.formats.cassettes.sent import cache_marks, without_marks
from eventctx.importers.formats.cassettes.streamed_answers import joined_answer
from eventctx.importers.formats.provider_answers import answers, finish_of
from eventctx.importers.source.http_bodies import events_of, is_stream
from eventctx.importers.source.lines import object_or_empty
from eventctx.log.wire import APIS
from eventctx.messages.canonical import digest_of
from eventctx.session.answers.sent_form import api_form
from eventctx.session.observed import OwnRequest

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

_STATE: Final = ("previous_response_id", "conversation")


class ReadRequest(NamedTuple):
    """A request to a model. ``sent`` are its parts, ``body`` is all of it.

    ``partial``: the provider keeps the rest of the conversation, and the messages go on with that.
    ``background``: the answer may be asked for later.
    """

    sent: OwnRequest
    body: dict[str, Any]
    partial: bool
    background: bool

    @property
    def rows(self) -> list[Row]:
        """The messages, without cache marks."""
        return [dict(one) for one in self.sent.messages]

    @property
    def instructions(self) -> str | None:
        """The system prompt as one text, where it is no message."""
        system = self.sent.system
        if isinstance(system, list):
            return "\n\n".join([object_or_empty(one).get("text", "") for one in system])
        return system if isinstance(system, str) else None


def asked(path: str, content: bytes) -> ReadRequest | None:
    """The request to a model in a body that is sent to ``path``; None for any other request."""
    found = next(((rule, at) for rule, form in _PATHS.items() if (at := form.search(path))), None)
    if found is None:
        return None
    rule, place = found
    try:
        body = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return None
    if not isinstance(body, dict):
        return None
    api = APIS[rule]
    given = body.get(api.messages)
    rows = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
        return None
    plain = without_marks(body)
    beside = (api.messages, api.system, "tools")
    model = body.get("model") or next(filter(None, place.groupdict().values()), None)
    sent = OwnRequest(
        rule,
        rows if isinstance(given, str) else plain[api.messages],
        plain.get(api.system),
        plain.get("tools"),
        {key: value for key, value in plain.items() if key not in beside},
        tuple(cache_marks(body)),
        model if isinstance(model, str) else None,
    )
    partial = any(body.get(key) is not None for key in _STATE)
    return ReadRequest(sent, body, partial, body.get("background") is True)


def with_rows(request: ReadRequest, rows: Sequence[Row]) -> bytes:
    """The body with other messages; a message that stays whole keeps its cache marks."""
    field = APIS[request.sent.rule].messages
    marked = _marked_rows(request, field)
    chosen = [marked.get(digest_of(row), row) for row in rows]
    return msgspec.json.encode({**request.body, field: chosen})


def _marked_rows(request: ReadRequest, field: str) -> dict[bytes, Row]:
    """The messages that were sent with a cache mark, by what they say without it."""
    places = {
        mark.path[1]
        for mark in request.sent.cache_control
        if len(mark.path) > 1 and mark.path[0] == field
    }
    return {digest_of(one): one for place, one in enumerate(request.body[field]) if place in places}


class Answered(NamedTuple):
    """An answer: its body, put together where it was streamed, and the messages in it.

    ``finish`` is why it ended, in the provider's word; None where it has not ended.
    """

    body: dict[str, Any]
    rows: list[Row]
    finish: str | None


def answered(content: bytes) -> Answered:
    """Read an answer; one that is no answer of these APIs has no messages."""
    framed = events_of_aws(content)
    text = "" if framed else content.decode(errors="replace")
    if framed:
        body = joined_answer(framed)
    elif is_stream(text):
        body = joined_answer(events_of(text))
    else:
        try:
            body = object_or_empty(msgspec.json.decode(content))
        except msgspec.DecodeError:
            body = {}
    finish = finish_of(body)
    rows = [api_form(one) for one in answers(body)]
    return Answered(body, rows, None if finish in _UNFINISHED else finish)


def identity(row: Any) -> bytes:
    """What a message says, whether as an API answered it or as its client sends it back."""
    return digest_of(plain_form(dict(row)))
