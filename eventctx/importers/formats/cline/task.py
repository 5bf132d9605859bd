"""A task of Cline or Roo Code: its rows, and what was left out of its requests.

Both programs write all of a task's files anew at every step. What changes in a row later, such as
Roo's mark that a summary replaces it, is not in the items of that row, but in one part that may
change; a row that Roo puts between older ones has no number of its own. So a second import finds
the same items.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from eventctx.importers.formats.cline.screen import (
    ShownRequest,
    ShownTask,
    read_shown,
    requests_of,
    time_of,
)
from eventctx.importers.source.companions import EDITS, SCREEN
from eventctx.importers.source.items import (
    CallEnded,
    CompactionItem,
    Ended,
    Item,
    MessageItem,
    ModelCall,
    Raw,
    ResultsCleared,
    Session,
    TurnBegan,
    Waiting,
    Warned,
)
from eventctx.importers.source.lines import (
    list_or_empty,
    nanoseconds,
    not_understood,
    object_or_empty,
    text_or_none,
    without,
)
from eventctx.importers.source.naming import session_name
from eventctx.importers.source.values import encode
from eventctx.messages.facts_reader import read_facts

MARKS: Final = ("condenseParent", "truncationParent")
"""Keys of a row that Roo Code adds later: what replaces it in requests."""

_SENT: Final = ("role", "content", "reasoning_content")
_SPOKEN: Final = re.compile(r"<(?:task|feedback|answer|user_message)>")


class Task:
    """The rows of a task. ``place`` is that of a row's message among all messages."""

    def __init__(self, name: str, rows: list[Any], beside: dict[str, Any]) -> None:
        self.name = name
        self.rows = rows
        self.about = object_or_empty(beside.get("history_item.json"))
        self.shown: ShownTask = read_shown(beside.get(SCREEN))
        self.requests = requests_of(self.shown, rows)
        self.edits = _read_edits(beside.get(EDITS))
        self.models = list_or_empty(
            object_or_empty(beside.get("task_metadata.json")).get("model_usage")
        )
        self.markers = {
            str(row["truncationId"]): index
            for index, row in enumerate(rows)
            if isinstance(row, dict) and "truncationId" in row
        }
        self.summary = -1
        self.compactions = 0
        self.standing: tuple[int, ...] = ()
        self.places: dict[int, int] = {}
        self.gone: tuple[int, int] | None = None
        self.cut: set[str] = set()
        self.edited = 0
        self.calls = False

    def items(self, ended: Ended) -> Iterator[Item]:
        """The items of the rows. The last prompt waits: a task that is resumed writes it anew."""
        parent = text_or_none(self.about.get("parentTaskId"))
        began = next((time for row in self.rows if (time := row_time(row)) is not None), None)
        if began is None and self.shown.requests:
            began = _nanoseconds(self.shown.requests[0].began)
        yield Session(
            0, began, session_name(self.name), parent=session_name(parent) if parent else None
        )
        number = 0
        marks: dict[str, Any] = {}
        for index, row in enumerate(self.rows):
            if not isinstance(row, dict):
                number += 1
                yield from not_understood(number, "untyped", encode(row), "a row that is no object")
                continue
            changes = {key: row[key] for key in MARKS if key in row}
            marks.update({str(index): changes} if changes else {})
            if row.get("isTruncationMarker") is True:
                yield Raw(0, "truncation", encode(row), volatile=True)
                continue
            if row.get("isSummary") is True and row.get("role") in ("user", "assistant"):
                yield from self._condensed(number, row)
                self.summary, self.standing = index, (self.compactions,)
                self.compactions += 1
                continue
            number += 1
            last = index == len(self.rows) - 1 and row.get("role") == "user"
            if last and index and not ended():
                yield Waiting(number, "a task that is resumed may write its last prompt anew")
                break
            yield from self._row(number, index, without(row, *MARKS))
        if marks:
            yield Raw(0, "marks", encode(marks), volatile=True)

    def _row(self, line: int, index: int, row: dict[str, Any]) -> Iterator[Item]:
        if row.get("role") not in ("user", "assistant") or not isinstance(
            row.get("content"), str | list
        ):
            known = row.get("type") == "reasoning"
            kind = text_or_none(row.get("type")) or "untyped"
            yield Raw(line, kind, encode(row), known)
            if not known:
                yield Warned(line, "a row without role and content")
            return
        message = _sent_of(row)
        yield Raw(line, f"{row['role']}.envelope", encode(without(row, *_SENT)))
        if row["role"] == "assistant":
            yield from self._answer(line, index, row, message)
        else:
            yield from self._prompt(line, index, row, message)
        self.places[index] = len(self.places)

    def _prompt(
        self, line: int, index: int, row: dict[str, Any], message: dict[str, Any]
    ) -> Iterator[Item]:
        request = self.requests.get(index + 1)
        time = row_time(row) or (_nanoseconds(request.began) if request else None)
        spoken = not self.places or _speaks(message["content"])
        if spoken:
            yield TurnBegan(line, time)
        result = bool(self.places) and not spoken and not self.calls
        of_program = not spoken and not result
        yield MessageItem(line, time, message, by_harness=of_program, observation=result)

    def _answer(
        self, line: int, index: int, row: dict[str, Any], message: dict[str, Any]
    ) -> Iterator[Item]:
        request = self.requests.get(index)
        answered = request.answered if request is not None else 0
        time = row_time(row) or _nanoseconds(answered)
        yield from self._left_out(line, index, time, request)
        model, told = object_or_empty(row.get("modelInfo")), self._model_at(request)
        shown = (request.model, request.provider) if request is not None else (None, None)
        yield ModelCall(
            line,
            _nanoseconds(request.began) if request is not None else None,
            model=text_or_none(model.get("modelId")) or shown[0] or told[0],
            provider=text_or_none(model.get("providerId")) or shown[1] or told[1],
            usage=request.usage if request is not None else None,
            finish_reason=request.failed if request is not None else None,
            response_id=text_or_none(row.get("id")),
        )
        self.calls = read_facts(message).calls != ()
        yield MessageItem(line, time, message)
        yield CallEnded(line, time)

    def _model_at(self, request: ShownRequest | None) -> tuple[str | None, str | None]:
        """The model that was in use at the time of a request."""
        found: dict[str, Any] = {}
        for one in map(object_or_empty, self.models):
            if not found or request is None or time_of(one) <= request.began:
                found = one
        return text_or_none(found.get("model_id")), text_or_none(found.get("model_provider_id"))

    # -- what leaves the context -----------------------------------------------------------------

    def _condensed(self, line: int, row: dict[str, Any]) -> Iterator[Item]:
        """A summary of Roo's: it stands for the rows that are marked with it, or for all before."""
        mark = row.get("condenseId")
        marked = [
            self.places[index]
            for index, other in enumerate(self.rows)
            if index in self.places and mark and _has(other, "condenseParent", mark)
        ]
        message = _sent_of(row)
        yield Raw(line, "summary.envelope", encode(without(row, *_SENT, *MARKS)))
        # Releases that marked no rows left only summaries and what came after them in the file.
        forgotten = frozenset(marked) if 0 < len(marked) < len(self.places) else None
        tokens = self.shown.condensed.get(mark, 0) if isinstance(mark, str) else 0
        yield CompactionItem(
            line,
            row_time(row),
            "condense",
            (message,),
            forgotten=forgotten,
            before=len(self.places) if forgotten is not None else None,
            tokens_before=tokens or None,
        )

    def _left_out(
        self, line: int, index: int, time: int | None, request: ShownRequest | None
    ) -> Iterator[Item]:
        """What the next request leaves out and the one before it did not."""
        if request is not None and request.gone is not None and request.gone != self.gone:
            first, last = self.gone = request.gone
            gone = {self.places[one] for one in range(first, last + 1) if one in self.places}
            if gone:
                yield CompactionItem(line, time, "truncation", (), forgotten=frozenset(gone))
                self.compactions += 1
        yield from self._truncated(line, index, time, request)
        changed = _changed(self.rows, self.edits, self.edited, request)
        self.edited = request.began if request is not None else self.edited
        kept = {one: message for one, message in changed.items() if one in self.places}
        if self.gone is not None:
            kept = {k: m for k, m in kept.items() if not self.gone[0] <= k <= self.gone[1]}
        if kept:
            places = tuple([self.places[one] for one in kept])
            yield ResultsCleared(line, time, "file reads", places, tuple(kept.values()))

    def _truncated(
        self, line: int, index: int, time: int | None, request: ShownRequest | None
    ) -> Iterator[Item]:
        """Truncations of Roo's before this answer; without the screen, before the last one."""
        last = not any(_has(row, "role", "assistant") for row in self.rows[index + 1 :])
        stamp = _milliseconds(time)
        for mark, place in self.markers.items():
            # What stands before a summary is not sent, nor is the row that says what was hidden.
            if mark in self.cut or place < self.summary:
                continue
            told = next((one for one in self.shown.truncations if one.mark == mark), None)
            if not (last if told is None or not stamp else told.time <= stamp):
                continue
            self.cut.add(mark)
            gone = {
                self.places[one]
                for one, other in enumerate(self.rows)
                if one in self.places and _has(other, "truncationParent", mark)
            }
            if gone:
                yield CompactionItem(
                    line,
                    time,
                    "truncation",
                    (_sent_of(self.rows[place]),),
                    forgotten=frozenset(gone),
                    before=max(gone) + 1,
                    standing=self.standing,
                    tokens_before=(told.tokens if told is not None else 0) or None,
                )
                self.standing = (*self.standing, self.compactions)
                self.compactions += 1


def _has(row: Any, key: str, value: object) -> bool:
    return isinstance(row, dict) and row.get(key) == value


def _speaks(content: str | list[Any]) -> bool:
    """Whether a prompt holds a person's words: a task, or what was answered to a question."""
    if isinstance(content, str):
        return _SPOKEN.search(content) is not None
    for block in map(object_or_empty, content):
        text = block.get("text") if block.get("type") == "text" else block.get("content")
        if isinstance(text, list):
            text = "\n".join([str(object_or_empty(one).get("text") or "") for one in text])
        if isinstance(text, str) and _SPOKEN.search(text):
            return True
    return False


def _sent_of(row: dict[str, Any]) -> dict[str, Any]:
    """The part of a row that is sent."""
    return {key: value for key, value in row.items() if key in _SENT}


def row_time(row: Any) -> int | None:
    """The time of a row, in nanoseconds."""
    return _nanoseconds(time_of(object_or_empty(row)))


def _nanoseconds(milliseconds: int) -> int | None:
    return nanoseconds(milliseconds / 1000)


def _milliseconds(time: int | None) -> int:
    return 0 if time is None else time // 1_000_000


# -- texts that Cline shortens in requests --------------------------------------------------------

_Edit = tuple[int, int, int, str]
"""A message's place, a block in it, the time of the request before the change, and the new text."""


def _read_edits(value: object) -> list[_Edit]:
    found: list[_Edit] = []
    for place, blocks in _pairs(value):
        for block, updates in _pairs(list_or_empty(blocks)[1:2] and list_or_empty(blocks)[1]):
            for update in map(list_or_empty, list_or_empty(updates)):
                text = list_or_empty(update[2])[:1] if len(update) > 2 else []
                if type(update[:1] and update[0]) is int and isinstance((*text, None)[0], str):
                    found.append((place, block, update[0], text[0]))
    return found


def _pairs(value: object) -> Iterator[tuple[int, Any]]:
    for pair in map(list_or_empty, list_or_empty(value)):
        if len(pair) == 2 and type(pair[0]) is int:
            yield pair[0], pair[1]


def _changed(
    rows: list[Any], edits: list[_Edit], since: int, request: ShownRequest | None
) -> dict[int, dict[str, Any]]:
    """The messages as a request has them, whose texts were changed since the one before it."""
    if request is None:
        return {}
    due = [one for one in edits if one[2] < request.began]
    places = {place for place, _, time, _ in due if time >= since and place < len(rows)}
    found: dict[int, dict[str, Any]] = {}
    for place in sorted(places):
        row = object_or_empty(rows[place])
        blocks = list(list_or_empty(row.get("content")))
        for _, block, _, text in [one for one in due if one[0] == place]:
            if block < len(blocks) and isinstance(blocks[block], dict):
                blocks[block] = _with_text(blocks[block], text)
        found[place] = {**_sent_of(row), "content": blocks}
    return found


def _with_text(block: dict[str, Any], text: str) -> dict[str, Any]:
    if block.get("type") == "tool_result":
        rest = list_or_empty(block.get("content"))[1:]
        return {**block, "content": [{"type": "text", "text": text}, *rest]}
    return {**block, "text": text}
