"""The requests of a conversation exactly as they were sent, of Anthropic's messages.

Each content is stored once: system prompt, tools, parameters, and the messages that the request
before it did not begin with. The log's form of a sent message is its role and its content, so
requests in OpenAI's forms, whose messages have more fields, are not given here yet; their exchange
is kept, and their view says what was sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from eventctx.importers.source.items import Item, RecordedContent, RecordedRequest
from eventctx.importers.source.lines import without
from eventctx.log.wire import CacheMark
from eventctx.messages.canonical import digest_of, message_digest

_MESSAGE: Final = frozenset(("role", "content"))
_SHAPE: Final = ("system", "tools")
_MARK: Final = "cache_control"

Path = tuple[str | int, ...]


class SentRequests:
    """Gives the items of one request after another."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._messages: tuple[bytes, ...] = ()

    def items(self, line: int, sent: dict[str, Any]) -> tuple[str | None, list[Item]]:
        """The id of a request and its items; None where the log cannot hold it as it was sent."""
        messages = sent.get("messages")
        if not isinstance(messages, list) or not all(map(_is_message, messages)):
            return None, []
        plain = without_marks(sent)
        digests = tuple([message_digest(one) for one in plain["messages"]])
        keep = _shared(self._messages, digests)
        items: list[Item] = [
            RecordedContent(line, None, "message", digest.hex(), digest, one)
            for one, digest in zip(plain["messages"][keep:], digests[keep:], strict=True)
        ]
        shape = digest_of({key: plain[key] for key in _SHAPE if key in plain}).hex()
        if "system" in plain:
            system = plain["system"]
            items.append(RecordedContent(line, None, "system", shape, digest_of(system), system))
        if "tools" in plain:
            tools = plain["tools"]
            items.append(RecordedContent(line, None, "tools", shape, digest_of(tools), tools))
        rest = without(plain, "messages", *_SHAPE)
        key = digest_of(rest)
        items.append(RecordedContent(line, None, "parameters", key.hex(), key, rest))
        name, base = f"exchange {line}", self._id if keep else None
        has_shape = any(part in plain for part in _SHAPE)
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
            )
        )
        self._id, self._messages = name, digests
        return name, items


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
