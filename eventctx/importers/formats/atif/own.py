"""Steps of an ATIF trajectory that eventctx exported: what they say under its name is exact.

Each step has the shapes of its messages (``queries/atif/verbatim.py``), so they come back as they
were added, with their numbers, turns and requests. A step that somebody changed in such a way that
its shapes do not fit is read as any other trajectory's.

The numbers of messages are those of the exported session; ``_places`` maps them to places here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from eventctx.importers.formats.atif.steps import (
    links_of,
    messages_of,
    rest_of,
    results_of,
)
from eventctx.importers.source.items import (
    Branched,
    CallEnded,
    CompactionItem,
    Item,
    Linked,
    MessageItem,
    ModelCall,
    TurnBegan,
    Undone,
    Warned,
)
from eventctx.importers.source.lines import (
    list_or_empty,
    nanoseconds,
    object_or_empty,
    text_or_none,
)
from eventctx.log.plan import TAKEN_BACK, numbers_in
from eventctx.log.usage import ATIF, read_usage, with_prompt
from eventctx.messages.facts_reader import read_facts
from eventctx.queries.atif.verbatim import FORMAT, NAME, restore


class _Message(NamedTuple):
    """A message of a step, and what the step says about it."""

    message: dict[str, Any]
    about: dict[str, Any]
    failed: bool = False

    @property
    def number(self) -> int | None:
        found = self.about.get("number")
        return found if isinstance(found, int) and found >= 0 else None


def marks_of(value: object) -> dict[str, Any]:
    """What a document, step or reference says under our name."""
    return object_or_empty(object_or_empty(object_or_empty(value).get("extra")).get(NAME))


def is_ours(document: object) -> bool:
    """Whether a trajectory says in a form that is known here what ATIF cannot say."""
    return marks_of(document).get("format") == FORMAT


class OwnSteps:
    """Reads the steps of a trajectory and of those in which it goes on."""

    def __init__(self) -> None:
        self.line = 0
        self._turn: Any = None
        self._previous: dict[str, Any] = {}
        self._places: dict[int, int] = {}
        self._next = 0
        self._gone: set[int] = set()
        self._compacting: dict[str, Any] | None = None
        self._left: list[_Message] = []
        self._set: dict[str, Any] | None = None

    def read(self, row: Any) -> Iterator[Item]:
        """The items of the next step."""
        row = object_or_empty(row)
        own = marks_of(row)
        if self._compacting is not None and not row.get("is_copied_context"):
            yield from self.end_compaction()
        self.line += 1
        yield rest_of(self.line, row)
        if self._compacting is not None:
            self._left += self._messages(row, own) or []
        elif self._set is not None:
            yield from self._of_set(row, own)
        elif "compaction" in own:
            self._compacting, self._left = row, []
        elif "set" in own:
            self._set, self._left = row, []
            yield from self._end_set()
        else:
            yield from self._step(row, own)
        yield from self._links(row)
        self._previous = row

    def _step(self, row: dict[str, Any], own: dict[str, Any]) -> Iterator[Item]:
        line, time = self.line, nanoseconds(row.get("timestamp"))
        turn = own.get("turn")
        if turn is not None and turn != self._turn and not row.get("is_copied_context"):
            self._turn = turn
            yield TurnBegan(line, time)
        called = isinstance(own.get("request"), dict)
        if called:
            yield self._call(row, own)
        found = self._messages(row, own)
        if found is None:
            yield Warned(line, "the step was changed after its export; it is read by its own words")
            found = _by_its_words(row)
        answer = True
        for one in found:
            if called and answer and read_facts(one.message).kind != "assistant":
                yield CallEnded(line, None)
                answer = False
            yield self._added(one, time)
        if called and answer:
            yield CallEnded(line, None)

    def _added(self, one: _Message, time: int | None) -> MessageItem:
        if one.number is not None:
            self._places[one.number] = self._next
        self._next += 1
        origin = one.about.get("origin")
        return MessageItem(
            self.line,
            time,
            one.message,
            one.failed,
            by_harness=origin == "harness",
            observation=origin == "observation",
        )

    def _messages(self, row: dict[str, Any], own: dict[str, Any]) -> list[_Message] | None:
        """The messages of a step; None where it does not hold them as it says."""
        failed = {
            one.get("source_call_id")
            for one in results_of(row)
            if object_or_empty(one.get("extra")).get("is_error") is True
        }
        found = []
        for one in map(object_or_empty, list_or_empty(own.get("messages"))):
            shape, pieces = object_or_empty(one.get("shape")), list_or_empty(one.get("from"))
            message = restore(shape, pieces, row, self._previous)
            if not message:
                return None
            ids = read_facts(message).results if failed and row["source"] == "agent" else ()
            found.append(_Message(message, one, bool(ids) and failed.issuperset(ids)))
        return found

    def _call(self, row: dict[str, Any], own: dict[str, Any]) -> ModelCall:
        request = own["request"]
        metrics = row.get("metrics", own.get("metrics"))
        exact = object_or_empty(object_or_empty(metrics).get("extra")).get("output_exact")
        return ModelCall(
            self.line,
            None,
            text_or_none(row.get("model_name", own.get("model_name"))),
            text_or_none(request.get("provider")),
            with_prompt(read_usage(metrics, ATIF)),
            text_or_none(request.get("finish_reason")),
            _number_or_none(request.get("budget")),
            text_or_none(request.get("response_id")),
            exact is not False,
        )

    def _links(self, row: dict[str, Any]) -> Iterator[Item]:
        for ref, call in links_of(row):
            name = text_or_none(ref.get("session_id"))
            if name:
                yield Linked(self.line, nanoseconds(row.get("timestamp")), name, call)

    # -- a context that was replaced ---------------------------------------------------------------

    def end_compaction(self) -> Iterator[Item]:
        """The compaction whose copies are all read, if there is one."""
        row, self._compacting = self._compacting, None
        if row is None:
            return
        told = object_or_empty(marks_of(row).get("compaction"))
        time = nanoseconds(row.get("timestamp"))
        stays = {self._places[one.number] for one in self._left if one.number in self._places}
        gone = frozenset(range(self._next)) - stays
        if told.get("strategy") == TAKEN_BACK:
            yield Undone(self.line, time, gone)
            return
        messages, parts = self._put_in()
        requested = text_or_none(told.get("requested_by")) or ""
        asked = [object_or_empty(one) for one in list_or_empty(told.get("asked"))]
        yield CompactionItem(
            self.line,
            time,
            requested.partition(":")[2] or text_or_none(told.get("trigger")),
            messages,
            forgotten=gone,
            before=self._next,
            parts=parts,
            shortened=tuple(
                [
                    (self._places[one.number], one.message)
                    for one in self._left
                    if one.number in self._places and one.about.get("as") not in _AS_IT_WAS
                ]
            ),
            tokens_before=_number_or_none(told.get("tokens_recorded")),
            took=_number_or_none(told.get("duration")),
            asked=self._asked(asked[0]) if asked else None,
        )

    def _asked(self, told: dict[str, Any]) -> ModelCall:
        usage = with_prompt(read_usage(told.get("metrics"), ATIF))
        return ModelCall(self.line, None, text_or_none(told.get("model_name")), usage=usage)

    def _put_in(self) -> tuple[tuple[dict[str, Any], ...], tuple[Any, ...]]:
        """What a compaction put in: the messages, and for each its place and what it replaces."""
        messages: list[dict[str, Any]] = []
        parts: list[tuple[int | None, tuple[int, ...]]] = []
        before = self._next
        for one in reversed(self._left):
            if one.number is not None:
                before = self._places.get(one.number, before)
            elif one.about.get("as") not in _MADE_UP:
                runs = [(run[0], run[1]) for run in list_or_empty(one.about.get("stands_for"))]
                places = [self._places[at] for at in numbers_in(runs) if at in self._places]
                messages.append(one.message)
                parts.append((before, tuple(sorted(places))))
        return tuple(reversed(messages)), tuple(reversed(parts))

    def _of_set(self, row: dict[str, Any], own: dict[str, Any]) -> Iterator[Item]:
        self._left += self._messages(row, own) or []
        yield from self._end_set()

    def _end_set(self) -> Iterator[Item]:
        """The list that took the place of the conversation, once all of it is read."""
        row = self._set
        if row is None or len(self._left) < marks_of(row)["set"]["messages"]:
            return
        order: list[int | dict[str, Any]] = []
        harness: set[int] = set()
        for one in self._left:
            if one.number is not None and one.number in self._places:
                order.append(self._places[one.number])
                continue
            if one.number is not None:
                self._places[one.number] = self._next
            self._next += 1
            if one.about.get("origin") is not None:
                harness.add(len(order))
            order.append(one.message)
        self._set = None
        time = nanoseconds(row.get("timestamp"))
        yield Branched(self.line, time, tuple(order), frozenset(harness))


_AS_IT_WAS = ("whole", "partial")
"""Copies of messages that stay; what a view leaves out of a partial one, it does so again."""

_MADE_UP = ("synthetic", "opening")
"""Copies of what a view makes up; it does so again."""


def _by_its_words(row: dict[str, Any]) -> list[_Message]:
    own, results = messages_of(row)
    answers = [_Message(message, {}, failed) for message, failed in results]
    return answers if own is None else [_Message(own, {}), *answers]


def _number_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
