"""A call of a model API as bytes: the request read from its body, and the answer from its own.

Pure functions. Anthropic's messages, OpenAI's chat completions and the Responses API are known, at
any host that speaks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.importers.formats.cassettes.rows import plain_form
from eventctx.importers.formats.cassettes.sent import cache_marks, without_marks
from eventctx.importers.formats.cassettes.streamed_answers import joined_answer
from eventctx.importers.formats.provider_answers import answers
from eventctx.importers.source.http_bodies import events_of, is_stream
from eventctx.importers.source.lines import object_or_empty
from eventctx.log.wire import APIS
from eventctx.messages.canonical import digest_of
from eventctx.session.answers.sent_form import api_form
from eventctx.session.observed import OwnRequest

Row = dict[str, Any]

_RULES: Final = {
    "/messages": "anthropic-messages-1",
    "/chat/completions": "openai-chat-1",
    "/responses": "openai-responses-1",
}
_STATE: Final = ("previous_response_id", "conversation")


class ReadRequest(NamedTuple):
    """A request to a model. ``sent`` are its parts, ``body`` is all of it.

    ``partial``: the provider keeps the rest of the conversation, and the messages go on with that.
    """

    sent: OwnRequest
    body: dict[str, Any]
    partial: bool

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
    rule = next((rule for end, rule in _RULES.items() if path.rstrip("/").endswith(end)), None)
    if rule is None:
        return None
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
    sent = OwnRequest(
        rule,
        rows if isinstance(given, str) else plain[api.messages],
        plain.get(api.system),
        plain.get("tools"),
        {key: value for key, value in plain.items() if key not in beside},
        tuple(cache_marks(body)),
        body.get("model") if isinstance(body.get("model"), str) else None,
    )
    return ReadRequest(sent, body, any(body.get(key) is not None for key in _STATE))


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
    """An answer: its body, put together where it was streamed, and the messages in it."""

    body: dict[str, Any]
    rows: list[Row]


def answered(content: bytes) -> Answered:
    """Read an answer; one that is no answer of these APIs has no messages."""
    text = content.decode(errors="replace")
    if is_stream(text):
        body = joined_answer(events_of(text))
    else:
        try:
            body = object_or_empty(msgspec.json.decode(content))
        except msgspec.DecodeError:
            body = {}
    return Answered(body, [api_form(one) for one in answers(body)])


def identity(row: Any) -> bytes:
    """What a message says, whether as an API answered it or as its client sends it back."""
    return digest_of(plain_form(dict(row)))
