"""Answers of the model, put together from their lines, and tool results that were cleared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from eventctx.importers.source.items import (
    CallEnded,
    Item,
    MessageItem,
    ModelCall,
    Raw,
    ResultsCleared,
)
from eventctx.importers.source.lines import (
    count,
    list_or_empty,
    object_or_empty,
    text_or_none,
    without,
)
from eventctx.importers.source.spill_file import SpillFile
from eventctx.importers.source.values import decode, encode
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


INSTEAD: Final = "[Old tool result content cleared]"
"""Claude Code sends this in place of a result."""

_CLEARS_RESULTS: Final = "clear_tool_uses"


class ResultPlaces:
    """The places of all results; a message with more than one result is on disk.

    A ``microcompact_boundary`` names the calls whose results it cleared. The provider's own
    clearing (``context_management``) only counts them: they are the oldest ones. The program sends
    the results on with a short text in place of their contents; ``content-replacement`` names it.
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._cleared: dict[str, str] = {}
        self._spilled: dict[int, int] = {}
        self._spill = SpillFile()

    def close(self) -> None:
        """Give the space of the messages back."""
        self._spill.close()

    def add(self, place: int, message: dict[str, Any]) -> None:
        """Take the message at ``place``."""
        blocks = list_or_empty(message.get("content"))
        ids = [one.get("tool_use_id") for one in map(object_or_empty, blocks) if _is_result(one)]
        self._places.update((one, place) for one in ids if isinstance(one, str))
        if ids and len(blocks) > 1:
            self._spilled[place] = self._spill.put(encode(message))

    def steps(
        self, line: int, time: int | None, how: str, sent: Mapping[str, str], tokens: int = 0
    ) -> Iterator[ResultsCleared]:
        """The step that sends other texts for results, as far as the conversation has them.

        A step that says its size is one, whatever it cleared: a file may begin after the results.
        """
        found = self.clear(sent)
        if found or (sent and tokens):
            places = tuple(sorted(found))
            messages = tuple([found[place] for place in places])
            yield ResultsCleared(line, time, how, places, messages, tokens or None)

    def clear(self, sent: Mapping[str, str]) -> dict[int, dict[str, Any]]:
        """The messages with the results of these calls, by place, as they are sent now.

        ``sent`` has the text for each call that is sent in place of its result.
        """
        fresh = {
            one: text
            for one, text in sent.items()
            if one in self._places and one not in self._cleared
        }
        self._cleared.update(fresh)
        return {self._places[one]: self._without(self._places[one], one) for one in fresh}

    def oldest(self, number: int) -> list[str]:
        """The calls of the first results."""
        return list(self._places)[:number]

    def _without(self, place: int, call: str) -> dict[str, Any]:
        if place not in self._spilled:
            block = {"type": "tool_result", "tool_use_id": call, "content": self._cleared[call]}
            return {"role": "user", "content": [block]}
        message: dict[str, Any] = decode(self._spill.get(self._spilled[place]))
        for block in map(object_or_empty, message["content"]):
            if _is_result(block) and (instead := self._cleared.get(str(block.get("tool_use_id")))):
                block["content"] = instead
        return message


def cleared_by_provider(message: dict[str, Any]) -> int:
    """The number of results that the provider cleared in the request of this answer."""
    edits = object_or_empty(message.get("context_management")).get("applied_edits")
    found = [
        count(one.get("cleared_tool_uses"))
        for one in map(object_or_empty, list_or_empty(edits))
        if str(one.get("type")).startswith(_CLEARS_RESULTS)
    ]
    return max(found, default=0)


def _is_result(block: object) -> bool:
    return object_or_empty(block).get("type") == "tool_result"
