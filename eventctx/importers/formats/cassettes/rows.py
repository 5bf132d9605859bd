"""The messages of a recorded request, compared with those that a conversation has so far.

A client sends back what it was answered in its own form: without empty fields, with a text for a
block, with a mark up to which the provider caches. ``mark`` says which message one is, and ``same``
whether it still says the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

from eventctx.importers.source.items import Item, RecordedContent, RecordedRequest
from eventctx.importers.source.lines import (
    item_facts_or_none,
    list_or_empty,
    object_or_empty,
    text_of_content,
    text_or_none,
    without,
)
from eventctx.log.wire import APIS, CacheMark, SentApi
from eventctx.messages.encoding import digest_of, message_digest
from eventctx.messages.facts_reader import SYSTEM_ROLES
from eventctx.messages.parts import role_of

REFERENCE: Final = "item_reference"
_SYSTEM: Final = ("system",)
_SEALED: Final = frozenset(("reasoning", "compaction"))
_TEXTS: Final = frozenset(("text", "input_text", "output_text"))
_PASSING: Final = frozenset(
    (
        *("cache_control", "status", "annotations", "logprobs", "index"),
        "internal_chat_message_metadata_passthrough",  # what Codex notes on its messages
    )
)
_BILLING: Final = "x-anthropic-billing-header:"
"""The beginning of a line of Claude Code's system prompt that is for the API, and changes."""


@dataclass(frozen=True)
class Row:
    """A message that the model was shown. ``place`` is None for one that a compaction put in."""

    message: dict[str, Any]
    place: int | None
    answer: bool = False

    @cached_property
    def is_system(self) -> bool:
        """Whether it is a system prompt, or a part of one."""
        return is_system(self.message)

    @cached_property
    def mark(self) -> object:
        """Which message it is, in whatever form."""
        return _mark(self.message)

    @cached_property
    def may_be_left_out(self) -> bool:
        """Whether a client may go on without it: a part of an answer, thoughts, hosted tools."""
        if not self.answer or "role" in self.message:
            return False
        facts = item_facts_or_none(self.message)
        return facts is None or not facts.calls


def rows_of(sent: dict[str, Any]) -> list[dict[str, Any]]:
    """The system prompt and the messages of a request, in order."""
    system = sent.get("system", sent.get("instructions"))
    given = sent.get("messages", sent.get("input"))
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    first = [{"role": "system", "content": system}] if system else []
    return [*first, *(one for one in list_or_empty(given) if _is_row(one))]


def _is_row(value: object) -> bool:
    message = object_or_empty(value)
    return _role(message) is not None or message.get("type") == REFERENCE


def is_system(message: dict[str, Any]) -> bool:
    """Whether a message is a system prompt, or a part of one."""
    return _role(message) in SYSTEM_ROLES


def _role(message: dict[str, Any]) -> str | None:
    """The role by which the facts of a message are told, without reading all of them."""
    role = message.get("role") or role_of(message)
    return role if isinstance(role, str) else None


def sealed_mark(message: dict[str, Any]) -> object:
    """The name of an item whose content the provider keeps to itself; None for any other."""
    if message.get("type") not in _SEALED:
        return None
    return message.get("encrypted_content") or message.get("id")


def is_(row: Row, message: dict[str, Any]) -> bool:
    """Whether a message of a request is this one, in whatever form."""
    if message.get("type") == REFERENCE:
        return message.get("id") == row.message.get("id")
    return row.mark == _mark(message)


def key_of(mark: object) -> Hashable | None:
    """A mark as a key of a dict; None for the few that can be none, as they hold an object."""
    try:
        hash(mark)
    except TypeError:
        return None
    return mark


def opening_of(talk: list[dict[str, Any]]) -> Hashable | None:
    """The key of the first message of a request that is no system prompt."""
    return key_of(_mark(talk[0])) if talk else None


def same(row: Row, message: dict[str, Any]) -> bool:
    """Whether a message that is this one says the same."""
    referred = message.get("type") == REFERENCE
    return referred or plain_form(row.message) == plain_form(message)


def _mark(message: dict[str, Any]) -> object:
    facts = item_facts_or_none(message)
    if facts is None:
        return plain_form(message)
    if facts.kind == "system":
        return _SYSTEM
    if facts.results or facts.calls:
        return facts.role, facts.results, facts.calls
    sealed = sealed_mark(message)
    if sealed is not None:
        return message["type"], sealed
    return facts.role, text_of_content(message.get("content")) or plain_form(message)


def plain_form(message: dict[str, Any]) -> Any:
    """A message in one form, without what may differ where it says the same."""
    sealed = sealed_mark(message)
    if sealed is not None:
        return sealed
    plain = {key: value for key, value in message.items() if key != "id" or "role" not in message}
    if "role" in plain and plain.get("type") == "message":
        del plain["type"]
    if "output" in plain or plain.get("type") in ("function_call", "custom_tool_call"):
        plain.pop("id", None)
    content = plain.get("content")
    if isinstance(content, list) and all(_is_text(block) for block in content):
        texts = [block["text"] for block in content]
        plain["content"] = "".join([one for one in texts if not one.startswith(_BILLING)])
    return _without_empty(plain)


def _is_text(block: object) -> bool:
    fields = object_or_empty(block)
    return fields.get("type") in _TEXTS and text_or_none(fields.get("text")) is not None


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: inner for key, inner in value.items() if key not in _PASSING}
        cleaned = {key: _without_empty(inner) for key, inner in kept.items()}
        return {key: inner for key, inner in cleaned.items() if inner not in (None, [], "")}
    return [_without_empty(inner) for inner in value] if isinstance(value, list) else value


_MESSAGE: Final = frozenset(("role", "content"))
_RULES: Final = {
    "/messages": "tape-messages-1",
    "/chat/completions": "tape-chat-1",
    "/responses": "tape-responses-1",
}
_MARK: Final = "cache_control"

Path = tuple[str | int, ...]


class SentRequests:
    """Gives the items of one request after another, exactly as they were sent.

    Each content is stored once: system prompt, tools, parameters, and the messages that the request
    before it did not begin with.

    Of a cassette these are requests of Anthropic's messages whose messages have a role and a
    content, as earlier releases made them; ``on_tape`` all.
    """

    def __init__(self, *, on_tape: bool = False) -> None:
        self._on_tape = on_tape
        self._id: str | None = None
        self._messages: tuple[bytes, ...] = ()
        self._texts: dict[bytes, bool] = {}

    def note_spoken(self, message: dict[str, Any]) -> None:
        """Take an answer, which a later request may hold."""
        if self._on_tape and "content" in message:
            self._texts.setdefault(message_digest(message), isinstance(message["content"], str))

    def items(self, line: int, path: str, sent: dict[str, Any]) -> tuple[str | None, list[Item]]:
        """The id of a request and its items; None where the log cannot hold it as it was sent."""
        rule = _RULES.get(path) if self._on_tape else None
        api = SentApi() if rule is None else APIS[rule]
        messages = sent.get(api.messages)
        takes = _is_message if rule is None else _is_readable
        if rule is None and (self._on_tape or path != "/messages"):
            return None, []
        if not isinstance(messages, list) or not all(map(takes, messages)):
            return None, []
        plain = without_marks(sent)
        rows = plain[api.messages]
        digests = tuple([self._digest(one) for one in rows])
        keep = _shared(self._messages, digests)
        items: list[Item] = [
            RecordedContent(line, None, "message", digest.hex(), digest, one)
            for one, digest in zip(rows[keep:], digests[keep:], strict=True)
        ]
        names = (api.system, "tools")
        shape = digest_of({key: plain[key] for key in names if key in plain}).hex()
        if api.system in plain:
            system = plain[api.system]
            items.append(RecordedContent(line, None, "system", shape, digest_of(system), system))
        if "tools" in plain:
            tools = plain["tools"]
            items.append(RecordedContent(line, None, "tools", shape, digest_of(tools), tools))
        rest = without(plain, api.messages, *names)
        key = digest_of(rest)
        items.append(RecordedContent(line, None, "parameters", key.hex(), key, rest))
        name, base = f"exchange {line}", self._id if keep else None
        has_shape = any(part in plain for part in names)
        items.append(
            RecordedRequest(
                line,
                None,
                name,
                digests[keep:],
                base,
                keep,
                shape if has_shape else None,
                key.hex(),
                tuple(cache_marks(sent)),
                rule,
            )
        )
        self._id, self._messages = name, digests
        return name, items

    def _digest(self, row: dict[str, Any]) -> bytes:
        """The digest by which a message of the transcript is known, if it was sent like that.

        A text and a block of this text have one digest, so the other one gets another here.
        """
        if not _is_message(row):
            return digest_of(row)
        digest, is_text = message_digest(row), isinstance(row["content"], str)
        if not self._on_tape or self._texts.setdefault(digest, is_text) == is_text:
            return digest
        return sha256(digest).digest()


def _is_readable(value: object) -> bool:
    return item_facts_or_none(value) is not None


def _is_message(value: object) -> bool:
    return (
        isinstance(value, dict) and isinstance(value.get("role"), str) and value.keys() == _MESSAGE
    )


def _shared(before: tuple[bytes, ...], now: tuple[bytes, ...]) -> int:
    pairs = zip(before, now, strict=False)
    same = min(len(before), len(now))
    return next((place for place, (one, other) in enumerate(pairs) if one != other), same)


def cache_marks(value: Any, path: Path = ()) -> Iterator[CacheMark]:
    """The marks up to which the provider caches, each with the path of what it marks."""
    if isinstance(value, dict):
        if _MARK in value:
            yield CacheMark(path, value[_MARK])
        for key, inner in value.items():
            if key != _MARK:
                yield from cache_marks(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from cache_marks(inner, (*path, index))


def without_marks(value: Any) -> Any:
    """The value without the marks up to which the provider caches."""
    if isinstance(value, dict):
        return {key: without_marks(inner) for key, inner in value.items() if key != _MARK}
    return [without_marks(inner) for inner in value] if isinstance(value, list) else value
