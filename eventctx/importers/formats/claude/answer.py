"""Answers of the model, put together from their lines, and what they say of their request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from eventctx.importers.formats.claude.cleared import ClearedPlaces
from eventctx.importers.source.items import (
    CallEnded,
    Item,
    MessageItem,
    ModelCall,
    Raw,
    ResultsCleared,
    ThinkingCleared,
)
from eventctx.importers.source.lines import (
    count,
    list_or_empty,
    object_or_empty,
    text_or_none,
    without,
)
from eventctx.importers.source.values import encode
from eventctx.log.usage import ANTHROPIC, read_usage

_STILL_OPEN: Final = frozenset((None, "tool_use", "pause_turn"))


class AnswerLines:
    """An assistant message that is being put together from its lines.

    It is complete when one of these follows: a line of another message id, a person's message, an
    interruption, a compaction, or the end of a turn. It is also complete when its last line has a
    final stop reason and visible text. A result proves nothing: the first of two parallel calls
    may be answered before the second is written.
    """

    def __init__(
        self,
        line: int,
        time: int | None,
        message: dict[str, Any],
        request: str | None = None,
        data: bytes | None = None,
    ) -> None:
        """``request`` is the id of the sent request that it answers, if the line names it.

        ``data`` is the message's encoding, if it was made. ``copied`` is set for a copy of an
        answer whose call was counted before.
        """
        self.line = line
        self.request = request
        self.time = time
        self.message = message
        self.id = message.get("id")
        self.copied = False
        self.rest = without(message, "content")
        self._first_output = _output_of(message)
        self._data = data
        self.held: list[Item] = []

    def join(self, line: int, time: int | None, message: dict[str, Any]) -> Iterable[Item]:
        """Add another line's blocks; the values that its other keys replace become ``Raw``."""
        self._data = None
        rest = without(message, "content")
        replaced, self.rest = self.rest, rest
        merged = self.message
        merged["content"] = _blocks(merged.get("content")) + _blocks(message.get("content"))
        merged.update(rest)
        self.time = time if self.time is None else max(self.time, time or 0)
        return () if rest == replaced else (Raw(line, "assistant.replaced", encode(replaced)),)

    def count_again(self, message: dict[str, Any]) -> None:
        """Take the usage of a line that was written again, if it counts more output."""
        if _output_of(message) > _output_of(self.message):
            self.message["usage"] = message["usage"]
            self._data = None

    @property
    def complete(self) -> bool:
        """Whether the lines so far prove that no other follows."""
        if text_or_none(self.message.get("stop_reason")) in _STILL_OPEN:
            return False
        blocks = _blocks(self.message.get("content"))
        last = blocks[-1] if blocks else None
        text = last.get("text") if isinstance(last, dict) else None
        return isinstance(text, str) and bool(text.strip())

    def items(self) -> Iterator[Item]:
        """The call, its answer, and the items that were held back."""
        message, line, time = self.message, self.line, self.time
        if self.copied:
            yield MessageItem(line, time, message, data=self._data)
            yield from self.held
            return
        yield ModelCall(
            line,
            None,
            model=text_or_none(message.get("model")),
            provider="anthropic",
            usage=read_usage(message.get("usage"), ANTHROPIC),
            finish_reason=text_or_none(message.get("stop_reason")),
            # A line with a stop reason, or one whose count is above that of the first line, was
            # written after the provider's final count.
            output_exact=message.get("stop_reason") is not None
            or _output_of(message) > self._first_output,
            response_id=text_or_none(self.id),
            sent=self.request,
        )
        yield MessageItem(line, time, message, data=self._data)
        yield CallEnded(line, time)
        yield from self.held


def _output_of(message: dict[str, Any]) -> int:
    return count(object_or_empty(message.get("usage")).get("output_tokens"))


def _blocks(content: object) -> list[Any]:
    if isinstance(content, list):
        return content
    return [] if content is None else [{"type": "text", "text": content}]


class ProviderEdits:
    """The provider's edits of the requests, by what their answers say."""

    def __init__(self, places: ClearedPlaces) -> None:
        self._places = places
        self._tokens: dict[str, int] = {}

    def items(self, line: int, message: dict[str, Any]) -> Iterator[Item]:
        """The steps that came before the request of this answer."""
        edits = object_or_empty(message.get("context_management")).get("applied_edits")
        known = {
            kind: edit
            for edit in map(object_or_empty, list_or_empty(edits))
            for kind in ("clear_thinking", "clear_tool_uses")
            if str(edit.get("type")).startswith(kind)
        }
        if not known:
            return  # most answers by far
        usage = read_usage(message.get("usage"), ANTHROPIC)
        tokens = {kind: self._fresh_tokens(kind, edit) for kind, edit in known.items()}
        # The count of the prompt is that after the edits.
        before = (
            None if usage is None or usage.prompt is None else usage.prompt + sum(tokens.values())
        )
        if edit := known.get("clear_thinking"):
            places = self._places.clear_thinking(count(edit.get("cleared_thinking_turns")))
            if places:
                yield ThinkingCleared(line, None, "clear_thinking", places, before)
            before = None if before is None else before - tokens["clear_thinking"]
        if edit := known.get("clear_tool_uses"):
            found = self._places.clear_oldest(count(edit.get("cleared_tool_uses")))
            if found.places:
                yield ResultsCleared(line, None, "clear_tool_uses", *found, before, inferred=True)

    def _fresh_tokens(self, kind: str, edit: dict[str, Any]) -> int:
        """The tokens that were cleared for the first time."""
        cleared = count(edit.get("cleared_input_tokens"))
        fresh = max(0, cleared - self._tokens.get(kind, 0))
        self._tokens[kind] = max(cleared, self._tokens.get(kind, 0))
        return fresh
