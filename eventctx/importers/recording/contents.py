"""The bodies of a file's messages, as far as they can be stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from eventctx.errors import InvalidMessage
from eventctx.importers.recording.track import Content
from eventctx.importers.source.items import Raw, Warned
from eventctx.messages.encoding import encode_message, may_be_too_deep
from eventctx.messages.facts import Facts, encode_facts
from eventctx.messages.facts_reader import read_facts


class Stored(NamedTuple):
    """A message's body to be, and the facts in it."""

    content: Content
    facts: Facts


class Unstorable(NamedTuple):
    """The bytes of a message that cannot be stored as one, and the warning that says why."""

    raw: Raw
    warning: Warned


def content_of(
    line: int,
    message: dict[str, Any],
    facts: Facts | None = None,
    data: bytes | None = None,
    *,
    by_harness: bool = False,
    observation: bool = False,
) -> Stored | Unstorable:
    """The body of a message of ``line``; one that is too deep, or has no role, has none.

    ``facts`` are the message's own and ``data`` its encoding, where they were made already; with
    ``data``, the message is one that was decoded from JSON.
    """
    try:
        if data is None or may_be_too_deep(data):
            data = encode_message(message)
        if facts is None:
            facts = read_facts(message, by_harness=by_harness, observation=observation)
    except InvalidMessage as error:
        raw = Raw(line, "unstorable", msgspec.json.encode(message), understood=False)
        return Unstorable(raw, Warned(line, str(error)))
    return Stored(Content(data, encode_facts(facts)), facts)


def contents_of(
    line: int, messages: Iterable[dict[str, Any]]
) -> tuple[list[Stored], list[Unstorable]]:
    """The bodies of several messages, and those messages that have none."""
    found = [content_of(line, message) for message in messages]
    stored = [one for one in found if isinstance(one, Stored)]
    return stored, [one for one in found if isinstance(one, Unstorable)]
