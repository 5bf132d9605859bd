"""The new messages of each request of an Amplifier event log, and its rest without repetitions.

Every request is logged whole, so a log grows with the square of its conversation. A message is
recognised by the ids of its calls and results, else by its role and text; a provider's mark that
moves from message to message (``cache_control``) does not count. A hook may add a text to one
request only (a system reminder after the last message). Such a text belongs to no message, unless
a later request still has it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final, NamedTuple

from eventctx.importers.source.lines import item_facts_or_none, list_or_empty, object_or_empty
from eventctx.importers.source.values import encode
from eventctx.messages.facts_reader import read_facts

_REMINDER: Final = "<system-reminder"
_LISTS: Final = ("messages", "input")


class NewInRequest(NamedTuple):
    """A request: its new messages, the places of the messages that it leaves out, and its rest."""

    new: list[dict[str, Any]]
    missing: frozenset[int]
    rest: dict[str, Any]


class RequestHistory:
    """The requests so far. ``places`` counts the recorded messages."""

    def __init__(self) -> None:
        self.places = 0
        self._marks: dict[bytes, list[int]] = {}
        self._passing: set[bytes] = set()
        self._last: dict[str, Any] = {}
        self._last_line = 0

    def add(self, message: dict[str, Any]) -> None:
        """Note that a message was recorded, from a request or from another event."""
        self._marks.setdefault(_mark(message), []).append(self.places)
        self.places += 1

    def take(self, line: int, request: dict[str, Any]) -> NewInRequest | None:
        """The news of a request; None if its messages were not logged."""
        messages = messages_of(request)
        if messages is None:
            return None
        lasting = _without_passing(messages)
        passing = {_mark(message) for message in messages[len(lasting) :]}
        marks = [_mark(message) for message in lasting]
        seen: dict[bytes, int] = {}
        known: list[int | None] = []
        for mark in marks:
            nth = seen[mark] = seen.get(mark, -1) + 1
            places = self._marks.get(mark, [])
            known.append(places[nth] if nth < len(places) else None)
        last = max((n for n, place in enumerate(known) if place is not None), default=-1)
        # All messages after the last known one are new. An unknown one before it was rewritten by
        # a compaction, unless the request before had it as a passing text.
        new = [
            _without_marks(message)
            for n, message in enumerate(lasting)
            if known[n] is None and (n > last or marks[n] in self._passing)
        ]
        present = {place for place in known if place is not None}
        missing = frozenset(range(self.places)) - present
        rest = self.rest(line, request)
        self._passing = passing
        return NewInRequest(new, missing, rest)

    def rest(self, line: int, request: dict[str, Any]) -> dict[str, Any]:
        """The request, with references to the one before it in place of repetitions."""
        rest: dict[str, Any] = {}
        for key, value in request.items():
            before = self._last.get(key)
            if before == value and isinstance(value, dict | list):
                rest[key] = {"same_as_line": self._last_line}
            elif isinstance(value, list) and isinstance(before, list):
                same = _shared(before, value)
                rest[key] = {"same_as_line": self._last_line, "first": same, "then": value[same:]}
            else:
                rest[key] = value
        self._last, self._last_line = request, line
        return rest


def messages_of(request: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The system prompt and the messages of a provider's request; None without a list of them."""
    key = next((key for key in _LISTS if isinstance(request.get(key), list)), None)
    if key is None:
        return None
    system = request.get("system", request.get("instructions"))
    first = [{"role": "system", "content": system}] if system else []
    return [*first, *(one for one in request[key] if item_facts_or_none(one) is not None)]


def _mark(message: dict[str, Any]) -> bytes:
    facts = read_facts(message)
    identity: object = [list(facts.results), list(facts.calls)]
    if facts.kind == "system":
        # A prompt is built again for each request, with the time of day and the like.
        identity = "system"
    elif not facts.results and not facts.calls:
        identity = _text(message.get("content")) or _without_marks(message)
    return blake2b(encode([facts.role, identity]), digest_size=12).digest()


def _text(content: object) -> str:
    if isinstance(content, str):
        return content.strip()
    texts = [object_or_empty(block).get("text") for block in list_or_empty(content)]
    return "\n".join(text for text in texts if isinstance(text, str)).strip()


def _without_marks(value: Any) -> Any:
    """The same value without the marks up to which the provider caches."""
    if isinstance(value, dict):
        items = value.items()
        return {key: _without_marks(inner) for key, inner in items if key != "cache_control"}
    return [_without_marks(inner) for inner in value] if isinstance(value, list) else value


def _without_passing(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without the reminders after the last of them."""
    end = len(messages)
    while end and messages[end - 1].get("role") == "user" and _is_reminder(messages[end - 1]):
        end -= 1
    if end == 0:
        return messages
    last = dict(messages[end - 1])
    content = last.get("content")
    if isinstance(content, list):
        last["content"] = _own_blocks(content)
    elif isinstance(content, str):
        last["content"] = _own_text(content)
    return [*messages[: end - 1], last]


def _is_reminder(message: dict[str, Any]) -> bool:
    return _text(message.get("content")).startswith(_REMINDER)


def _own_blocks(blocks: list[Any]) -> list[Any]:
    end = len(blocks)
    while end > 1 and _text(blocks[end - 1 : end]).startswith(_REMINDER):
        end -= 1
    last = blocks[end - 1] if end else None
    if not isinstance(last, dict) or last.get("type") != "tool_result":
        return blocks[:end]
    content = last.get("content")
    if isinstance(content, str):
        last = {**last, "content": _own_text(content)}
    elif isinstance(content, list) and content:
        last = {**last, "content": _own_blocks(content)}
    return [*blocks[: end - 1], last]


def _own_text(text: str) -> str:
    before, found, _ = text.partition(f"\n\n{_REMINDER}")
    return before if found and text.rstrip().endswith("</system-reminder>") else text


def _shared(before: list[Any], now: list[Any]) -> int:
    count = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            break
        count += 1
    return count
